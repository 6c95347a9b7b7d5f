package sshchan

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
)

// A marker is a folder on the host, one for each attempt, named by it. The script that keeps it needs a POSIX sh and the usual utilities, and sync.
//
// What it promises of one attempt:
//
//   - Starting is one mkdir of that folder, made durable before the command runs; so is making it impossible. Whichever comes first wins, so that an answer "never started" holds
//     also for a start that is still on its way: it finds the name taken and does not run.
//   - A command starts only once all of its standard input has arrived.
//   - It goes on when the connection is lost: it has a session of its own (setsid, or else ignores HUP), and writes into files.
//   - How it ended is durable before it is told. The result is made of the same files, whether it is told at once or asked for later.
//   - A folder that was let go of by age stays in a list of names, and is never taken for one that did not start.
//
// "Never started" is believed only if the folder's state has been there since before the attempt: it is the one that the attempt was sent to, or older than the attempt by the host's
// own clock. A folder that was wiped since (a restart of a host that keeps it in memory) tells nothing. One name has to be one host: behind a name that leads to several,
// another one could answer.
//
// The folder has to belong to the account and be closed to all others; it is looked at from inside, so that no link and no renaming by another account can stand in for it.

//go:embed marker.sh
var markerScript string

var script = func() string { // without what is for the reader
	var b strings.Builder
	for line := range strings.Lines(markerScript) {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "#") {
			b.WriteString(strings.TrimLeft(line, "\t"))
		}
	}
	return b.String()
}()

const (
	block        = 64 << 10 // as in marker.sh
	maxNoise     = 64 << 10 // what a host's profile may print before the answer
	maxStores    = 4096
	clockSlack   = time.Minute // between this clock's word on an attempt and the host's on its folder
	verifyTotal  = time.Minute
	markerDefect = "the marker on the host gave an answer that cannot be read"
)

// invocation is the command line that has the host do something about a marker. Its answer begins with word.
func (p *plan) invocation(op, word string, more ...string) (string, error) {
	blocks := (p.limits.Answer + block - 1) / block
	words := append([]string{script, op, p.attempt, p.command.Marker.Folder, word, strconv.FormatInt(blocks, 10)}, more...)
	var b strings.Builder
	b.WriteString(`exec sh -c 'eval "$1"' singlepass`)
	for _, w := range words {
		quoted, err := effect.Quote(w)
		if err != nil {
			return "", err
		}
		b.WriteString(" " + quoted)
	}
	if b.Len() > maxLine {
		return "", fmt.Errorf("the command line has %d bytes with the marker, and hosts take %d: pass what is long on standard input", b.Len(), maxLine)
	}
	return b.String(), nil
}

// told is what the marker said.
type told struct {
	word           string // ready, finished, running, …
	status         int
	stdout, stderr int64 // sizes; of finished
	store          string
	age            time.Duration // of the store, by the host's clock; 0 where it cannot be told
	out, err       []byte        // of finished: as much of the output as was sent
}

// ask has the host do something about the marker, and reads its answer. Without one, err says why; r says whether the request was sent.
func (p *plan) ask(ctx context.Context, l *link, op string, stdin []byte, more ...string) (t told, r ran, err error) {
	word := newWord()
	line, err := p.invocation(op, word, more...)
	if err != nil {
		return told{}, ran{}, err
	}
	r = l.run(ctx, line, stdin, p.limits.Answer+block+maxNoise)
	if !r.sent {
		return told{}, r, errors.New(r.why)
	}
	t, ok := read(r, word)
	switch {
	case ok:
		return t, r, nil
	case !r.exited:
		return told{}, r, errors.New(r.why)
	case r.incomplete != "":
		return told{}, r, errors.New(r.incomplete + " before the marker's answer was whole")
	}
	return told{}, r, fmt.Errorf("%s: exit status %d, and it wrote %q", markerDefect, r.status, clean(string(r.stderr.bytes)))
}

func newWord() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// read finds the answer in what the host wrote. It is not one unless all of it is there.
func read(r ran, word string) (told, bool) {
	head, body, ok := after(r.stdout.bytes, word+" ")
	if !ok {
		return told{}, false
	}
	fields := strings.Fields(head)
	if len(fields) == 0 {
		return told{}, false
	}
	t := told{word: fields[0]}
	fields = fields[1:]
	if t.word == "finished" {
		if len(fields) < 3 {
			return told{}, false
		}
		var errs [3]error
		t.status, errs[0] = strconv.Atoi(fields[0])
		t.stdout, errs[1] = strconv.ParseInt(fields[1], 10, 64)
		t.stderr, errs[2] = strconv.ParseInt(fields[2], 10, 64)
		if errors.Join(errs[:]...) != nil || t.status < 0 || t.status > 255 || t.stdout < 0 || t.stderr < 0 {
			return told{}, false
		}
		fields = fields[3:]
		_, written, ok := after(r.stderr.bytes, word)
		if !ok {
			return told{}, false
		}
		t.out, t.err = body, written
	}
	if t.word == "unfit" {
		t.store = strings.Join(fields, " ")
		return t, true
	}
	if len(fields) > 0 {
		t.store = fields[0]
	}
	if len(fields) == 3 {
		now, err1 := strconv.ParseInt(fields[1], 10, 48)
		born, err2 := strconv.ParseInt(fields[2], 10, 48)
		if err1 == nil && err2 == nil && now > born {
			t.age = time.Duration(now-born) * time.Second
		}
	}
	return t, true
}

// after returns the rest of the line that begins with prefix, and what follows the line.
func after(b []byte, prefix string) (line string, rest []byte, ok bool) {
	for start := 0; start < len(b) && start <= maxNoise; {
		end := bytes.IndexByte(b[start:], '\n')
		if end < 0 {
			return "", nil, false
		}
		if text, found := strings.CutPrefix(string(b[start:start+end]), prefix); found {
			return text, b[start+end+1:], true
		}
		start += end + 1
	}
	return "", nil, false
}

// finished makes the outcome of what the marker says of an end. It reports false when less of the output came than should have: then it is asked again.
func (p *plan) finished(t told) (channel.Outcome, bool) {
	most := p.limits.Answer
	if int64(len(t.out)) < min(t.stdout, most) || int64(len(t.err)) < min(t.stderr, most) {
		return channel.Outcome{}, false
	}
	return p.outcome(answer{
		status: t.status, stdout: t.out[:min(t.stdout, most)], stderr: t.err[:min(t.stderr, most)], stdoutBytes: t.stdout, stderrBytes: t.stderr,
	}), true
}

// unfit says why a folder cannot keep markers.
func (p *plan) unfit(why string) string {
	folder := p.command.Marker.Folder
	if folder == "" {
		folder = "~/.singlepass"
	}
	on := "the marker's folder " + folder + " on " + address(p.command.Host)
	switch why {
	case "mode":
		return on + " is open to other accounts: chmod 700 " + folder
	case "owner":
		return on + " belongs to another account than " + p.command.Host.User + ": name another folder in the contract"
	case "sync":
		return on + " cannot be made durable, because the host has no working sync"
	case "write":
		return on + " cannot be written"
	}
	return on + " cannot be made or entered: make it for " + p.command.Host.User + " with mode 0700, or name another one in the contract"
}

// doMarked carries out an attempt that has a marker.
func (c *Channel) doMarked(ctx context.Context, l *link, p *plan) channel.Outcome {
	ready, _, err := p.ask(ctx, l, "prepare", nil)
	switch {
	case err != nil:
		return notSent("the marker could not be prepared, so the command was not sent: " + err.Error())
	case ready.word == "unfit":
		return notSent(p.unfit(ready.store))
	case ready.word != "ready" || ready.store == "":
		return notSent(markerDefect + ", so the command was not sent")
	}
	c.remember(p.attempt, ready.store)
	t, r, err := p.ask(ctx, l, "start", p.command.Stdin, strconv.Itoa(len(p.command.Stdin)), strconv.Itoa(p.command.Marker.Keep), p.line)
	switch {
	case err != nil && !r.sent:
		return notSent(err.Error())
	case err != nil:
		return unknown(err.Error())
	}
	switch t.word {
	case "finished":
		if o, ok := p.finished(t); ok {
			return o
		}
		return unknown("the command ended, and the connection was lost before all of its output came; the host keeps it")
	case "short":
		return notSent("its standard input did not arrive whole, so the host did not start it")
	case "unfit":
		return notSent(p.unfit(t.store))
	case "again":
		return unknown("the host has a marker of this attempt already")
	case "lost":
		return unknown("the command was started, and the process that watches it on the host has ended without recording how it ended")
	}
	return unknown(markerDefect)
}

// remember notes the folder's state to which an attempt is sent.
func (c *Channel) remember(attempt, store string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.stores[attempt]; !ok {
		c.order = append(c.order, attempt)
	}
	c.stores[attempt] = store
	if len(c.order) > maxStores {
		delete(c.stores, c.order[0])
		c.order = c.order[1:]
	}
}

// wasThere reports whether the folder's state has been there since before the attempt.
func (c *Channel) wasThere(attempt string, t told, dispatched time.Time) bool {
	c.mu.Lock()
	known, ok := c.stores[attempt]
	c.mu.Unlock()
	if ok {
		return known == t.store
	}
	return !dispatched.IsZero() && t.age > 0 && t.age >= c.cfg.Now().Sub(dispatched)+clockSlack
}

// Verify asks the marker what became of an attempt.
func (c *Channel) Verify(ctx context.Context, q channel.Query) channel.Finding {
	cannot := func(format string, args ...any) channel.Finding {
		return channel.Finding{Word: channel.CannotTell, Reason: fmt.Sprintf(format, args...)}
	}
	p, err := newPlan(q.Effect, q.Secret, q.Limits, q.Permitted)
	if err != nil {
		return cannot("the host cannot be asked: %v", err)
	}
	if p.command.Marker == nil {
		return cannot("the command was sent without a marker, so the host knows nothing of it")
	}
	p.attempt = attemptName(q.ExecutionID, q.Attempt)
	p.limits.Total = min(p.limits.Total, verifyTotal)
	ctx, cancel := context.WithTimeoutCause(ctx, p.limits.Total, fmt.Errorf("it took longer than the limit of %s", p.limits.Total))
	defer cancel()
	s := p.scrubber()
	defer s.Wipe()
	l, err := c.connect(ctx, p)
	if err != nil {
		return cannot("the host could not be asked: %s", quoted(s, err.Error()))
	}
	defer l.close()
	t, _, err := p.ask(ctx, l, "ask", nil)
	if err != nil {
		return cannot("the host did not say: %s", quoted(s, err.Error()))
	}
	f := c.finding(p, t, q.Dispatched)
	f.Evidence = evidence(p, t)
	return f
}

func (c *Channel) finding(p *plan, t told, dispatched time.Time) channel.Finding {
	cannot := func(reason string) channel.Finding {
		return channel.Finding{Word: channel.CannotTell, Reason: reason}
	}
	switch t.word {
	case "finished":
		o, ok := p.finished(t)
		if !ok {
			return cannot("the command has ended, and its output did not come whole")
		}
		f := channel.Finding{Word: channel.Done, Status: o.Status, Result: o.Result, Answer: o.Answer, Reason: fmt.Sprintf("the marker on the host says that it ended with exit status %d", t.status)}
		if o.Verdict != channel.Success {
			f.Word = channel.Failed
		}
		if o.Reason != "" {
			f.Reason += "; " + o.Reason
		}
		return f
	case "running":
		return channel.Finding{Word: channel.Running, Reason: "the command is still running on the host"}
	case "never":
		if !c.wasThere(p.attempt, t, dispatched) {
			return cannot("the marker's folder on the host is not known to be the one of that time: it may have been emptied since, and what it does not hold proves nothing")
		}
		return channel.Finding{Word: channel.NotDone, Certain: true, Reason: "the command was never started on the host, and can no longer be"}
	case "gone":
		return cannot("the marker's folder is not on the host (any more)")
	case "cleaned":
		return cannot("the command was started, and its marker was let go of by age")
	case "lost":
		return cannot("the command was started, and the host has no word on its end: it is not running, or was stopped from outside, perhaps by a restart of the host")
	case "unfit":
		return cannot(p.unfit(t.store))
	}
	return cannot(markerDefect)
}

// evidence is one line about what was asked and answered.
func evidence(p *plan, t told) string {
	line := fmt.Sprintf("marker %s on %s: %s", p.attempt, p.command.Host.Address(), clean(t.word))
	if t.word == "finished" {
		line += fmt.Sprintf(", exit status %d, %d bytes of stdout, %d of stderr", t.status, t.stdout, t.stderr)
	}
	return line
}
