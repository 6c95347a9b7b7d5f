package conformance_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel/conformance"
	"singlepass.dev/daemon/execution"
)

// refuse is the fault of a target that does not listen.
const refuse conformance.Fault = "refuses"

// loss is what became of one action whose first attempt the target failed.
type loss struct {
	class             execution.Class
	requests, effects int
	told, again       call.Answer // of the call, and of its repeat
}

// What a channel tells of an attempt, as the suite has it, is one half; this is the other: what the engine makes of it for each class, which the agent is told at once, and what its repeat
// gets. The target fails once at the boundary and then does what it is asked. A silent one is the same as one that closes when the attempt's limit ends it, and a dead one as either.
func TestConformanceOfWhatALostAnswerMeansToTheAgent(t *testing.T) {
	channels := []struct {
		name   string
		target func(*stage) *home
	}{{"HTTP", overHTTP}, {"SSH", overSSH}, {"MCP over HTTP", overMCP}}
	cases := []conformance.Case{{Boundary: conformance.BeforeConnect, Fault: refuse}}
	for _, b := range []conformance.Boundary{conformance.AfterConnect, conformance.MidRequest, conformance.AfterRequest, conformance.MidAnswer} {
		cases = append(cases, conformance.Case{Boundary: b, Fault: conformance.Close}, conformance.Case{Boundary: b, Fault: conformance.Reset})
	}
	results := make([][]loss, len(channels)*len(cases))
	whole := t.Run("all", func(t *testing.T) {
		for i := range results {
			to, c := channels[i/len(cases)], cases[i%len(cases)]
			t.Run(fmt.Sprintf("%s %s %s", to.name, c.Fault, c.Boundary), func(t *testing.T) {
				t.Parallel()
				results[i] = lose(t, c, to.target)
			})
		}
	})
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "channel\tthe target\tat\tclass\trequests\teffects\tthe agent is told\tits repeat gets")
	for i, rows := range results {
		for _, r := range rows {
			c := cases[i%len(cases)]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", channels[i/len(cases)].name, c.Fault, c.Boundary, r.class, r)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.Bytes())
	if whole { // not if -run chose some cases only
		golden(t, "testdata/target_fails.txt", trailing.ReplaceAll(table.Bytes(), nil))
	}
}

// String is the row's end. A read may be made more than once.
func (l loss) String() string {
	if l.class == execution.ReadOnly {
		return fmt.Sprintf("any\tany\t%s\t%s", said(l.told), said(l.again))
	}
	return fmt.Sprintf("%d\t%d\t%s\t%s", l.requests, l.effects, said(l.told), said(l.again))
}

func lose(t *testing.T, c conformance.Case, target func(*stage) *home) []loss {
	s := newStage(t, c.Boundary)
	s.fault = c.Fault
	h := target(s)
	h.furnish(t)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	var mu sync.Mutex
	dialled := map[string]int{}
	d, err := open(h, func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		dialled[address]++
		n := dialled[address]
		mu.Unlock()
		if n > h.Earlier && s.stops(conformance.BeforeConnect) {
			address = nobody.Addr().String() // where nothing listens
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.end(); err != nil {
			t.Error(err)
		}
	}()
	if err := d.unlock(); err != nil {
		t.Fatal(err)
	}
	rows := make([]loss, len(h.Calls))
	for i, tool := range h.Calls {
		s.armed.Store(true)
		l := loss{class: execution.Class(tool), told: d.call(tool)}
		if s.armed.Load() {
			t.Errorf("%s: the target did not fail", tool)
		}
		l.again = d.call(tool)
		l.requests, l.effects = s.seen(l.class)
		l.judge(t, c.Boundary)
		rows[i] = l
	}
	return rows
}

// judge is what holds whatever the channel.
func (l loss) judge(t *testing.T, b conformance.Boundary) {
	t.Helper()
	if strings.Contains(string(l.told.Result)+string(l.again.Result), canary) {
		t.Errorf("%s: the secret is told", l.class)
	}
	if l.class == execution.ReadOnly {
		return
	}
	if l.effects > 1 || l.class != execution.Idempotent && l.requests > 1 {
		t.Errorf("%s: %d requests and %d effects", l.class, l.requests, l.effects)
	}
	if l.again.ExecutionID != l.told.ExecutionID {
		t.Errorf("%s: the repeat is another execution", l.class)
	}
	if said(l.again) == "the result" && l.effects != 1 {
		t.Errorf("%s: a result is told, and there are %d effects", l.class, l.effects)
	}
	if lost := b != conformance.BeforeConnect && l.class == execution.Irreversible; lost && (said(l.told) != "unknown" || said(l.again) != "unknown") {
		t.Errorf("%s: told %s and then %s", l.class, said(l.told), said(l.again))
	}
}
