package policy

import (
	"encoding/json"
	"time"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
)

// MaxContractBytes bounds a contract's file.
const MaxContractBytes = 256 << 10

// What a contract means that does not say.
const (
	DefaultAttachWindow = time.Hour
	DefaultPoll         = 2 * time.Second
	DefaultGiveUpAfter  = 10 * time.Minute
	DefaultAcceptedFor  = 24 * time.Hour // DefaultGiveUpAfter where a target can say that it is not done
	DefaultRetention    = 30 * 24 * time.Hour
	DefaultAttempts     = 2 // for every class but irreversible, which has one
	MaxAttempts         = 5
)

// Contract is one action's contract. Only Parse makes one; it is not changed afterwards.
type Contract struct {
	Action      string // the tool's name
	Title       string
	Description string
	Channel     effect.Channel
	Input       json.RawMessage // the JSON Schema of the arguments, members in the file's order
	Credential  string          // the credential's name in the vault; empty when none is used
	Approval    Approval
	HTTP        *HTTP // with channel http
	SSH         *SSH  // with channel ssh
	MCP         *MCP  // with channel mcp
	Asks        bool  // made by AskForCredential: the effect is a question to the person
	Generic     bool  // made by GenericHTTP or GenericSSH: the arguments are the request, or the command
	Replay      Replay
	Retention   Retention
	Digest      string // "sha256:" and the hash of the exact bytes of the file; what the operator accepts

	input     *input
	condition *condition
}

// Approval says when the person is asked beyond the run's session.
type Approval struct {
	PerUse   bool   // each time
	PerUseIf string // each time when this CEL condition over args holds; empty when there is none
}

// HTTP is the request that the action makes.
type HTTP struct {
	Method    string
	URL       string // as written, placeholders and all
	Headers   []Pair
	Query     []Pair
	Connect   time.Duration // 0: the channel's default
	Total     time.Duration // 0: the channel's default
	MaxAnswer int64         // bytes; 0: the channel's default
	Private   bool          // the host's name may lead into a private network or to this machine
	Success   []StatusRange // what counts as done; 200 to 299 unless the contract says otherwise

	origin string // scheme and authority, fixed by the contract
	answer string // the field of the action's own answer that the URL is; empty where the contract fixes it
	path   []template
	json   *jsonTemplate
	form   []Pair // nil when the body is no form
	body   *template
}

// Succeeded says whether a status means that the target did what was asked.
func (h *HTTP) Succeeded(status int) bool {
	for _, r := range h.Success {
		if r.From <= status && status <= r.To {
			return true
		}
	}
	return false
}

// StatusRange is a range of HTTP statuses, both ends included.
type StatusRange struct{ From, To int }

// Pair is one header field, query parameter or form field.
type Pair struct {
	Name  string
	Value string // as written

	template template
}

// Replay is what a lost answer means.
type Replay struct {
	Class             execution.Class
	IdempotencyHeader string        // idempotent only
	KeyLifetime       time.Duration // idempotent only; how long the target remembers a key
	Fingerprint       []string      // the arguments that make an intent; all of them unless the contract says otherwise
	AttachWindow      time.Duration
	AfterDelivery     execution.AfterDelivery
	IntentScope       IntentScope
	Attempts          int       // automatic ones, the first included
	Accepted          *Accepted // status_query over HTTP only; nil where every answer is the outcome
	Status            *Status
	Wait              Wait // status_query only
}

// Accepted says by which answer to the action's own request the target says that it took it and is not done.
type Accepted struct {
	Text   string        // as the card shows it: the condition, or the listed statuses as one
	ranges []StatusRange // nil where there is a condition
	when   *judgement
}

// Status asks what became of an execution whose answer was lost: status_query over HTTP.
type Status struct {
	HTTP                     // the request: GET, HEAD or POST
	Credential      string   // the action's own unless the contract says otherwise; empty when none is used
	Fields          []string // the fields of the action's own answer that the request needs, in the order of the file
	Within          string   // where the URL is such a field: scheme, host, port and path that it must lie in
	Done, NotDone   string   // CEL conditions over the answer, as written; NotDone may be empty
	Failed, Running string   // empty when there is none
	done, notDone   *judgement
	failed, running *judgement
	ownContentType  bool
}

// Wait says how the question what became of an execution is repeated. It counts from the end of the attempt in doubt, when the last byte of it can have left.
type Wait struct {
	Poll         time.Duration // the pause between two questions; it grows to a tenth of the time that has passed
	NotDoneAfter time.Duration // before that, "not done" is not believed: it may only not show yet
	GiveUpAfter  time.Duration // then it is no longer asked by itself, only for a call and for the operator
}

// IntentScope says where a repeat without a client's key still means the same intent. The zero value is invalid.
type IntentScope string

// The intent scopes: within one run, or across the runs of one actor until the outcome is verified.
const (
	ScopeRun     IntentScope = "run"
	ScopeDurable IntentScope = "durable"
)

// Retention says how long things are kept.
type Retention struct {
	Result time.Duration
}
