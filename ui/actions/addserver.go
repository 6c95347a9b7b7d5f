package actions

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

// serverForm takes what a new server is: its name, and a command or a URL. Adding one puts none of its tools into force.
type serverForm struct {
	root                         fyne.CanvasObject
	name, address, folder        *widget.Entry
	command, variables, withheld *widget.Entry
	problem                      *fyne.Container
	add                          *widget.Button
}

func (v *UpstreamsView) newForm() *serverForm {
	field := func(placeholder string) *widget.Entry {
		e := widget.NewEntry()
		e.SetPlaceHolder(placeholder)
		return e
	}
	lines := func(placeholder string) *widget.Entry {
		e := widget.NewMultiLineEntry()
		e.SetPlaceHolder(placeholder)
		e.SetMinRowsVisible(3)
		return e
	}
	f := &serverForm{
		name: field(words.Say("server.name")), address: field("https://tracker.example/mcp"), folder: field(words.Say("form.optional")),
		command: lines(words.Say("server.command")), variables: lines(words.Say("server.variables")), withheld: field(words.Say("server.credentials")), problem: look.Rows(0),
	}
	f.add = widget.NewButton(words.Say("form.add"), func() { v.addServer(f) })
	back := widget.NewButton(words.Say("again.back"), func() {
		v.form = nil
		v.draw()
	})
	f.root = look.NewPanel(look.Rows(6,
		look.Subheading(words.Say("server.title")), look.Quiet(words.Say("server.means")),
		look.Form(
			look.Fact{Name: words.Say("form.name_is"), Value: f.name}, look.Fact{Name: words.Say("sent.address"), Value: f.address}, look.Fact{Name: words.Say("server.or_command"), Value: f.command},
			look.Fact{Name: words.Say("sent.directory"), Value: f.folder}, look.Fact{Name: words.Say("server.variables_are"), Value: f.variables}, look.Fact{Name: words.Say("vault.credentials"), Value: f.withheld},
		),
		f.problem,
		look.Line([]fyne.CanvasObject{look.Wide(90, 34, back)}, []fyne.CanvasObject{look.Wide(120, 34, f.add)}),
	))
	return f
}

// request is what was typed, or what is wrong with it. What it does not look at the daemon does.
func (f *serverForm) request() (in api.UpstreamRequest, problem string) {
	in = api.UpstreamRequest{
		Name: strings.TrimSpace(f.name.Text), URL: strings.TrimSpace(f.address.Text), Dir: strings.TrimSpace(f.folder.Text),
		Command: nonEmpty(strings.Split(f.command.Text, "\n")), Env: nonEmpty(strings.Split(f.variables.Text, "\n")),
		Credentials: strings.FieldsFunc(f.withheld.Text, func(r rune) bool { return r == ',' || r == ' ' }),
	}
	switch {
	case in.Name == "":
		return in, words.Say("form.no_name")
	case (in.URL == "") == (len(in.Command) == 0):
		return in, words.Say("server.one_of_both")
	case in.URL != "":
		if u, err := url.Parse(in.URL); err != nil || u.Host == "" {
			return in, words.Say("form.bad_target", "Target", in.URL)
		}
	case !strings.HasPrefix(in.Command[0], "/"):
		return in, words.Say("server.whole_path", "Program", in.Command[0])
	}
	return in, ""
}

// nonEmpty leaves out empty lines; a line is taken as it is, spaces and all, for an argument may have them.
func nonEmpty(lines []string) []string {
	return slices.DeleteFunc(lines, func(s string) bool { return strings.TrimSpace(s) == "" })
}

func (v *UpstreamsView) addServer(f *serverForm) {
	show := func(o ...fyne.CanvasObject) {
		f.problem.Objects = o
		v.draw()
	}
	in, problem := f.request()
	if problem != "" {
		show(look.NewNotice(look.Careful, look.ShapeWarning, look.Body(problem)))
		return
	}
	f.add.Disable()
	var got api.Upstream
	v.work.Do(func(ctx context.Context) (err error) {
		got, err = v.cfg.Daemon.AddUpstream(ctx, in)
		return err
	}, func(err error) {
		f.add.Enable()
		if err != nil {
			show(look.Trouble(err))
			return
		}
		if v.form == f {
			v.form = nil
		}
		v.said = look.NewNotice(look.Fine, look.ShapeDone, look.Body(words.Say("server.added", "Name", got.Name)))
		if got.Problem != "" {
			v.said = look.NewNotice(look.Careful, look.ShapeWarning, look.Rows(-6, look.Body(words.Say("server.added_but", "Name", got.Name)), look.Quiet(got.Problem)))
		}
		v.Load()
	})
}
