package api

import (
	"encoding/json"
	"time"
)

// Record is one execution as it is shown; one line of `activity --json`. Times are RFC 3339 UTC.
type Record struct {
	ExecutionID    string    `json:"execution_id"`
	Fingerprint    string    `json:"fingerprint"`
	Tool           string    `json:"tool"`
	Action         string    `json:"action,omitempty"`
	Actor          string    `json:"actor"`
	ActorDigest    string    `json:"actor_digest,omitempty"`
	Run            string    `json:"run"`
	IntentScope    string    `json:"intent_scope"`
	Channel        string    `json:"channel,omitempty"`
	Target         string    `json:"target"`
	Credential     string    `json:"credential,omitempty"`
	Class          string    `json:"class"`
	State          string    `json:"state"`
	Outcome        string    `json:"outcome,omitempty"` // absent: not known
	OutcomeSource  string    `json:"outcome_source,omitempty"`
	TargetStatus   int       `json:"target_status,omitempty"`
	AcceptedAt     time.Time `json:"accepted_at"`
	AuthorizedAt   time.Time `json:"authorized_at,omitzero"`
	AuthorizedBy   string    `json:"authorized_by,omitempty"`
	DispatchedAt   time.Time `json:"dispatched_at,omitzero"`
	CompletedAt    time.Time `json:"completed_at,omitzero"`
	DeliveredAt    time.Time `json:"delivered_at,omitzero"`
	ChangedAt      time.Time `json:"changed_at,omitzero"`
	Result         string    `json:"result_reference,omitempty"`
	ContractDigest string    `json:"contract_digest,omitempty"`
	EffectDigest   string    `json:"effect_digest,omitempty"`
	Reason         string    `json:"reason,omitempty"`
	Code           Code      `json:"code,omitempty"`
	Again          string    `json:"again,omitempty"`    // the earlier execution that was run again on purpose
	InDoubt        bool      `json:"in_doubt,omitempty"` // an earlier attempt may have acted
	Pruned         bool      `json:"pruned,omitempty"`
	Attempts       []Attempt `json:"attempts"`
	Callers        []Caller  `json:"callers"`
	CallersDropped int       `json:"callers_dropped,omitempty"`
	Checks         []Check   `json:"checks,omitempty"`
	Timeline       []Step    `json:"timeline,omitempty"`
	Summary        string    `json:"summary,omitempty"` // what it came to, in one sentence
}

// RecordedInstead is the code of an execution that was withdrawn because the operator had its callers answered with the recorded result of an earlier one. Nothing refuses with it.
const RecordedInstead Code = "recorded_instead"

// Attempt is one dispatch.
type Attempt struct {
	Number       int       `json:"number"`
	DispatchedAt time.Time `json:"dispatched_at"`
	EndedAt      time.Time `json:"ended_at,omitzero"`
	Outcome      string    `json:"outcome,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	AwaitedSince time.Time `json:"awaited_since,omitzero"` // the target answered that it took it and is not done
}

// Caller is one call that belongs to the execution, with its protocol correlation: evidence, never an identity.
type Caller struct {
	Call       string    `json:"call"`
	Run        string    `json:"run"`
	Transport  string    `json:"transport,omitempty"`
	Connection string    `json:"connection,omitempty"`
	RequestID  string    `json:"request_id,omitempty"`
	Session    string    `json:"session,omitempty"`
	Protocol   string    `json:"protocol,omitempty"`
	Client     string    `json:"client,omitempty"`
	Key        string    `json:"key,omitempty"`
	At         time.Time `json:"at,omitzero"`
	Delivered  string    `json:"delivered,omitempty"`
	Disputed   bool      `json:"disputed,omitempty"`
}

// Check is one time that the target was asked what became of an attempt, or several with the same finding.
type Check struct {
	At       time.Time `json:"at"`      // of the last answer
	Finding  string    `json:"finding"` // done, failed, not_done, running, cannot_tell
	Source   string    `json:"source,omitempty"`
	By       string    `json:"by,omitempty"`
	Evidence string    `json:"evidence,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Times    int       `json:"times_asked,omitempty"`
}

// Step is one moment of an execution's life. AfterMS is the time since the step before it, in milliseconds.
type Step struct {
	At      time.Time `json:"at"`
	AfterMS int64     `json:"after_ms"`
	What    string    `json:"what"` // accepted, caller_attached, authorized, dispatched, attempt_ended, asked, completed, delivered, or the final state
	Text    string    `json:"text"`
	Said    Said      `json:"said"` // the same as Text, for another language
}

// Payload is what was asked for and what came of it, opened from the journal; only while the vault is unlocked.
type Payload struct {
	ExecutionID string          `json:"execution_id"`
	Arguments   json.RawMessage `json:"arguments,omitempty"`
	Effect      *Effect         `json:"effect,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	Answer      json.RawMessage `json:"answer,omitempty"` // status line, header fields and sizes of the target's answer
	Erased      bool            `json:"erased,omitempty"` // the retention is over
	Place       *Place          `json:"journal,omitempty"`
}

// Place says where the journal has an execution.
type Place struct {
	Accepted uint64 `json:"accepted_seq"` // the entry that accepted it
	Last     uint64 `json:"last_seq"`     // the entry that changed it last
	Verified bool   `json:"verified"`     // the journal verified when the daemon started, and the index that names these entries carries the vault's mark
}

// Effect is exactly what will be, or was, sent. The credential stands as ‹credential NAME›.
type Effect struct {
	Channel string  `json:"channel"`
	Method  string  `json:"method,omitempty"`
	URL     string  `json:"url,omitempty"`
	Header  []Field `json:"header,omitempty"`
	Body    string  `json:"body,omitempty"`        // when it is text
	BodyB64 string  `json:"body_base64,omitempty"` // when it is not
	Size    int     `json:"body_size"`             // bytes
	SSH     *SSH    `json:"ssh,omitempty"`
	MCP     *MCP    `json:"mcp,omitempty"`
	Status  *Effect `json:"status,omitempty"` // what the target will be asked should the answer be lost, or say that it is not done; it changes nothing there
	// Of Status alone. {answer:FIELD} in it is a field of the target's own answer; Within is where a URL that is one has to lie.
	Within     string      `json:"within,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is what an answer of the target means, by the action's contract.
type Condition struct {
	Name string `json:"name"` // accepted: it took the call and is not done; of the answers to the status request: done, failed, not_done, running
	When string `json:"when"` // in CEL, as the contract has it
}

// SSH is a command on a host. Its standard input stands in Effect.Body.
type SSH struct {
	Host      string   `json:"host"`           // ssh://user@name:port
	Keys      []string `json:"keys,omitempty"` // the pinned host keys
	Jump      string   `json:"jump,omitempty"` // the host through which the connection goes
	Command   string   `json:"command"`        // one line for the account's shell, quoted as it is sent
	Directory string   `json:"directory,omitempty"`
	Env       []Field  `json:"env,omitempty"`
	Marker    bool     `json:"marker,omitempty"` // the host remembers that it was started and how it ended
}

// MCP is a call of an upstream's tool. Its arguments stand in Effect.Body.
type MCP struct {
	Upstream string   `json:"upstream"` // the name that the operator gave it
	Tool     string   `json:"tool"`
	URL      string   `json:"url,omitempty"`
	Command  []string `json:"command,omitempty"`
}

// Field is one header field.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Process is one process as the kernel proves it.
type Process struct {
	PID    int       `json:"pid"`
	UID    int       `json:"uid"`
	Exe    string    `json:"exe"`
	Script string    `json:"script,omitempty"`
	Digest string    `json:"digest,omitempty"`
	Began  time.Time `json:"began,omitzero"`
}

// Card is one question to the person, with everything that is needed to answer it.
type Card struct {
	Card        string    `json:"card"`
	Question    string    `json:"question"` // session, per_use, session_and_use, again
	Sentence    string    `json:"sentence"` // what is asked, plainly
	ExecutionID string    `json:"execution_id"`
	Fingerprint string    `json:"fingerprint"`
	Tool        string    `json:"tool"`
	Action      string    `json:"action,omitempty"`
	Target      string    `json:"target"`
	Effect      Effect    `json:"effect"`
	Credential  string    `json:"credential,omitempty"`
	Class       string    `json:"class"`
	LostAnswer  string    `json:"lost_answer"` // what the contract says about a lost answer, plainly
	Why         []string  `json:"why"`         // why this is asked
	WhySaid     []Said    `json:"why_said"`    // the same, each at the place of its text
	Actor       string    `json:"actor"`
	Run         string    `json:"run"`
	Via         string    `json:"via,omitempty"`
	Agent       Process   `json:"agent"`
	Chain       []Process `json:"chain,omitempty"` // the agent's ancestors, nearest first
	Assurance   string    `json:"assurance"`
	Level       Assurance `json:"assurance_level"`        // the same, as a code
	Package     string    `json:"package,omitempty"`      // what the program was installed as: deb:name, rpm:name, flatpak:id, snap:name, appimage:/path
	Contains    string    `json:"contains,omitempty"`     // what its script is of, by files that the user can change: npm:name@version, python:name
	Doubts      []string  `json:"doubts,omitempty"`       // why it cannot be told
	Changes     []string  `json:"changes,omitempty"`      // what is another than in its last session
	DoubtsSaid  []Said    `json:"doubts_said,omitempty"`  // as with WhySaid
	ChangesSaid []Said    `json:"changes_said,omitempty"` // as with WhySaid
	Since       time.Time `json:"since,omitzero"`         // when this run was first seen
	CallsBefore int       `json:"calls_before"`
	Created     time.Time `json:"created"`
	Expires     time.Time `json:"expires"`
	Answers     []string  `json:"answers"`            // what may be answered: once, session, recorded, deny
	Original    *Record   `json:"original,omitempty"` // for a retried call: the earlier record
	Retry       string    `json:"retry,omitempty"`    // for a retried call: why nothing new was sent
	Record      *Record   `json:"record,omitempty"`   // the execution that waits
}

// CardEvent is one line of `approvals --follow --json`: first every waiting card, then what changes.
type CardEvent struct {
	Event string `json:"event"` // waiting, added, changed, answered, void
	Card         // answered and void carry the id only
	By    string `json:"by,omitempty"`
	Note  string `json:"reason,omitempty"`
}

// MarshalJSON leaves out what an event about a card that is gone does not have.
func (e CardEvent) MarshalJSON() ([]byte, error) {
	if e.Event == "answered" || e.Event == "void" {
		return json.Marshal(struct {
			Event       string `json:"event"`
			Card        string `json:"card"`
			ExecutionID string `json:"execution_id,omitempty"`
			By          string `json:"by,omitempty"`
			Note        string `json:"reason,omitempty"`
		}{e.Event, e.Card.Card, e.ExecutionID, e.By, e.Note})
	}
	type whole CardEvent
	return json.Marshal(whole(e))
}

// CardAnswer answers a card.
type CardAnswer struct {
	Answer  string `json:"answer"` // once, session, recorded, deny
	Reason  string `json:"reason,omitempty"`
	Scope   string `json:"scope,omitempty"`   // with session: run (the default), action, arguments
	Minutes int    `json:"minutes,omitempty"` // with session: it ends after so many; 0: with its run
	// Standing, with session, extends it to the next runs of the program, as a standing grant that ends after so many minutes; scope is then action where it is empty.
	Standing bool `json:"standing,omitempty"`
}

// RecordEvent is one item of the activity stream. Marshalled, it is the record itself with one more field.
type RecordEvent struct {
	Event string `json:"event"` // recorded (the ones before), changed
	Record
}

// Refusal is one call that was not accepted; one line of `activity --refused --json`. Nothing was sent for it.
type Refusal struct {
	At        time.Time `json:"at"`
	Code      Code      `json:"code"`
	Tool      string    `json:"tool"` // as the agent wrote it
	Run       string    `json:"run"`
	Actor     string    `json:"actor"`
	Reason    string    `json:"reason,omitempty"`
	Call      string    `json:"call,omitempty"`
	Transport string    `json:"transport,omitempty"`
	RequestID string    `json:"request_id,omitempty"`
	Protocol  string    `json:"protocol,omitempty"`
	Client    string    `json:"client,omitempty"` // what the client says of itself
	// NotRecorded counts the refusals of this run right before this one that were only counted, because there were too many.
	NotRecorded int `json:"not_recorded_before,omitempty"`
}

// RefusalEvent is one item of the stream of refused calls. Marshalled, it is the refusal itself with one more field.
type RefusalEvent struct {
	Event string `json:"event"` // recorded (the ones before), refused
	Refusal
}

// Session is the person's authorization of one run.
type Session struct {
	Run       string    `json:"run"`
	Actor     string    `json:"actor"`
	By        string    `json:"by"`
	Card      string    `json:"card,omitempty"`
	At        time.Time `json:"at"`
	Agent     Process   `json:"agent"`
	Assurance string    `json:"assurance,omitempty"`
	Level     Assurance `json:"assurance_level,omitempty"` // the same, as a code
	Package   string    `json:"package,omitempty"`         // these as of a card
	Contains  string    `json:"contains,omitempty"`
	Doubts    []string  `json:"doubts,omitempty"`
	Changes   []string  `json:"changes,omitempty"`
	Scope     string    `json:"scope"`               // run, action, arguments
	Tool      string    `json:"tool,omitempty"`      // with a scope narrower than the run
	Until     time.Time `json:"until,omitzero"`      // absent: as long as the run lives
	Suspended bool      `json:"suspended,omitempty"` // the vault is locked
	Calls     int       `json:"calls"`
	Grant     string    `json:"grant,omitempty"` // the standing grant that it came from, or that was given with it
}

// Grant is a standing grant: the person's word that the next runs of one program may do one thing, too.
type Grant struct {
	Grant          string    `json:"grant"`
	Actor          string    `json:"actor"`
	Package        string    `json:"package,omitempty"`
	Exe            string    `json:"exe"`
	Digest         string    `json:"digest"` // of the executable
	Via            string    `json:"via"`
	Through        []string  `json:"through,omitempty"` // what stands between the program and the daemon
	Chain          []string  `json:"chain,omitempty"`   // its ancestors, nearest first
	Scope          string    `json:"scope"`             // action, arguments
	Tool           string    `json:"tool"`
	ContractDigest string    `json:"contract_digest"`
	By             string    `json:"by"`
	Card           string    `json:"card"`
	Run            string    `json:"run"` // the one whose card it was
	At             time.Time `json:"at"`
	Until          time.Time `json:"until"`
	Runs           []string  `json:"runs,omitempty"` // those that have a session by it now
}

// Verdict is the operator's word on an unknown outcome.
type Verdict struct {
	Done bool   `json:"done"`
	Note string `json:"note,omitempty"`
	// Against is what the target said when it was asked last, where the verdict is to stand against that (see Record.Contradicts). One that goes against something else is refused: the target was asked since.
	Against string `json:"against,omitempty"`
}

// Awaits says that the target took the call, is not done, and is asked until it is.
func (r Record) Awaits() bool {
	return r.State == "dispatched" && len(r.Attempts) > 0 && !r.Attempts[len(r.Attempts)-1].AwaitedSince.IsZero()
}

// Open says that the operator's verdict would settle it.
func (r Record) Open() bool { return r.State == "unknown" || r.Awaits() }

// Contradicts returns the finding that speaks against a verdict: what the target said when it was asked last. It is empty where nothing does; "could not be determined" speaks against
// nothing. Whoever takes the verdict asks the operator whether it is to stand against that.
func (r Record) Contradicts(done bool) (finding string) {
	if !r.Open() || len(r.Checks) == 0 {
		return ""
	}
	switch last := r.Checks[len(r.Checks)-1].Finding; last {
	case "not_done":
		if done {
			return last
		}
	case "done", "failed", "running":
		if !done {
			return last
		}
	}
	return ""
}

// Checked is what the question to the target came to.
type Checked struct {
	Finding  string          `json:"finding"`            // done, failed, not_done, running, cannot_tell
	Settled  bool            `json:"settled"`            // it decided the outcome; false for a "not done" that cannot be believed yet
	Text     string          `json:"text,omitempty"`     // what was found, in words
	Evidence string          `json:"evidence,omitempty"` // what was asked and what was answered, in one line
	Answer   json.RawMessage `json:"answer,omitempty"`   // the answer's status, header fields and sizes
	Record   Record          `json:"record"`             // the execution afterwards
}
