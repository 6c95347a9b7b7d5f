package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/channel/mcpchan"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/upstream"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

// Upstreams lists the accepted upstreams.
func (o *operatorSide) Upstreams(context.Context) ([]api.Upstream, error) {
	accepted, err := o.s.vault.Contracts() // also the check that the vault is open
	if err != nil {
		return nil, err
	}
	out := []api.Upstream{}
	for _, u := range o.s.upstreams.all() {
		out = append(out, o.describeUpstream(u, accepted))
	}
	slices.SortFunc(out, func(a, b api.Upstream) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (o *operatorSide) describeUpstream(u storedUpstream, accepted []vault.AcceptedContract) api.Upstream {
	d := u.Definition
	a := api.Upstream{
		Resources: u.Shared.Resources, Prompts: len(u.Shared.Prompts), ReadPerUse: u.Shared.any() && u.Shared.PerUse,
		Name: d.Name, Transport: "stdio", Command: d.Command, Dir: d.Dir, Env: d.Env, URL: d.URL, Credentials: d.Credentials(), Identity: d.Identity(), Added: u.Added, State: "unknown",
	}
	if d.HTTP() {
		a.Transport = "http"
	}
	for _, f := range u.Files {
		file := api.UpstreamFile{Path: f.Path, Digest: f.Digest}
		if now, err := digestFile(f.Path); err != nil {
			file.Changed = err.Error()
		} else if now != f.Digest {
			file.Changed = now
		}
		a.Files = append(a.Files, file)
	}
	listing, err := o.s.upstreams.channel.Listing(d.Name)
	if listing != nil {
		a.State, a.Revision, a.Server, a.Listed = "ready", listing.Revision, listing.Server, listing.At.UTC()
	}
	if err != nil {
		a.State, a.Problem = "failed", err.Error()
	}
	for _, t := range toolsOf(d.Name, listing, accepted) {
		if t.State == "accepted" {
			a.Accepted++
		} else if t.State != "invalid" {
			a.Waiting++
		}
	}
	return a
}

// AddUpstream makes a command or URL an upstream. Its tools are proposals until they are accepted.
func (o *operatorSide) AddUpstream(ctx context.Context, in api.UpstreamRequest, by string) (api.Upstream, error) {
	d := upstream.Definition{Name: in.Name, Command: in.Command, Dir: in.Dir, Env: in.Env, URL: in.URL}
	if d.HTTP() {
		if len(in.Credentials) > 1 {
			return api.Upstream{}, api.Errorf(api.CodeUsage, "a request to a URL carries one credential")
		}
		d.Credential = strings.Join(in.Credentials, "")
	} else {
		d.Secrets = slices.Sorted(slices.Values(in.Credentials))
	}
	if err := d.Validate(); err != nil {
		return api.Upstream{}, api.Errorf(api.CodeUsage, "%v", err)
	}
	s := o.s
	s.touch()
	u := storedUpstream{Definition: d, Added: time.Now().UTC(), Files: describeFiles(d)}
	if err := s.storeUpstream(u); err != nil {
		return api.Upstream{}, err
	}
	if err := s.engine.Note(engineNote{Kind: "upstream_added", Upstream: d.Name, Digest: d.Identity(), By: by}); err != nil {
		return api.Upstream{}, err
	}
	// Whether it can be reached is shown, and is no reason not to keep it.
	if _, err := s.upstreams.channel.List(ctx, d.Name); err != nil {
		s.log.Warn("a new upstream cannot be asked for its tools", "upstream", d.Name, "error", err)
	}
	return o.describeUpstream(u, nil), nil
}

func (s *Server) storeUpstream(u storedUpstream) error {
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	d := u.Definition
	for _, name := range d.Credentials() {
		c, err := s.vault.Credential(name)
		if err != nil {
			return err
		}
		if err := mayUse(c, d); err != nil {
			return api.Errorf(api.CodeUsage, "%v", err)
		}
	}
	key := upstreamSetting + d.Name
	if _, err := s.vault.Setting(key); err == nil {
		return api.Errorf(api.CodeExists, "there is an upstream %q already", d.Name).WithHint("remove it first: spctl upstream remove %s; its tools are accepted anew then", d.Name)
	} else if !errors.Is(err, vault.ErrNotFound) {
		return err
	}
	b, err := json.Marshal(u)
	if err != nil {
		return err
	}
	if err := s.vault.SetSetting(key, b); err != nil {
		return err
	}
	return s.loadUpstreams()
}

// RemoveUpstream removes an upstream with its tools. What was sent to it is kept, and matched.
func (o *operatorSide) RemoveUpstream(_ context.Context, name, by string) error {
	s := o.s
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	s.touch()
	if _, err := s.vault.Setting(upstreamSetting + name); err != nil {
		return err
	}
	accepted, err := s.vault.Contracts()
	if err != nil {
		return err
	}
	for _, c := range accepted {
		if u, err := policy.DecodeUpstreamTool(c.Source); err == nil && policy.IsUpstreamTool(c.Source) && u.Upstream == name {
			if err := errors.Join(s.retire(c.Action), s.vault.RemoveContract(c.Action)); err != nil {
				return err
			}
			s.engine.EndGrantsOf(c.Action)
		}
	}
	if err := s.vault.RemoveSetting(upstreamSetting + name); err != nil {
		return err
	}
	s.upstreams.channel.Forget(name)
	if err := errors.Join(s.loadUpstreams(), s.loadActions()); err != nil {
		return err
	}
	return s.engine.Note(engineNote{Kind: "upstream_removed", Upstream: name, By: by})
}

// UpstreamTools asks an upstream for its tools, and holds them against the accepted ones.
func (o *operatorSide) UpstreamTools(ctx context.Context, name string) ([]api.UpstreamTool, error) {
	o.s.touch()
	if _, err := o.s.vault.Setting(upstreamSetting + name); err != nil {
		return nil, err
	}
	listing, err := o.s.upstreams.channel.List(ctx, name)
	if err != nil {
		return nil, api.Errorf(api.CodeNotSent, "%v", err).WithHint("spctl upstream list shows its command or URL; what it writes to standard error is in the daemon's log")
	}
	accepted, err := o.s.vault.Contracts()
	if err != nil {
		return nil, err
	}
	return toolsOf(name, listing, accepted), nil
}

// toolsOf joins what an upstream has with what is accepted of it.
func toolsOf(name string, l *mcpchan.Listing, accepted []vault.AcceptedContract) []api.UpstreamTool {
	type force struct {
		policy.UpstreamTool
		pin string
	}
	inForce := map[string]force{}
	for _, c := range accepted {
		if !policy.IsUpstreamTool(c.Source) {
			continue
		}
		u, err := policy.DecodeUpstreamTool(c.Source)
		if err != nil || u.Upstream != name {
			continue
		}
		pin, _ := u.Tool.Pin()
		inForce[u.Tool.Name] = force{u, pin}
	}
	out := []api.UpstreamTool{}
	if l != nil {
		for _, t := range l.Tools {
			a := api.UpstreamTool{
				Name: t.Tool.Name, Action: upstream.ActionName(name, t.Tool.Name), State: "new", Digest: t.Pin, Title: t.Tool.Title, Description: t.Tool.Description,
				InputSchema: t.Tool.InputSchema, Claims: t.Tool.Annotations,
			}
			old, ok := inForce[t.Tool.Name]
			delete(inForce, t.Tool.Name)
			if ok {
				a.Action, a.State, a.Accepted, a.Class, a.PerUse = old.Action, "accepted", old.pin, string(old.Class), old.PerUse
				if old.pin != t.Pin {
					a.State, a.Diff = "changed", policy.Diff("accepted", shownTool(old.Tool), "now", shownTool(t.Tool))
				}
			}
			if t.Err != nil {
				a.Problem = t.Err.Error()
				if !ok {
					a.State = "invalid"
				}
			}
			out = append(out, a)
		}
	}
	for _, old := range inForce {
		a := api.UpstreamTool{
			Name: old.Tool.Name, Action: old.Action, State: "gone", Accepted: old.pin, Class: string(old.Class), PerUse: old.PerUse, Title: old.Tool.Title, Description: old.Tool.Description,
			InputSchema: old.Tool.InputSchema, Claims: old.Tool.Annotations,
		}
		if l == nil {
			a.State = "accepted" // nobody has asked since the vault was opened
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b api.UpstreamTool) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// shownTool writes what is pinned of a tool, for a diff.
func shownTool(t upstream.Tool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tool: %s\n", t.Name)
	if t.Title != "" {
		fmt.Fprintf(&b, "title: %s\n", t.Title)
	}
	fmt.Fprintf(&b, "description:\n%s\n", t.Description)
	for _, one := range []struct {
		name string
		raw  json.RawMessage
	}{{"input schema", t.InputSchema}, {"output schema", t.OutputSchema}} {
		if len(one.raw) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s:\n", one.name)
		if json.Indent(&b, one.raw, "", "  ") != nil {
			b.Write(one.raw)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// AcceptUpstreamTool puts a tool into force exactly as it was shown.
func (o *operatorSide) AcceptUpstreamTool(ctx context.Context, name string, in api.UpstreamAccept, by string) (api.UpstreamTool, error) {
	s := o.s
	s.touch()
	if _, err := s.vault.Setting(upstreamSetting + name); err != nil {
		return api.UpstreamTool{}, err
	}
	listing, _ := s.upstreams.channel.Listing(name)
	if listing == nil {
		var err error
		if listing, err = s.upstreams.channel.List(ctx, name); err != nil {
			return api.UpstreamTool{}, api.Errorf(api.CodeNotSent, "%v", err)
		}
	}
	i := slices.IndexFunc(listing.Tools, func(t mcpchan.Listed) bool { return t.Tool.Name == in.Tool })
	if i < 0 {
		return api.UpstreamTool{}, api.Errorf(api.CodeMissing, "the upstream %s has no tool %q", name, in.Tool).WithHint("spctl upstream tools %s", name)
	}
	t := listing.Tools[i]
	switch {
	case t.Err != nil:
		return api.UpstreamTool{}, api.Errorf(api.CodeUsage, "%v", t.Err)
	case t.Pin != in.Digest:
		return api.UpstreamTool{}, api.Errorf(api.CodeConflict, "the tool %q is not the one that was shown: its digest is %s", in.Tool, t.Pin).WithHint("look at it again: spctl upstream tools %s", name)
	}
	u := policy.UpstreamTool{Action: in.Action, Upstream: name, Tool: t.Tool, Class: execution.Class(in.Class), Total: in.Total}
	if u.Action == "" {
		u.Action = upstream.ActionName(name, t.Tool.Name)
	}
	if u.Class == "" {
		u.Class = execution.Irreversible
	}
	u.PerUse = u.Class != execution.ReadOnly
	if in.PerUse != nil {
		u.PerUse = *in.PerUse
	}
	if slices.Contains(policy.ReservedTools, u.Action) {
		return api.UpstreamTool{}, api.Errorf(api.CodeUsage, "%q is one of Singlepass's own tools: choose another name", u.Action)
	}
	src, err := u.Source()
	if err != nil {
		return api.UpstreamTool{}, api.Errorf(api.CodeUsage, "%v", err)
	}
	if err := s.acceptTool(u, src); err != nil {
		return api.UpstreamTool{}, err
	}
	accepted, err := s.vault.Contracts()
	if err != nil {
		return api.UpstreamTool{}, err
	}
	all := toolsOf(name, listing, accepted)
	out := all[slices.IndexFunc(all, func(a api.UpstreamTool) bool { return a.Name == in.Tool })]
	return out, s.engine.Note(engineNote{Kind: "contract_accepted", Action: u.Action, Upstream: name, Digest: policy.Digest(src), By: by})
}

func (s *Server) acceptTool(u policy.UpstreamTool, src []byte) error {
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	accepted, err := s.vault.Contracts()
	if err != nil {
		return err
	}
	var replaced []string
	for _, c := range accepted {
		old, err := policy.DecodeUpstreamTool(c.Source)
		same := err == nil && policy.IsUpstreamTool(c.Source) && old.Upstream == u.Upstream && old.Tool.Name == u.Tool.Name
		switch {
		case same:
			replaced = append(replaced, c.Action)
		case c.Action == u.Action:
			return api.Errorf(api.CodeExists, "there is an action %q already", u.Action).WithHint("choose another name: --as NAME")
		}
	}
	for _, action := range replaced {
		if err := s.retire(action); err != nil {
			return err
		}
		if action != u.Action {
			if err := s.vault.RemoveContract(action); err != nil {
				return err
			}
			s.engine.EndGrantsOf(action)
		}
	}
	if err := s.vault.AcceptContract(vault.AcceptedContract{Action: u.Action, File: upstreamSetting + u.Upstream, Source: src, Digest: policy.Digest(src)}); err != nil {
		return err
	}
	return s.loadActions()
}
