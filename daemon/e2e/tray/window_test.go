package tray_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/e2e/ledger"
	"singlepass.dev/ui/bustest"
	"singlepass.dev/ui/icon"
)

// picture is a part of the window as it is now.
func (r *rig) picture(at image.Rectangle) []byte {
	r.t.Helper()
	part := fmt.Sprintf("%dx%d+%d+%d", at.Dx(), at.Dy(), at.Min.X, at.Min.Y)
	out, err := r.command("import", "-window", "root", "-crop", part, "+repage", "png:-").Output()
	if err != nil {
		r.t.Fatalf("taking a picture: %v", err)
	}
	return out
}

// still waits until the buttons have looked the same for a second: what has just come takes no answer before. Above them the time that is left runs down.
func (r *rig) still() {
	r.t.Helper()
	var before []byte
	for late := time.Now().Add(patience); time.Now().Before(late); {
		now := r.picture(image.Rect(480, 520, 1040, 720))
		if bytes.Equal(before, now) {
			return
		}
		before = now
		_ = r.command("xdotool", "sleep", "1").Run()
	}
	r.t.Fatal("the window did not come to rest")
}

// fromEnd presses Space on what is so many steps of the Tab key before the end of what is in sight.
func (r *rig) fromEnd(steps int) {
	r.t.Helper()
	keys := []string{"mousemove", "90", "500", "click", "1", "key", "--delay", "20"}
	for range steps {
		keys = append(keys, "shift+Tab")
	}
	r.run("xdotool", append(keys, "space")...)
}

// settle gives the person's word on the outcome in sight.
func (r *rig) settle(happened bool, left int) {
	r.t.Helper()
	// Where the panel of the verdict is, and the record is before it.
	panel := image.Rect(500, 530, 1000, 600)
	r.still()
	before := r.picture(panel)
	r.until("opening the verdict", func() { r.fromEnd(1) }, func() bool { return !bytes.Equal(r.picture(panel), before) })
	r.still()
	word := 3 // from the end: Back and the note come after it
	if happened {
		word = 4
	}
	r.fromEnd(word)
	r.still()
	if r.unknown() == left {
		r.t.Fatal("a word that was not written down yet has settled the outcome")
	}
	r.until("writing the verdict down", func() { r.fromEnd(1) }, func() bool { return r.unknown() == left })
}

// unknown is how many outcomes are not known, as the daemon counts them; the icon only says that there are some.
func (r *rig) unknown() int {
	r.t.Helper()
	var s api.Status
	if err := json.Unmarshal([]byte(r.run("spctl", "status", "--json")), &s); err != nil {
		r.t.Fatal(err)
	}
	return s.Unknown
}

// The window stays open all the while: when the daemon dies, while it is away, and when it is back.
func TestUnknownOutcomesAreSettledInTheWindow(t *testing.T) {
	r := newRig(t)
	r.startDaemon()
	r.setUp()
	r.startTray()
	r.awaitWindow()
	r.awaitIcon(icon.Locked, 0)
	r.aside()
	r.unlock(icon.Unlocked, 0)
	a := r.startAgent()
	for _, service := range []string{"db", "web"} {
		r.target.Plan(ledger.Hold)
		a.deploy(service, 20*time.Second)
		r.awaitIcon(icon.Waiting, 1)
		r.last("allowing", icon.Unlocked, 0)
		r.awaitEffect(service)
	}
	r.killDaemon()
	r.awaitIcon(icon.Down, 0)
	if !r.window() {
		t.Fatal("the window went with the daemon")
	}
	r.startDaemon()
	r.awaitIcon(icon.Locked, 0)
	r.aside()
	r.unlock(icon.Unknown, 2)

	// The older one first.
	r.settle(true, 1)
	r.settle(false, 0)
	r.awaitIcon(icon.Unlocked, 0)
	if out := r.run("spctl", "activity"); !strings.Contains(out, "done, by the word of the operator") || !strings.Contains(out, "the target did nothing") {
		t.Errorf("the activity says:\n%s", out)
	}

	// What happened is not sent again; what did not is asked for again.
	b := r.startAgent()
	b.deploy("web", 20*time.Second)
	r.awaitIcon(icon.Waiting, 1)
	if c := r.cards()[0]; c.Original != nil && c.Original.State == "unknown" {
		t.Errorf("the card's record is still unknown: %+v", c.Original)
	}
	if n := r.effects("db") + r.effects("web"); n != 2 {
		t.Errorf("the target acted %d times, want once for each", n)
	}
}

func TestTwoHundredCardsAreAnsweredOneByOne(t *testing.T) {
	const many, allowed = 200, 3
	r := newRig(t)
	r.startDaemon()
	r.setUp()
	r.startTray()
	r.awaitWindow()
	r.awaitIcon(icon.Locked, 0)
	r.aside()
	r.unlock(icon.Unlocked, 0)
	a, replies := r.startAgent(), map[string]func() reply{}
	for i := range many {
		service := fmt.Sprintf("service-%03d", i)
		replies[service] = a.deploy(service, 5*time.Minute)
	}
	r.item.AwaitMenu("192 cards beyond the menu's lines", func(l []bustest.Line) bool { _, ok := bustest.Has(l, "192"); return ok })
	r.awaitIcon(icon.Waiting, many)
	r.still()

	// Each press answers the one card that is in sight, the oldest, and no other.
	oldest := services(t, r.cards())
	if len(oldest) != many {
		t.Fatalf("%d cards wait", len(oldest))
	}
	acted := 0
	take := func() bool {
		select {
		case e := <-r.acts:
			if !strings.Contains(string(e.Body), oldest[acted]) {
				t.Errorf("effect %d is %s, want %s", acted, e.Body, oldest[acted])
			}
			acted++
			return true
		default:
			return false
		}
	}
	for range allowed {
		r.until("allowing the card in sight", func() { r.fromEnd(1) }, take)
	}
	r.still()
	for take() { // a press that was repeated because its effect was late
	}
	if left := services(t, r.cards()); len(left) != many-acted || left[0] != oldest[acted] {
		t.Fatalf("after %d effects %d cards wait, the first for %s", acted, len(left), left[0])
	}

	// Denied in the window: the button before the reason and what allows.
	denied := make(chan reply, 1)
	go func() { denied <- replies[oldest[acted]]() }()
	var got reply
	r.until("denying the card in sight", func() { r.fromEnd(3) }, func() bool {
		select {
		case got = <-denied:
			return true
		default:
			return false
		}
	})
	if !strings.Contains(string(got.Result), `"denied"`) {
		t.Errorf("the denied call came to %+v", got)
	}
	if n := r.effects("service-"); n != acted {
		t.Errorf("the target acted %d times, want %d", n, acted)
	}
}

// services are what the cards are about, in their order.
func services(t *testing.T, cards []api.Card) (names []string) {
	t.Helper()
	for _, c := range cards {
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, regexp.MustCompile(`service-\d{3}`).FindString(string(b)))
	}
	return names
}

// In quarantine nothing with an effect is sent: the icon and the window say so.
func TestADamagedJournalIsInTheIconAndTheWindow(t *testing.T) {
	r := newRig(t)
	r.startDaemon()
	r.setUp()
	r.startTray()
	r.awaitWindow()
	r.awaitIcon(icon.Locked, 0)
	r.aside()
	r.unlock(icon.Unlocked, 0)
	banner, red := image.Rect(200, 0, 1040, 100), color.NRGBA{0xff, 0x9a, 0x91, 0xff}
	if n := r.count(banner, red); theme() == "dark" && n != 0 {
		t.Errorf("there is red in the window while all is well: %d pixels", n)
	}
	r.killDaemon()
	r.awaitIcon(icon.Down, 0)
	r.damageJournal()
	r.startDaemon()
	r.awaitIcon(icon.Quarantine, 0)
	if theme() == "dark" {
		r.until("the banner of the quarantine", r.aside, func() bool { return r.count(banner, red) > 50 })
	}
	if out := r.run("spctl", "status"); !strings.Contains(out, "quarantine") {
		t.Errorf("the daemon says %s", out)
	}
}

// count counts the pixels of a colour.
func (r *rig) count(at image.Rectangle, c color.NRGBA) (n int) {
	r.t.Helper()
	m, err := png.Decode(bytes.NewReader(r.picture(at)))
	if err != nil {
		r.t.Fatal(err)
	}
	for y := m.Bounds().Min.Y; y < m.Bounds().Max.Y; y++ {
		for x := m.Bounds().Min.X; x < m.Bounds().Max.X; x++ {
			if color.NRGBAModel.Convert(m.At(x, y)) == c {
				n++
			}
		}
	}
	return n
}

// damageJournal changes one letter of an entry that is not the last.
func (r *rig) damageJournal() {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, "h/data/journal/*.jsonl"))
	if err != nil || len(files) == 0 {
		r.t.Fatalf("there is no segment of the journal: %v", err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		r.t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	if len(lines) < 3 {
		r.t.Fatalf("%s has too few entries", files[0])
	}
	lines[1][len(lines[1])/2] ^= 1
	b = bytes.Join(lines, nil)
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		r.t.Fatal(err)
	}
}
