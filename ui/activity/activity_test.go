package activity_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/ui/activity"
	"singlepass.dev/ui/looktest"
)

// journal answers as the daemon does, from a list whose newest comes first.
type journal struct {
	mu      sync.Mutex
	records []api.Record
	asked   []client.Query
	err     error
}

func (j *journal) Activity(_ context.Context, q client.Query) ([]api.Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = append(j.asked, q)
	if j.err != nil {
		return nil, j.err
	}
	var out []api.Record
	after := q.Before == ""
	for _, r := range j.records {
		if !after {
			after = r.ExecutionID == q.Before
			continue
		}
		if (q.State == "" || r.State == q.State) && (q.Tool == "" || r.Tool == q.Tool) && !r.AcceptedAt.Before(q.Since) && strings.Contains(r.ExecutionID+r.Tool, q.Text) {
			out = append(out, r)
		}
		if len(out) == q.Limit {
			break
		}
	}
	return out, nil
}

func (*journal) Answer(context.Context, string, api.CardAnswer) error { return nil }
func (*journal) Check(context.Context, string) (api.Checked, error)   { return api.Checked{}, nil }
func (*journal) Settle(context.Context, string, api.Verdict) (api.Record, error) {
	return api.Record{}, nil
}

func (*journal) Payload(context.Context, string) (api.Payload, error) {
	e := looktest.Request()
	return api.Payload{Effect: &e, Result: []byte(`{"content":[]}`), Place: &api.Place{Accepted: 40, Last: 44, Verified: true}}, nil
}

// calls makes n records, one a minute back from Now, in every state.
func calls(n int) []api.Record {
	states := []string{"completed_result_delivered", "completed_result_delivered", "completed_result_not_delivered", "rejected", "expired", "completed_result_delivered", "not_sent", "dispatched"}
	list := make([]api.Record, n)
	for i := range list {
		r := looktest.Record(states[i%len(states)], 1)
		r.ExecutionID, r.Tool, r.AcceptedAt = fmt.Sprintf("act_%08d", n-i), []string{"deploy_release", "transfer", "rotate_password"}[i%3], looktest.Now.Add(-time.Duration(i)*time.Minute)
		if i%11 == 5 && r.Outcome != "" {
			r.Outcome, r.TargetStatus = "target_error", 500
		}
		list[i] = r
	}
	if n > 40 {
		list[37] = looktest.Record("unknown", 2)
		list[37].ExecutionID, list[37].AcceptedAt = fmt.Sprintf("act_%08d", n-37), looktest.Now.Add(-37*time.Minute)
	}
	return list
}

type rig struct {
	*activity.View
	journal *journal
	clock   *looktest.Clock
	window  fyne.Window
	copied  string
	saved   []byte
}

func show(t testing.TB, records []api.Record) *rig {
	t.Helper()
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	g := &rig{journal: &journal{records: records}, clock: looktest.NewClock()}
	v, err := activity.New(activity.Config{
		Daemon: g.journal, Records: g.journal, Now: g.clock.Now, After: g.clock.After, Go: func(f func()) { f() },
		Copy: func(s string) { g.copied = s }, Save: func(_ string, b []byte) { g.saved = b },
	})
	if err != nil {
		t.Fatal(err)
	}
	g.View, g.window = v, looktest.Window(t, v, 1100, 720)
	v.Load()
	return g
}

func TestAViewThatWasNotLaidOutYetCanBeRead(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	j := &journal{records: calls(300)}
	v, err := activity.New(activity.Config{Daemon: j, Records: j, Now: looktest.NewClock().Now, Go: func(f func()) { f() }})
	if err != nil {
		t.Fatal(err)
	}
	v.Load()
	v.Update(calls(1)[0])
	v.Choose(calls(2)[1])
	v.Load()
	g := &rig{View: v, window: looktest.Window(t, v, 1100, 720)}
	g.says(t, true, "deploy_release", "14:02")
}

func (g *rig) list() *widget.List {
	for _, o := range test.LaidOutObjects(g.View) {
		if l, ok := o.(*widget.List); ok {
			return l
		}
	}
	return nil
}

func (g *rig) says(t *testing.T, want bool, texts ...string) {
	t.Helper()
	shown := strings.Join(looktest.Texts(g.View), "\n")
	for _, s := range texts {
		if strings.Contains(shown, s) != want {
			t.Errorf("that it says %q is %v:\n%s", s, !want, shown)
		}
	}
}

func (g *rig) tap(t *testing.T, text string) {
	t.Helper()
	for _, b := range looktest.Buttons(g.View) {
		if b.Text == text {
			test.Tap(b)
			return
		}
	}
	t.Fatalf("there is no button %q", text)
}

func TestWhatNobodyKnowsStandsFirstUntilItIsSettled(t *testing.T) {
	g := show(t, calls(300))
	g.says(t, true, "Outcome unknown")
	settled := calls(300)[37]
	settled.State, settled.Outcome = "completed_result_not_delivered", "success"
	g.Update(settled)
	g.says(t, false, "Outcome unknown")
}

func TestPagesAreReadOnlyAsFarAsThePersonScrolls(t *testing.T) {
	const all = 50_000
	g := show(t, calls(all))
	before := len(g.journal.asked)
	if before > 3 {
		t.Errorf("%d readings before anybody scrolled", before)
	}
	l := g.list()
	if n := l.Length(); n > 201 {
		t.Errorf("%d rows were read at once", n)
	}
	for range 5 {
		l.ScrollToBottom()
	}
	if n := l.Length(); n < 1000 || n > 1500 {
		t.Errorf("after five screens to the bottom %d rows are known", n)
	}
	seen := map[string]bool{}
	for _, q := range g.journal.asked[before:] {
		if seen[q.Before] {
			t.Errorf("the page after %s was read twice", q.Before)
		}
		seen[q.Before] = true
	}
	rows := 0
	for _, o := range test.LaidOutObjects(g.View) {
		if strings.HasSuffix(fmt.Sprintf("%T", o), "activity.row") {
			rows++
		}
	}
	if rows == 0 || rows > 60 {
		t.Errorf("%d rows exist as widgets", rows)
	}
}

func TestFiltersAskTheDaemonOnceNobodyTypesAnyMore(t *testing.T) {
	g := show(t, calls(300))
	g.journal.asked = nil
	test.Type(looktest.Entries(g.View)[0], "transfer")
	if len(g.journal.asked) > 0 {
		t.Fatal("every letter asks the daemon")
	}
	g.clock.Pass(time.Second)
	if !slices.ContainsFunc(g.journal.asked, func(q client.Query) bool { return q.Text == "transfer" }) {
		t.Errorf("asked %+v", g.journal.asked)
	}
	g.says(t, false, "rotate_password")
}

func TestAStateAndATimeAreChosen(t *testing.T) {
	g := show(t, calls(300))
	for _, o := range test.LaidOutObjects(g.View) {
		if s, ok := o.(*widget.Select); ok && slices.Contains(s.Options, "Refused") {
			s.SetSelected("Refused")
		} else if ok {
			s.SetSelected("Last hour")
		}
	}
	if l := g.list(); l.Length() < 5 || l.Length() > 10 {
		t.Errorf("%d rows of the last hour are refused", l.Length())
	}
	g.says(t, true, "Refused", "Outcome unknown")
	g.says(t, false, "Expired  deploy")
}

func TestAChangeIsShownWhereItStandsWithoutReadingAgain(t *testing.T) {
	g := show(t, calls(300))
	g.journal.asked = nil
	fresh := looktest.Record("dispatched", 1)
	fresh.ExecutionID, fresh.Tool, fresh.AcceptedAt = "act_00000301", "brand_new_tool", looktest.Now
	n := g.list().Length()
	g.Update(fresh)
	fresh.State = "completed_result_delivered"
	g.Update(fresh)
	g.says(t, true, "brand_new_tool")
	if len(g.journal.asked) > 0 || g.list().Length() != n+1 {
		t.Errorf("asked %+v, %d rows", g.journal.asked, g.list().Length()-n)
	}
}

func TestAnAnswerToFiltersThatChangedMeanwhileIsDropped(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	j := &journal{records: calls(50)}
	var waiting []func()
	v, err := activity.New(activity.Config{Daemon: j, Records: j, Now: looktest.NewClock().Now, Go: func(f func()) { waiting = append(waiting, f) }})
	if err != nil {
		t.Fatal(err)
	}
	looktest.Window(t, v, 1100, 720)
	v.Load()
	j.records = nil
	v.Load()
	waiting[1]()
	j.records = calls(50)
	waiting[0]()
	if strings.Contains(strings.Join(looktest.Texts(v), "\n"), "deploy_release") {
		t.Error("an answer that is too late was shown")
	}
}

func TestTheRecordIsShownCopiedAndExported(t *testing.T) {
	g := show(t, calls(300))
	g.list().Select(1)
	g.says(t, true, "It already happened", "accepted", "handed out")
	g.tap(t, "Copy id")
	g.tap(t, "Export this one…")
	if g.copied != "act_00000300" || !strings.Contains(string(g.saved), `"execution_id": "act_00000300"`) || !strings.Contains(string(g.saved), "‹credential deploy-service›") {
		t.Errorf("copied %q, saved %s", g.copied, g.saved)
	}
	g.clock.Pass(time.Second)
	g.tap(t, "Show request and result")
	g.says(t, true, "Entries 40 to 44 of the journal. The journal verified when the daemon started.")
}

func TestADaemonThatIsGoneIsSaidAndNotHammered(t *testing.T) {
	g := show(t, calls(300))
	g.journal.err = api.Errorf(api.CodeNoDaemon, "the daemon is not running").WithHint("start it")
	g.journal.asked = nil
	for range 5 {
		g.list().ScrollToBottom()
		g.list().ScrollToTop()
	}
	if len(g.journal.asked) > 1 {
		t.Errorf("asked %d times", len(g.journal.asked))
	}
	g.Load()
	g.says(t, true, "The daemon does not answer.")
}

func TestPicturesOfActivity(t *testing.T) {
	for name, variant := range map[string]fyne.ThemeVariant{"light": theme.VariantLight, "dark": theme.VariantDark} {
		g := show(t, calls(300))
		fyne.CurrentApp().Settings().SetTheme(looktest.Theme(variant))
		g.list().Select(0)
		g.clock.Pass(time.Second)
		looktest.Picture(t, g.View, 1180, 760, 1, name)
	}
	g := show(t, calls(300))
	looktest.Markup(t, g.window, "list")
}

// BenchmarkScroll measures one screen of scrolling through 50,000 executions.
func BenchmarkScroll(b *testing.B) {
	g := show(b, calls(50_000))
	l := g.list()
	for range 20 {
		l.ScrollToBottom()
	}
	most := l.Length()
	i := 0
	for b.Loop() {
		i = (i + 12) % most
		l.ScrollTo(i)
	}
}

// BenchmarkUpdate measures one change that the daemon tells, among 5,000 rows.
func BenchmarkUpdate(b *testing.B) {
	g := show(b, calls(50_000))
	for range 24 {
		g.list().ScrollToBottom()
	}
	r := calls(50_000)[3]
	i := 0
	for b.Loop() {
		i++
		r.State = []string{"dispatched", "completed_result_delivered"}[i%2]
		g.Update(r)
	}
}
