// Package engine is where a call becomes at most one effect.
//
// It is the single writer of executions: claims, decisions, dispatches and outcomes are steps under one mutex, each recorded in the journal in the order in which it was
// taken. What it promises, and what its tests hold it to:
//
//   - Of any number of racing identical calls exactly one becomes the dispatcher; the others attach to its execution.
//   - "dispatched" is durable before the first byte leaves (read_only apart, which is recorded but waits for nothing).
//   - An outcome is durable before an agent sees it (read_only apart), and is handed out again byte for byte.
//   - An outcome that cannot be proven is unknown: never a success, never a failure, never sent again unless the action's class allows it.
//   - Cancelling a call detaches the caller and never touches the effect: channels run on the engine's own context.
//   - When the journal cannot be written, nothing with a side effect starts; an outcome that cannot be written is held and written later.
//
// What it does not promise: to know what a target did when the answer was lost and the contract has no way to ask. That is what unknown means.
//
// Authorization (approval), matching (execution.Judge, fingerprint) and the decision order (policy.Decide) are values and pure functions elsewhere; the engine only
// carries them out.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/daemon/workers"
	"singlepass.dev/vault"
	"singlepass.dev/vault/secret"
)

// Entry is one event for the journal, with a payload that is sealed on the way.
type Entry struct {
	Event   []byte           // JSON object, "kind" first; not kept when Append has returned
	Decoded *execution.Event // the same, where it is an execution's; nobody changes it any more
	ID      string           // execution id; binds the payload
	Kind    string           // binds the payload
	Payload []byte           // plain; nil when there is none
	At      time.Time
	Lazy    bool   // nobody waits for it: it rides on a later commit
	Outcome bool   // may use the reserve of a full disk
	After   Commit // optional, of the same Journal: what must be recorded for this to be recorded
}

// ErrEntry is wrapped by a Commit's error when the entries are at fault (too large, say), and not the journal.
var ErrEntry = errors.New("this cannot be recorded")

// Commit is the fate of the entries of one Append.
type Commit interface {
	// Done is closed when the entries are durable, or when it is certain that the journal will not acknowledge them.
	Done() <-chan struct{}
	// Err is nil once the entries are durable; call it after Done.
	Err() error
	// Wait makes lazy entries durable now rather than with the next commit, and returns what Err says then. Waiting for a lazy commit is the fastest way to the disk.
	Wait() error
	// Seq is the number of the last entry, once the entries are durable.
	Seq() uint64
}

// Journal takes events. Append never waits for the disk; the order of calls is the order in the journal.
type Journal interface {
	Append(entries ...Entry) Commit
	// Resume goes on after a failed write, once it can.
	Resume() error
}

// Records answers from what is durable. What was appended but is not folded yet may be missing; the engine knows those itself.
type Records interface {
	Find(id string) (execution.Execution, bool, error)
	// Match returns the executions of an actor, intent scope and fingerprint, newest first.
	Match(actor, scope, fingerprint string) ([]execution.Execution, error)
	// MatchKey returns the newest execution of an actor under a client's key, whatever its fingerprint, tombstones included.
	MatchKey(actor, scope string) (execution.Execution, bool, error)
	// Unfinished returns what was accepted, authorized, dispatched or unknown.
	Unfinished() ([]execution.Execution, error)
	// OpenOf returns what a run has accepted, authorized, dispatched or unknown.
	OpenOf(run string) ([]execution.Execution, error)
	// Recent returns the newest executions of an actor, newest first.
	Recent(actor string, limit int) ([]execution.Execution, error)
	// Barred says whether the person took a session from a run, and gave it none since.
	Barred(run string) (bool, error)
	// Prunable returns executions whose retention has passed, oldest first.
	Prunable(now time.Time, limit int) ([]execution.Execution, error)
	// Erase overwrites the payloads of an execution in the journal. It may be repeated.
	Erase(ctx context.Context, id string) error
	// Settle waits until everything that is durable now is folded.
	Settle()
	// Payload opens what was sealed with an event of the given kind; it needs the vault unlocked.
	Payload(id string, kind execution.Kind) ([]byte, error)
}

// Vault is what the engine needs of the vault while it is unlocked.
type Vault interface {
	// FingerprintMAC is HMAC-SHA-256 under the vault's fingerprint key.
	FingerprintMAC(msg []byte) ([32]byte, error)
	Credential(name string) (vault.Credential, error)
	// UseCredential returns what a channel uses: a copy of the secret, or a token that was got with it, which the caller wipes. It may ask a token endpoint, which ctx bounds; nothing of an
	// action is in that.
	UseCredential(ctx context.Context, name string) (vault.Credential, *secret.Bytes, error)
	// CredentialRefused is told that a target did not take what UseCredential returned (401).
	CredentialRefused(name string, used *secret.Bytes)
	// Host returns an SSH host of the inventory, with the keys that it has to show.
	Host(name string, port uint16) (vault.Host, error)
}

// Programs remembers what the programs of actors were in their last session, where an agent cannot change it.
type Programs interface {
	// Known returns what is remembered of an actor, or the zero value. It is fast, and needs the vault unlocked.
	Known(actor string) (peer.Known, error)
	// Remember keeps it in place of what was remembered before. It may wait for the disk.
	Remember(peer.Known) error
}

// Config is what an Engine is made of.
type Config struct {
	Journal  Journal                            // required
	Records  Records                            // required
	Vault    Vault                              // required
	Channels map[effect.Channel]channel.Channel // required
	Reader   Reader                             // optional: without it no resources are listed
	Programs Programs                           // optional: without it every program is seen for the first time
	Standing Standing                           // optional: without it no grant outlives its run
	Now      func() time.Time                   // required
	NewID    func() string                      // required: a fresh ULID
	Logger   *slog.Logger                       // optional

	AnswerWithin  time.Duration // optional, 45 s: after this a call is answered "pending"
	CardTTL       time.Duration // optional, 10 min: after this an unanswered card expires
	RetryDelay    time.Duration // optional, 250 ms: pause before another attempt
	MaxOpenPerRun int           // optional, 1024: calls of one run that wait at the same time
	Notify        func(Notice)  // optional: tells the person; must not block
	// After calls f in a goroutine of its own once d has passed, unless it is stopped before. Optional: time.AfterFunc.
	After func(d time.Duration, f func()) (stop func() bool)
}

// NoticeLockedCall is the kind of the notice that a call was refused because the vault is locked.
const NoticeLockedCall = "locked_call"

// Notice is something that the person should see at once, without secrets.
type Notice struct {
	Kind string // NoticeLockedCall, unknown_outcome, journal_down, key_reused
	Run  string
	Tool string
	ID   string
	Text string
}

// Engine is safe for concurrent use.
//
// Lock order: mu is the only mutex; it is never held while waiting for the disk, a target or a person.
type Engine struct {
	cfg  Config
	base context.Context // channels run on it
	stop context.CancelCauseFunc
	work sync.WaitGroup // everything that the engine started
	crew *workers.Crew  // carries attempts out

	dispatches sync.WaitGroup // attempts in flight
	inquiries  chan struct{}  // has room for the questions that may be under way at once

	actions atomic.Pointer[actionSet] // replaced as a whole

	mu       sync.Mutex
	locked   bool // mirrors the vault; true also before the first unlock
	closing  bool
	quarant  bool // the journal does not verify
	down     bool // the journal cannot be written
	mending  bool
	live     map[string]*live
	claims   map[claimKey][]*live // live executions by what a claim looks for, oldest first
	idle     []*live              // completed, waiting to be folded into the records, by sequence number
	folded   uint64
	runs     map[string]*run
	cards    map[string]*card
	standing map[string]approval.Standing // grants in force, while the vault is open; by id
	ended    map[string]string            // those that ended under this daemon, and why
	bytes    map[string]int               // what they hold, by run
	counts   map[string]int               // live executions that wait, by run
	recorded map[string]bool
	calls    uint64 // numbers calls
	epoch    string // of this daemon, so that their numbers are unique in the journal
	limits   map[string]*refusalLimit
	refused  Commit                 // of the last refusal; nil when there was none
	asked    map[string][]time.Time // when an actor asked the person something, within the period
	given    uint64                 // counts what was put into standing
	grants   atomic.Int64           // how many grants are in force; moves under mu
	shared   chan struct{}          // closed when resources or prompts may be others
	secrets  atomic.Uint64          // counts changes of credentials; moves under mu
	watchers map[*watcher]struct{}

	entries []Entry // room for stepLocked, which is used again
	text    []byte
}

// claimKey is what a claim looks for: an intent, or, without a fingerprint, whatever is under a client's key. A run can have thousands of live executions at a time, so they are not
// searched one by one.
type claimKey struct{ actor, scope, fingerprint string }

// claimKeys are the keys under which an execution is found.
func claimKeys(x execution.Execution) []claimKey {
	keys := []claimKey{{x.Actor, x.Scope, x.Fingerprint}}
	if strings.HasPrefix(x.Scope, keyScope) {
		keys = append(keys, claimKey{x.Actor, x.Scope, ""})
	}
	return keys
}

// keyScope begins the scope of a client's own key.
const keyScope = "key:"

// live is an execution that somebody waits for, or that is not in the records yet. Everything in it is guarded by Engine.mu.
type live struct {
	x       execution.Execution
	durable execution.Execution // as of the last acknowledged commit; its zero value means that nothing is durable
	seq     uint64              // of that commit; 0 when nothing has happened to it since it was revived
	pending []pendingCommit     // what is not acknowledged yet, oldest first

	unrecorded bool // a read whose story the journal has lost: it goes on in memory, and nothing of it is appended any more
	over       bool // it was ended, and the journal does not say so yet
	owed       bool // recovery found it, and the journal does not say yet what became of it

	action    *boundAction
	effect    effect.Effect
	args      []byte // canonical arguments, for the card
	result    []byte // the CallToolResult, once observed
	perUse    bool
	bySession bool // a session let it through, and it goes on only under one
	grant     *approval.Grant
	card      *card
	counted   bool // takes one of its run's places
	weight    int  // and so many of its bytes
	waiters   map[*waiter]struct{}
	away      map[string]bool // runs whose callers were answered "pending" and count as attached
	readers   int             // execution_wait calls; they read, and are no reason to dispatch
	busy      bool            // an attempt or a commit is under way: not answerable
	held      *channel.Outcome
	holds     int // how often an outcome had to be held
	changed   chan struct{}
	sends     int // attempts that provably sent nothing, for the call that asked last
	parked    bool
	instead   string   // the execution whose result the person chose to hand out
	inquiry   *inquiry // the asking what became of it; nil when nobody ever asked
}

type pendingCommit struct {
	commit Commit
	after  *execution.Execution // nobody changes it
	loose  bool                 // another caller: nothing that follows needs it
}

func (p pendingCommit) failed() bool { return !p.loose && isDone(p.commit) && p.commit.Err() != nil }

type waiter struct {
	call string // the daemon's number of the call
	run  *run
	// progress passes on what the target says meanwhile; nil where the client did not ask for it. It must not block.
	progress func(call.Progress)
}

// SetCardTTL says how long the cards wait that are put up from now on.
func (e *Engine) SetCardTTL(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cfg.CardTTL = d
}

// idleWorkers is how many goroutines wait for the next attempt at most.
const idleWorkers = 64

// New returns an engine that is locked. Start must be called before the first call.
func New(cfg Config) (*Engine, error) {
	switch {
	case cfg.Journal == nil:
		return nil, errors.New("engine: Journal is required")
	case cfg.Records == nil:
		return nil, errors.New("engine: Records is required")
	case cfg.Vault == nil:
		return nil, errors.New("engine: Vault is required")
	case len(cfg.Channels) == 0:
		return nil, errors.New("engine: Channels is required")
	case cfg.Now == nil || cfg.NewID == nil:
		return nil, errors.New("engine: Now and NewID are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Notify == nil {
		cfg.Notify = func(Notice) {}
	}
	if cfg.After == nil {
		cfg.After = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&cfg.AnswerWithin, 45*time.Second)
	def(&cfg.CardTTL, 10*time.Minute)
	def(&cfg.RetryDelay, 250*time.Millisecond)
	if cfg.MaxOpenPerRun <= 0 {
		cfg.MaxOpenPerRun = 1024
	}
	base, stop := context.WithCancelCause(context.Background())
	e := &Engine{
		cfg: cfg, base: base, stop: stop, locked: true, inquiries: make(chan struct{}, maxInquiries), crew: workers.New(idleWorkers, base.Done()),
		live: map[string]*live{}, claims: map[claimKey][]*live{}, runs: map[string]*run{}, cards: map[string]*card{}, standing: map[string]approval.Standing{}, ended: map[string]string{},
		shared: make(chan struct{}),
		epoch:  strconv.FormatInt(cfg.Now().UnixMilli(), 36),
		counts: map[string]int{}, bytes: map[string]int{}, recorded: map[string]bool{}, limits: map[string]*refusalLimit{}, asked: map[string][]time.Time{}, watchers: map[*watcher]struct{}{},
	}
	e.actions.Store(newActionSet(0))
	return e, nil
}
