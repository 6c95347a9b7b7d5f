package channel

import (
	"context"
	"encoding/json"
	"time"

	"singlepass.dev/daemon/effect"
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
	Limits      Limits        // zero fields take the channel's defaults
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

// Word is what a verification found. The strings are recorded in the journal; they are never renamed.
type Word string

// The words. The zero value is invalid.
const (
	Done       Word = "done"        // the attempt succeeded; the result is in the finding
	Failed     Word = "failed"      // the target acted or refused and says that it failed: a known target_error
	NotDone    Word = "not_done"    // the target did nothing; believed at once only if Certain, else as the wait contract allows
	Running    Word = "running"     // it is under way: ask again later
	CannotTell Word = "cannot_tell" // anything else, and every doubt
)

// Finding is what one verification came to.
type Finding struct {
	Word Word
	// Certain says of NotDone that it is proven also for what may still be on its way: what was sent can never act any more. An endpoint that merely knows of nothing yet
	// proves that not; a host on which the start was made impossible does.
	Certain bool
	Status  int             // the target's own status of the attempt: exit status, or the status of the status request's answer
	Result  json.RawMessage // Done, Failed: as Outcome.Result, what the agent gets; nil otherwise
	Answer  json.RawMessage // Done, Failed: as Outcome.Answer, for the operator; may be nil
	Reason  string          // required: what was found, for people, without secrets
	// Evidence says what was asked and what was answered, as a JSON object without secrets, at most 16 KiB; for the operator. May be nil if nothing was asked.
	Evidence json.RawMessage
	// After is how long the target asks to be left alone before the next question; 0 where it says nothing.
	After time.Duration
}
