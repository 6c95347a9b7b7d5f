package controltest

import (
	"context"
	"encoding/json"
	"slices"

	"singlepass.dev/daemon/api"
)

// upstream is one that this daemon pretends to have. Each has one tool.
type upstream struct {
	api.Upstream
	tool api.UpstreamTool
}

// Upstreams implements control.Upstreams.
func (d *Daemon) Upstreams(context.Context) ([]api.Upstream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []api.Upstream{}
	for _, u := range d.upstreams {
		out = append(out, u.Upstream)
	}
	return out, nil
}

// AddUpstream implements control.Upstreams.
func (d *Daemon) AddUpstream(_ context.Context, in api.UpstreamRequest, _ string) (api.Upstream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.upstreamLocked(in.Name) != nil {
		return api.Upstream{}, api.Errorf(api.CodeExists, "there is an upstream %q already", in.Name)
	}
	u := &upstream{
		Upstream: api.Upstream{Name: in.Name, Transport: "stdio", Command: in.Command, Dir: in.Dir, URL: in.URL, Credentials: in.Credentials, State: "ready", Waiting: 1},
		tool: api.UpstreamTool{
			Name: "charge", Action: in.Name + ".charge", State: "new", Digest: "sha256:1", Description: "Charges.\x1b[2J", InputSchema: json.RawMessage(`{"type":"object"}`),
			Claims: json.RawMessage(`{"readOnlyHint":true}`),
		},
	}
	d.upstreams = append(d.upstreams, u)
	return u.Upstream, nil
}

func (d *Daemon) upstreamLocked(name string) *upstream {
	if i := slices.IndexFunc(d.upstreams, func(u *upstream) bool { return u.Name == name }); i >= 0 {
		return d.upstreams[i]
	}
	return nil
}

// RemoveUpstream implements control.Upstreams.
func (d *Daemon) RemoveUpstream(_ context.Context, name, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.upstreamLocked(name) == nil {
		return api.Errorf(api.CodeMissing, "there is no upstream %q", name)
	}
	d.upstreams = slices.DeleteFunc(d.upstreams, func(u *upstream) bool { return u.Name == name })
	return nil
}

// UpstreamTools implements control.Upstreams.
func (d *Daemon) UpstreamTools(_ context.Context, name string) ([]api.UpstreamTool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.upstreamLocked(name)
	if u == nil {
		return nil, api.Errorf(api.CodeMissing, "there is no upstream %q", name)
	}
	return []api.UpstreamTool{u.tool}, nil
}

// UpstreamPrompts implements control.Upstreams: each has one prompt.
func (d *Daemon) UpstreamPrompts(_ context.Context, name string) ([]api.UpstreamPrompt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.upstreamLocked(name)
	if u == nil {
		return nil, api.Errorf(api.CodeMissing, "there is no upstream %q", name)
	}
	p := api.UpstreamPrompt{Name: "greet", Agents: name + ".greet", State: "new", Digest: "sha256:2", Description: "Greets.\x1b[2J"}
	if u.Prompts > 0 {
		p.State, p.Accepted = "accepted", p.Digest
	}
	return []api.UpstreamPrompt{p}, nil
}

// ShareUpstream implements control.Upstreams.
func (d *Daemon) ShareUpstream(_ context.Context, name string, in api.UpstreamShare, _ string) (api.Upstream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.upstreamLocked(name)
	if u == nil {
		return api.Upstream{}, api.Errorf(api.CodeMissing, "there is no upstream %q", name)
	}
	if in.Resources != nil {
		u.Resources = *in.Resources
	}
	if in.Prompts != nil {
		u.Prompts = len(in.Prompts)
	}
	if in.PerUse != nil {
		u.ReadPerUse = *in.PerUse
	}
	return u.Upstream, nil
}

// AcceptUpstreamTool implements control.Upstreams.
func (d *Daemon) AcceptUpstreamTool(_ context.Context, name string, in api.UpstreamAccept, _ string) (api.UpstreamTool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.upstreamLocked(name)
	if u == nil || u.tool.Digest != in.Digest {
		return api.UpstreamTool{}, api.Errorf(api.CodeConflict, "the tool is not the one that was shown")
	}
	u.tool.State, u.tool.Accepted, u.tool.Class = "accepted", in.Digest, in.Class
	if in.Class == "" {
		u.tool.Class = "irreversible"
	}
	u.tool.PerUse = u.tool.Class != "read_only"
	if in.PerUse != nil {
		u.tool.PerUse = *in.PerUse
	}
	if in.Action != "" {
		u.tool.Action = in.Action
	}
	u.Accepted, u.Waiting = 1, 0
	return u.tool, nil
}
