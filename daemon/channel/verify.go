package channel

import (
	"context"
	"encoding/json"
	"time"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/vault/secret"
)

// Verifier asks what became of an attempt whose answer was lost. It is optional: a channel that has a way to ask implements it beside Channel.
//
// Verify asks once and returns; whoever calls it asks again as the action's wait contract says. It never causes the effect, not even late: at most it makes sure that what
// was sent and has not begun cannot begin any more. It is bounded by the limits that it is given, is safe for concurrent use, does not retain the Query and does not wipe
// the secret. The engine runs at most one verification of an execution at a time, and none while an attempt of it is in flight.
type Verifier interface {
	Verify(ctx context.Context, q Query) Finding
}

// Query is one question about one attempt.
type Query struct {
	ExecutionID string        // required
	Attempt     int           // required: the attempt in doubt; every one before it provably did nothing
	Effect      effect.Effect // required: what was sent, and in Status what is asked where that is a request of its own
	Secret      *secret.Bytes // of Effect.Status.Auth where there is a status request, else of Effect.Auth; nil where that is nil
	// Dispatched is when that attempt was dispatched. Zero where it is not known: what a channel would conclude from the time that passed is then not concluded.
	Dispatched time.Time
	// Awaited says that the target answered the attempt: it took it, and was not done.
	Awaited bool
	// Shown is what Finding.Evidence calls a status request in which the target's own words stand, which are not for the journal in clear. Empty: method and URL.
	Shown   string
	Limits  Limits // zero fields take the channel's defaults
	Private bool   // as in Request
	// Permitted is asked with the final URL, credential placed aside, right before the first byte; an error means that nothing is asked. Optional.
	Permitted func(rawURL string) error
	// Judge says what an answer to the status request means, by the contract's own conditions. Required where Effect.Status is set; a channel that asks in its own way
	// (the marker on an SSH host) judges by itself.
	Judge func(Reading) (Word, string)
}

// Reading is an answer to a status request, scrubbed of the secret.
type Reading struct {
	Status int
	Header map[string][]string
	Body   []byte
	Whole  bool // all of the body came and none was cut
}

// Word is what a verification found.
type Word = execution.Finding

// The words. Done and Failed come with a result; NotDone is believed at once only where it is Certain, else as the action's wait contract allows.
const (
	Done       = execution.FoundDone
	Failed     = execution.FoundFailed
	NotDone    = execution.FoundNotDone
	Running    = execution.FoundRunning
	CannotTell = execution.FoundCannotTell
)

// Finding is what one verification came to.
type Finding struct {
	Word Word
	// Certain says of NotDone that it is proven also for what may still be on its way: what was sent can never act any more. An endpoint that merely knows of nothing yet
	// proves that not; a host on which the start was made impossible does.
	Certain bool
	Status  int             // the target's own status of the attempt: exit status, or the status of the status request's answer
	Result  json.RawMessage // Done, Failed: as Outcome.Result, what the agent gets; nil otherwise
	Answer  json.RawMessage // as Outcome.Answer, for the operator; kept, sealed, with Done and Failed. May be nil
	Reason  string          // required: what was found, for people, without secrets
	// Evidence says what was asked and what was answered, in one line for people, without secrets and without contents: it stands in the journal in clear. At most 1 KiB.
	Evidence string
	// After is how long the target asks to be left alone before the next question; 0 where it says nothing.
	After time.Duration
}
