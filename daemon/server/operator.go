package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/index"
	"singlepass.dev/daemon/journal"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/vault"
)

// operatorSide is what the operator's face asks for.
type operatorSide struct{ s *Server }

// translate finds the code of the engine's errors.
func translate(err error) (*api.Error, bool) {
	switch {
	case errors.Is(err, engine.ErrNoCard):
		return api.Errorf(api.CodeMissing, "%v", err), true
	case errors.Is(err, engine.ErrNoRun), errors.Is(err, engine.ErrUnknown), errors.Is(err, engine.ErrNoGrant):
		return api.Errorf(api.CodeMissing, "%v", err), true
	case errors.Is(err, engine.ErrSettled), errors.Is(err, engine.ErrContradicted), errors.Is(err, approval.ErrExpired):
		return api.Errorf(api.CodeConflict, "%v", err), true
	case errors.Is(err, engine.ErrAnswer):
		return api.Errorf(api.CodeUsage, "%v", err), true
	case errors.Is(err, journal.ErrQuarantine):
		return api.Errorf(api.CodeQuarantine, "%v", err), true
	case errors.Is(err, journal.ErrStopped), errors.Is(err, journal.ErrFull):
		return api.Errorf(api.CodeJournal, "%v", err), true
	}
	return nil, false
}

// Status describes the daemon.
func (o *operatorSide) Status() api.Status {
	s := o.s
	info := s.vault.Info()
	c := s.engine.Counts()
	st := api.Status{
		Vault: string(info.State), Pending: c.Cards, Unknown: s.records.Index().Counts()[execution.Unknown], Journal: "ok", Version: s.cfg.Version, GoVersion: runtime.Version(), PID: os.Getpid(), Since: s.since,
		MCPSocket: s.AgentSocket(), MCPURL: s.MCPURL(), JournalDir: s.cfg.Home.Journal(), ActionsDir: s.conf.Actions, Sessions: c.Sessions, Grants: c.Grants, Actions: c.Actions,
	}
	if info.State != vault.Uninitialized {
		st.Keyring = "used"
		if !info.DeviceSecret {
			st.Keyring = "not_used"
		}
	}
	if why := s.why.Load(); why != nil && info.State == vault.Locked {
		st.Reason = *why
	}
	if q := s.records.Journal().Quarantine(); q != nil {
		st.Journal, st.Problem = "quarantine", q.String()
	} else if err := s.records.Journal().Status(); err != nil || c.Down {
		st.Journal = "unavailable"
		if err != nil {
			st.Problem = err.Error()
		}
	}
	st.Refused, st.Doubts, st.RefusedClients = s.tries.seen(), s.tries.doubtful(), s.clients.seen()
	if info.State == vault.Locked {
		st.LockedCalls = s.locked.seen()
	}
	head := s.records.Journal().Head()
	st.Head = &api.Head{Seq: head.Seq, Hash: head.Hash.String()}
	st.Head.Key = s.verifierKey()
	if info.State == vault.Unlocked {
		st.Changed = s.waitingContracts()
	}
	return st
}

// waitingContracts counts the contracts in the folder that are not accepted as they are, and the tools of upstreams that are withheld because they changed.
func (s *Server) waitingContracts() int {
	accepted, err := s.vault.Contracts()
	if err != nil {
		return 0
	}
	files, err := s.files.proposals()
	if err != nil {
		return 0
	}
	for _, c := range accepted {
		delete(files, c.Digest)
	}
	s.upstreams.mu.Lock()
	n := len(s.upstreams.withheld)
	s.upstreams.mu.Unlock()
	for _, f := range files {
		if f.valid {
			n++
		}
	}
	return n
}

// Cards lists the waiting cards.
func (o *operatorSide) Cards() []control.CardView {
	cards := o.s.engine.Cards()
	out := make([]control.CardView, 0, len(cards))
	for _, c := range cards {
		out = append(out, cardView(c))
	}
	return out
}

func cardView(c engine.CardView) control.CardView {
	v := control.CardView{Card: c.Card, Peer: c.Peer, Since: c.Since, CallsBefore: max(0, c.Calls-1), Earlier: c.Earlier, WhySaid: c.WhySaid}
	if c.Execution != nil {
		v.Execution = *c.Execution
	} else if c.Earlier != nil {
		v.Execution = *c.Earlier
		v.Retry = "nothing is sent for this call: it belongs to an earlier execution, and asks for its result"
	}
	if c.Effect != nil {
		v.Effect = *c.Effect
	}
	switch {
	case v.Retry != "":
	case c.Card.Question == approval.AskAgain || c.Earlier != nil:
		v.Retry = "the same call was carried out before; nothing is sent again unless you say so"
	case c.Execution != nil && len(c.Execution.Callers)+c.Execution.Dropped > 1:
		v.Retry = fmt.Sprintf("%d calls belong to this execution; it is asked about and sent once", len(c.Execution.Callers)+c.Execution.Dropped)
	}
	if v.Execution.Class != "" {
		v.LostAnswer = control.LostAnswer(v.Execution.Class)
	}
	return v
}

// Answer takes the person's decision.
func (o *operatorSide) Answer(ctx context.Context, card string, d approval.Decision) error {
	o.s.touch()
	return o.s.engine.Answer(ctx, card, d)
}

// WatchCards sends the waiting cards, then every change.
func (o *operatorSide) WatchCards(ctx context.Context) <-chan control.CardChange {
	ctx, cancel := context.WithCancel(ctx)
	snapshot, changes := o.s.engine.Watch(ctx)
	out := make(chan control.CardChange)
	send := func(c control.CardChange) bool {
		select {
		case out <- c:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		defer cancel()
		defer close(out)
		for _, c := range snapshot {
			if !send(control.CardChange{Kind: control.Waiting, Card: cardView(c)}) {
				return
			}
		}
		for c := range changes {
			change, ok := cardChange(c)
			if ok && !send(change) {
				return
			}
			if c.Kind == "status" && c.Counts.Locked {
				return
			}
		}
	}()
	return out
}

func cardChange(c engine.Change) (control.CardChange, bool) {
	if c.Card == nil {
		return control.CardChange{}, false
	}
	v := control.CardChange{Card: cardView(*c.Card), By: c.By}
	switch c.Kind {
	case "card_added":
		v.Kind = control.Added
	case "card_changed":
		v.Kind = control.Changed
	default:
		v.Kind, v.Reason = control.Answered, c.How
		if c.How == "void" || c.How == "expired" {
			v.Kind, v.Reason, v.By = control.Void, c.By, ""
			if c.How == "expired" {
				v.Reason = "nobody answered in time"
			}
		}
	}
	return v, true
}

// Execution returns one record.
func (o *operatorSide) Execution(id string) (execution.Execution, bool, error) {
	return o.s.engine.Execution(id)
}

// List returns the newest first.
func (o *operatorSide) List(q control.Query) ([]execution.Execution, error) {
	o.s.records.Settle()
	iq := index.Query{Run: q.Run, Tool: q.Tool, Credential: q.Credential, Text: q.Text, Since: q.Since, Until: q.Until, Before: q.Before, Limit: q.Limit}
	if q.State != "" {
		if !slices.Contains(execution.States(), execution.State(q.State)) {
			return nil, api.Errorf(api.CodeUsage, "%q is no state; the states are %v", q.State, execution.States())
		}
		iq.States = []execution.State{execution.State(q.State)}
	}
	if q.Limit > 0 {
		return o.s.records.Index().List(iq)
	}
	const page = 500
	iq.Limit = page
	var all []execution.Execution
	for {
		part, err := o.s.records.Index().List(iq)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		if len(part) < page {
			return all, nil
		}
		iq.Before = part[len(part)-1].ID
	}
}

// Watch sends every matching execution whenever it changes.
func (o *operatorSide) Watch(ctx context.Context, q control.Query) <-chan execution.Execution {
	ctx, cancel := context.WithCancel(ctx)
	_, changes := o.s.engine.Watch(ctx)
	out := make(chan execution.Execution)
	go func() {
		defer cancel()
		defer close(out)
		for c := range changes {
			if c.Kind == "status" && c.Counts.Locked {
				return
			}
			x := c.Execution
			if x == nil || q.Credential != "" && x.Credential != q.Credential || q.Run != "" && x.Run != q.Run || q.Tool != "" && x.Tool != q.Tool || q.State != "" && string(x.State) != q.State || x.AcceptedAt.Before(q.Since) {
				continue
			}
			select {
			case out <- *x:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// Refusals returns the calls that were not accepted, newest first.
func (o *operatorSide) Refusals(q control.Query) ([]api.Refusal, error) {
	o.s.engine.RecordRefusals()
	o.s.records.Settle()
	var list []api.Refusal
	var wrong error
	err := o.s.records.Index().Refusals(q.Since, func(f index.Fact) bool {
		var ev engine.RefusedEvent
		if wrong = json.Unmarshal(f.Event, &ev); wrong != nil {
			wrong = fmt.Errorf("reading entry %d of a refused call: %w", f.Seq, wrong)
			return false
		}
		ev.At = f.At
		if chooses(q, ev) {
			list = append(list, refusalOf(ev))
		}
		return q.Limit <= 0 || len(list) < q.Limit
	})
	return list, errors.Join(err, wrong)
}

func chooses(q control.Query, ev engine.RefusedEvent) bool {
	return (q.Run == "" || q.Run == ev.Run) && (q.Tool == "" || q.Tool == ev.Tool) && !ev.At.Before(q.Since) && (q.Until.IsZero() || ev.At.Before(q.Until))
}

func refusalOf(ev engine.RefusedEvent) api.Refusal {
	r := api.Refusal{At: ev.At.UTC(), Code: ev.Code, Tool: ev.Tool, Run: ev.Run, Actor: ev.Actor, Reason: ev.Reason, NotRecorded: ev.Missed}
	if c := ev.Caller; c != nil {
		r.Call, r.Transport, r.RequestID, r.Protocol, r.Client = c.Call, c.Transport, c.RequestID, c.Protocol, c.Client
	}
	return r
}

// WatchRefusals sends every matching call that is not accepted.
func (o *operatorSide) WatchRefusals(ctx context.Context, q control.Query) <-chan api.Refusal {
	ctx, cancel := context.WithCancel(ctx)
	_, changes := o.s.engine.Watch(ctx)
	out := make(chan api.Refusal)
	go func() {
		defer cancel()
		defer close(out)
		for c := range changes {
			if c.Kind == "status" && c.Counts.Locked {
				return
			}
			if c.Refused == nil || !chooses(q, *c.Refused) {
				continue
			}
			select {
			case out <- refusalOf(*c.Refused):
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// Payload opens what was asked for and what came of it.
func (o *operatorSide) Payload(_ context.Context, id string) (control.Payload, error) {
	x, ok, err := o.s.engine.Execution(id)
	if err != nil {
		return control.Payload{}, err
	}
	if !ok {
		return control.Payload{}, fmt.Errorf("opening the payload of %q: %w", id, engine.ErrUnknown)
	}
	var p control.Payload
	if accepted, last, found, err := o.s.records.Index().Changed(id); err == nil && found {
		p.Place = api.Place{Accepted: accepted.Seq, Last: last.Seq, Verified: o.s.records.Journal().Quarantine() == nil && o.s.records.Index().Verified()}
	}
	if x.Pruned {
		p.Erased = true
		return p, nil
	}
	b, err := o.s.records.Payload(id, execution.KindAccepted)
	if err != nil {
		return p, err
	}
	var asked struct {
		Raw       json.RawMessage `json:"raw"`
		Arguments json.RawMessage `json:"arguments"`
		Effect    json.RawMessage `json:"effect"`
	}
	if err := json.Unmarshal(b, &asked); err != nil {
		return p, fmt.Errorf("reading what was accepted as %s: %w", id, err)
	}
	p.Arguments = asked.Arguments
	if eff, err := effect.Decode(asked.Effect); err == nil {
		p.Effect = &eff
	}
	if !x.State.Completed() {
		return p, nil
	}
	if b, err = o.s.records.Payload(id, execution.KindObserved); err != nil {
		return p, err
	}
	var came struct {
		Result json.RawMessage `json:"result"`
		Answer json.RawMessage `json:"answer"`
	}
	if err := json.Unmarshal(b, &came); err != nil {
		return p, fmt.Errorf("reading the result of %s: %w", id, err)
	}
	p.Result, p.Answer = came.Result, came.Answer
	return p, nil
}

// Check asks the target where the contract says how.
func (o *operatorSide) Check(ctx context.Context, id, by string) (api.Checked, error) {
	o.s.touch()
	asked, _, err := o.s.engine.Check(ctx, id, by)
	switch {
	case errors.Is(err, engine.ErrCannotAsk) && o.s.vault.Status() != vault.Unlocked:
		return api.Checked{}, api.Errorf(api.CodeVaultLocked, "%v", err).WithHint("spctl unlock")
	case errors.Is(err, engine.ErrCannotAsk):
		return api.Checked{Finding: string(execution.FoundCannotTell), Text: err.Error() + "; look at the target yourself, then settle it with spctl settle " + id}, nil
	case err != nil:
		return api.Checked{}, err
	}
	return api.Checked{Finding: string(asked.Finding), Settled: asked.Believed, Text: asked.Reason, Evidence: asked.Evidence, Answer: asked.Answer}, nil
}

// Settle takes the operator's verdict.
func (o *operatorSide) Settle(ctx context.Context, id string, in api.Verdict, by string) error {
	o.s.touch()
	_, err := o.s.engine.Settle(ctx, id, engine.Verdict{Done: in.Done, Note: in.Note, Against: execution.Finding(in.Against)}, by)
	return err
}

// Sessions lists them.
func (o *operatorSide) Sessions() []control.SessionView {
	locked := o.s.vault.Status() != vault.Unlocked
	var out []control.SessionView
	for _, r := range o.s.engine.Runs() {
		for _, session := range r.Sessions {
			out = append(out, control.SessionView{Session: session, Peer: r.Identity, Suspended: locked, Calls: r.Calls})
		}
	}
	return out
}

// RevokeSession ends one at once.
func (o *operatorSide) RevokeSession(_ context.Context, run, by string) error {
	return o.s.engine.RevokeSession(run, by)
}

// AcceptQuarantine ends a quarantine.
func (o *operatorSide) AcceptQuarantine(_ context.Context, reason, by string) error {
	details, err := json.Marshal(map[string]string{"by": by, "at": time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return err
	}
	return o.s.acceptQuarantine(reason, details)
}

// AgentAmong says whether a process, or one of its ancestors, is an agent that this daemon knows, or was left behind by one.
func (o *operatorSide) AgentAmong(p control.Peer) (string, bool, error) {
	return o.s.belongs(p.PID, p.Start)
}

// peerOf says which process connected to the operator's socket.
func (s *Server) peerOf(c net.Conn) (control.Peer, error) {
	uc, ok := peer.UnixConn(c)
	if !ok {
		return control.Peer{}, errors.New("not a unix socket")
	}
	p, err := s.peers.ProcessOf(uc)
	if err != nil {
		return control.Peer{}, err
	}
	return control.Peer{UID: p.UID, PID: p.PID, Start: p.Start}, nil
}

func (s *Server) acceptQuarantine(reason string, details []byte) error {
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	if _, err := s.records.Journal().AcceptQuarantine(reason, details); err != nil {
		return api.Errorf(api.CodeConflict, "%v", err)
	}
	// What the index knows came from a chain that was broken since; it is made anew from what verifies.
	if err := s.records.Rebuild(); err != nil {
		return err
	}
	s.engine.SetQuarantine(false)
	if s.vault.Status() == vault.Unlocked {
		s.loadStanding() // which ends all: what was lost may have ended them
	}
	return s.engine.Recover()
}
