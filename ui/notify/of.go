package notify

import (
	"strings"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/visible"
	"singlepass.dev/ui/tray"
	"singlepass.dev/ui/watch"
)

// The keys of our notices.
const (
	KeyWaiting = "waiting"
	KeyAgain   = "again"
	KeyUnknown = "unknown"
	KeyDenied  = "denied"
)

// Show is the action that opens the window, by a click on the notice. It has no label: a desktop that shows a button for it, as it may, would show two that say the same.
const Show = "default"

// The actions carry what they are about, so that a click on what the person saw cannot mean what has taken its place.
const (
	showPrefix = "show:"
	denyPrefix = "deny:"
)

// Click takes an action of one of our notices apart.
func Click(action string) (deny bool, id string) {
	if id, ok := strings.CutPrefix(action, denyPrefix); ok {
		return true, id
	}
	id, _ = strings.CutPrefix(action, showPrefix)
	if action == Show {
		id = ""
	}
	return false, id
}

// Of says which notices hold in a state. They name the tool and the program that asks, and nothing that a call carries.
func Of(s watch.State, w tray.Words) (list []Notice) {
	if n := len(s.Cards); n > 0 {
		c := s.Cards[n-1] // the newest: it is what changed
		title := w.Say("notify.card", "Tool", tool(c.Tool), "Program", visible.Cut(visible.Line(tray.Program(c.Actor)), 30))
		if c.Original != nil {
			title = w.Say("notify.card_again", "Tool", tool(c.Tool), "Program", visible.Cut(visible.Line(tray.Program(c.Actor)), 30))
		}
		body := w.Say("notify.look")
		if n > 1 {
			body = w.Count("notify.more", n-1)
		}
		list = append(list, Notice{Key: KeyWaiting, Title: title, Body: body, Urgent: true, Actions: []Action{
			{Show, ""}, {showPrefix + c.Card, w.Say("notify.show")}, {denyPrefix + c.Card, w.Say("notify.deny")},
		}})
	}
	for _, a := range s.Again {
		if a.Seen || a.Record.State == "rejected" {
			continue
		}
		list = append(list, Notice{
			Key: KeyAgain, Title: w.Say("notify.again", "Tool", tool(a.Record.Tool)), Body: again(a.Record, w),
			Actions: []Action{{Show, ""}, {showPrefix + a.Record.ExecutionID, w.Say("notify.show")}},
		})
		break
	}
	if n := len(s.Open); n > 0 {
		r := s.Open[n-1]
		list = append(list, Notice{
			Key: KeyUnknown, Title: w.Say("notify.unknown", "Tool", tool(r.Tool)), Body: w.Count("notify.unknown_count", n),
			Actions: []Action{{Show, ""}, {showPrefix + r.ExecutionID, w.Say("notify.show")}},
		})
	}
	if d := s.Denied; d.Calls > 0 {
		list = append(list, Notice{
			Key: KeyDenied, Title: w.Say("notify.denied"), Body: w.Count("notify.denied_calls", d.Calls, "Time", d.Last.Local().Format("15:04")),
			Actions: []Action{{Show, ""}, {showPrefix, w.Say("notify.show")}},
		})
	}
	return list
}

func tool(name string) string { return visible.Cut(visible.Line(name), 40) }

// again is why nothing was sent for a call that came again.
func again(r api.Record, w tray.Words) string {
	switch r.State {
	case "accepted":
		return w.Say("notify.again_waits")
	case "authorized", "dispatched":
		return w.Say("notify.again_runs")
	case "unknown":
		return w.Say("notify.again_unknown")
	}
	return w.Say("notify.again_done")
}
