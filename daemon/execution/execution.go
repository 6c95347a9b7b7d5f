// Package execution is the life of one accepted attempt to carry an action out, as a value and a pure function.
//
// Apply is the only way in which an Execution changes. The live path and the recovery at start both go through it, so that what the journal says and what the daemon
// believes cannot part. The package does no I/O and reads no clock: the time of an event comes with it.
//
// Frozen formats: the strings of State and Kind, and the JSON of Event (version 1; testdata/events.jsonl holds vectors). Fields may be added with omitempty; a field or
// a string is never renamed or given another meaning, because old journals are read for ever.
package execution

import "time"

// State is where an execution stands. The zero value is invalid: it is the state of an execution that does not exist yet.
type State string

// The states. See docs/architecture.md for the table of transitions.
const (
	Accepted     State = "accepted"
	Authorized   State = "authorized"
	Dispatched   State = "dispatched"
	Unknown      State = "unknown"
	NotDelivered State = "completed_result_not_delivered"
	Delivered    State = "completed_result_delivered"
	Rejected     State = "rejected"
	Expired      State = "expired"
	Withdrawn    State = "withdrawn"
	NotSent      State = "not_sent"
	NotDone      State = "not_done"
)

// States lists every state in the order of a life.
func States() []State {
	return []State{Accepted, Authorized, Dispatched, Unknown, NotDelivered, Delivered, Rejected, Expired, Withdrawn, NotSent, NotDone}
}

// Final says that the target did nothing and nothing will change any more.
func (s State) Final() bool {
	switch s {
	case Rejected, Expired, Withdrawn, NotSent, NotDone:
		return true
	}
	return false
}

// Open says that the execution may still act, or may have acted without anybody knowing the outcome.
func (s State) Open() bool {
	switch s {
	case Accepted, Authorized, Dispatched, Unknown:
		return true
	}
	return false
}

// Completed says that an outcome is known and durable.
func (s State) Completed() bool { return s == NotDelivered || s == Delivered }

// Class is a contract's word on what a lost answer means. The zero value is invalid; a contract that names none is irreversible.
type Class string

// The classes.
const (
	ReadOnly     Class = "read_only"
	Idempotent   Class = "idempotent"
	StatusQuery  Class = "status_query"
	Irreversible Class = "irreversible"
)

// Classes lists every class.
func Classes() []Class { return []Class{ReadOnly, Idempotent, StatusQuery, Irreversible} }

// Outcome is what the target answered; empty means that it is not known.
type Outcome string

// The outcomes.
const (
	Success     Outcome = "success"
	TargetError Outcome = "target_error"
	NothingSent Outcome = "not_sent"
)

// AfterDelivery says what a repeat of a delivered execution gets.
type AfterDelivery string

// What a repeat gets: a card that shows the earlier record, the recorded result, or an execution of its own.
const (
	Ask    AfterDelivery = "ask"
	Return AfterDelivery = "return"
	New    AfterDelivery = "new"
)

// Caller is one call that belongs to an execution, with the protocol's correlation. It is evidence and never decides anything.
type Caller struct {
	Call       string    `json:"call"`                 // the daemon's own number of the call, unique in this journal
	Run        string    `json:"run"`                  // the run that called
	Transport  string    `json:"transport,omitempty"`  // stdio, http
	Connection string    `json:"connection,omitempty"` // the daemon's own id of the connection
	RequestID  string    `json:"request_id,omitempty"` // the JSON-RPC id as JSON text
	Session    string    `json:"session,omitempty"`    // Mcp-Session-Id where there is one
	Protocol   string    `json:"protocol,omitempty"`   // MCP revision
	Client     string    `json:"client,omitempty"`     // clientInfo: a claim of the client's
	Key        string    `json:"key,omitempty"`        // where its idempotency key came from: meta, sibling, intent_key
	At         time.Time `json:"at,omitzero"`
	Delivered  string    `json:"delivered,omitempty"` // the evidence that this caller has the result
	Disputed   bool      `json:"disputed,omitempty"`  // it cancelled after that
}

// Attempt is one dispatch.
type Attempt struct {
	Number       int       `json:"number"`
	DispatchedAt time.Time `json:"dispatched_at"`
	EndedAt      time.Time `json:"ended_at,omitzero"`
	Outcome      Outcome   `json:"outcome,omitempty"` // empty: not known
	Reason       string    `json:"reason,omitempty"`
	// AwaitedSince is when the target answered that it took it and is not done. From then on nothing but the target's word or the operator's ends the attempt.
	AwaitedSince time.Time     `json:"awaited_since,omitzero"`
	AskAfter     time.Duration `json:"ask_after,omitempty"` // nanoseconds; how long the target asked to be left alone from then on
}

// Awaited says that the target answered that it took the attempt, and not yet how it ended.
func (a Attempt) Awaited() bool { return !a.AwaitedSince.IsZero() }

// Check is one time that the target was asked what became of an attempt, or several with the same finding.
type Check struct {
	At       time.Time `json:"at"` // of the last answer
	Finding  Finding   `json:"finding"`
	Source   Source    `json:"source,omitempty"`   // how it was asked
	By       string    `json:"by,omitempty"`       // who had it asked: the daemon, an agent's call, the operator
	Evidence string    `json:"evidence,omitempty"` // what was asked and what was answered, without secrets
	Reason   string    `json:"reason,omitempty"`
	Times    int       `json:"times_asked,omitempty"` // more than once with this finding
}

// Acceptance is what is fixed when an execution is accepted.
type Acceptance struct {
	Tool           string        `json:"tool"`
	Action         string        `json:"action,omitempty"` // the contract's name, where the tool comes from one
	ContractDigest string        `json:"contract_digest,omitempty"`
	Channel        string        `json:"channel"`
	Target         string        `json:"target"`
	Credential     string        `json:"credential,omitempty"`
	Class          Class         `json:"class"`
	Actor          string        `json:"actor"`
	ActorDigest    string        `json:"actor_digest,omitempty"` // SHA-256 of the executable, recorded beside the actor
	Run            string        `json:"run"`
	Scope          string        `json:"intent_scope"`
	Fingerprint    string        `json:"fingerprint"` // hmac-sha256:…
	EffectDigest   string        `json:"effect_digest"`
	AttachWindow   time.Duration `json:"attach_window"` // nanoseconds
	AfterDelivery  AfterDelivery `json:"after_delivery"`
	KeyLifetime    time.Duration `json:"key_lifetime,omitempty"` // nanoseconds; how long the target remembers the idempotency key
	Retention      time.Duration `json:"retention,omitempty"`    // nanoseconds; how long the result is kept
	Again          string        `json:"again,omitempty"`        // the earlier execution that the operator decided to run again
}

// Execution is one accepted attempt to carry an action out. Only Apply makes or changes one.
type Execution struct {
	ID string `json:"execution_id"`
	Acceptance
	State        State     `json:"state"`
	Outcome      Outcome   `json:"outcome,omitempty"`
	TargetStatus int       `json:"target_status,omitempty"`
	Source       Source    `json:"outcome_source,omitempty"` // who says what the outcome was
	AcceptedAt   time.Time `json:"accepted_at"`
	AuthorizedAt time.Time `json:"authorized_at,omitzero"`
	AuthorizedBy string    `json:"authorized_by,omitempty"`
	DispatchedAt time.Time `json:"dispatched_at,omitzero"` // the first dispatch
	CompletedAt  time.Time `json:"completed_at,omitzero"`
	DeliveredAt  time.Time `json:"delivered_at,omitzero"`
	ChangedAt    time.Time `json:"changed_at"` // the last transition; the attach window counts from here
	Result       string    `json:"result_reference,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	Code         string    `json:"code,omitempty"` // the stable code of a rejection
	Attempts     []Attempt `json:"attempts,omitempty"`
	Callers      []Caller  `json:"callers,omitempty"`
	Dropped      int       `json:"callers_dropped,omitempty"` // callers beyond MaxCallers, which are only counted
	Checks       []Check   `json:"checks,omitempty"`          // the newest MaxChecks, oldest first
	// InDoubt says that an earlier attempt may have acted: it keeps a later attempt's "not sent" from reading as "nothing was sent".
	InDoubt bool `json:"in_doubt,omitempty"`
	Pruned  bool `json:"pruned,omitempty"` // only the tombstone is left
}

// MaxCallers bounds the callers that are kept with an execution, so that a caller in a loop cannot grow a record without limit.
const MaxCallers = 64

// MaxChecks bounds the checks that are kept with an execution; the journal has them all.
const MaxChecks = 16

// LastCheck returns the newest check, or a zero Check.
func (x Execution) LastCheck() Check {
	if len(x.Checks) == 0 {
		return Check{}
	}
	return x.Checks[len(x.Checks)-1]
}

// Awaits says that the target has it: it answered that it took it, and is asked how it ends. A restart of the daemon changes nothing about that.
func (x Execution) Awaits() bool { return x.State == Dispatched && x.LastAttempt().Awaited() }

// LastAttempt returns the newest attempt, or a zero Attempt.
func (x Execution) LastAttempt() Attempt {
	if len(x.Attempts) == 0 {
		return Attempt{}
	}
	return x.Attempts[len(x.Attempts)-1]
}
