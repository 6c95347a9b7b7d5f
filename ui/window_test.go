package ui_test

import (
	"testing"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/looktest"
	"singlepass.dev/ui/watch"
)

// chinese is a card whose text is Chinese, and arabic one whose text is read from right to left.
func chinese(c *api.Card) {
	c.Tool = "發布版本"
	c.Effect.Body = `{"服務":"帳務系統","版本":"2026.3.1","說明":"修正發票金額的計算,並更新繁體中文介面"}`
}

func arabic(c *api.Card) {
	c.Effect.Body = `{"customer":"شركة النور للتجارة","city":"القاهرة","note":"الدفعة الثانية من عقد الصيانة","amount":5}`
	c.Question, c.Answers, c.Why, c.WhySaid = "per_use", []string{"once", "deny"}, c.Why[1:], c.WhySaid[1:]
}

func waits(change func(*api.Card)) []watch.Event {
	c := looktest.Card()
	change(&c)
	return []watch.Event{is(api.Status{Vault: "unlocked", Journal: "ok", Pending: 1}), watch.ProofChanged{Proven: true}, watch.CardSaid{Event: api.CardEvent{Event: "waiting", Card: c}}}
}

func cameAgain(state string, change func(*api.Record)) []watch.Event {
	once, twice := looktest.Record(state, 1), looktest.Record(state, 2)
	change(&once)
	change(&twice)
	return []watch.Event{
		is(api.Status{Vault: "unlocked", Journal: "ok"}),
		watch.ProofChanged{Proven: true},
		watch.RecordSaid{Event: api.RecordEvent{Event: "recorded", Record: once}, At: looktest.Now},
		watch.RecordSaid{Event: api.RecordEvent{Event: "changed", Record: twice}, At: looktest.Now},
	}
}

// What somebody with four seconds sees, at twice the size, in both themes and in letters of every direction.
func TestPicturesOfTheWholeWindowAtTwiceTheSize(t *testing.T) {
	for _, p := range []struct {
		name, locale string
		variant      fyne.ThemeVariant
		events       []watch.Event
	}{
		{"card-light", "en_US.UTF-8", theme.VariantLight, waits(func(*api.Card) {})},
		{"card-chinese-dark", "zh_TW.UTF-8", theme.VariantDark, waits(chinese)},
		{"card-arabic-light", "en_US.UTF-8", theme.VariantLight, waits(arabic)},
		{"card-portuguese-dark", "pt_BR.UTF-8", theme.VariantDark, waits(func(*api.Card) {})},
		{"record-unknown-dark", "en_US.UTF-8", theme.VariantDark, cameAgain("unknown", func(*api.Record) {})},
		{"record-chinese-light", "zh_TW.UTF-8", theme.VariantLight, cameAgain("unknown", func(r *api.Record) { r.Tool = "發布版本" })},
		{"record-arabic-dark", "en_US.UTF-8", theme.VariantDark, cameAgain("completed_result_not_delivered", func(r *api.Record) { r.Tool, r.Target = "دفع", "https://deploy-api.internal.example/v1/دفعات" })},
	} {
		t.Run(p.name, func(t *testing.T) {
			looktest.Start(t, p.variant, p.locale)
			clock, w := looktest.NewClock(), test.NewWindow(nil)
			t.Cleanup(w.Close)
			w.Resize(fyne.NewSize(900, 640))
			f, err := ui.New(ui.Config{
				Window: w, Operator: operator{make(chan string, 16)}, Watch: follower{}, Now: clock.Now, Context: t.Context(), Go: func(f func()) { f() }, After: clock.After, Close: func() {}, Quit: func() {},
			})
			if err != nil {
				t.Fatal(err)
			}
			f.SetState(state(p.events...), true)
			clock.Pass(look.ArmingDelay)
			looktest.Picture(t, w.Content(), 900, 640, 2, p.name)
		})
	}
}
