// Package controltest serves the operator's interface from a real vault and from an engine that is only a table, for tests of the server, the client, the command line and the tray.
package controltest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/home"
	"singlepass.dev/daemon/httptoken"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/vault"
	"singlepass.dev/vault/keychain"
	"singlepass.dev/vault/secret"
	"singlepass.dev/vault/vaulttest"
)

// Daemon is everything that a control.Server needs. Its vault is real, has no keyring, and lies in the home.
type Daemon struct {
	control.VaultParts
	Server *control.Server
	Lag    func(x execution.Execution) execution.Execution // optional, set before use: what List, which answers from what is durable, still says of x

	home   home.Home
	now    func() time.Time
	prover *remembering
	peers  *peer.Identifier

	mu         sync.Mutex // owns what follows
	cards      []control.CardView
	executions []execution.Execution
	sessions   []control.SessionView
	grants     []approval.Standing
	actions    []api.Action
	upstreams  []*upstream
	cardWatch  []chan control.CardChange
	workWatch  []chan execution.Execution
	agents     map[int]string // pids that have an agent among their ancestors, and its run
	untold     error          // why it cannot be told who asks
	origin     control.Origin // of every caller
	doubted    []string       // what was told of callers, in order
	quarantine bool
	ttl        string               // the one setting
	tokens     []httptoken.Verifier // owner: mu
	answers    []string             // "CARD ANSWER REASON", in order
}

// noKeyring is the keychain of a machine without a Secret Service.
type noKeyring struct{}

func (noKeyring) Get(context.Context, string) (*secret.Bytes, error) { return nil, keychain.ErrNoBus }
func (noKeyring) Set(context.Context, string, *secret.Bytes) error   { return keychain.ErrNoBus }
func (noKeyring) Delete(context.Context, string) error               { return keychain.ErrNoBus }

// remembering derives the same right passphrase once only: a derivation takes long by design, and tests prove often.
type remembering struct {
	control.Prover
	mu   sync.Mutex // owns what follows
	sums map[[32]byte]string
}

func (p *remembering) Prove(ctx context.Context, scheme string, value *secret.Bytes, peer control.Peer) (string, error) {
	var sum [32]byte
	if err := value.Use(func(b []byte) error { sum = sha256.Sum256(append([]byte(scheme+" "), b...)); return nil }); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if by, ok := p.sums[sum]; ok {
		return by, nil
	}
	by, err := p.Prover.Prove(ctx, scheme, value, peer)
	if err == nil {
		p.sums = map[[32]byte]string{sum: by}
	}
	return by, err
}

// TicketLifetime is how long a ticket counts here.
const TicketLifetime = time.Hour

// New makes passphrases cheap to check (vaulttest.CheapKDF), makes the folders of h, opens the vault and returns a daemon that does not listen yet.
func New(h home.Home, now func() time.Time) (*Daemon, error) {
	vaulttest.CheapKDF()
	if err := h.Create(); err != nil {
		return nil, err
	}
	v, err := vault.Open(vault.Config{Path: h.Vault(), Keychain: noKeyring{}, Now: now, Rand: rand.Reader})
	if err != nil {
		return nil, err
	}
	d := &Daemon{home: h, now: now, agents: map[int]string{}}
	d.VaultParts = control.VaultParts{Vault: v, Closing: d.closing}
	d.prover = &remembering{Prover: control.Passphrases(v)}
	if d.peers, err = peer.New(peer.Config{}); err != nil {
		return nil, err
	}
	tickets, err := control.NewTickets(control.TicketsConfig{
		Prover: d.prover, Hold: func(p control.Peer) (control.Held, error) { return d.peers.Hold(p.PID, p.Start) }, Now: now, Random: rand.Reader,
		Lifetime: func() time.Duration { return TicketLifetime },
	})
	if err != nil {
		return nil, err
	}
	v.OnLock(tickets.Drop)
	d.Server, err = control.New(control.Config{
		Daemon: d, Vault: d, Credentials: d, Hosts: d, Approvals: d, Activity: d, Verdicts: d, Sessions: d, Actions: d, Upstreams: d, Journal: d, Settings: d, HTTPClients: d, Grants: d, Ancestry: d,
		Prover: tickets, Tickets: tickets, Origin: d.originOf, Doubted: d.doubt, PeerOf: d.peerOf, Now: now,
	})
	return d, err
}

// Listen listens on the operator's socket.
func (d *Daemon) Listen() (net.Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.home.OperatorSocket()})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(d.home.OperatorSocket(), 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return peer.OneSpeaker(l)
}

// peerOf is the kernel's word, as the real daemon takes it.
func (d *Daemon) peerOf(c net.Conn) (control.Peer, error) {
	u, ok := peer.UnixConn(c)
	if !ok {
		return control.Peer{}, errors.New("not a unix socket")
	}
	p, err := d.peers.ProcessOf(u)
	return control.Peer{UID: p.UID, PID: p.PID, Start: p.Start}, err
}

// Shutdown stops the server and closes the vault.
func (d *Daemon) Shutdown(ctx context.Context) error {
	d.closing()
	return errors.Join(d.Server.Shutdown(ctx), d.Vault.Close())
}

// ChangePassphrase changes the passphrase, after which the old one is not remembered.
func (d *Daemon) ChangePassphrase(ctx context.Context, old, new *secret.Bytes) error {
	d.prover.mu.Lock()
	defer d.prover.mu.Unlock()
	d.prover.sums = nil
	return d.VaultParts.ChangePassphrase(ctx, old, new)
}

// closing ends the streams, and voids what waits.
func (d *Daemon) closing() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.cardWatch {
		close(c)
	}
	for _, c := range d.workWatch {
		close(c)
	}
	d.cardWatch, d.workWatch, d.cards = nil, nil, nil
}

// Status implements control.Daemon.
func (d *Daemon) Status() api.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := api.Status{
		Vault: string(d.Vault.Status()), Pending: len(d.cards), Journal: "ok", Sessions: len(d.sessions), Grants: len(d.grants), Version: "test", PID: os.Getpid(), Since: d.now().UTC(),
		Head: &api.Head{Seq: 7, Hash: "00"},
	}
	if s.Vault != "uninitialized" {
		s.Keyring = "not_used"
	}
	if d.quarantine {
		s.Journal = "quarantine"
	}
	for _, x := range d.executions {
		if x.State == execution.Unknown {
			s.Unknown++
		}
	}
	for _, a := range d.actions {
		if a.State == "accepted" {
			s.Actions++
		}
	}
	return s
}

// Ask puts up a card for an accepted execution, and the execution with it.
func (d *Daemon) Ask(v control.CardView) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cards = append(d.cards, v)
	d.putLocked(v.Execution)
	for _, c := range d.cardWatch {
		c <- control.CardChange{Kind: control.Added, Card: v}
	}
}

// Put records an execution.
func (d *Daemon) Put(x execution.Execution) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.putLocked(x)
}

func (d *Daemon) putLocked(x execution.Execution) {
	if i := slices.IndexFunc(d.executions, func(o execution.Execution) bool { return o.ID == x.ID }); i >= 0 {
		d.executions[i] = x
	} else {
		d.executions = append(d.executions, x)
	}
	for _, c := range d.workWatch {
		c <- x
	}
}

// Session records a session.
func (d *Daemon) Session(v control.SessionView) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions = append(d.sessions, v)
}

// Quarantine puts the journal into quarantine.
func (d *Daemon) Quarantine() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.quarantine = true
}

// Answers returns what was answered, in order.
func (d *Daemon) Answers() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.answers)
}

// Cards implements control.Approvals.
func (d *Daemon) Cards() []control.CardView {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.cards)
}

// Answer implements control.Approvals, by the real rules of package approval.
func (d *Daemon) Answer(_ context.Context, id string, decision approval.Decision) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.cards, func(v control.CardView) bool { return v.Card.ID == id })
	if i < 0 {
		return api.Errorf(api.CodeMissing, "no card %q waits", id)
	}
	v := d.cards[i]
	if decision.Standing {
		decision.Grant = fmt.Sprintf("grant_%d", len(d.grants)+1)
	}
	if decision.Subject == (approval.Subject{}) && v.Execution.Tool != "" {
		decision.Subject = approval.Subject{Tool: v.Execution.Tool, ContractDigest: cmp.Or(v.Card.Binding.ContractDigest, "sha256:0b"), Arguments: "sha256:00"}
	}
	_, session, err := v.Card.Decide(decision, v.Peer.Actor)
	if err != nil {
		return api.Errorf(api.CodeConflict, "%v", err)
	}
	d.cards = slices.Delete(d.cards, i, i+1)
	d.answers = append(d.answers, fmt.Sprintf("%s %s %s", id, decision.Answer, decision.Reason))
	if session != nil && session.Grant != "" {
		g, err := session.Standing(GrantOf(v.Peer))
		if err != nil {
			return api.Errorf(api.CodeUsage, "%v", err)
		}
		d.grants = append(d.grants, g)
	}
	if session != nil {
		d.sessions = append(d.sessions, control.SessionView{Session: *session, Peer: v.Peer})
	}
	event := execution.Event{Kind: execution.KindAuthorized, ID: v.Execution.ID, At: decision.At, By: decision.By}
	if decision.Answer == approval.Deny {
		event = execution.Event{Kind: execution.KindRejected, ID: v.Execution.ID, At: decision.At, By: decision.By, Code: string(api.CodeDenied), Reason: decision.Reason}
	}
	x, err := execution.Apply(v.Execution, event)
	if err != nil {
		return err
	}
	d.putLocked(x)
	for _, c := range d.cardWatch {
		c <- control.CardChange{Kind: control.Answered, Card: v, By: decision.By, Reason: decision.Reason}
	}
	return nil
}

// WatchCards implements control.Approvals.
func (d *Daemon) WatchCards(ctx context.Context) <-chan control.CardChange {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := make(chan control.CardChange, 64)
	for _, v := range d.cards {
		c <- control.CardChange{Kind: control.Waiting, Card: v}
	}
	d.cardWatch = append(d.cardWatch, c)
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if i := slices.Index(d.cardWatch, c); i >= 0 {
			d.cardWatch = slices.Delete(d.cardWatch, i, i+1)
			close(c)
		}
	})
	return c
}

// Execution implements control.Activity.
func (d *Daemon) Execution(id string) (execution.Execution, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.executions {
		if x.ID == id {
			return x, true, nil
		}
	}
	return execution.Execution{}, false, nil
}

// List implements control.Activity.
func (d *Daemon) List(q control.Query) ([]execution.Execution, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []execution.Execution
	after := q.Before == ""
	for _, x := range slices.Backward(d.executions) {
		if !after {
			after = x.ID == q.Before
			continue
		}
		if (q.Credential == "" || x.Credential == q.Credential) && strings.Contains(x.ID+" "+x.Tool+" "+x.Target, q.Text) && (q.Until.IsZero() || x.AcceptedAt.Before(q.Until)) && (q.Run == "" || x.Run == q.Run) && (q.Tool == "" || x.Tool == q.Tool) && (q.State == "" || string(x.State) == q.State) && !x.AcceptedAt.Before(q.Since) {
			if d.Lag != nil {
				x = d.Lag(x)
			}
			list = append(list, x)
		}
	}
	if q.Limit > 0 && len(list) > q.Limit {
		list = list[:q.Limit]
	}
	return list, nil
}

// Watch implements control.Activity.
func (d *Daemon) Watch(ctx context.Context, _ control.Query) <-chan execution.Execution {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := make(chan execution.Execution, 64)
	d.workWatch = append(d.workWatch, c)
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if i := slices.Index(d.workWatch, c); i >= 0 {
			d.workWatch = slices.Delete(d.workWatch, i, i+1)
			close(c)
		}
	})
	return c
}

// Payload implements control.Activity.
func (d *Daemon) Payload(context.Context, string) (control.Payload, error) {
	if d.Vault.Status() != vault.Unlocked {
		return control.Payload{}, vault.ErrLocked
	}
	e := Effect()
	return control.Payload{Arguments: []byte(`{"amount":5}`), Effect: &e, Result: []byte(`{"content":[]}`), Place: api.Place{Accepted: 3, Last: 6, Verified: true}}, nil
}

// Refusals implements control.Activity: one call of a locked vault.
func (d *Daemon) Refusals(q control.Query) ([]api.Refusal, error) {
	r := api.Refusal{
		At: d.now(), Code: api.CodeVaultLocked, Tool: "transfer", Run: "run_1", Actor: "exe:/usr/bin/agent", Reason: "the vault is locked, so nothing was sent for this call", Call: "run_1/1",
		Transport: "stdio", RequestID: "7", NotRecorded: 3,
	}
	if q.Tool != "" && q.Tool != r.Tool || q.Run != "" && q.Run != r.Run {
		return nil, nil
	}
	return []api.Refusal{r}, nil
}

// WatchRefusals implements control.Activity: none follow.
func (d *Daemon) WatchRefusals(ctx context.Context, _ control.Query) <-chan api.Refusal {
	c := make(chan api.Refusal)
	context.AfterFunc(ctx, func() { close(c) })
	return c
}

// Check implements control.Verdicts: the target always says that it is under way.
func (d *Daemon) Check(_ context.Context, id, by string) (api.Checked, error) {
	x, _, err := d.Execution(id)
	if err != nil {
		return api.Checked{}, err
	}
	event := execution.Event{
		Kind: execution.KindInconclusive, ID: id, At: d.now(), By: by, Source: execution.FromQuery, Finding: execution.FoundRunning,
		Evidence: "GET https://pay.example/v1/transfers/1 answered 202", Reason: "it is under way",
	}
	if x, err = execution.Apply(x, event); err != nil {
		return api.Checked{}, err
	}
	d.Put(x)
	return api.Checked{Finding: string(event.Finding), Text: event.Reason, Evidence: event.Evidence, Answer: []byte(`{"status":202}`)}, nil
}

// Settle implements control.Verdicts.
func (d *Daemon) Settle(_ context.Context, id string, in api.Verdict, by string) error {
	x, _, err := d.Execution(id)
	if err != nil {
		return err
	}
	event := execution.Event{Kind: execution.KindNotDone, ID: id, At: d.now(), By: by, Source: execution.FromOperator, Reason: in.Note}
	if in.Done {
		event = execution.Event{
			Kind: execution.KindObserved, ID: id, At: d.now(), By: by, Source: execution.FromOperator, Outcome: execution.Success, Reason: in.Note,
			Attempt: x.LastAttempt().Number, Result: "res_1",
		}
	}
	if x, err = execution.Apply(x, event); err != nil {
		return err
	}
	d.Put(x)
	return nil
}

// Sessions implements control.Sessions.
func (d *Daemon) Sessions() []control.SessionView {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.sessions)
}

// RevokeSession implements control.Sessions.
func (d *Daemon) RevokeSession(_ context.Context, run, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.sessions)
	d.sessions = slices.DeleteFunc(d.sessions, func(v control.SessionView) bool { return v.Session.Run == run })
	if len(d.sessions) == n {
		return api.Errorf(api.CodeMissing, "run %q has no session", run)
	}
	return nil
}

// Actions implements control.Actions.
func (d *Daemon) Actions(context.Context) ([]api.Action, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.actions), nil
}

// AcceptAction implements control.Actions.
func (d *Daemon) AcceptAction(_ context.Context, in api.ActionRequest, _ string) (api.Action, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := api.Action{Name: in.Name, State: "accepted", File: in.File, Accepted: in.Digest, Digest: in.Digest, Source: string(in.Source)}
	d.actions = slices.DeleteFunc(d.actions, func(o api.Action) bool { return o.Name == a.Name })
	d.actions = append(d.actions, a)
	return a, nil
}

// RemoveAction implements control.Actions.
func (d *Daemon) RemoveAction(_ context.Context, name, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.actions)
	d.actions = slices.DeleteFunc(d.actions, func(o api.Action) bool { return o.Name == name })
	if len(d.actions) == n {
		return api.Errorf(api.CodeMissing, "there is no action %q", name)
	}
	return nil
}

// Settings implements control.Settings, with one setting.
func (d *Daemon) Settings(context.Context) ([]api.Setting, error) {
	if d.Vault.Status() != vault.Unlocked {
		return nil, vault.ErrLocked
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return []api.Setting{{Key: "card_ttl", Value: cmp.Or(d.ttl, "10m0s"), Default: "10m0s", Meaning: "how long a card waits for you"}}, nil
}

// ChangeSetting implements control.Settings.
func (d *Daemon) ChangeSetting(ctx context.Context, key string, value *string, _ string) (api.Setting, error) {
	if key != "card_ttl" {
		return api.Setting{}, api.Errorf(api.CodeMissing, "there is no setting %q", key)
	}
	d.mu.Lock()
	d.ttl = ""
	if value != nil {
		d.ttl = *value
	}
	d.mu.Unlock()
	list, err := d.Settings(ctx)
	if err != nil {
		return api.Setting{}, err
	}
	return list[0], nil
}

// AcceptQuarantine implements control.Journal.
func (d *Daemon) AcceptQuarantine(context.Context, string, string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.quarantine {
		return api.Errorf(api.CodeConflict, "the journal is not in quarantine")
	}
	d.quarantine = false
	return nil
}

// Agent makes a process one that has an agent among its ancestors.
func (d *Daemon) Agent(pid int, run string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.agents[pid] = run
}

// CannotTell makes every caller one that cannot be told.
func (d *Daemon) CannotTell(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.untold = why
}

// AgentAmong implements control.Ancestry.
func (d *Daemon) AgentAmong(p control.Peer) (string, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	run, ok := d.agents[p.PID]
	return run, ok, d.untold
}

// Ready is what a fake spd prints when it listens.
const Ready = "ready\n"

// Run serves until ctx ends: the body of a fake spd. It knows one card, one unknown outcome and one session from the start.
func Run(ctx context.Context, h home.Home, out io.Writer) error {
	d, err := New(h, time.Now)
	if err != nil {
		return err
	}
	now := time.Now()
	d.Put(Unknown(1, now.Add(-time.Hour)))
	d.Ask(Card("card_1", approval.AskSessionAndUse, Accepted(2, now), now))
	second := Card("card_2", approval.AskUse, Accepted(3, now), now)
	// What a hostile agent or target could put into words that a person reads.
	second.Card.Why = []string{"evil \x1b[2J\u202e\nspctl: fine"}
	d.Ask(second)
	l, err := d.Listen()
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- d.Server.Serve(l) }()
	if _, err := io.WriteString(out, Ready); err != nil {
		return err
	}
	<-ctx.Done()
	err = d.Shutdown(context.WithoutCancel(ctx))
	return errors.Join(err, <-served)
}
