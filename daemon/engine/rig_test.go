package engine_test

import (
	"context"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/journal"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/daemon/records"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
	"singlepass.dev/vault/secret"
)

// keys stands for an unlocked vault: real keys, without the file and the passphrase.
type keys struct {
	mac, index []byte
	private    hpke.PrivateKey
	perUse     atomic.Bool
	lockedFor  func() error            // optional: fails a use of a credential
	edit       func(*vault.Credential) // optional: what the operator made of the credential
	read       func()                  // optional: called after a credential was looked up, before the engine gets it

	hostLock sync.Mutex // guards what follows
	hostKeys []string
}

func newKeys(t testing.TB) *keys {
	t.Helper()
	scalar, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := hpke.NewDHKEMPrivateKey(scalar)
	if err != nil {
		t.Fatal(err)
	}
	k := &keys{mac: make([]byte, 32), index: make([]byte, 32), private: private}
	_, _ = rand.Read(k.mac)
	_, _ = rand.Read(k.index)
	return k
}

func (k *keys) PublicSealingKey() []byte                          { return k.private.PublicKey().Bytes() }
func (k *keys) UseSealingKey(f func(hpke.PrivateKey) error) error { return f(k.private) }
func (k *keys) UseIndexKey(f func([]byte) error) error            { return f(k.index) }

func (k *keys) FingerprintMAC(msg []byte) ([32]byte, error) {
	m := hmac.New(sha256.New, k.mac)
	m.Write(msg)
	return [32]byte(m.Sum(nil)), nil
}

func (k *keys) Credential(name string) (vault.Credential, error) {
	if name == "db" {
		target, err := vault.ParseTarget("ssh://deploy@db1.internal.example")
		c := vault.Credential{Name: name, Kind: vault.SSHKey, Targets: []vault.Target{target}}
		if k.edit != nil {
			k.edit(&c)
		}
		return c, err
	}
	if name != "api" {
		return vault.Credential{}, vault.ErrNotFound
	}
	target, err := vault.ParseTarget("https://api.example.com/v1/")
	if err != nil {
		return vault.Credential{}, err
	}
	c := vault.Credential{Name: name, Kind: vault.Bearer, Targets: []vault.Target{target}, PerUse: k.perUse.Load()}
	if k.edit != nil {
		k.edit(&c)
	}
	if k.read != nil {
		k.read()
	}
	return c, nil
}

func (k *keys) CredentialRefused(string, *secret.Bytes) {}

func (k *keys) UseCredential(_ context.Context, name string) (vault.Credential, *secret.Bytes, error) {
	c, err := k.Credential(name)
	if err == nil && k.lockedFor != nil {
		err = k.lockedFor()
	}
	return c, secret.New([]byte("canary-not-a-secret-0123")), err
}

func (k *keys) Host(name string, port uint16) (vault.Host, error) {
	if name != "db1.internal.example" {
		return vault.Host{}, vault.ErrNotFound
	}
	k.hostLock.Lock()
	defer k.hostLock.Unlock()
	return vault.Host{Name: name, Port: port, Keys: k.hostKeys}, nil
}

// target is a channel that keeps a ledger of its effects and answers as a test says.
type target struct {
	t  testing.TB
	mu sync.Mutex

	ledger []channel.Request
	answer func(n int, r channel.Request) channel.Outcome // n counts from 1
	before func(r channel.Request)

	asked  []channel.Query
	status func(n int, q channel.Query) channel.Finding // what is found when it is asked what became of an execution; n counts from 1
}

func (g *target) Verify(_ context.Context, q channel.Query) channel.Finding {
	g.mu.Lock()
	g.asked = append(g.asked, q)
	n, status := len(g.asked), g.status
	g.mu.Unlock()
	if status == nil {
		return channel.Finding{Word: channel.CannotTell, Reason: "nobody is there"}
	}
	return status(n, q)
}

func (g *target) questions() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.asked)
}

func (g *target) Do(_ context.Context, r channel.Request) channel.Outcome {
	if g.before != nil {
		g.before(r)
	}
	g.mu.Lock()
	g.ledger = append(g.ledger, r)
	n := len(g.ledger)
	answer := g.answer
	g.mu.Unlock()
	if answer == nil {
		return success(n)
	}
	return answer(n, r)
}

func (g *target) effects() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.ledger)
}

func success(n int) channel.Outcome {
	return channel.Outcome{
		Verdict: channel.Success, Status: 201,
		Result: json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":"<receipt %d>  & \u00e9"}],  "structuredContent":{"receipt":%d}}`, n, n)),
	}
}

// clock is a clock that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Microsecond)
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// rig is an engine on real records, with a target of ours.
type rig struct {
	t      testing.TB
	dir    string
	fs     journal.FS
	small  int64 // segment size
	keys   *keys
	clock  *clock
	target *target
	cfg    engine.Config
	*engine.Engine
	records     *records.Records
	notices     []engine.Notice
	mu          sync.Mutex
	actions     []*policy.Action
	quarantined bool
	behind      atomic.Bool                         // the records do not follow the journal
	hold        chan struct{}                       // optional: no pause between questions passes before it is closed
	through     func(engine.Journal) engine.Journal // optional: what the engine writes through
}

// late are records that can be made to stay behind, as they are for a moment after each commit.
type late struct {
	engine.Records
	behind *atomic.Bool
}

func (l late) Match(actor, scope, fingerprint string) ([]execution.Execution, error) {
	if l.behind.Load() {
		return nil, nil
	}
	return l.Records.Match(actor, scope, fingerprint)
}

func (l late) Find(id string) (execution.Execution, bool, error) {
	if l.behind.Load() {
		return execution.Execution{}, false, nil
	}
	return l.Records.Find(id)
}

const contracts = `
action: %[1]s
title: A test
description: Does something at a target.
channel: http
input:
  type: object
  properties:
    order: {type: string}
    amount: {type: integer, default: 5}
    note: {type: string}
  required: [order]
  additionalProperties: false
credential: %[4]s
approval: %[5]s
http:
  method: POST
  url: %[6]s
  json: {order: "{order}", amount: "{amount}", note: "{note}"}
replay:
  class: %[2]s
%[3]s
`

func contract(t testing.TB, name, class, more, credential, approval, url string) *policy.Action {
	t.Helper()
	c, err := policy.Parse(name+".yaml", fmt.Appendf(nil, contracts, name, class, more, credential, approval, url))
	if err != nil {
		t.Fatal(err)
	}
	a, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const (
	irreversible = "  attach_window: 1h\n  fingerprint: [order, amount]"
	idempotent   = "  attach_window: 1h\n  idempotency_header: Idempotency-Key\n  key_lifetime: 24h\n  fingerprint: [order, amount]"
	status       = "  attach_window: 1h\n  fingerprint: [order, amount]\n  status: {method: GET, url: \"https://api.example.com/v1/orders/{order}\", done: status == 200 && body.state == \"done\", not_done: status == 404, failed: status == 200 && body.state == \"failed\", running: status == 202}\n  wait: {poll: 2s, not_done_after: 30s, give_up_after: 10m}"
	inBinding    = "https://api.example.com/v1/pay"
)

func standard(t testing.TB) []*policy.Action {
	return []*policy.Action{
		contract(t, "pay", "irreversible", irreversible, "api", "session", inBinding),
		contract(t, "charge", "irreversible", irreversible, "api", "per_use", inBinding),
		contract(t, "release", "idempotent", idempotent, "api", "session", inBinding),
		contract(t, "order", "status_query", status, "api", "session", inBinding),
		contract(t, "look", "read_only", "", "api", "session", inBinding),
		contract(t, "rotate", "irreversible", irreversible+"\n  intent_scope: durable", "api", "session", inBinding),
		contract(t, "elsewhere", "irreversible", irreversible, "api", "session", "https://other.example.com/v1/pay"),
		contract(t, "keyless", "irreversible", irreversible, "missing", "session", inBinding),
	}
}

func newRig(t testing.TB, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), keys: newKeys(t), clock: &clock{at: time.Date(2026, 7, 22, 14, 0, 0, 0, time.UTC)}, target: &target{t: t}, actions: standard(t)}
	if err := os.Chmod(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.cfg = engine.Config{RetryDelay: time.Millisecond, AnswerWithin: time.Hour}
	for _, f := range change {
		f(r)
	}
	r.start()
	t.Cleanup(r.halt)
	return r
}

// start opens the records and an engine on them, unlocked.
func (r *rig) start() {
	r.t.Helper()
	r.open()
	r.unlock()
}

func (r *rig) open() {
	r.t.Helper()
	var e *engine.Engine
	var err error
	r.records, err = records.Open(records.Config{
		Dir: r.dir, Now: r.clock.now, Random: rand.Reader, FS: r.fs, SegmentSize: r.small, Logger: slog.New(slog.DiscardHandler),
		Folded: func(seq uint64) {
			if e != nil && !r.behind.Load() {
				e.Folded(seq)
			}
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.cfg.Journal, r.cfg.Records, r.cfg.Vault, r.cfg.Now = r.records, late{r.records, &r.behind}, r.keys, r.clock.now
	if r.through != nil {
		r.cfg.Journal = r.through(r.records)
	}
	r.cfg.Channels = map[effect.Channel]channel.Channel{effect.HTTP: r.target, effect.SSH: r.target, effect.MCP: r.target}
	// Pauses between questions pass at once, and the clock goes on by them.
	r.cfg.After = func(d time.Duration, f func()) func() bool {
		var stopped atomic.Bool
		hold := r.hold
		go func() {
			if hold != nil {
				<-hold
			}
			if !stopped.Load() {
				r.clock.add(d)
				f()
			}
		}()
		return func() bool { return !stopped.Swap(true) }
	}
	r.cfg.NewID = func() string { return ulid.Make().String() }
	r.cfg.Logger = slog.New(slog.NewTextHandler(testWriter{r.t}, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	r.cfg.Notify = func(n engine.Notice) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notices = append(r.notices, n)
	}
	if e, err = engine.New(r.cfg); err != nil {
		r.t.Fatal(err)
	}
	r.Engine = e
	e.SetQuarantine(r.quarantined && r.records.Found().Quarantine != nil)
	if err := e.Recover(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) unlock() {
	r.t.Helper()
	if _, err := r.records.Unlocked(r.keys); err != nil {
		r.t.Fatal(err)
	}
	r.SetActions(r.actions, nil)
	if err := r.Unlocked(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) lock() {
	r.Locked("test")
	r.records.Locked()
}

// halt stops in order and checks the records.
func (r *rig) halt() {
	if r.Engine == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		r.t.Errorf("closing the engine: %v", err)
	}
	r.records.Settle()
	if r.records.Index().Verified() {
		if err := r.records.Index().Check(); err != nil {
			r.t.Errorf("the index is inconsistent: %v", err)
		}
	}
	if err := r.records.Close(); err != nil {
		r.t.Errorf("closing the records: %v", err)
	}
	r.Engine = nil
}

func (r *rig) restart() {
	r.t.Helper()
	r.halt()
	r.start()
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(b))
	return len(b), nil
}

// agent is a process that calls.
type agent struct {
	*peer.Identity
	ended chan struct{}
	gone  error
	mu    sync.Mutex
}

func newAgent(run string) *agent {
	a := &agent{ended: make(chan struct{})}
	a.Identity = &peer.Identity{
		Run: "run_" + run, Actor: "exe:/usr/bin/agent", Agent: peer.Process{PID: 4242, Start: 1, Exe: "/usr/bin/agent", Digest: "sha256:00"}, Assurance: peer.CannotTell, Via: "socket",
		Ended: a.ended,
		Check: func() error {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.gone
		},
	}
	return a
}

func (r *rig) call(ctx context.Context, a *agent, tool, arguments string, key ...string) call.Answer {
	c := call.Call{Peer: a.Identity, Tool: tool, Arguments: json.RawMessage(arguments), Correlation: execution.Caller{Transport: "stdio", RequestID: "1"}}
	if len(key) > 0 {
		c.Key, c.KeySource = key[0], "meta"
	}
	return r.Call(ctx, c)
}

// begin calls in the background.
func (r *rig) begin(ctx context.Context, a *agent, tool, arguments string, key ...string) <-chan call.Answer {
	out := make(chan call.Answer, 1)
	go func() { out <- r.call(ctx, a, tool, arguments, key...) }()
	return out
}

// card waits for the next card.
func (r *rig) card() engine.CardView {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	snapshot, changes := r.Watch(ctx)
	if len(snapshot) > 0 {
		return snapshot[0]
	}
	for c := range changes {
		if c.Kind == "card_added" {
			return *c.Card
		}
	}
	r.t.Fatal("no card came")
	panic("unreachable")
}

// waitCards waits until n cards wait.
func (r *rig) waitCards(n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	snapshot, changes := r.Watch(ctx)
	for have := len(snapshot); have < n; {
		c, more := <-changes
		if !more {
			r.t.Fatalf("%d cards came, and %d were to come", have, n)
		}
		if c.Kind == "card_added" {
			have++
		}
	}
}

func (r *rig) answer(c engine.CardView, a approval.Answer, reason ...string) {
	r.t.Helper()
	d := approval.Decision{Answer: a, By: "operator"}
	if len(reason) > 0 {
		d.Reason = reason[0]
	}
	if err := r.Answer(context.Background(), c.Card.ID, d); err != nil {
		r.t.Fatal(err)
	}
}

// trust gives the agent a session by a harmless call, which is a read.
func (r *rig) trust(a *agent) {
	r.t.Helper()
	done := r.begin(context.Background(), a, "look", fmt.Sprintf(`{"order":"trust %s"}`, ulid.Make()))
	select {
	case c := <-r.anyCard():
		r.answer(c, approval.ForRun)
	case got := <-done:
		r.t.Fatalf("the first call was answered without a card: %s %s", got.Code, got.Result)
	}
	if got := <-done; got.Code != "" {
		r.t.Fatalf("the first call was refused: %s %s", got.Code, got.Result)
	}
	r.target.mu.Lock()
	r.target.ledger = nil
	r.target.mu.Unlock()
}

// within waits until the execution is in the state.
func (r *rig) until(id string, want execution.State) execution.Execution {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, changes := r.Watch(ctx)
	for {
		x, ok, err := r.Execution(id)
		if err != nil {
			r.t.Fatal(err)
		}
		if ok && x.State == want {
			return x
		}
		if _, more := <-changes; !more {
			r.t.Fatalf("execution %s is %s and did not become %s", id, x.State, want)
		}
	}
}

// untilTrue waits until the condition holds; it is looked at whenever something changes.
func (r *rig) untilTrue(ok func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	_, changes := r.Watch(ctx)
	for !ok() {
		if _, more := <-changes; !more {
			r.t.Fatal("it did not come to that")
		}
	}
}

// anyCard brings the next card, if one comes.
func (r *rig) anyCard() <-chan engine.CardView {
	out := make(chan engine.CardView, 1)
	snapshot, changes := r.Watch(r.t.Context())
	if len(snapshot) > 0 {
		out <- snapshot[0]
		return out
	}
	go func() {
		for c := range changes {
			if c.Kind == "card_added" {
				out <- *c.Card
				return
			}
		}
	}()
	return out
}

// want checks the code of an answer, and that nothing was sent since.
func (r *rig) want(a call.Answer, code api.Code, effects int) {
	r.t.Helper()
	if a.Code != code {
		r.t.Errorf("code %q, want %q: %s", a.Code, code, a.Result)
	}
	if n := r.target.effects(); n != effects {
		r.t.Errorf("%d effects, want %d", n, effects)
	}
}
