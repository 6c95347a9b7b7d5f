package conformance_test

import (
	"bufio"
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"

	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel/conformance"
	"singlepass.dev/daemon/execution"
)

const (
	daemonVariable = "CONFORMANCE_DAEMON"
	wireVariable   = "CONFORMANCE_WIRE"
)

func TestMain(m *testing.M) {
	run := func() error { os.Exit(m.Run()); return nil }
	if path := os.Getenv(daemonVariable); path != "" {
		run = func() error { return killable(path) }
	}
	if address := os.Getenv(wireVariable); address != "" {
		run = func() error { return wire(address) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// row is what became of one action.
type row struct {
	class             execution.Class
	requests, effects int
	state             execution.State // as the next daemon finds it
	told              call.Answer
}

// The fifth fault of the conformance suite: not the target fails, the daemon does. It is killed (SIGKILL) with an attempt of each class at the boundary, the journal is opened again, and
// the agent repeats its calls at a target that does all that it is asked now.
func TestConformanceOfADaemonThatIsKilled(t *testing.T) {
	channels := []struct {
		name   string
		target func(*stage) *home
	}{{"HTTP", overHTTP}, {"SSH", overSSH}, {"MCP over HTTP", overMCP}, {"MCP over stdio", overStdio}}
	boundaries := []conformance.Boundary{
		conformance.BeforeConnect, conformance.AfterConnect, conformance.MidRequest, conformance.AfterRequest, conformance.MidAnswer, conformance.AfterAnswer, afterRecord,
	}
	results := make([][]row, len(channels)*len(boundaries))
	whole := t.Run("all", func(t *testing.T) {
		for i, c := range channels {
			for j, b := range boundaries {
				t.Run(c.name+" "+string(b), func(t *testing.T) {
					t.Parallel()
					results[i*len(boundaries)+j] = kill(t, b, c.target)
				})
			}
		}
	})
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "channel\tthe daemon is killed\tclass\trequests\teffects\tstate afterwards\tthe repeated call gets")
	for i, rows := range results {
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", channels[i/len(boundaries)].name, boundaries[i%len(boundaries)], r.class, r)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.Bytes())
	if whole { // not if -run chose some cases only
		golden(t, "testdata/daemon_killed.txt", trailing.ReplaceAll(table.Bytes(), nil))
		short := inShort(t, boundaries, results)
		if doc, err := os.ReadFile("../../../docs/lost-answers.md"); err != nil || !strings.Contains(string(doc), short) {
			t.Errorf("docs/lost-answers.md says otherwise (%v); it should have\n%s", err, short)
		}
	}
}

var trailing = regexp.MustCompile(`(?m) +$`)

// inShort is the table by boundary and class, since the channels agree.
func inShort(t *testing.T, boundaries []conformance.Boundary, results [][]row) string {
	var out strings.Builder
	out.WriteString("| Singlepass is killed |")
	for _, class := range execution.Classes() {
		fmt.Fprintf(&out, " `%s` |", class)
	}
	out.WriteString("\n|---|---|---|---|---|\n")
	for j, b := range boundaries {
		cells := map[execution.Class]string{}
		for i := j; i < len(results); i += len(boundaries) {
			for _, r := range results[i] {
				cell := "the result"
				if r.class != execution.ReadOnly {
					cell = fmt.Sprintf("%s; %s, %s", said(r.told), count(r.requests, "request"), count(r.effects, "effect"))
				}
				if had, ok := cells[r.class]; ok && had != cell {
					t.Errorf("%s, %s: %q on one channel, %q on another", b, r.class, had, cell)
				}
				cells[r.class] = cell
			}
		}
		fmt.Fprintf(&out, "| %s |", b)
		for _, class := range execution.Classes() {
			fmt.Fprintf(&out, " %s |", cells[class])
		}
		out.WriteString("\n")
	}
	return out.String()
}

func count(n int, what string) string {
	switch n {
	case 0:
		return "no " + what
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// String is the row's end. Of a read nothing is waited for: whether its record survives is chance, and it may be made once more.
func (r row) String() string {
	if r.class == execution.ReadOnly {
		return "any\tany\tany\tthe result"
	}
	return fmt.Sprintf("%d\t%d\t%s\t%s", r.requests, r.effects, r.state, said(r.told))
}

func said(a call.Answer) string {
	switch {
	case a.Code != "":
		return "refused: " + string(a.Code)
	case a.State == execution.Unknown:
		return "unknown"
	case a.State != execution.NotDelivered && a.State != execution.Delivered:
		return string(a.State)
	}
	return "the result" // also a recorded one: the daemon may have asked by itself just before
}

// kill has a daemon killed at a boundary, and returns what came of it.
func kill(t *testing.T, b conformance.Boundary, target func(*stage) *home) []row {
	s := newStage(t, b)
	h := target(s)
	h.furnish(t)
	h.Boundary = b
	runAndKill(t, s, h)
	close(s.killed)

	d, err := open(h, new(net.Dialer).DialContext, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.end(); err != nil {
			t.Error(err)
		}
	}()
	states := map[string]execution.State{}
	left, err := d.records.Recent("exe:/usr/bin/agent", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range left {
		now, ok, err := d.Execution(x.ID)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", x.ID, ok, err)
		}
		states[x.Tool] = now.State
	}
	if err := d.unlock(); err != nil {
		t.Fatal(err)
	}
	rows := make([]row, len(h.Calls))
	for i, tool := range h.Calls {
		r := row{class: execution.Class(tool), state: states[tool], told: d.call(tool)}
		r.requests, r.effects = s.seen(r.class)
		judge(t, b, r)
		rows[i] = r
	}
	return rows
}

// furnish gives a home its folder, and what a vault would have.
func (h *home) furnish(t *testing.T) {
	t.Helper()
	if h.Secret == nil {
		h.Secret = []byte(canary)
	}
	h.Dir = t.TempDir()
	if err := os.Chmod(h.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	scalar, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h.MAC, h.Index, h.Seal = make([]byte, 32), make([]byte, 32), scalar.Bytes()
	_, _ = rand.Read(h.MAC)
	_, _ = rand.Read(h.Index)
}

// judge is what holds whatever the channel.
func judge(t *testing.T, b conformance.Boundary, r row) {
	t.Helper()
	if strings.Contains(string(r.told.Result), canary) {
		t.Errorf("%s: the secret is told", r.class)
	}
	if r.class == execution.ReadOnly {
		if said(r.told) != "the result" || r.effects == 0 {
			t.Errorf("a read is not made again: %+v", r)
		}
		return
	}
	if r.effects > 1 {
		t.Errorf("%s: %d effects", r.class, r.effects)
	}
	if r.class != execution.Idempotent && r.requests > 1 {
		t.Errorf("%s: sent %d times to a target that acts each time", r.class, r.requests)
	}
	if got := r.told.State == execution.NotDelivered; got && r.effects != 1 {
		t.Errorf("%s: a result is told, and there are %d effects", r.class, r.effects)
	}
	want := execution.Unknown
	if b == afterRecord {
		want = execution.NotDelivered
		if !r.told.Recorded || r.requests != 1 {
			t.Errorf("%s: the record is not what is told: %+v", r.class, r)
		}
	}
	if r.state != want {
		t.Errorf("%s is %q after the kill, not %s", r.class, r.state, want)
	}
}

// runAndKill starts a daemon, and kills it when all its calls have come to the boundary.
func runAndKill(t *testing.T, s *stage, h *home) {
	t.Helper()
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "home.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), daemonVariable+"="+path)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.reached <- struct{}{}
		}
	}()
	early := false
	for n := 0; n < len(h.Calls) && !early; {
		select {
		case <-s.reached:
			n++
		case <-ended:
			early = true
		}
	}
	_ = cmd.Process.Kill()
	<-ended
	_ = cmd.Wait() // it was killed
	if early {
		close(s.killed)
		t.Fatalf("the daemon ended by itself: %.2000s", complaint.Bytes())
	}
}

var update = flag.Lookup("conformance.update")

// golden holds a table against a file.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if update.Value.String() == "true" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s says otherwise:\n%s\nif it should be so, run with -args -conformance.update", path, want)
	}
}
