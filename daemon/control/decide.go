package control

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
)

func (s *Server) approvals(request) (any, error) {
	views := s.cfg.Approvals.Cards()
	cards := make([]api.Card, 0, len(views))
	for _, v := range views {
		cards = append(cards, Card(v))
	}
	return cards, nil
}

func (s *Server) card(r request) (any, error) {
	for _, v := range s.cfg.Approvals.Cards() {
		if v.Card.ID == r.PathValue("card") {
			return Card(v), nil
		}
	}
	return nil, noCard(r.PathValue("card"))
}

func noCard(id string) *api.Error {
	return api.Errorf(api.CodeMissing, "no card %q waits for an answer; it was answered, has expired, or its run ended", id).WithHint("spctl approvals")
}

// maxReason bounds what an agent gets to read of a denial.
const maxReason = 1000

func (s *Server) answer(r request) (any, error) {
	var in api.CardAnswer
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if len(in.Reason) > maxReason {
		return nil, api.Errorf(api.CodeUsage, "the reason has %d bytes, and %d are allowed", len(in.Reason), maxReason)
	}
	answer := approval.Answer(in.Answer)
	switch answer {
	case approval.Once, approval.ForRun, approval.Deny, approval.Recorded:
	default:
		return nil, api.Errorf(api.CodeUsage, "%q is no answer; use once, session, recorded or deny", in.Answer)
	}
	if answer != approval.ForRun && (in.Scope != "" || in.Minutes != 0 || in.Standing) {
		return nil, api.Errorf(api.CodeUsage, "only a session has a scope and minutes, and can be standing")
	}
	most, unless := approval.MaxFor, ", or as long as its run"
	if in.Standing {
		most, unless = approval.MaxStanding, "; a standing grant always has an end"
	}
	switch scope := approval.Scope(in.Scope); {
	case scope != "" && scope != approval.ScopeRun && scope != approval.ScopeAction && scope != approval.ScopeArguments:
		return nil, api.Errorf(api.CodeUsage, "%q is no scope of a session; use run, action or arguments", in.Scope)
	case in.Minutes < 0 || time.Duration(in.Minutes) > most/time.Minute, in.Standing && in.Minutes == 0:
		return nil, api.Errorf(api.CodeUsage, "it lasts from 1 to %d minutes%s", most/time.Minute, unless)
	}
	return nil, s.cfg.Approvals.Answer(r.Context(), r.PathValue("card"), approval.Decision{
		Answer: answer, By: r.by, Reason: in.Reason, At: s.cfg.Now(), Scope: approval.Scope(in.Scope), For: time.Duration(in.Minutes) * time.Minute, Standing: in.Standing,
	})
}

func (s *Server) streamApprovals(r request, send func(any) error) error {
	changes := s.cfg.Approvals.WatchCards(r.Context())
	for c := range changes {
		e := api.CardEvent{Event: string(c.Kind), By: c.By, Note: c.Reason}
		switch c.Kind {
		case Answered, Void:
			e.Card.Card, e.ExecutionID = c.Card.Card.ID, c.Card.Card.Binding.Execution
		default:
			e.Card = Card(c.Card)
		}
		if err := send(e); err != nil {
			return err
		}
	}
	return s.ended(r)
}

// ended says why a stream's source closed.
func (s *Server) ended(r request) error {
	if r.Context().Err() != nil {
		return nil
	}
	if s.cfg.Daemon.Status().Vault != "unlocked" {
		return api.Errorf(api.CodeVaultLocked, "the vault was locked").WithHint("spctl unlock")
	}
	return api.Errorf(api.CodeShuttingDown, "the daemon ended this stream; it is stopping, or the reader was too slow").WithHint("ask again")
}

func (s *Server) sessions(request) (any, error) {
	views := s.cfg.Sessions.Sessions()
	list := make([]api.Session, 0, len(views))
	for _, v := range views {
		list = append(list, Session(v))
	}
	return list, nil
}

func (s *Server) revoke(r request) (any, error) {
	return nil, s.cfg.Sessions.RevokeSession(r.Context(), r.PathValue("run"), r.by)
}

func (s *Server) grants(r request) (any, error) {
	list, err := s.cfg.Grants.Grants(r.Context())
	if list == nil {
		list = []api.Grant{}
	}
	return list, err
}

func (s *Server) revokeGrant(r request) (any, error) {
	return nil, s.cfg.Grants.RevokeGrant(r.Context(), r.PathValue("grant"), r.by)
}

func (s *Server) actions(r request) (any, error) {
	list, err := s.cfg.Actions.Actions(r.Context())
	if list == nil {
		list = []api.Action{}
	}
	return list, err
}

func (s *Server) action(r request) (any, error) {
	list, err := s.cfg.Actions.Actions(r.Context())
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if a.Name == r.PathValue("name") {
			return a, nil
		}
	}
	return nil, api.Errorf(api.CodeMissing, "there is no action %q", r.PathValue("name")).WithHint("spctl action list")
}

func (s *Server) acceptAction(r request) (any, error) {
	var in api.ActionRequest
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(in.Source)
	if got := "sha256:" + hex.EncodeToString(sum[:]); in.Digest != got {
		return nil, api.Errorf(api.CodeConflict, "the contract has digest %s and not the one that was shown, %s", got, in.Digest).WithHint("look at it again")
	}
	return s.cfg.Actions.AcceptAction(r.Context(), in, r.by)
}

func (s *Server) removeAction(r request) (any, error) {
	return nil, s.cfg.Actions.RemoveAction(r.Context(), r.PathValue("name"), r.by)
}

func (s *Server) settings(r request) (any, error) { return s.cfg.Settings.Settings(r.Context()) }

func (s *Server) changeSetting(r request) (any, error) {
	var in api.SettingRequest
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	return s.cfg.Settings.ChangeSetting(r.Context(), r.PathValue("key"), in.Value, r.by)
}

func (s *Server) httpClients(r request) (any, error) {
	return s.cfg.HTTPClients.HTTPClients(r.Context())
}

func (s *Server) issueHTTPToken(r request) (any, error) {
	var in api.HTTPClientRequest
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	return s.cfg.HTTPClients.IssueHTTPToken(r.Context(), in, r.by)
}

func (s *Server) revokeHTTPToken(r request) (any, error) {
	return nil, s.cfg.HTTPClients.RevokeHTTPToken(r.Context(), r.PathValue("client"), r.by)
}

func (s *Server) checkHTTPToken(r request) (any, error) {
	var in api.HTTPTokenCheck
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	return s.cfg.HTTPClients.CheckHTTPToken(in.Token), nil
}

func (s *Server) acceptQuarantine(r request) (any, error) {
	var in api.Quarantine
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Reason) == "" || len(in.Reason) > maxReason {
		return nil, api.Errorf(api.CodeUsage, "a reason of at most %d bytes is needed; it stays in the journal", maxReason)
	}
	return nil, s.cfg.Journal.AcceptQuarantine(r.Context(), in.Reason, r.by)
}
