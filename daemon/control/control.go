// Package control is the operator's side of the daemon: HTTP/JSON on operator.sock, for spctl and the tray.
//
// Promises:
//   - Nothing that reads cards or activity, or changes anything, happens without the operator's proof in that very request (architecture, section 9). Status, lock, and making a
//     vault where there is none need none.
//   - A peer of another user is refused, and so is an agent, one with an agent among its ancestors, and one of whom that cannot be told, even with the right passphrase. So is whoever asks for
//     more than status and lock from where nobody can be sitting (Origin).
//   - A ticket counts only for the live process that earned it by the passphrase, for its lifetime, and until the next lock (Tickets).
//   - An answer names exactly one code of package api; its HTTP status comes from the table there.
//   - A secret never stands in an answer, an error or a log line.
//   - A stream starts with a snapshot, so that whoever reads it has missed nothing; it ends when the vault locks.
//
// Non-promises: a passphrase passes through the buffers of net/http and encoding/json on its way, and those are not wiped. A program of the same user that is not an agent's descendant can ask too; it
// gets as far as the passphrase.
//
// Frozen: the paths under /v1/ and the JSON of package api. Paths and fields may be added.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/vault/secret"
)

// Operator is what is recorded as the one who decided.
const Operator = "operator"

// Daemon says how the daemon is. It is safe for concurrent use and answers from memory.
type Daemon interface {
	Status() api.Status
}

// Vault makes, opens and shuts the vault. All methods are safe for concurrent use; what they changed is durable when they return. They borrow the secrets, and the caller wipes them.
type Vault interface {
	Init(ctx context.Context, passphrase *secret.Bytes, noKeyring bool) (recoveryKit string, err error)
	// Unlock takes the recovery kit in place of the keyring's device secret where kit is not nil.
	Unlock(ctx context.Context, passphrase, kit *secret.Bytes) error
	Lock()
	ChangePassphrase(ctx context.Context, old, new *secret.Bytes) error
}

// Credentials keeps the credentials. All methods are safe for concurrent use and fail while the vault is locked; what they changed is durable when they return, and what waited
// under the earlier version is withdrawn.
type Credentials interface {
	Credentials(ctx context.Context) ([]api.Credential, error)
	AddCredential(ctx context.Context, c api.Credential, plaintext bool, value *secret.Bytes) error
	ChangeCredential(ctx context.Context, name string, change api.CredentialChange) error
	RotateCredential(ctx context.Context, name string, value *secret.Bytes) error
	RemoveCredential(ctx context.Context, name string) error
}

// Approvals holds the cards. All methods are safe for concurrent use.
type Approvals interface {
	Cards() []CardView
	// Answer applies the decision and returns when it is taken; an unknown card is api.CodeMissing, one that was answered already api.CodeConflict.
	Answer(ctx context.Context, card string, d approval.Decision) error
	// WatchCards sends every waiting card, then every change, without a gap in between, until ctx ends or the vault locks; then it closes the channel. A reader that does not
	// keep up loses the channel, and never a change silently.
	WatchCards(ctx context.Context) <-chan CardChange
}

// Activity answers what was done. All methods are safe for concurrent use.
type Activity interface {
	Execution(id string) (x execution.Execution, found bool, err error)
	// List returns the newest first.
	List(q Query) ([]execution.Execution, error)
	// Watch sends every execution that matches whenever it changes, until ctx ends or the vault locks; then it closes the channel.
	Watch(ctx context.Context, q Query) <-chan execution.Execution
	// Refusals returns the calls that were not accepted, newest first. Of the query Run, Tool, Since, Until and Limit count.
	Refusals(q Query) ([]api.Refusal, error)
	// WatchRefusals sends every one that matches, until ctx ends or the vault locks; then it closes the channel.
	WatchRefusals(ctx context.Context, q Query) <-chan api.Refusal
	// Payload opens what was asked for and what came of it; it fails while the vault is locked.
	Payload(ctx context.Context, id string) (Payload, error)
}

// Verdicts finds out, or takes the operator's word, about an unknown outcome. All methods are safe for concurrent use and durable when they return.
type Verdicts interface {
	// Check asks the target by the contract's status query or marker. The Record of what it returns is left to the caller.
	Check(ctx context.Context, id, by string) (api.Checked, error)
	Settle(ctx context.Context, id string, in api.Verdict, by string) error
}

// Sessions holds the person's authorizations of runs. All methods are safe for concurrent use.
type Sessions interface {
	Sessions() []SessionView
	RevokeSession(ctx context.Context, run, by string) error
}

// Grants holds the standing grants. All methods are safe for concurrent use and fail while the vault is locked; what they changed is durable, and in force, when they return.
type Grants interface {
	Grants(ctx context.Context) ([]api.Grant, error)
	// RevokeGrant ends one with the sessions that came from it; one that is not there is api.CodeMissing.
	RevokeGrant(ctx context.Context, grant, by string) error
}

// Actions holds the contracts. All methods are safe for concurrent use; what they changed is durable when they return.
type Actions interface {
	Actions(ctx context.Context) ([]api.Action, error)
	// AcceptAction makes exactly these bytes the contract in force.
	AcceptAction(ctx context.Context, a api.ActionRequest, by string) (api.Action, error)
	RemoveAction(ctx context.Context, name, by string) error
}

// Upstreams holds the MCP servers behind the gateway. All methods are safe for concurrent use; what they changed is durable when they return.
type Upstreams interface {
	Upstreams(ctx context.Context) ([]api.Upstream, error)
	AddUpstream(ctx context.Context, in api.UpstreamRequest, by string) (api.Upstream, error)
	RemoveUpstream(ctx context.Context, name, by string) error
	// UpstreamTools asks the upstream for its tools, and holds them against the accepted ones.
	UpstreamTools(ctx context.Context, name string) ([]api.UpstreamTool, error)
	// AcceptUpstreamTool puts a tool into force exactly as it was shown.
	AcceptUpstreamTool(ctx context.Context, name string, in api.UpstreamAccept, by string) (api.UpstreamTool, error)
	// UpstreamPrompts asks the upstream for its prompts, and holds them against the accepted ones.
	UpstreamPrompts(ctx context.Context, name string) ([]api.UpstreamPrompt, error)
	// ShareUpstream opens resources and prompts to agents, or closes them.
	ShareUpstream(ctx context.Context, name string, in api.UpstreamShare, by string) (api.Upstream, error)
}

// Journal ends a quarantine: it opens a new segment that records what was found.
type Journal interface {
	AcceptQuarantine(ctx context.Context, reason, by string) error
}

// Settings holds the security settings. All methods are safe for concurrent use and fail while the vault is locked; what they changed is durable, and in force, when they return.
type Settings interface {
	Settings(ctx context.Context) ([]api.Setting, error)
	// ChangeSetting takes nil for the default.
	ChangeSetting(ctx context.Context, key string, value *string, by string) (api.Setting, error)
}

// HTTPClients holds the tokens of the MCP listener on loopback. All methods are safe for concurrent use; what they changed is durable, and in force, when they return.
type HTTPClients interface {
	HTTPClients(ctx context.Context) ([]api.HTTPClient, error)
	// IssueHTTPToken makes a client's token, in place of an earlier one of that name.
	IssueHTTPToken(ctx context.Context, in api.HTTPClientRequest, by string) (api.HTTPClientToken, error)
	RevokeHTTPToken(ctx context.Context, client, by string) error
	// CheckHTTPToken says whether a token counts; it works while the vault is locked.
	CheckHTTPToken(token string) api.HTTPTokenState
}

// Prover checks the operator's proof. It is safe for concurrent use. A passphrase is one way; a ticket that a passphrase earned is another.
type Prover interface {
	// Prove returns who proved presence. value is the proof of the scheme as it came, which the caller wipes. Wrong ones are counted by whoever checks them.
	Prove(ctx context.Context, scheme string, value *secret.Bytes, p Peer) (by string, err error)
}

// Ancestry says whether an agent's run is the process itself or among its ancestors. An error means that it cannot be told (the process that connected is gone, for one), and
// such a caller is refused like an agent. It is safe for concurrent use.
type Ancestry interface {
	AgentAmong(p Peer) (run string, found bool, err error)
}

// Origin says what speaks against a person's sitting at a caller that is not known as an agent's. In words, which go on after "it"; the zero value says that nothing does.
type Origin struct {
	Refused string // why it may not decide: nobody can be there, or only an agent
	Doubt   string // what the person should see of it
}

// Peer is the process on the other end of the operator's socket, by the kernel's word at the time when it connected.
type Peer struct {
	UID   int
	PID   int
	Start uint64 // as in peer.Process, so that another process with the same pid is told apart; 0 where it is not known
}

// Query narrows a list of executions. Empty fields match everything.
type Query struct {
	Run, Tool, State, Credential string
	Text                         string // in the id, tool, target, actor, credential or reason, whatever the case
	Since                        time.Time
	Until                        time.Time
	Before                       string // an execution id: the page after the one that ended with it
	Limit                        int    // 0: no limit
}

// CardView is one card with everything that is shown beside it.
type CardView struct {
	Card        approval.Card
	Execution   execution.Execution
	Effect      effect.Effect
	Peer        peer.Identity
	Since       time.Time // when the run was first seen
	CallsBefore int
	Earlier     *execution.Execution // for a retried call: the record that it repeats
	Retry       string               // for a retried call: why nothing new was sent
	Sentence    string               // optional: what is asked, plainly
	LostAnswer  string               // optional: what the contract says about a lost answer, plainly
	WhySaid     []api.Said           // Card.Why for other languages, each at the place of its words
}

// ChangeKind says what happened to a card. The zero value is invalid.
type ChangeKind string

// The kinds of change. Waiting comes first, once for every card that is there.
const (
	Waiting  ChangeKind = "waiting"
	Added    ChangeKind = "added"
	Changed  ChangeKind = "changed" // another caller attached
	Answered ChangeKind = "answered"
	Void     ChangeKind = "void" // expired, locked, run ended
)

// CardChange is one change of the cards. For Answered and Void only the card's id and execution need to be set.
type CardChange struct {
	Kind   ChangeKind
	Card   CardView
	By     string
	Reason string
}

// SessionView is one session with what is known of its run.
type SessionView struct {
	Session   approval.Session
	Peer      peer.Identity
	Suspended bool
	Calls     int
}

// Payload is what the journal sealed for one execution.
type Payload struct {
	Arguments json.RawMessage
	Effect    *effect.Effect
	Result    json.RawMessage
	Answer    json.RawMessage
	Erased    bool
	Place     api.Place
}

// Config is what a Server is made of. Everything is required but where it says otherwise.
type Config struct {
	Daemon      Daemon
	Vault       Vault
	Credentials Credentials
	Hosts       Hosts
	Approvals   Approvals
	Activity    Activity
	Verdicts    Verdicts
	Sessions    Sessions
	Grants      Grants
	Actions     Actions
	Upstreams   Upstreams
	Journal     Journal
	Settings    Settings
	HTTPClients HTTPClients
	Prover      Prover
	Ancestry    Ancestry
	Tickets     *Tickets // optional: without it nobody earns a ticket. Prover has to take them
	// Origin is asked about every caller that proves itself by the passphrase; whoever holds a ticket was asked about when it was earned. Optional.
	Origin    func(p Peer) Origin
	Now       func() time.Time
	UID       func() int                                 // optional: whose requests are taken; os.Getuid
	PeerOf    func(c net.Conn) (Peer, error)             // optional: the kernel's word; PeerOf
	Refused   func(p Peer, code api.Code, why string)    // optional: told of every wrong proof and of every caller that may not ask; must not block for long
	Doubted   func(p Peer, why string)                   // optional: told of every caller that proved itself, and of whom Origin has a doubt; must not block for long
	Logger    *slog.Logger                               // optional
	Translate func(err error) (e *api.Error, known bool) // optional: errors of the parts that only the composition knows
}

// Server serves one operator socket.
type Server struct {
	cfg  Config
	http *http.Server
}

// New checks the parts and returns a server that does not listen yet.
func New(cfg Config) (*Server, error) {
	for name, missing := range map[string]bool{
		"Daemon": cfg.Daemon == nil, "Vault": cfg.Vault == nil, "Credentials": cfg.Credentials == nil, "Hosts": cfg.Hosts == nil, "Approvals": cfg.Approvals == nil, "Activity": cfg.Activity == nil,
		"Verdicts": cfg.Verdicts == nil, "Sessions": cfg.Sessions == nil, "Actions": cfg.Actions == nil, "Upstreams": cfg.Upstreams == nil, "Journal": cfg.Journal == nil, "Settings": cfg.Settings == nil, "HTTPClients": cfg.HTTPClients == nil, "Grants": cfg.Grants == nil, "Prover": cfg.Prover == nil,
		"Ancestry": cfg.Ancestry == nil, "Now": cfg.Now == nil,
	} {
		if missing {
			return nil, fmt.Errorf("control: %s is required", name)
		}
	}
	if cfg.UID == nil {
		cfg.UID = os.Getuid
	}
	if cfg.PeerOf == nil {
		cfg.PeerOf = PeerOf
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Refused == nil {
		cfg.Refused = func(Peer, api.Code, string) {}
	}
	if cfg.Origin == nil {
		cfg.Origin = func(Peer) Origin { return Origin{} }
	}
	if cfg.Doubted == nil {
		cfg.Doubted = func(Peer, string) {}
	}
	s := &Server{cfg: cfg}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			p, err := cfg.PeerOf(c)
			if err != nil {
				cfg.Logger.Warn("cannot tell who is on the operator socket", "error", err)
				p = Peer{UID: -1}
			}
			return context.WithValue(ctx, peerKey{}, p)
		},
	}
	return s, nil
}

type peerKey struct{}

// Serve answers on l until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(bound(l)); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the operator: %w", err)
	}
	return nil
}

// Shutdown lets requests finish until ctx ends; streams are cut at once by the end of their source.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}
