package sshchan

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/scrub"
)

// answer is what a command came to: how it ended, and what it wrote. The same bytes make the same result, whether they came while it ran or from the marker later.
type answer struct {
	status                   int
	signal                   string
	stdout, stderr           []byte
	stdoutBytes, stderrBytes int64 // what it wrote, of which stdout and stderr are the beginning
	incomplete               string

	stdoutCut, stderrCut, scrubbed bool
}

// outcome judges an answer and writes it down.
func (p *plan) outcome(a answer) channel.Outcome {
	a.stdoutCut, a.stderrCut = int64(len(a.stdout)) < a.stdoutBytes, int64(len(a.stderr)) < a.stderrBytes
	o := channel.Outcome{Verdict: channel.TargetError, Status: a.status}
	switch {
	case a.signal != "":
		o.Status = 0
	case p.command.Succeeded(a.status):
		o.Verdict = channel.Success
	}
	if err := p.secret.Use(func(secret []byte) error {
		s := scrub.New(secret)
		defer s.Wipe()
		if p.auth.Kind == "ssh-password" && len(secret) < scrub.MinLength {
			o.Reason = "the password is too short to be looked for in the output: choose a longer one"
		}
		a.stdout = a.scrub(s, a.stdout, a.stdoutCut)
		a.stderr = a.scrub(s, a.stderr, a.stderrCut)
		return nil
	}); err != nil { // how it ended is known; the rest cannot be shown, since it cannot be scrubbed
		a.stdout, a.stderr = nil, nil
		o.Reason = "the output is withheld, because the secret was wiped before it could be scrubbed"
	}
	for _, note := range a.notes() {
		if o.Reason != "" {
			o.Reason += "; "
		}
		o.Reason += note
	}
	o.Result = a.result(o.Verdict != channel.Success)
	o.Answer = a.forOperator()
	return o
}

// scrubber looks for the secret in a host's words about why it ends a connection or a session: it can put what it was told into them. It is nil, and finds nothing, where the secret was wiped
// before the connection was made, so that no host was told. The caller wipes it.
func (p *plan) scrubber() (s *scrub.Scrubber) {
	_ = p.secret.Use(func(secret []byte) error { s = scrub.New(secret); return nil })
	return s
}

// quoted is text without the secret.
func quoted(s *scrub.Scrubber, text string) string {
	text, _ = s.String(text)
	return text
}

func (a *answer) scrub(s *scrub.Scrubber, b []byte, cut bool) []byte {
	look := s.Bytes
	if cut || a.incomplete != "" {
		look = s.Cut
	}
	b, hit := look(b)
	a.scrubbed = a.scrubbed || hit
	return b
}

// stream is one of the two outputs as it is told.
type stream struct {
	name   string
	text   string
	base64 bool
	total  int64
	cut    bool
}

func (a *answer) streams() [2]stream {
	one := func(name string, b []byte, total int64, cut bool) stream {
		s := stream{name: name, total: total, cut: cut}
		if s.cut || a.incomplete != "" {
			b = wholeRunes(b)
		}
		if s.base64 = !utf8.Valid(b); s.base64 {
			s.text = base64.StdEncoding.EncodeToString(b)
		} else {
			s.text = string(b)
		}
		return s
	}
	return [2]stream{one("stdout", a.stdout, a.stdoutBytes, a.stdoutCut), one("stderr", a.stderr, a.stderrBytes, a.stderrCut)}
}

func (a *answer) notes() []string {
	var notes []string
	for _, s := range a.streams() {
		if s.cut {
			notes = append(notes, fmt.Sprintf("%s is longer than the limit: it has %d bytes and was cut", s.name, s.total))
		}
	}
	if a.incomplete != "" {
		notes = append(notes, "how it ended is known, but its output is incomplete: "+a.incomplete)
	}
	if a.scrubbed {
		notes = append(notes, "the secret was in the output and was taken out")
	}
	return notes
}

// result is the JSON of an MCP CallToolResult.
func (a *answer) result(isError bool) json.RawMessage {
	streams := a.streams()
	structured := map[string]any{}
	if a.signal == "" {
		structured["exit_status"] = a.status
	} else {
		structured["signal"] = a.signal
	}
	for _, s := range streams {
		structured[s.name] = s.text
		if s.base64 {
			structured[s.name+"_encoding"] = "base64"
		}
		if s.cut {
			structured[s.name+"_cut"], structured[s.name+"_bytes"] = true, s.total
		}
	}
	if a.incomplete != "" {
		structured["incomplete"] = true
	}
	if a.scrubbed {
		structured["scrubbed"] = true
	}
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	b, err := marshal(struct {
		Content    []content      `json:"content"`
		Structured map[string]any `json:"structuredContent"`
		IsError    bool           `json:"isError"`
	}{[]content{{"text", a.text(streams)}}, structured, isError})
	if err != nil {
		return nil // cannot happen: strings, numbers, booleans
	}
	return b
}

// text is for clients that pass only the text on: how it ended, what is odd, an empty line, and then what it wrote.
func (a *answer) text(streams [2]stream) string {
	var t strings.Builder
	t.WriteString(a.ending())
	for _, note := range a.notes() {
		t.WriteString("\nNote: " + note + ".")
	}
	for _, s := range streams {
		if s.base64 {
			t.WriteString("\nNote: " + s.name + " is not text and follows in base64.")
		}
	}
	if streams[0].text != "" {
		t.WriteString("\n\n" + streams[0].text)
	}
	if streams[1].text != "" {
		t.WriteString("\n\nstderr:\n" + streams[1].text)
	}
	return t.String()
}

func (a *answer) ending() string {
	if a.signal != "" {
		return "killed by signal " + a.signal
	}
	return "exit status " + strconv.Itoa(a.status)
}

func (a *answer) forOperator() json.RawMessage {
	streams := a.streams()
	b, err := marshal(struct {
		Ended    string `json:"ended"`
		Stdout   int64  `json:"stdout_bytes"`
		Stderr   int64  `json:"stderr_bytes"`
		Cut      bool   `json:"cut,omitempty"`
		Broken   string `json:"incomplete,omitempty"`
		Scrubbed bool   `json:"scrubbed,omitempty"`
	}{a.ending(), a.stdoutBytes, a.stderrBytes, streams[0].cut || streams[1].cut, a.incomplete, a.scrubbed})
	if err != nil {
		return nil
	}
	return b
}

// marshal is json.Marshal that leaves <, > and & as they are, since this is no HTML.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// wholeRunes leaves out a character that a cut went through, so that the rest is still text.
func wholeRunes(b []byte) []byte {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i]
			}
			break
		}
	}
	return b
}

// clean makes a host's word fit for one line of ours.
func clean(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}
