package tray_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/e2e/ledger"
	"singlepass.dev/ui/bustest"
	"singlepass.dev/ui/icon"
)

// typed is the person at the keyboard.
func (r *rig) typed(text string) {
	r.t.Helper()
	r.run("xdotool", "type", "--delay", "8", text)
	r.run("xdotool", "key", "Return")
}

// aside moves the pointer out of the window and leaves no widget with the keyboard.
func (r *rig) aside() { r.run("xdotool", "mousemove", "1270", "890") }

// unlock types the passphrase until the icon says that the vault is open.
func (r *rig) unlock(then icon.Kind, count int) {
	r.t.Helper()
	r.until("unlocking", func() { r.typed(passphrase) }, r.shows(then, count))
}

// last presses the last button of what is in sight: for a card that is asked per use it is "Allow once". The click into the empty rail takes the keyboard from whatever had it.
func (r *rig) last(what string, then icon.Kind, count int) {
	r.t.Helper()
	r.until(what, func() { r.run("xdotool", "mousemove", "90", "500", "click", "1", "key", "shift+Tab", "space") }, r.shows(then, count))
}

// closed closes the window by its key.
func (r *rig) closed() {
	r.t.Helper()
	r.until("closing the window", func() { r.run("xdotool", "key", "ctrl+w") }, func() bool { return !r.window() })
}

func TestAPersonAnswersFromTheTray(t *testing.T) {
	r := newRig(t)

	// No daemon: the icon and the window say so, and both notice when there is one.
	r.startTray()
	r.awaitIcon(icon.Down, 0)
	r.awaitWindow()
	r.aside()
	r.shot("daemon-not-running")
	r.startDaemon()
	r.awaitIcon(icon.Locked, 0)
	r.setUp()
	r.awaitIcon(icon.Locked, 0)

	// The menu leads to the passphrase, and the passphrase opens the vault.
	r.item.Click("Unlock")
	r.aside()
	r.shot("locked")
	r.unlock(icon.Unlocked, 0)
	r.shot("nothing-waits")
	r.closed()

	// A card: in the icon, in the menu, in a notification, in the window.
	a := r.startAgent()
	first := a.deploy("web", time.Minute)
	r.awaitIcon(icon.Waiting, 1)
	notice := bustest.Await(t, "notification", r.notes.Shown, func(n bustest.Notice) bool { return strings.Contains(n.Title, "deploy_release") })
	if text := notice.Title + notice.Body; strings.Contains(text, "web") || strings.Contains(text, "v2.14.0") || strings.Contains(text, "127.0.0.1") {
		t.Errorf("the notification holds the call: %q", text)
	}
	r.item.Click("deploy_release, asked by")
	r.awaitWindow()
	r.aside()
	r.shot("card")
	r.last("allowing", icon.Unlocked, 0)
	if got := first(); !got.OK || !strings.Contains(string(got.Result), "rcpt_") {
		t.Fatalf("the allowed call came to %+v", got)
	}
	bustest.Await(t, "withdrawal", r.notes.Shown, func(n bustest.Notice) bool { return n.Closed && n.ID == notice.ID })

	// Denied from the notification.
	r.closed()
	second := a.deploy("api", time.Minute)
	r.awaitIcon(icon.Waiting, 1)
	before := notice.Key("Deny") // of the card before, whose notice may have come and gone more than once
	notice = bustest.Await(t, "notification", r.notes.Shown, func(n bustest.Notice) bool { return n.Key("Deny") != "" && n.Key("Deny") != before })
	r.notes.Click(notice.ID, notice.Key("Deny"))
	if got := second(); !strings.Contains(string(got.Result), `"denied"`) {
		t.Errorf("the denied call came to %+v", got)
	}
	r.awaitIcon(icon.Unlocked, 0)
	if n := r.effects("api"); n != 0 {
		t.Errorf("the target acted %d times on what was denied", n)
	}

	// The same call again, after its answer was delivered: the original record, and the choice to hand its result out.
	again := a.deploy("web", time.Minute)
	r.awaitIcon(icon.Waiting, 1)
	r.item.Click("deploy_release, asked by")
	r.awaitWindow()
	r.aside()
	r.shot("came-again")
	r.last("handing the recorded result out", icon.Unlocked, 0)
	if got := again(); !strings.Contains(string(got.Result), `"recorded":true`) {
		t.Errorf("the repeated call came to %+v", got)
	}
	if n := r.effects("web"); n != 1 {
		t.Errorf("the target acted %d times, want once", n)
	}

	// The other pages.
	r.item.Click("Activity")
	r.awaitWindow()
	r.aside()
	r.shot("activity")
	if r.shots != "" { // once more, with the oldest one chosen
		r.run("xdotool", "mousemove", "380", "465", "click", "1", "mousemove", "1270", "890")
	}
	r.shot("activity")
	for i, page := range []string{"sessions", "vault", "contracts"} {
		if r.shots != "" {
			r.run("xdotool", "mousemove", "90", "500", "click", "1", "mousemove", "1270", "890", "key", fmt.Sprintf("ctrl+%d", i+3))
			r.shot(page)
		}
	}

	// Locked from the menu.
	r.item.Click("Lock now")
	r.awaitIcon(icon.Locked, 0)
	if out := r.run("spctl", "status"); !strings.Contains(out, "locked") {
		t.Errorf("the daemon says %s", out)
	}

	// Closed, the window goes and the tray stays; a second start brings it back.
	r.item.Click("Quit")
	r.awaitEnd()
}

func TestALostAnswerIsFoundInTheTray(t *testing.T) {
	r := newRig(t)
	r.startDaemon()
	r.setUp()
	r.startTray("--background")
	r.awaitIcon(icon.Locked, 0)
	if r.window() {
		t.Error("a start in the background shows the window")
	}
	r.item.Click("Unlock")
	r.awaitWindow()
	r.aside()
	r.unlock(icon.Unlocked, 0)
	a := r.startAgent()
	r.target.Plan(ledger.Hold)
	lost := a.deploy("db", 20*time.Second)
	r.awaitIcon(icon.Waiting, 1)
	r.last("allowing", icon.Unlocked, 0)
	r.awaitEffect("db")

	// While it is under way the same call attaches to it, and the person is told.
	r.closed()
	repeat := a.deploy("db", time.Minute)
	notice := bustest.Await(t, "notification", r.notes.Shown, func(n bustest.Notice) bool { return strings.Contains(n.Title, "called again") })
	r.notes.Click(notice.ID, notice.Key("Show"))
	r.awaitWindow()
	r.aside()
	r.shot("attached")

	// The daemon dies before the answer is there: nobody knows whether it happened.
	r.killDaemon()
	r.awaitIcon(icon.Down, 0)
	lost()
	repeat()
	r.startDaemon()
	r.awaitIcon(icon.Locked, 0)
	r.aside()
	r.unlock(icon.Unknown, 1)
	r.item.Click("Settle")
	r.shot("unknown")
	if n := r.effects("db"); n != 1 {
		t.Errorf("the target acted %d times, want once", n)
	}
}

func TestTheTrayIsOneAndStays(t *testing.T) {
	r := newRig(t)
	r.startTray()
	r.awaitWindow()
	r.aside()
	r.closed()
	r.awaitIcon(icon.Down, 0)
	if out := r.run("sp-tray"); !strings.Contains(out, "raised") {
		t.Errorf("a second start says %q", out)
	}
	r.awaitWindow()
	r.item.Click("Quit")
	r.awaitEnd()
}

func TestWithoutADisplayItSaysWhatIsMissing(t *testing.T) {
	r := newRig(t)
	for i, v := range r.env {
		if strings.HasPrefix(v, "DISPLAY=") {
			r.env[i] = "DISPLAY="
		}
	}
	out, err := r.command("sp-tray").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "there is no display") || !strings.Contains(string(out), "hint: ") || strings.Contains(string(out), "goroutine") {
		t.Errorf("got %v: %s", err, out)
	}
}
