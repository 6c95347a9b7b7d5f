package execution

import "time"

// Kind names what happened to an execution. The zero value is invalid.
type Kind string

// The kinds.
const (
	KindAccepted     Kind = "accepted"
	KindAttached     Kind = "caller_attached"       // another call belongs to this execution
	KindAuthorized   Kind = "authorized"            //
	KindDispatched   Kind = "dispatched"            // durable before the first byte leaves
	KindSendFailed   Kind = "attempt_not_sent"      // proof that no byte of this attempt left
	KindGaveUp       Kind = "not_sent"              // no attempt could be sent, and none will be
	KindAwaited      Kind = "outcome_awaited"       // the target answered that it took it and is not done; it is asked for the outcome from here on
	KindObserved     Kind = "outcome_observed"      //
	KindUnknown      Kind = "outcome_unknown"       //
	KindInconclusive Kind = "verification_no_proof" // the target or the operator was asked and could not tell
	KindNotDone      Kind = "not_done_established"  // proof or verdict that the target did nothing
	KindDelivered    Kind = "delivered"             //
	KindDisputed     Kind = "delivery_disputed"     //
	KindRejected     Kind = "rejected"              //
	KindExpired      Kind = "expired"               //
	KindWithdrawn    Kind = "withdrawn"             //
	KindPruned       Kind = "pruned"                // the payload is gone, the tombstone stays
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{
		KindAccepted, KindAttached, KindAuthorized, KindDispatched, KindSendFailed, KindGaveUp, KindAwaited, KindObserved, KindUnknown, KindInconclusive,
		KindNotDone, KindDelivered, KindDisputed, KindRejected, KindExpired, KindWithdrawn, KindPruned,
	}
}

// Source says whose word an outcome is.
type Source string

// The sources.
const (
	FromTarget   Source = "target"       // the answer of the attempt itself
	FromLate     Source = "late_answer"  // the same, after it had been written off as unknown
	FromQuery    Source = "status_query" // the contract's status request
	FromMarker   Source = "marker"       // the durable marker on an SSH host
	FromOperator Source = "operator"     // the person's verdict
)

// Finding is what one verification found. The zero value is invalid.
type Finding string

// The findings.
const (
	FoundDone       Finding = "done"        // the attempt succeeded
	FoundFailed     Finding = "failed"      // the target says that it failed: a known target_error
	FoundNotDone    Finding = "not_done"    // the target did nothing, as far as it can be seen now
	FoundRunning    Finding = "running"     // it is under way
	FoundCannotTell Finding = "cannot_tell" // anything else, and every doubt
)

// Event is one thing that happened to one execution, as it stands in the journal's entry. At is the entry's own time and not part of the JSON.
type Event struct {
	Kind Kind      `json:"kind"`
	ID   string    `json:"execution_id"`
	At   time.Time `json:"-"`

	Acceptance *Acceptance `json:"acceptance,omitempty"` // accepted
	Caller     *Caller     `json:"caller,omitempty"`     // accepted, caller_attached
	Call       string      `json:"call,omitempty"`       // delivered, delivery_disputed: which caller
	By         string      `json:"by,omitempty"`         // authorized, rejected, expired, withdrawn, not_done_established: who or what; with a finding: who had it asked
	Attempt    int         `json:"attempt,omitempty"`    // dispatched, attempt_not_sent, outcome_awaited, outcome_observed, outcome_unknown
	Outcome    Outcome     `json:"outcome,omitempty"`    // outcome_observed
	Status     int         `json:"target_status,omitempty"`
	Result     string      `json:"result_reference,omitempty"`
	Source     Source      `json:"source,omitempty"`   // outcome_observed, verification_no_proof, not_done_established
	Evidence   string      `json:"evidence,omitempty"` // delivered; and what was shown to whoever gave a verdict
	Code       string      `json:"code,omitempty"`     // rejected
	Reason     string      `json:"reason,omitempty"`
	Waiting    bool        `json:"caller_waiting,omitempty"` // not_done_established: a caller is attached, so it may be sent
	Finding    Finding     `json:"finding,omitempty"`        // outcome_observed, verification_no_proof, not_done_established: where somebody was asked
	Times      int         `json:"times_asked,omitempty"`    // how often it was asked since the last event about it, where more than once with the same finding

	AskAfter time.Duration `json:"ask_after,omitempty"` // outcome_awaited: nanoseconds; how long the target asked to be left alone before the first question
}
