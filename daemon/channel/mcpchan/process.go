package mcpchan

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/scrub"
)

// inherited are the variables of the daemon's own environment that a program is given.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}

const (
	farewell    = 2 * time.Second // how long a program may take to end once its input is closed, and again after SIGTERM
	leastSecret = 8               // bytes of a variable's value that is looked for in answers: "true" would be found everywhere
	noiseLimit  = 200             // lines of a program's that are logged in a minute
	lineShown   = 2 << 10         // bytes of one that are
)

// process is a program that runs, as a link.
type process struct {
	s       *server
	cmd     *exec.Cmd
	in      *os.File
	writing chan struct{} // held by whoever writes
	replies chan struct{} // one for each answer of ours that is on its way
	scrub   []*scrub.Scrubber
	began   time.Time
	gone    chan struct{} // closed when the process ended and all that it said is read

	mu      sync.Mutex
	hand    handshake
	waiting map[uint64]*awaited
	tokens  map[string]*pending
	reason  string // why it is no longer used; "" while it is
	idle    chan struct{}
	noise   noise
}

// awaited is a request that was written, or is about to be.
type awaited struct {
	pending *pending
	answer  chan *message // capacity 1
}

// start starts the program of an upstream.
func start(s *server) (*process, error) {
	d := s.def
	variables, release, err := s.c.cfg.Environment(d)
	if err != nil {
		return nil, err
	}
	defer release()
	cmd := exec.Command(d.Command[0], d.Command[1:]...) // #nosec G204 -- the command that the operator accepted
	cmd.Dir = d.Dir
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Env = append(cmd.Env, d.Env...)
	p := &process{
		s: s, cmd: cmd, writing: make(chan struct{}, 1), replies: make(chan struct{}, maxAsked), gone: make(chan struct{}), waiting: map[uint64]*awaited{}, tokens: map[string]*pending{}, idle: make(chan struct{}),
		began: s.c.cfg.Now(),
	}
	for _, v := range variables {
		cmd.Env = append(cmd.Env, v.Name+"="+string(v.Value))
		if len(v.Value) >= leastSecret {
			p.scrub = append(p.scrub, scrub.New(v.Value))
		}
	}
	// Our own pipes: their writes can be given a deadline, and say how many bytes were taken.
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a pipe: %w", err), childIn.Close(), in.Close())
	}
	noisy, childErr, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a pipe: %w", err), childIn.Close(), in.Close(), out.Close(), childOut.Close())
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, p.in = childIn, childOut, childErr, in
	ended := make(chan error, 1)
	err = spawn(cmd, ended)
	_, _, _ = childIn.Close(), childOut.Close(), childErr.Close()
	clear(cmd.Env) // nothing needs it any more
	if err != nil {
		_, _, _ = in.Close(), out.Close(), noisy.Close()
		return nil, fmt.Errorf("starting %s: %w", d.Command[0], err)
	}
	s.c.cfg.Logger.Info("an upstream was started", "upstream", d.Name, "process", cmd.Process.Pid)
	var reading sync.WaitGroup
	reading.Go(func() { p.read(out) })
	reading.Go(func() { p.listen(noisy) })
	s.c.ending.Go(func() {
		err := <-ended
		killGroup(cmd) // what it started holds its pipes open, and its secrets
		reading.Wait()
		words := "it ended"
		if err != nil {
			words = "it ended: " + err.Error()
		}
		p.stop(words)
		_, _, _ = p.in.Close(), out.Close(), noisy.Close()
		s.ended(s.c.cfg.Now().Sub(p.began))
		s.c.cfg.Logger.Info("an upstream ended", "upstream", d.Name, "process", cmd.Process.Pid, "how", words)
		close(p.gone)
	})
	return p, nil
}

// stop ends every wait: what was written has no answer any more.
func (p *process) stop(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason == "" {
		p.reason = reason
	}
	for id, a := range p.waiting {
		close(a.answer)
		delete(p.waiting, id)
	}
	p.restLocked()
}

// restLocked tells whoever waits for it that nothing is under way.
func (p *process) restLocked() {
	if len(p.waiting) == 0 && p.reason != "" {
		select {
		case <-p.idle:
		default:
			close(p.idle)
		}
	}
}

func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason != ""
}

func (p *process) revision() string { return p.agreed().revision }

func (p *process) agreed() handshake {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hand
}

func (p *process) set(h handshake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hand = h
}

// call writes a request and waits for its answer.
func (p *process) call(ctx context.Context, q request, r *channel.Request) reply {
	id := p.s.c.nextID()
	a := &awaited{pending: q.pending, answer: make(chan *message, 1)}
	p.mu.Lock()
	if p.reason != "" {
		p.mu.Unlock()
		return unsent("the program is gone: %s", p.reason)
	}
	p.waiting[id] = a
	token := ""
	if q.pending != nil {
		token = progressToken(*r)
		p.tokens[token] = q.pending
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, id)
		delete(p.tokens, token)
		p.restLocked()
	}()
	n, err := p.write(ctx, append(q.wire(id), '\n'))
	switch {
	case n == 0 && err != nil:
		return unsent("the program took no byte of the request: %s", p.words(ctx, err))
	case err != nil:
		// The rest can never follow, and nothing else may come after a half message.
		p.stop("a request was written in part")
		killGroup(p.cmd)
		return p.reply(lost("the request was partly written, and %s", p.words(ctx, err)), a)
	}
	select {
	case m, ok := <-a.answer:
		if !ok {
			p.mu.Lock()
			reason := p.reason
			p.mu.Unlock()
			return p.reply(lost("the request was written, and the program gave no answer: %s", reason), a)
		}
		return p.reply(reply{message: m}, a)
	case <-ctx.Done():
		return p.reply(lost("the request was written, and no answer came: %s", why(ctx)), a)
	}
}

func (p *process) reply(r reply, a *awaited) reply {
	r.asked = a.pending.asked()
	return r
}

func (p *process) words(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return why(ctx)
	}
	if errors.Is(err, os.ErrClosed) {
		return "its input is closed"
	}
	return "its input cannot be written to"
}

// write writes a whole line and returns how many bytes the pipe took.
func (p *process) write(ctx context.Context, line []byte) (int, error) {
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-p.gone:
		return 0, os.ErrClosed
	}
	if ctx.Err() != nil || p.dead() {
		return 0, os.ErrClosed
	}
	_ = p.in.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = p.in.SetWriteDeadline(time.Unix(1, 0)) })
	n, err := p.in.Write(line)
	stop()
	return n, err
}

func (p *process) notify(ctx context.Context, method string, _ *channel.Request) error {
	_, err := p.write(ctx, append(append([]byte(`{"jsonrpc":"2.0","method":`), quote(nil, method)...), "}\n"...))
	return err
}

// read takes what the program says, until it ends.
func (p *process) read(out io.Reader) {
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := readLine(lines, messageLimit)
		if errors.Is(err, errTooLong) {
			p.stop(fmt.Sprintf("it said a message longer than %d MiB", messageLimit>>20))
			killGroup(p.cmd)
			_, _ = io.Copy(io.Discard, out)
			return
		}
		if len(bytes.TrimSpace(line)) > 0 {
			p.take(line)
		}
		if err != nil {
			return
		}
	}
}

var errTooLong = errors.New("the line is too long")

// readLine returns a line of its own bytes.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, errTooLong
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// take handles one message.
func (p *process) take(line []byte) {
	m, err := readMessage(line)
	if err != nil {
		p.say(line) // programs that write their log to standard output
		return
	}
	switch {
	case m.isResponse():
		p.mu.Lock()
		defer p.mu.Unlock()
		for id, a := range p.waiting {
			if m.answers(id) {
				delete(p.waiting, id)
				a.answer <- &m
				return
			}
		}
		p.s.c.cfg.Logger.Debug("an upstream answered something that nobody waits for", "upstream", p.s.def.Name)
	case m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null":
		if m.Method != "ping" {
			p.mu.Lock()
			for _, a := range p.waiting {
				a.pending.refuse(m.Method)
			}
			p.mu.Unlock()
			if p.logged() <= noiseLimit {
				p.s.c.cfg.Logger.Warn("an upstream asked for something that is refused", "upstream", p.s.def.Name, "method", printable(m.Method, 80))
			}
		}
		// Not from here: a program that does not read would keep us from reading. One that asks without end gets no answer to the rest.
		select {
		case p.replies <- struct{}{}:
		default:
			return
		}
		go func() {
			defer func() { <-p.replies }()
			ctx, cancel := context.WithTimeout(context.Background(), farewell)
			defer cancel()
			if n, err := p.write(ctx, append(replyTo(&m), '\n')); err != nil && n > 0 {
				p.stop("an answer of ours was written in part")
				killGroup(p.cmd)
			}
		}()
	case p.s.changed(m.Method):
	case m.Method == "notifications/progress", m.Method == "notifications/message":
		for _, w := range p.concerned(&m) {
			w.take(&m)
		}
	}
}

// concerned are the requests that a notification is about: progress names one, a log message none, so that it goes to all that are under way.
func (p *process) concerned(m *message) []*pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	clean := m.Params
	for _, s := range p.scrub {
		clean, _ = s.Bytes(clean)
	}
	m.Params = clean
	if m.Method == "notifications/message" {
		var all []*pending
		for _, w := range p.tokens {
			all = append(all, w)
		}
		return all
	}
	var in struct {
		Token string `json:"progressToken"`
	}
	if json.Unmarshal(m.Params, &in) != nil || p.tokens[in.Token] == nil {
		return nil
	}
	return []*pending{p.tokens[in.Token]}
}

// noise bounds what a program can write into our log.
type noise struct {
	since time.Time
	lines int
}

// listen takes what the program writes to standard error.
func (p *process) listen(noisy io.Reader) {
	lines := bufio.NewReaderSize(noisy, 4<<10)
	for {
		line, err := readLine(lines, 64<<10)
		if errors.Is(err, errTooLong) {
			_, err = lines.Discard(lines.Buffered())
		}
		if len(bytes.TrimSpace(line)) > 0 {
			p.say(line)
		}
		if err != nil {
			return
		}
	}
}

// logged counts the lines that the program causes in our log, by the minute.
func (p *process) logged() int {
	now := p.s.c.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.noise.since) >= time.Minute {
		p.noise = noise{since: now}
	}
	p.noise.lines++
	return p.noise.lines
}

// say logs a line of the program's own.
func (p *process) say(line []byte) {
	n := p.logged()
	if n > noiseLimit {
		return
	}
	for _, s := range p.scrub {
		line, _ = s.Bytes(line)
	}
	p.s.c.cfg.Logger.Info("an upstream says", "upstream", p.s.def.Name, "text", printable(string(bytes.TrimSpace(line)), lineShown), "last_for_now", n == noiseLimit)
}

func (p *process) scrubbers(channel.Request) ([]*scrub.Scrubber, func()) { return p.scrub, func() {} }

func (p *process) describe(_, size int, scrubbed bool, asked []string) json.RawMessage {
	h := p.agreed()
	return described{Transport: "stdio", Revision: h.revision, Server: h.server, Process: p.cmd.Process.Pid, Bytes: size, Scrubbed: scrubbed, Refused: asked}.encode()
}

// retire takes no new request, and ends the program once nothing is under way in it: its input is closed, and what does not end then is ended.
func (p *process) retire() {
	p.mu.Lock()
	if p.reason == "" {
		p.reason = "it is being stopped"
	}
	p.restLocked()
	p.mu.Unlock()
	select {
	case <-p.idle:
	case <-p.gone:
		return
	}
	_ = p.in.Close()
	for _, end := range []func(){func() { endGroup(p.cmd) }, func() { killGroup(p.cmd) }} {
		t := time.NewTimer(farewell)
		select {
		case <-p.gone:
			t.Stop()
			return
		case <-t.C:
		}
		end()
	}
	<-p.gone
}

func (p *process) kill() {
	select {
	case <-p.gone: // its number may be another's by now
		return
	default:
	}
	p.mu.Lock()
	if p.reason == "" {
		p.reason = "it was stopped"
	}
	p.mu.Unlock()
	killGroup(p.cmd)
	<-p.gone
}
