package client

import (
	"context"
	"net/http"
	"net/url"

	"singlepass.dev/daemon/api"
)

// Upstreams lists the MCP servers behind the gateway.
func (o *Operator) Upstreams(ctx context.Context) ([]api.Upstream, error) {
	return call[[]api.Upstream](ctx, o, http.MethodGet, "/v1/upstreams", true, nil)
}

// AddUpstream adds one. Its tools are proposals until they are accepted.
func (o *Operator) AddUpstream(ctx context.Context, in api.UpstreamRequest) (api.Upstream, error) {
	return call[api.Upstream](ctx, o, http.MethodPost, "/v1/upstreams", true, in)
}

// RemoveUpstream removes one with its tools.
func (o *Operator) RemoveUpstream(ctx context.Context, name string) error {
	_, err := call[none](ctx, o, http.MethodDelete, "/v1/upstreams/"+url.PathEscape(name), true, nil)
	return err
}

// UpstreamTools asks an upstream for its tools, and holds them against the accepted ones.
func (o *Operator) UpstreamTools(ctx context.Context, name string) ([]api.UpstreamTool, error) {
	return call[[]api.UpstreamTool](ctx, o, http.MethodGet, "/v1/upstreams/"+url.PathEscape(name)+"/tools", true, nil)
}

// UpstreamPrompts asks an upstream for its prompts, and holds them against the accepted ones.
func (o *Operator) UpstreamPrompts(ctx context.Context, name string) ([]api.UpstreamPrompt, error) {
	return call[[]api.UpstreamPrompt](ctx, o, http.MethodGet, "/v1/upstreams/"+url.PathEscape(name)+"/prompts", true, nil)
}

// ShareUpstream opens resources and prompts of an upstream to agents, or closes them.
func (o *Operator) ShareUpstream(ctx context.Context, name string, in api.UpstreamShare) (api.Upstream, error) {
	return call[api.Upstream](ctx, o, http.MethodPost, "/v1/upstreams/"+url.PathEscape(name)+"/share", true, in)
}

// AcceptUpstreamTool puts a tool into force exactly as it was shown.
func (o *Operator) AcceptUpstreamTool(ctx context.Context, name string, in api.UpstreamAccept) (api.UpstreamTool, error) {
	return call[api.UpstreamTool](ctx, o, http.MethodPost, "/v1/upstreams/"+url.PathEscape(name)+"/tools", true, in)
}
