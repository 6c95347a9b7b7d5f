// Package conformance is the suite that every channel must pass: at each boundary of an attempt, each fault, for either class. It holds what the channel says of
// the attempt against what the target really saw, which the target writes down itself.
//
// What it proves of a channel: never more than one effect per Do; not_sent only if no application byte arrived; success and target_error only if the
// target sent all that decides them; unknown and not_sent come without a result and with a reason; the secret is in nothing that is told. What it makes of each case is a table in the
// channel's testdata, so that a change in what a lost answer means is seen in review. Write it with `go test . -run TestName -args -conformance.update`.
//
// The fifth fault, a daemon that is killed, is not one that a channel can tell of. This package's own test kills daemons, each with an attempt of every class at every boundary of every
// channel, opens their journals again, and has the agent repeat its calls. Another one holds what the agent is told, by class, when the target fails.
//
// A harness needs a real target, which fails at the place that the case says and whose ledger outlives it. Nothing sleeps: a hang ends when the harness reports that the target is
// silent and the channel waits.
package conformance

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"

	"singlepass.dev/daemon/channel"
)

var update = flag.Bool("conformance.update", false, "write the conformance tables instead of comparing with them")

// Boundary is the place at which a target fails.
type Boundary string

// The boundaries, in the order in which an attempt passes them.
const (
	BeforeConnect Boundary = "before connect" // there is no connection that application bytes could go over
	AfterConnect  Boundary = "after connect"  // there is, handshakes included; no application byte was read
	MidRequest    Boundary = "mid-request"    // a part of the request was read
	AfterRequest  Boundary = "after request"  // all of it was read, and the target acted
	MidAnswer     Boundary = "mid-answer"     // a part of the answer was sent, and it decides nothing
	AfterVerdict  Boundary = "after verdict"  // all that decides was sent, such as the status and header of HTTP; the answer is not whole
	AfterAnswer   Boundary = "after answer"   // all of it was sent
)

// Fault is what the target does there.
type Fault string

// The faults.
const (
	Close Fault = "closes"  // it closes the connection
	Reset Fault = "resets"  // it aborts it
	Hang  Fault = "hangs"   // it is silent, and the attempt's limit ends it
	Kill  Fault = "is gone" // its process is killed
)

// Case is one cell of the table.
type Case struct {
	Boundary   Boundary
	Fault      Fault
	SideEffect bool
}

// Canary is the secret that every Request of a harness carries and that its target's answer shows.
const Canary = "canary-not-a-secret-3b1d55"

// Ledger is what the target saw, written down by itself before it went on.
type Ledger struct {
	Connections int
	Bytes       int64 // application bytes that it read
	Requests    int   // whole requests
	Effects     int   // times that it acted
	Decided     bool  // it sent all that decides the outcome
	Resumes     int   // times that it was asked to go on with an answer that had broken off; no such request can make it act
}

// Harness makes targets.
type Harness interface {
	// Start returns a target that will follow c, or nil if c cannot be on this channel. It may succeed with later requests: a second one must show in the ledger.
	Start(t *testing.T, c Case) Target
}

// Target is a real target of one case.
type Target interface {
	Channel() channel.Channel
	Request() channel.Request // of the case's class, with Canary as its secret, asking for something that the target answers with success
	// Hanging is closed when the target is silent and the channel has taken all that it said and waits for more. It is used if the fault is Hang.
	Hanging() <-chan struct{}
	// Ledger is called once, after Do. It returns when nothing can be added to it any more.
	Ledger() Ledger
}

// Taking is a Harness whose targets answer that they took the request and are not done: wherever others say success, the channel then says taken, and nothing else changes.
type Taking interface {
	Harness
	Taking()
}

// Resuming is a Harness whose targets can be asked to go on with an answer that broke off: where they were and answered, the channel says so.
type Resuming interface {
	Harness
	Resuming()
}

var errLimit = errors.New("the test's limit")

// Run holds the channel of h to every case, and the table of what it says to the file golden.
func Run(t *testing.T, h Harness, golden string) {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "the target\tat\tclass\trequests\teffects\tverdict\ttold")
	whole := true
	for _, b := range []Boundary{BeforeConnect, AfterConnect, MidRequest, AfterRequest, MidAnswer, AfterVerdict, AfterAnswer} {
		for _, f := range []Fault{Close, Reset, Hang, Kill} {
			for _, sideEffect := range []bool{true, false} {
				c := Case{b, f, sideEffect}
				class := map[bool]string{true: "side effect", false: "read_only"}[sideEffect]
				whole = t.Run(fmt.Sprintf("%s %s %s", class, f, b), func(t *testing.T) {
					target := h.Start(t, c)
					if target == nil {
						fmt.Fprintf(w, "%s\t%s\t%s\t-\t-\tcannot be\t\n", f, b, class)
						return
					}
					o, l := attempt(t, target, c)
					_, taking := h.(Taking)
					_, resuming := h.(Resuming)
					judge(t, c, o, l, taking, resuming)
					verdict, told := string(o.Verdict), address.ReplaceAllString(o.Reason, "ADDRESS")
					if b == AfterConnect && !sideEffect && f != Hang && l.Bytes == 0 { // a pool may notice before the request has the connection, or after
						verdict, told = "unknown or not_sent", ""
					}
					if resuming && f == Kill && b == MidAnswer { // who takes the next connection of a process that is killed is a matter of chance
						told = again.ReplaceAllString(told, "$1")
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", f, b, class, l.Requests, l.Effects, verdict, told)
				}) && whole
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	got := trailing.ReplaceAll(table.Bytes(), nil)
	t.Logf("\n%s", got)
	if !whole { // also when -run chose some cases only
		return
	}
	if *update {
		if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	old, now := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	for i := range max(len(old), len(now)) {
		if i >= len(old) || i >= len(now) || old[i] != now[i] {
			t.Errorf("line %d of %s is another: compare with the table above; if it should be so, run with -conformance.update", i+1, golden)
		}
	}
}

var (
	address  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	again    = regexp.MustCompile(`(could not be taken up again).*$`)
	trailing = regexp.MustCompile(`(?m) +$`)
)

func attempt(t *testing.T, target Target, c Case) (channel.Outcome, Ledger) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if c.Fault == Hang && c.Boundary != AfterAnswer { // there the channel must not wait at all
		go func() {
			select {
			case <-target.Hanging():
				cancel(errLimit)
			case <-ctx.Done():
			}
		}()
	}
	o := target.Channel().Do(ctx, target.Request())
	return o, target.Ledger()
}

func judge(t *testing.T, c Case, o channel.Outcome, l Ledger, taking, resuming bool) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf(format+"\n%+v\n%+v", append(args, o, l)...)
	}
	// What matters whatever the case.
	if l.Effects > 1 || l.Requests > 1 || l.Connections > 1 {
		fail("one Do reached the target more than once")
	}
	switch o.Verdict {
	case channel.NotSent:
		if l.Bytes != 0 {
			fail("not_sent, but %d bytes arrived", l.Bytes)
		}
	case channel.Taken:
		if !l.Decided || l.Effects != 1 || !taking || o.Kept == nil {
			fail("taken, but the target never said so, or nothing is kept of what it said")
		}
	case channel.Success, channel.TargetError:
		if !l.Decided || l.Effects != 1 {
			fail("%s, but the target never said so", o.Verdict)
		}
	case channel.Unknown:
	default:
		fail("%q is no verdict", o.Verdict)
	}
	if l.Resumes > 0 && !resuming {
		fail("the target was asked to go on, and says of nothing that it can")
	}
	answered := o.Verdict == channel.Success || o.Verdict == channel.TargetError
	if answered != (o.Result != nil) {
		fail("a result belongs to an answer and to nothing else")
	}
	if !answered && o.Reason == "" {
		fail("no reason is given")
	}
	if told := fmt.Sprintf("%s %s %s", o.Reason, o.Result, o.Answer); strings.Contains(told, Canary[:10]) {
		fail("the secret is told")
	}

	// What the case asks for: that the harness did its part, and that the channel says no less than it can know.
	effects, want := 0, []channel.Verdict{channel.Unknown}
	switch c.Boundary {
	case BeforeConnect:
		want = []channel.Verdict{channel.NotSent}
	case AfterConnect:
		want = []channel.Verdict{channel.Unknown, channel.NotSent} // not_sent if it is proven
	case MidRequest:
		if l.Bytes == 0 {
			fail("the harness read nothing of the request")
		}
	case AfterRequest, MidAnswer:
		effects = 1
		if c.Boundary == MidAnswer && resuming && (c.Fault == Close || c.Fault == Reset) {
			want = []channel.Verdict{channel.Success} // it was there to be asked
			if l.Resumes != 1 {
				fail("the target was asked to go on %d times", l.Resumes)
			}
		}
	case AfterVerdict, AfterAnswer:
		effects, want = 1, []channel.Verdict{channel.Success}
		if taking {
			want = []channel.Verdict{channel.Taken}
		}
	}
	if l.Effects != effects {
		fail("the harness acted %d times, not %d", l.Effects, effects)
	}
	for _, v := range want {
		if o.Verdict == v {
			return
		}
	}
	fail("the verdict is %s, not one of %v", o.Verdict, want)
}
