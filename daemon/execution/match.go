package execution

import "time"

// Disposition is what a call gets that matches an earlier execution. The zero value is invalid.
type Disposition string

// The dispositions.
const (
	Attach    Disposition = "attach"     // wait with the callers that are there
	Recover   Disposition = "recover"    // the outcome is unknown: the class decides how to find out
	HandOut   Disposition = "hand_out"   // the stored result, byte for byte, marked as recorded
	SameNo    Disposition = "same_no"    // the same rejection, no new card
	AskAgain  Disposition = "ask_again"  // a card that shows the earlier record first
	StartNew  Disposition = "start_new"  // a new execution
	KeyReused Disposition = "key_reused" // the client's key stands for another effect
)

// Claim is a call that looks for the execution that it belongs to.
type Claim struct {
	Actor       string
	Scope       string
	Fingerprint string
	Keyed       bool // the scope comes from a key of the client's
	Now         time.Time
}

// Judge says what a claim gets from an earlier execution of the same actor and scope. For a claim without a key the caller looks up by fingerprint as well.
//
// The rules are section 4 of docs/architecture.md. A key, unlike a bare fingerprint, is the client's own word that this is the same intent, so it outlives the attach
// window, and a delivered result is returned without asking.
func Judge(x Execution, c Claim) Disposition {
	if x.Actor != c.Actor || x.Scope != c.Scope {
		return StartNew
	}
	if x.Fingerprint != c.Fingerprint {
		if c.Keyed {
			return KeyReused
		}
		return StartNew
	}
	switch x.State {
	case Accepted, Authorized, Dispatched:
		// What still waits or is under way matches for as long as it does: a second card for the first one's intent would ask the wrong question.
		return Attach
	case Unknown:
		return Recover
	}
	if !c.Keyed && c.Now.Sub(x.ChangedAt) > x.AttachWindow {
		return StartNew
	}
	if x.Class == ReadOnly && !c.Keyed && x.AfterDelivery != Return && x.State.Completed() {
		// A read has no effect to double, and an old answer in place of a new one would be a stale read.
		return StartNew
	}
	switch x.State {
	case NotDelivered:
		return HandOut
	case Delivered:
		switch {
		case c.Keyed || x.AfterDelivery == Return:
			return HandOut
		case x.AfterDelivery == New:
			return StartNew
		}
		return AskAgain
	case Rejected:
		return SameNo
	}
	return StartNew
}
