package vaultview

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// param is one thing that a kind needs besides its value; none of it is secret.
type param struct {
	name     string // as the daemon calls it: place, username, or a parameter
	optional bool
	choices  []string
}

// kind is a kind of credential as it is added here.
type kind struct {
	name    string
	params  []param
	lines   bool // the value has several lines
	targets bool // it is bound to targets
}

// kinds are the kinds that can be added here, as docs/contracts.md describes them.
var kinds = []kind{
	{name: "bearer", targets: true},
	{name: "basic", targets: true, params: []param{{name: "username"}}},
	{name: "header", targets: true, params: []param{{name: "place"}}},
	{name: "query", targets: true, params: []param{{name: "place"}}},
	{name: "oauth2", targets: true, lines: true, params: []param{
		{name: "token_url"},
		{name: "client_id"},
		{name: "grant", choices: []string{"client_credentials", "refresh_token"}},
		{name: "scope", optional: true},
		{name: "audience", optional: true},
		{name: "resource", optional: true},
		{name: "client_auth", optional: true, choices: []string{"basic", "post"}},
	}},
	{name: "aws-sigv4", targets: true, lines: true, params: []param{{name: "region"}, {name: "service"}}},
	{name: "client-cert", targets: true, lines: true},
	{name: "ssh-key", targets: true, lines: true, params: []param{{name: "certificate", optional: true}}},
	{name: "ssh-password", targets: true},
	{name: "env", targets: true, lines: true, params: []param{{name: "place", optional: true}}},
}

// Kind says in words what a kind of credential is.
func Kind(name string) string {
	switch name {
	case "bearer":
		return words.Say("kind.bearer")
	case "basic":
		return words.Say("kind.basic")
	case "header":
		return words.Say("kind.header")
	case "query":
		return words.Say("kind.query")
	case "oauth2":
		return words.Say("kind.oauth2")
	case "aws-sigv4":
		return words.Say("kind.aws")
	case "client-cert":
		return words.Say("kind.cert")
	case "ssh-key":
		return words.Say("kind.ssh_key")
	case "ssh-password":
		return words.Say("kind.ssh_password")
	case "env":
		return words.Say("kind.env")
	}
	return name
}

// paramName says in words what a parameter is.
func paramName(kind, name string) string {
	switch name {
	case "username":
		return words.Say("param.username")
	case "place":
		switch kind {
		case "header":
			return words.Say("param.header")
		case "query":
			return words.Say("param.query")
		}
		return words.Say("param.variable")
	case "token_url":
		return words.Say("param.token_url")
	case "client_id":
		return words.Say("param.client_id")
	case "grant":
		return words.Say("param.grant")
	case "client_auth":
		return words.Say("param.client_auth")
	case "region":
		return words.Say("param.region")
	case "service":
		return words.Say("param.service")
	case "certificate":
		return words.Say("param.certificate")
	}
	return name
}

func secretFor(kindName string) *look.Secret {
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == kindName })
	if at >= 0 && kinds[at].lines {
		return look.NewSecretLines(words.Say("form.value_lines"))
	}
	return look.NewSecret(words.Say("form.value"))
}

// fieldWithFile is the field for a value, with a button that reads it from a file where that can be.
func fieldWithFile(v *View, field *look.Secret, kindName string) fyne.CanvasObject {
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == kindName })
	if v.cfg.Open == nil || at < 0 || !kinds[at].lines {
		return field
	}
	b := widget.NewButton(words.Say("form.file"), func() { v.cfg.Open(func(content []byte) { field.Set(content) }) })
	b.Importance = widget.LowImportance
	return look.Rows(2, field, look.Line([]fyne.CanvasObject{b}, nil))
}

// form adds a credential. What the person typed is judged here only as far as that helps; the daemon has the last word.
type form struct {
	i       *inside
	kind    int
	name    *widget.Entry
	targets *widget.Entry
	fields  map[string]interface{ text() string }
	perUse  *widget.Check
	plain   *widget.Check
	value   *look.Secret
	problem *look.Text
	add     *widget.Button
	body    *fyne.Container
	root    fyne.CanvasObject
}

type entryField struct{ *widget.Entry }

func (f entryField) text() string { return strings.TrimSpace(f.Text) }

type choiceField struct{ *widget.Select }

func (f choiceField) text() string { return f.Selected }

func newForm(i *inside) *form {
	f := &form{i: i, name: widget.NewEntry(), targets: widget.NewMultiLineEntry(), body: look.Rows(8), problem: look.Plain("", look.Style{Color: look.Doubt})}
	f.name.SetPlaceHolder(words.Say("form.name"))
	f.name.OnChanged = func(string) { f.judge() }
	f.targets.SetPlaceHolder(words.Say("form.targets"))
	f.targets.SetMinRowsVisible(2)
	f.targets.OnChanged = func(string) { f.judge() }
	f.perUse = widget.NewCheck(words.Say("cred.per_use"), nil)
	f.plain = widget.NewCheck(words.Say("form.plaintext"), func(bool) { f.judge() })
	f.add = widget.NewButton(words.Say("form.add"), f.send)
	names := make([]string, len(kinds))
	for n, k := range kinds {
		names[n] = Kind(k.name)
	}
	choose := widget.NewSelect(names, nil)
	choose.SetSelectedIndex(0)
	choose.OnChanged = func(string) {
		f.kind = choose.SelectedIndex()
		f.fill()
	}
	cancel := widget.NewButton(words.Say("again.back"), func() {
		f.value.Clear()
		i.form = nil
		i.draw()
	})
	f.root = look.NewPanel(look.Rows(8,
		look.Form(look.Fact{Name: words.Say("form.kind"), Value: choose}, look.Fact{Name: words.Say("form.name_is"), Value: f.name}),
		f.body, f.perUse, f.problem, look.Line([]fyne.CanvasObject{look.Wide(90, 34, cancel)}, []fyne.CanvasObject{look.Wide(150, 34, f.add)}),
	))
	f.fill()
	return f
}

// fill shows what the kind needs.
func (f *form) fill() {
	if f.value != nil {
		f.value.Clear()
	}
	k := kinds[f.kind]
	f.value = secretFor(k.name)
	f.value.OnChanged = f.judge
	f.fields = map[string]interface{ text() string }{}
	var facts []look.Fact
	for _, p := range k.params {
		name := paramName(k.name, p.name)
		if p.optional {
			name += " " + words.Say("form.optional")
		}
		if p.choices != nil {
			s := widget.NewSelect(p.choices, func(string) { f.judge() })
			f.fields[p.name] = choiceField{s}
			facts = append(facts, look.Fact{Name: name, Value: s})
			continue
		}
		e := widget.NewEntry()
		e.OnChanged = func(string) { f.judge() }
		f.fields[p.name] = entryField{e}
		facts = append(facts, look.Fact{Name: name, Value: e})
	}
	if k.targets {
		facts = append(facts, look.Fact{Name: words.Say("cred.targets"), Value: f.targets})
	}
	facts = append(facts, look.Fact{Name: words.Say("form.value_is"), Value: fieldWithFile(f.i.v, f.value, k.name)})
	f.body.Objects = []fyne.CanvasObject{look.Form(facts...)}
	if k.targets && !strings.HasPrefix(k.name, "ssh-") {
		f.body.Objects = append(f.body.Objects, f.plain)
	}
	f.judge()
	f.i.root.Refresh()
}

// judge says what is missing or wrong, the first of it, and lets the credential be added once nothing is.
func (f *form) judge() {
	k := kinds[f.kind]
	text := ""
	switch name := strings.TrimSpace(f.name.Text); {
	case name == "":
		text = words.Say("form.no_name")
	case len(name) > 128 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		text = words.Say("form.bad_name")
	}
	for _, p := range k.params {
		if text == "" && !p.optional && f.fields[p.name].text() == "" {
			text = words.Say("form.missing", "What", paramName(k.name, p.name))
		}
	}
	if text == "" && k.targets {
		text = judgeTargets(k.name, lines(f.targets.Text), f.plain.Checked)
	}
	if text == "" && f.value.Len() == 0 {
		text = words.Say("form.no_value")
	}
	f.problem.Set(look.Run{Text: text, Style: look.Style{Color: look.Doubt}})
	if text == "" {
		f.add.Enable()
	} else {
		f.add.Disable()
	}
}

// judgeTargets says what is wrong with the targets of a credential; nothing where they can be asked for.
func judgeTargets(kindName string, list []string, plaintext bool) string {
	if len(list) == 0 {
		return words.Say("form.no_target")
	}
	for _, t := range list {
		u, err := url.Parse(t)
		ssh := strings.HasPrefix(kindName, "ssh-")
		server, forUpstream := strings.CutPrefix(t, "upstream:")
		switch {
		case kindName == "env" && forUpstream && server != "" && !strings.Contains(server, "/"):
		case kindName == "env":
			return words.Say("form.bad_upstream", "Target", t)
		case err != nil || u.Host == "":
			return words.Say("form.bad_target", "Target", t)
		case ssh && u.Scheme != "ssh", !ssh && u.Scheme != "https" && u.Scheme != "http":
			return words.Say("form.bad_scheme", "Target", t)
		case u.Scheme == "http" && !plaintext && u.Hostname() != "localhost" && u.Hostname() != "127.0.0.1" && u.Hostname() != "::1":
			return words.Say("form.plain_target", "Target", t)
		}
	}
	return ""
}

func (f *form) send() {
	k := kinds[f.kind]
	in := api.CredentialRequest{Credential: api.Credential{Name: strings.TrimSpace(f.name.Text), Kind: k.name, PerUse: f.perUse.Checked}}
	if k.targets {
		in.Targets, in.Plaintext = lines(f.targets.Text), f.plain.Checked && !strings.HasPrefix(k.name, "ssh-")
	}
	for _, p := range k.params {
		text := f.fields[p.name].text()
		switch {
		case text == "":
		case p.name == "place":
			in.Place = text
		case p.name == "username":
			in.Username = text
		default:
			if in.Params == nil {
				in.Params = map[string]string{}
			}
			in.Params[p.name] = text
		}
	}
	value := f.value.Take()
	f.add.Disable()
	f.i.change(func(ctx context.Context) error {
		return opened(value, func(b []byte) error {
			in.Secret = b
			return f.i.v.cfg.Credentials.AddCredential(ctx, in)
		})
	}, words.Say("form.added", "Name", in.Name, "Targets", strings.Join(in.Targets, ", ")))
}
