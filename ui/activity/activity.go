// Package activity shows what was asked for and what came of it: a list that is read from the daemon page by page, and beside it the record that is looked at.
//
// Promises: what nobody knows stands first until it is settled, whatever the filters. Only the rows on the screen exist as widgets, and only the pages that were scrolled to are read. A
// change that the daemon tells is shown where it stands, without reading the list again.
//
// Non-promises: the chart counts the newest calls of the day up to chartMost.
package activity

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/record"
	"singlepass.dev/ui/words"
)

// Daemon reads activity, the newest first. It is called in goroutines of the view's.
type Daemon interface {
	Activity(ctx context.Context, q client.Query) ([]api.Record, error)
}

const (
	page      = 200
	chartMost = 5000
	// ahead is how close to the end of what was read the screen may come before more is read.
	ahead = 60
)

// Config is what a View is made of.
type Config struct {
	Daemon  Daemon                                          // required
	Records record.Daemon                                   // required: for the record that is looked at
	Now     func() time.Time                                // required
	Context context.Context                                 // optional: ends with the window
	Go      func(func())                                    // optional: how work is started; a goroutine
	After   func(d time.Duration, f func()) (cancel func()) // optional: time.AfterFunc
	Copy    func(text string)                               // optional: puts text into the clipboard
	Save    func(name string, content []byte)               // optional: asks where to and saves
}

// View is the list and the record beside it.
type View struct {
	widget.BaseWidget
	cfg     Config
	query   client.Query
	rows    []api.Record
	open    []api.Record // what nobody knows
	last    bool         // the end of the journal was read
	reading bool
	asked   int // counts the readings, so that the answer of an earlier one is dropped
	chosen  string
	day     look.Day
	counted map[string]place

	list    *widget.List
	detail  *detail
	search  *widget.Entry
	state   *widget.Select
	since   *widget.Select
	tool    *widget.SelectEntry
	cred    *widget.SelectEntry
	run     *widget.SelectEntry
	chart   *look.Chart
	trouble *fyne.Container

	root   fyne.CanvasObject
	cancel func()
}

// place is where a record was counted in the chart.
type place struct {
	hour    int
	outcome look.Outcome
}

// New returns an empty view. Load reads the first page.
func New(cfg Config) (*View, error) {
	if cfg.Daemon == nil || cfg.Records == nil || cfg.Now == nil {
		return nil, errors.New("activity: Daemon, Records and Now are required")
	}
	if cfg.Context == nil {
		cfg.Context = context.Background()
	}
	if cfg.Go == nil {
		cfg.Go = func(f func()) { go f() }
	}
	if cfg.After == nil {
		cfg.After = func(d time.Duration, f func()) func() {
			t := time.AfterFunc(d, func() { look.Do(f) })
			return func() { t.Stop() }
		}
	}
	v := &View{cfg: cfg, counted: map[string]place{}, cancel: func() {}}
	var err error
	if v.detail, err = newDetail(cfg); err != nil {
		return nil, err
	}
	v.list = widget.NewList(v.length, func() fyne.CanvasObject { return newRow() }, func(i widget.ListItemID, o fyne.CanvasObject) {
		if r := v.at(i); r != nil {
			o.(*row).set(*r, cfg.Now(), r.ExecutionID == v.chosen)
		}
		if i > len(v.open)+len(v.rows)-ahead {
			v.more()
		}
	})
	v.list.OnSelected = func(i widget.ListItemID) {
		if r := v.at(i); r != nil {
			v.choose(*r)
		}
	}
	v.build()
	v.ExtendBaseWidget(v)
	return v, nil
}

func (v *View) length() int { return len(v.open) + len(v.rows) }

func (v *View) at(i int) *api.Record {
	switch {
	case i < len(v.open):
		return &v.open[i]
	case i-len(v.open) < len(v.rows):
		return &v.rows[i-len(v.open)]
	}
	return nil
}

// states are what can be filtered by, each with its word.
func states() (names []string, values []string) {
	names, values = []string{words.Say("filter.any_state")}, []string{""}
	for _, s := range []string{
		"unknown", "dispatched", "accepted", "authorized", "completed_result_not_delivered", "completed_result_delivered", "rejected", "expired", "withdrawn", "not_sent", "not_done",
	} {
		_, _, name := look.State(api.Record{State: s})
		names, values = append(names, name), append(values, s)
	}
	return names, values
}

func times() (names []string, spans []time.Duration) {
	return []string{words.Say("filter.any_time"), words.Say("filter.hour"), words.Say("filter.day"), words.Say("filter.week"), words.Say("filter.month")},
		[]time.Duration{0, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}
}

func (v *View) build() {
	v.search = widget.NewEntry()
	v.search.SetPlaceHolder(words.Say("filter.search"))
	v.search.OnChanged = func(string) { v.soon() }
	names, values := states()
	v.state = widget.NewSelect(names, nil)
	v.state.SetSelectedIndex(0)
	v.state.OnChanged = func(string) {
		v.query.State = values[max(0, v.state.SelectedIndex())]
		v.Load()
	}
	spans, lengths := times()
	v.since = widget.NewSelect(spans, nil)
	v.since.SetSelectedIndex(0)
	v.since.OnChanged = func(string) {
		v.query.Since = time.Time{}
		if d := lengths[max(0, v.since.SelectedIndex())]; d > 0 {
			v.query.Since = v.cfg.Now().Add(-d)
		}
		v.Load()
	}
	field := func(placeholder string) *widget.SelectEntry {
		e := widget.NewSelectEntry(nil)
		e.SetPlaceHolder(placeholder)
		e.OnChanged = func(string) { v.soon() }
		return e
	}
	v.tool, v.cred, v.run = field(words.Say("filter.tool")), field(words.Say("filter.credential")), field(words.Say("filter.run"))
	v.chart, v.trouble = look.NewChart(), look.Rows(0)

	filters := look.Wrap(look.Wide(150, 0, v.state), look.Wide(118, 0, v.since), look.Wide(128, 0, v.tool), look.Wide(150, 0, v.cred), look.Wide(118, 0, v.run))
	top := look.Rows(6, v.search, filters, v.chart, legend(), v.trouble)
	left := container.New(topLayout{}, look.Inset(10, 8, top), v.list)
	v.root = container.New(halves{}, look.Ground(left), v.detail)
}

func legend() fyne.CanvasObject {
	return look.Legend([5]string{words.Say("chart.done"), words.Say("chart.busy"), words.Say("chart.nothing"), words.Say("chart.failed"), words.Say("chart.unknown")})
}

// CreateRenderer implements fyne.Widget.
func (v *View) CreateRenderer() fyne.WidgetRenderer { return widget.NewSimpleRenderer(v.root) }

// soon reads again once nobody types any more.
func (v *View) soon() {
	v.cancel()
	v.cancel = v.cfg.After(300*time.Millisecond, func() {
		v.query.Text, v.query.Tool, v.query.Credential, v.query.Run = strings.TrimSpace(v.search.Text), v.tool.Text, v.cred.Text, v.run.Text
		v.Load()
	})
}

// Load reads the first page for the filters as they are.
func (v *View) Load() {
	v.asked++
	mine, q := v.asked, v.query
	q.Limit, q.Before = page, ""
	v.reading, v.last = true, false
	now := v.cfg.Now()
	midnight := time.Date(now.Local().Year(), now.Local().Month(), now.Local().Day(), 0, 0, 0, 0, time.Local)
	v.cfg.Go(func() {
		rows, err := v.cfg.Daemon.Activity(v.cfg.Context, q)
		var open, day []api.Record
		if err == nil {
			open, err = v.cfg.Daemon.Activity(v.cfg.Context, client.Query{State: "unknown", Limit: page})
		}
		if err == nil {
			day, err = v.cfg.Daemon.Activity(v.cfg.Context, client.Query{Since: midnight, Limit: chartMost})
		}
		look.Do(func() {
			if mine != v.asked {
				return
			}
			v.reading = false
			v.trouble.Objects = nil
			if err != nil {
				v.trouble.Objects = []fyne.CanvasObject{look.Trouble(err)}
				v.Refresh()
				return
			}
			v.open = open
			v.rows, v.last = v.without(rows), len(rows) < page
			v.recount(day)
			v.offer()
			if v.list.GetScrollOffset() > 0 { // a list that was not laid out yet cannot be scrolled
				v.list.ScrollToTop()
			}
			v.Refresh()
		})
	})
}

// without leaves out what stands at the top already.
func (v *View) without(rows []api.Record) []api.Record {
	return slices.DeleteFunc(rows, func(r api.Record) bool { return r.State == "unknown" })
}

// more reads the next page.
func (v *View) more() {
	if v.reading || v.last || len(v.rows) == 0 {
		return
	}
	v.reading = true
	mine, q := v.asked, v.query
	q.Limit, q.Before = page, v.rows[len(v.rows)-1].ExecutionID
	v.cfg.Go(func() {
		rows, err := v.cfg.Daemon.Activity(v.cfg.Context, q)
		look.Do(func() {
			if mine != v.asked {
				return
			}
			v.reading = false
			if err != nil {
				v.last = true // scrolling does not hammer a daemon that is gone; Load begins anew
				v.trouble.Objects = []fyne.CanvasObject{look.Trouble(err)}
				v.Refresh()
				return
			}
			v.last = len(rows) < page
			v.rows = append(v.rows, v.without(rows)...)
			v.list.Refresh()
		})
	})
}

// Update shows one execution as it is now; the daemon's stream tells it.
func (v *View) Update(r api.Record) {
	v.countOne(r)
	is := func(x api.Record) bool { return x.ExecutionID == r.ExecutionID }
	if v.chosen == r.ExecutionID {
		v.detail.update(r)
	}
	o, i := slices.IndexFunc(v.open, is), slices.IndexFunc(v.rows, is)
	switch {
	case r.State == "unknown" && o >= 0:
		v.open[o] = r
	case r.State == "unknown":
		if i >= 0 {
			v.rows = slices.Delete(v.rows, i, i+1)
		}
		v.open = slices.Insert(v.open, 0, r)
	case !v.matches(r):
		if o >= 0 {
			v.open = slices.Delete(v.open, o, o+1)
		}
		if i >= 0 {
			v.rows = slices.Delete(v.rows, i, i+1)
		}
	default:
		if o >= 0 {
			v.open = slices.Delete(v.open, o, o+1)
		}
		if i >= 0 {
			v.rows[i] = r
		} else if at, _ := slices.BinarySearchFunc(v.rows, r, func(a, b api.Record) int { return -strings.Compare(a.ExecutionID, b.ExecutionID) }); at < len(v.rows) || v.last {
			v.rows = slices.Insert(v.rows, at, r) // ids grow with time, so their order is the list's
		}
	}
	v.list.Refresh()
}

func (v *View) matches(r api.Record) bool {
	q := v.query
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(q.Text)) }
	return (q.State == "" || r.State == q.State) && (q.Tool == "" || r.Tool == q.Tool) && (q.Run == "" || r.Run == q.Run) && (q.Credential == "" || r.Credential == q.Credential) &&
		!r.AcceptedAt.Before(q.Since) &&
		(q.Text == "" || has(r.ExecutionID) || has(r.Tool) || has(r.Target) || has(r.Actor) || has(r.Credential) || has(r.Reason))
}

func (v *View) recount(day []api.Record) {
	v.day, v.counted = look.Day{}, map[string]place{}
	for _, r := range day {
		v.countOne(r)
	}
	v.chart.Set(v.day)
}

// countOne counts a call of today once, by what it has come to now.
func (v *View) countOne(r api.Record) {
	now, at := v.cfg.Now().Local(), r.AcceptedAt.Local()
	if at.YearDay() != now.YearDay() || at.Year() != now.Year() {
		return
	}
	if p, ok := v.counted[r.ExecutionID]; ok {
		v.day[p.hour][p.outcome]--
	}
	p := place{at.Hour(), look.OutcomeOf(r.State, r.Outcome)}
	v.counted[r.ExecutionID] = p
	v.day[p.hour][p.outcome]++
	v.chart.Set(v.day)
}

// offer fills the fields' menus with what there is.
func (v *View) offer() {
	for _, f := range []struct {
		field *widget.SelectEntry
		of    func(api.Record) string
	}{
		{v.tool, func(r api.Record) string { return r.Tool }}, {v.cred, func(r api.Record) string { return r.Credential }}, {v.run, func(r api.Record) string { return r.Run }},
	} {
		var list []string
		for _, r := range v.rows {
			if s := f.of(r); s != "" && !slices.Contains(list, s) && len(list) < 30 {
				list = append(list, s)
			}
		}
		slices.Sort(list)
		f.field.SetOptions(list)
	}
}

func (v *View) choose(r api.Record) {
	v.chosen = r.ExecutionID
	v.detail.show(r)
	v.list.Refresh()
}

// Choose looks at one execution, whether or not it is in the list.
func (v *View) Choose(r api.Record) { v.choose(r) }

// Chosen is the execution that is looked at.
func (v *View) Chosen() string { return v.chosen }
