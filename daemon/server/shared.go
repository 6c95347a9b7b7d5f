package server

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel/mcpchan"
	"singlepass.dev/daemon/upstream"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

// storedShared is what the operator opened of an upstream for agents to read. It lies in the vault beside the upstream's definition.
type storedShared struct {
	Resources bool              `json:"resources,omitempty"`
	Prompts   []upstream.Prompt `json:"prompts,omitempty"` // exactly as they were accepted
	PerUse    bool              `json:"per_use,omitempty"`
}

func (s storedShared) any() bool { return s.Resources || len(s.Prompts) > 0 }

// sharedActions makes what agents may read of the accepted upstreams.
func (s *Server) sharedActions() (actions []*policy.Action, prompts []call.Prompt) {
	all := s.upstreams.all()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		u := all[name]
		perUse := u.Shared.PerUse || s.secretAsks(u.Definition)
		add := func(a *policy.Action, err error) bool {
			if err != nil {
				s.log.Error("what was opened of an upstream cannot be used", "upstream", name, "error", err)
				return false
			}
			actions = append(actions, a.On(u.Definition, false))
			return true
		}
		if u.Shared.Resources {
			add(policy.SharedResources(name, perUse))
		}
		if len(u.Shared.Prompts) == 0 || !add(policy.SharedPrompts(name, u.Shared.Prompts, perUse)) {
			continue
		}
		for _, p := range u.Shared.Prompts {
			prompts = append(prompts, call.Prompt{Name: upstream.PromptName(name, p.Name), Title: p.Title, Description: p.Description, Arguments: p.Arguments})
		}
	}
	return actions, prompts
}

// secretAsks says whether one of the secrets in a command's environment asks at every use. The credential of a URL is the engine's to look at.
func (s *Server) secretAsks(d upstream.Definition) bool {
	return slices.ContainsFunc(d.Secrets, func(name string) bool {
		cred, err := s.vault.Credential(name)
		return err == nil && cred.PerUse
	})
}

// UpstreamPrompts asks an upstream for its prompts, and holds them against the accepted ones.
func (o *operatorSide) UpstreamPrompts(ctx context.Context, name string) ([]api.UpstreamPrompt, error) {
	o.s.touch()
	u, err := o.s.storedUpstream(name)
	if err != nil {
		return nil, err
	}
	all, err := o.s.upstreams.channel.Prompts(ctx, name)
	if err != nil {
		return nil, api.Errorf(api.CodeNotSent, "%v", err).WithHint("spctl upstream list shows its command or URL; what it writes to standard error is in the daemon's log")
	}
	return promptsOf(u, all), nil
}

func promptsOf(u storedUpstream, all []mcpchan.ListedPrompt) []api.UpstreamPrompt {
	out := []api.UpstreamPrompt{}
	inForce := map[string]upstream.Prompt{}
	for _, p := range u.Shared.Prompts {
		inForce[p.Name] = p
	}
	describe := func(p upstream.Prompt, state string) api.UpstreamPrompt {
		a := api.UpstreamPrompt{Name: p.Name, Agents: upstream.PromptName(u.Definition.Name, p.Name), State: state, Title: p.Title, Description: p.Description}
		for _, one := range p.Arguments {
			a.Arguments = append(a.Arguments, api.UpstreamPromptArgument(one))
		}
		return a
	}
	for _, l := range all {
		a := describe(l.Prompt, "new")
		old, ok := inForce[l.Prompt.Name]
		delete(inForce, l.Prompt.Name)
		if ok {
			a.Accepted = old.Pin()
		}
		if l.Err != nil {
			a.State, a.Problem = "invalid", l.Err.Error()
			out = append(out, a)
			continue
		}
		a.Digest = l.Prompt.Pin()
		switch {
		case !ok:
		case a.Accepted == a.Digest:
			a.State = "accepted"
		default:
			a.State, a.Diff = "changed", policy.Diff("accepted", shownPrompt(old), "now", shownPrompt(l.Prompt))
		}
		out = append(out, a)
	}
	for _, old := range inForce {
		a := describe(old, "gone")
		a.Accepted = old.Pin()
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b api.UpstreamPrompt) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// shownPrompt writes what is pinned of a prompt, for a diff.
func shownPrompt(p upstream.Prompt) []byte {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil // strings and booleans
	}
	return append(b, '\n')
}

func (s *Server) storedUpstream(name string) (storedUpstream, error) {
	var u storedUpstream
	b, err := s.vault.Setting(upstreamSetting + name)
	if err == nil {
		err = json.Unmarshal(b, &u)
	}
	return u, err
}

// ShareUpstream opens resources and prompts of an upstream to agents, or closes them. What is not named stays as it is.
func (o *operatorSide) ShareUpstream(ctx context.Context, name string, in api.UpstreamShare, by string) (api.Upstream, error) {
	s := o.s
	s.touch()
	if _, err := s.storedUpstream(name); err != nil {
		return api.Upstream{}, err
	}
	var prompts []upstream.Prompt
	if len(in.Prompts) > 0 {
		all, err := s.upstreams.channel.Prompts(ctx, name)
		if err != nil {
			return api.Upstream{}, api.Errorf(api.CodeNotSent, "%v", err)
		}
		for _, want := range slices.Sorted(maps.Keys(in.Prompts)) {
			i := slices.IndexFunc(all, func(l mcpchan.ListedPrompt) bool { return l.Prompt.Name == want })
			switch {
			case i < 0:
				return api.Upstream{}, api.Errorf(api.CodeMissing, "the upstream %s has no prompt %q", name, want).WithHint("spctl upstream prompts %s", name)
			case all[i].Err != nil:
				return api.Upstream{}, api.Errorf(api.CodeUsage, "%v", all[i].Err)
			case all[i].Prompt.Pin() != in.Prompts[want]:
				return api.Upstream{}, api.Errorf(api.CodeConflict, "the prompt %q is not the one that was shown", want).WithHint("look at it again: spctl upstream prompts %s", name)
			}
			prompts = append(prompts, all[i].Prompt)
		}
	}
	u, err := s.changeShared(name, func(shared *storedShared) {
		if in.Resources != nil {
			shared.Resources = *in.Resources
		}
		if in.Prompts != nil {
			shared.Prompts = prompts
		}
		if in.PerUse != nil {
			shared.PerUse = *in.PerUse
		}
	})
	if err != nil {
		return api.Upstream{}, err
	}
	what, err := json.Marshal(u.Shared)
	if err != nil {
		return api.Upstream{}, err
	}
	if err := s.engine.Note(engineNote{Kind: "upstream_shared", Upstream: name, Digest: policy.Digest(what), Value: u.Shared.words(), By: by}); err != nil {
		return api.Upstream{}, err
	}
	accepted, err := s.vault.Contracts()
	if err != nil {
		return api.Upstream{}, err
	}
	return o.describeUpstream(u, accepted), nil
}

// words says what is open, for the record.
func (s storedShared) words() string {
	var open []string
	if s.Resources {
		open = append(open, "resources")
	}
	if len(s.Prompts) > 0 {
		open = append(open, "prompts")
	}
	if len(open) == 0 {
		return "nothing"
	}
	return strings.Join(open, ", ")
}

func (s *Server) changeShared(name string, change func(*storedShared)) (storedUpstream, error) {
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	u, err := s.storedUpstream(name)
	if err != nil {
		return u, err
	}
	change(&u.Shared)
	b, err := json.Marshal(u)
	if err != nil {
		return u, err
	}
	if err := s.vault.SetSetting(upstreamSetting+name, b); err != nil {
		return u, err
	}
	if err := errors.Join(s.loadUpstreams(), s.loadActions()); err != nil && !errors.Is(err, vault.ErrLocked) {
		return u, err
	}
	return u, nil
}
