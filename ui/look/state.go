package look

import (
	"fyne.io/fyne/v2"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/words"
)

// State says how a record stands: in a word, by a shape, and in a tone.
func State(r api.Record) (Tone, Shape, string) {
	switch r.State {
	case "accepted":
		return Working, ShapeWaiting, words.Say("state.accepted")
	case "authorized":
		return Working, ShapeReady, words.Say("state.authorized")
	case "dispatched":
		if r.Awaits() {
			return Working, ShapeSent, words.Say("state.awaits")
		}
		return Working, ShapeSent, words.Say("state.dispatched")
	case "unknown":
		return Careful, ShapeUnknown, words.Say("state.unknown")
	case "completed_result_not_delivered":
		if r.Outcome == "target_error" {
			return Wrong, ShapeStored, words.Say("state.error_stored")
		}
		return Fine, ShapeStored, words.Say("state.stored")
	case "completed_result_delivered":
		if r.Outcome == "target_error" {
			return Wrong, ShapeFailed, words.Say("state.error")
		}
		return Fine, ShapeDone, words.Say("state.done")
	case "rejected":
		return Wrong, ShapeRefused, words.Say("state.rejected")
	case "expired":
		return Calm, ShapeOver, words.Say("state.expired")
	case "withdrawn":
		if r.Code == api.RecordedInstead {
			return Fine, ShapeStored, words.Say("state.recorded")
		}
		return Calm, ShapeBack, words.Say("state.withdrawn")
	case "not_sent":
		return Calm, ShapeNothing, words.Say("state.not_sent")
	case "not_done":
		return Calm, ShapeNothing, words.Say("state.not_done")
	}
	return Calm, ShapeInfo, r.State
}

// StateBadge shows how a record stands in one line.
func StateBadge(r api.Record) fyne.CanvasObject {
	return Badge(State(r))
}

// LostAnswer says what a contract's class means when the answer is lost.
func LostAnswer(class, daemonsWords string) string {
	switch class {
	case "read_only":
		return words.Say("lost.read_only")
	case "idempotent":
		return words.Say("lost.idempotent")
	case "status_query":
		return words.Say("lost.status_query")
	case "irreversible":
		return words.Say("lost.irreversible")
	}
	return daemonsWords
}
