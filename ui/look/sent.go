package look

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/words"
)

// rowsAtOnce is how many rows of a body are shown before it scrolls by itself.
const rowsAtOnce = 16

// Sent shows exactly what will be, or was, sent, as its channel sends it.
func Sent(e api.Effect) fyne.CanvasObject {
	mono := Style{Mono: true}
	var rows []fyne.CanvasObject
	add := func(o ...fyne.CanvasObject) { rows = append(rows, o...) }
	texts := []string{e.URL, e.Body}
	switch {
	case e.SSH != nil:
		s := e.SSH
		texts = append(texts, s.Command, s.Directory)
		add(Paragraph(Run{"$ ", Style{Mono: true, Color: Muted}}, Run{s.Command, Style{Mono: true, Bold: true}}))
		facts := []Fact{{words.Say("sent.host"), Plain(s.Host, mono)}}
		if s.Jump != "" {
			facts = append(facts, Fact{words.Say("sent.jump"), Plain(s.Jump, mono)})
		}
		if s.Directory != "" {
			facts = append(facts, Fact{words.Say("sent.directory"), Plain(s.Directory, mono)})
		}
		for _, f := range s.Env {
			texts = append(texts, f.Name, f.Value)
			facts = append(facts, Fact{words.Say("sent.variable"), Plain(f.Name+"="+f.Value, mono)})
		}
		for _, k := range s.Keys {
			facts = append(facts, Fact{words.Say("sent.hostkey"), Plain(k, Style{Mono: true, Size: theme.SizeNameCaptionText})})
		}
		add(Facts(facts...))
	case e.MCP != nil:
		m := e.MCP
		texts = append(texts, m.Tool)
		add(Paragraph(Run{m.Tool, Style{Mono: true, Bold: true}}))
		facts := []Fact{{words.Say("sent.upstream"), Body(m.Upstream)}}
		if m.URL != "" {
			facts = append(facts, Fact{words.Say("sent.address"), Plain(m.URL, mono)})
		}
		if len(m.Command) > 0 {
			facts = append(facts, Fact{words.Say("sent.program"), Plain(Quoted(m.Command), mono)})
		}
		add(Facts(facts...))
	default:
		if e.Method != "" || e.URL != "" {
			add(Paragraph(address(e.Method, e.URL)...))
		} else {
			add(Quiet(words.Say("sent.nothing_known", "Channel", e.Channel)))
		}
		var fields []fyne.CanvasObject
		for _, f := range e.Header {
			texts = append(texts, f.Name, f.Value)
			fields = append(fields, Paragraph(append([]Run{{f.Name + ": ", Style{Mono: true, Color: Muted}}}, masked(f.Value)...)...))
		}
		add(Rows(-9, fields...))
	}
	if e.Body != "" || e.BodyB64 != "" {
		add(bodyOf(e))
	}
	if e.Status != nil {
		add(Section(words.Say("sent.status"), asked(*e.Status)))
		texts = append(texts, e.Status.URL, e.Status.Within, e.Status.Body)
		for _, c := range e.Status.Conditions {
			texts = append(texts, c.When)
		}
	}
	out := []fyne.CanvasObject{NewSunken(Rows(-2, rows...))}
	if u, err := url.Parse(host(e)); err == nil && u.Host != "" {
		if warning := Host(u.Host); warning != nil {
			out = append(out, warning)
		}
	}
	if warning := Hidden(texts...); warning != nil {
		out = append(out, warning)
	}
	return Rows(8, out...)
}

// asked is the request by which the target is asked what became of a call, and what its answers mean.
func asked(e api.Effect) fyne.CanvasObject {
	rows := []fyne.CanvasObject{Paragraph(address(e.Method, e.URL)...)}
	for _, f := range e.Header {
		rows = append(rows, Paragraph(append([]Run{{f.Name + ": ", Style{Mono: true, Color: Muted}}}, masked(f.Value)...)...))
	}
	if e.Body != "" {
		rows = append(rows, Plain(e.Body, Style{Mono: true}))
	}
	var facts []Fact
	if e.Within != "" {
		facts = append(facts, Fact{words.Say("sent.within"), Paragraph(address("", e.Within)...)})
	}
	for _, c := range e.Conditions {
		facts = append(facts, Fact{condition(c.Name), Plain(c.When, Style{Mono: true})})
	}
	if len(facts) > 0 {
		rows = append(rows, Facts(facts...))
	}
	return Rows(-6, rows...)
}

// condition says what an answer means for which the condition with this name holds.
func condition(name string) string {
	switch name {
	case "accepted":
		return words.Say("sent.when_accepted")
	case "done":
		return words.Say("sent.when_done")
	case "failed":
		return words.Say("sent.when_failed")
	case "not_done":
		return words.Say("sent.when_not_done")
	case "running":
		return words.Say("sent.when_running")
	}
	return name
}

func host(e api.Effect) string {
	switch {
	case e.SSH != nil:
		return e.SSH.Host
	case e.MCP != nil:
		return e.MCP.URL
	}
	return e.URL
}

// address sets the host of a URL apart from the rest: it is what a reader has to look at.
func address(method, raw string) []Run {
	runs := []Run{}
	if method != "" {
		runs = append(runs, Run{method + " ", Style{Mono: true, Bold: true, Color: Busy}})
	}
	_, rest, found := strings.Cut(raw, "://")
	if !found {
		return append(runs, masked(raw)...)
	}
	name := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		name = rest[:i]
	}
	runs = append(runs, Run{raw[:len(raw)-len(rest)], Style{Mono: true, Color: Muted}}, Run{name, Style{Mono: true, Bold: true}})
	return append(runs, masked(rest[len(name):])...)
}

// masked draws the place of a secret so that text cannot imitate it.
func masked(s string) []Run {
	before, rest, found := strings.Cut(s, "‹credential ")
	name, after, closed := strings.Cut(rest, "›")
	if !found || !closed {
		return []Run{{s, Style{Mono: true}}}
	}
	runs := []Run{}
	if before != "" {
		runs = append(runs, Run{before, Style{Mono: true}})
	}
	runs = append(runs, Run{"‹" + words.Say("sent.credential", "Name", name) + "›", Style{Mono: true, Bold: true, Color: Good}})
	if after != "" {
		runs = append(runs, Run{after, Style{Mono: true}})
	}
	return runs
}

// Quoted spells a command so that where each word begins and ends can be seen.
func Quoted(command []string) string {
	quoted := make([]string, len(command))
	for i, w := range command {
		if w != "" && !strings.ContainsFunc(w, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:=@%+,", r)
		}) {
			quoted[i] = w
			continue
		}
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// bodyOf shows a body whole: JSON set out or as it is sent, text as it is, bytes as a dump; with a search where it is long.
func bodyOf(e api.Effect) fyne.CanvasObject {
	raw, kind := e.Body, words.Say("sent.text")
	shown := raw
	if e.BodyB64 != "" {
		kind = words.Say("sent.bytes")
		b, err := base64.StdEncoding.DecodeString(e.BodyB64)
		if err != nil {
			b = []byte(e.BodyB64)
		}
		raw = hex.Dump(b)
		shown = raw
	} else if pretty, ok := Pretty(raw); ok {
		shown, kind = pretty, "JSON"
	}
	title := words.Say("sent.body", "Kind", kind, "Size", words.Count("sent.size", cmp.Or(e.Size, len(e.Body))))
	return quoted(title, shown, raw)
}

// Quote shows a text of somebody else under a title, JSON set out, with a search where it is long.
func Quote(title, raw string) fyne.CanvasObject {
	shown := raw
	if pretty, ok := Pretty(raw); ok {
		shown = pretty
	}
	return NewSunken(quoted(title, shown, raw))
}

func quoted(title, shown, raw string) fyne.CanvasObject {
	code := NewCode(shown, rowsAtOnce)
	head := []fyne.CanvasObject{Label(title, Style{Color: Muted, Size: theme.SizeNameCaptionText})}
	var tools []fyne.CanvasObject
	if strings.Count(shown, "\n") >= 8 || len(shown) > 800 {
		hits := Label("", Style{Color: Muted, Size: theme.SizeNameCaptionText})
		search := widget.NewEntry()
		search.SetPlaceHolder(words.Say("sent.search"))
		search.OnChanged = func(s string) {
			n := code.Find(s)
			text := ""
			if s != "" {
				text = words.Count("sent.hits", n)
			}
			hits.Set(Run{text, Style{Color: Muted, Size: theme.SizeNameCaptionText}})
		}
		search.OnSubmitted = func(string) { code.Next() }
		tools = append(tools, hits, Wide(170, 0, search))
	}
	if shown != raw {
		var as *widget.Button
		pretty := true
		as = widget.NewButton(words.Say("sent.as_sent"), func() {
			pretty = !pretty
			if pretty {
				as.SetText(words.Say("sent.as_sent"))
				code.SetText(shown)
			} else {
				as.SetText(words.Say("sent.set_out"))
				code.SetText(raw)
			}
		})
		as.Importance = widget.LowImportance
		tools = append(tools, as)
	}
	return Rows(2, Line(head, tools), code)
}

// Pretty sets JSON out, each value in a line of its own, in its order and with its numbers as they are.
func Pretty(s string) (string, bool) {
	trimmed := strings.TrimSpace(s)
	if !strings.HasPrefix(trimmed, "{") && !strings.HasPrefix(trimmed, "[") {
		return "", false
	}
	var b bytes.Buffer
	if json.Indent(&b, []byte(trimmed), "", "  ") != nil {
		return "", false
	}
	return b.String(), true
}

// Program is the short name of an actor or of an executable.
func Program(actor string) string {
	_, name, found := strings.Cut(actor, ":")
	if !found {
		name = actor
	}
	if i := strings.LastIndexByte(name, '/'); i >= 0 && i+1 < len(name) {
		name = name[i+1:]
	}
	return name
}

// Brief shortens a name for a heading. What hides in it is marked where it is drawn.
func Brief(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// HostOf is the host of a target, or the target itself where it has none.
func HostOf(target string) string {
	if u, err := url.Parse(target); err == nil && u.Host != "" {
		return u.Host
	}
	return target
}
