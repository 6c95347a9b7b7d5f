package look_test

import (
	"fmt"
	"image"
	"image/color"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/driver/software"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/visible"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/looktest"
)

// luminance is WCAG's relative luminance.
func luminance(c color.Color) float64 {
	r, g, b, _ := c.RGBA()
	f := func(v uint32) float64 {
		x := float64(v) / 0xffff
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	return 0.2126*f(r) + 0.7152*f(g) + 0.0722*f(b)
}

func TestEveryTextCanBeReadOnItsGround(t *testing.T) {
	for name, v := range map[string]fyne.ThemeVariant{"light": theme.VariantLight, "dark": theme.VariantDark} {
		th := look.Fixed(v)
		var pairs [][2]fyne.ThemeColorName
		for _, text := range []fyne.ThemeColorName{theme.ColorNameForeground, look.Muted, look.Good, look.Doubt, look.Bad, look.Busy} {
			for _, ground := range []fyne.ThemeColorName{theme.ColorNameBackground, look.Surface, look.Sunken} {
				pairs = append(pairs, [2]fyne.ThemeColorName{text, ground})
			}
		}
		for _, tone := range []look.Tone{look.Calm, look.Fine, look.Careful, look.Wrong, look.Working} {
			text, back := look.Colors(tone)
			pairs = append(pairs, [2]fyne.ThemeColorName{text, back}, [2]fyne.ThemeColorName{theme.ColorNameForeground, back}, [2]fyne.ThemeColorName{look.Muted, back})
		}
		pairs = append(pairs, [2]fyne.ThemeColorName{theme.ColorNameForeground, theme.ColorNameButton}, [2]fyne.ThemeColorName{theme.ColorNameForegroundOnError, theme.ColorNameError},
			[2]fyne.ThemeColorName{theme.ColorNamePlaceHolder, theme.ColorNameInputBackground}, [2]fyne.ThemeColorName{theme.ColorNameForegroundOnPrimary, theme.ColorNamePrimary})
		for _, p := range pairs {
			a, b := luminance(th.Color(p[0], v)), luminance(th.Color(p[1], v))
			if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
				t.Errorf("%s: %s on %s has a contrast of %.2f", name, p[0], p[1], ratio)
			}
		}
	}
}

func TestEveryStateIsToldByAWordAndAShapeOfItsOwn(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	seen := map[string]string{}
	for _, r := range []api.Record{
		{State: "accepted"},
		{State: "authorized"},
		{State: "dispatched"},
		{State: "unknown"},
		{State: "completed_result_not_delivered"},
		{State: "completed_result_delivered"},
		{State: "completed_result_delivered", Outcome: "target_error"},
		{State: "rejected"},
		{State: "expired"},
		{State: "withdrawn"},
	} {
		_, shape, word := look.State(r)
		for _, sign := range []string{string(shape), word} {
			if other, ok := seen[sign]; ok {
				t.Errorf("%s%s and %s are both told by %q", r.State, r.Outcome, other, sign)
			}
			seen[sign] = r.State + r.Outcome
		}
	}
	pictures := map[string]look.Shape{}
	for name, svg := range look.Shapes() {
		if other, ok := pictures[svg]; ok && name != look.ShapeWarning && other != look.ShapeWarning {
			t.Errorf("%s and %s look alike", name, other)
		}
		pictures[svg] = name
	}
}

func TestTextFlowsWithoutLosingOrWideningAnything(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	for _, s := range []string{
		"a plain sentence that is longer than the line it stands in, so that it has to flow", strings.Repeat("x", 4000), "https://deploy-api.internal.example/" + strings.Repeat("segment/", 60),
		"台積電股份有限公司" + strings.Repeat("股份有限公司", 30), "   spaces   at   both   ends   ", "", "one", "שלום עולם " + strings.Repeat("עולם ", 40),
	} {
		for _, width := range []float32{60, 123, 300, 900} {
			p := look.Paragraph(look.Run{Text: "before ", Style: look.Style{Bold: true}}, look.Run{Text: s, Style: look.Style{Mono: true}})
			p.Resize(fyne.NewSize(width, 10))
			test.WidgetRenderer(p)
			whole := func(s string) string { return strings.ReplaceAll(s, " ", "") }
			if got := whole(strings.Join(p.Lines(), "")); got != whole("before "+s) {
				t.Fatalf("%d: %.40q became %.80q", int(width), s, got)
			}
			if w := p.Widest(); w > width && width > 60 {
				t.Errorf("%.20q has a line of %.0f in %.0f", s, w, width)
			}
			if p.MinSize().Width > width {
				t.Errorf("%.20q makes the window at least %.0f wide", s, p.MinSize().Width)
			}
		}
	}
}

func TestAShortTextIsCutWithItsEndMarked(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	p := look.Short(strings.Repeat("word ", 50), look.Style{})
	p.Resize(fyne.NewSize(120, 30))
	test.WidgetRenderer(p)
	if lines := p.Lines(); len(lines) != 1 || !strings.HasSuffix(lines[0], "…") || p.Widest() > 120 {
		t.Errorf("got %q, %.0f wide", lines, p.Widest())
	}
}

func TestCodeKeepsEveryCharacterOfEveryLine(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	text := "{\n" + strings.Repeat("0123456789", 400) + "\n\tx: \u202ey\n台積電" + strings.Repeat("股", 200) + "\n}"
	c := look.NewCode(text, 16)
	c.Resize(fyne.NewSize(500, 400))
	test.WidgetRenderer(c)
	if got, want := strings.Join(c.RowTexts(), ""), strings.ReplaceAll(strings.ReplaceAll(visible.Text(text), "\n", ""), "\t", "    "); got != want {
		t.Errorf("the rows are not the text: %d and %d characters", len(got), len(want))
	}
	for _, r := range c.RowTexts() {
		if w := fyne.MeasureText(r, theme.CaptionTextSize()+1, fyne.TextStyle{Monospace: true}).Width; w > 500 {
			t.Errorf("a row is %.0f wide", w)
		}
	}
}

func TestASearchFindsEveryPlaceAndGoesRound(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	c := look.NewCode(strings.Repeat("one\ntwo\nThree two\n", 50), 16)
	w := looktest.Window(t, c, 400, 300)
	if n := c.Find("TWO"); n != 100 {
		t.Errorf("found %d", n)
	}
	before := test.RenderToMarkup(w.Canvas())
	for range 40 {
		c.Next()
	}
	if test.RenderToMarkup(w.Canvas()) == before {
		t.Error("going on shows no other place")
	}
	if n := c.Find("nowhere"); n != 0 {
		t.Errorf("found %d", n)
	}
}

func TestAMegabyteOfTextMakesNoMoreObjectsThanTheScreenHasRows(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	c := look.NewCode(strings.Repeat(strings.Repeat("x", 99)+"\n", 10_000), 16)
	looktest.Window(t, c, 600, 400)
	if n := len(test.LaidOutObjects(c)); n > 400 {
		t.Errorf("%d objects", n)
	}
}

func TestStretchesThatAreReadFromTheRightStandByThemselves(t *testing.T) {
	for in, want := range map[string][]visible.Part{
		`"עיר": "תל אביב", 5`: {{Text: `"`}, {Text: "עיר", Mark: true}, {Text: `": "`}, {Text: "תל אביב", Mark: true}, {Text: `", 5`}},
		"plain":               {{Text: "plain"}},
		"שלום":                {{Text: "שלום", Mark: true}},
		"שלום ":               {{Text: "שלום", Mark: true}, {Text: " "}},
		"":                    nil,
	} {
		if got := look.Isolate(in); !slices.Equal(got, want) {
			t.Errorf("%q: got %+v", in, got)
		}
	}
}

func FuzzIsolatedStretchesAreTheWholeText(f *testing.F) {
	for _, s := range []string{"", "a שלום b", "שָׁלוֹם", " ש ", "\xff ש"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "?")
		var b strings.Builder
		for _, p := range look.Isolate(s) {
			if p.Mark && (strings.HasPrefix(p.Text, " ") || strings.HasSuffix(p.Text, " ") || strings.ContainsFunc(p.Text, unicode.IsDigit) && strings.ContainsAny(p.Text, "0123456789")) {
				t.Fatalf("%q has the stretch %q", s, p.Text)
			}
			b.WriteString(p.Text)
		}
		if b.String() != s {
			t.Fatalf("%q became %q", s, b.String())
		}
	})
}

func TestTimesAreShownInTheUnitThatSaysEnough(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	for d, want := range map[time.Duration]string{
		0: "0 ms", 320 * time.Millisecond: "320 ms", 2100 * time.Millisecond: "2.1 s", 38 * time.Second: "38 s", 59*time.Minute + 59*time.Second: "59 min", 47 * time.Hour: "47 h", 72 * time.Hour: "3 days",
	} {
		if got := look.Span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := look.Gap(-time.Second); got != "clock set back" {
		t.Errorf("a gap that is negative is %q", got)
	}
	now := looktest.Now
	if a, b := look.Clock(now, now), look.Clock(now.Add(-24*time.Hour), now); a != "14:02:30" || b != "2026-03-13 14:02:30" {
		t.Errorf("%q and %q", a, b)
	}
}

// picture draws text in one colour.
func picture(s string) *image.NRGBA {
	c := software.NewTransparentCanvas()
	c.SetPadded(false)
	text := canvas.NewText(s, color.Black)
	text.TextSize = 32
	c.SetContent(text)
	c.Resize(fyne.NewSize(48, 48))
	return c.Capture().(*image.NRGBA)
}

// A letter that no font has is drawn as the same sign for all of them. Chinese comes from the system's fonts: .ci/setup installs one, and so does every Chinese desktop.
func TestChineseIsDrawnWithTheSystemsFonts(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "zh_TW.UTF-8")
	seen := map[string]string{}
	for _, letter := range []string{"台", "積", "電", "拒", "絕", "\U0001fbff"} {
		p := picture(letter)
		ink := 0
		for i := 3; i < len(p.Pix); i += 4 {
			if p.Pix[i] > 0 {
				ink++
			}
		}
		key := fmt.Sprint(p.Pix)
		if ink == 0 {
			t.Errorf("%s is not drawn", letter)
		}
		if other, ok := seen[key]; ok {
			t.Fatalf("%s looks like %s: no installed font has Chinese letters (Debian: fonts-droid-fallback)", letter, other)
		}
		seen[key] = letter
	}
}
