package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/mcpserver/envelope"
	"singlepass.dev/daemon/upstream"
)

// reading is the method by which the engine is asked: empty for a tool.
func reading(method string) string {
	if method == envelope.MethodCall {
		return ""
	}
	return method
}

// failure is an answer that is an error of JSON-RPC. Nothing that is read has isError.
type failure struct {
	code    int
	message string
	data    []byte
}

// whatWasRead takes apart what the engine says of a reading: what came of the upstream stands in structuredContent under result or error, and is the answer itself; everything else, a refusal or "still waiting",
// is an error with our own words. In the data of an error an upstream's own words stand under upstream_error only, so that it can imitate none of ours.
func whatWasRead(method string, a call.Answer, modern bool) (call.Answer, *failure) {
	var structured, content, result, upstreamError []byte
	find := func(object []byte, names map[string]*[]byte) {
		if object == nil {
			return
		}
		_ = envelope.Members(object, func(key, value []byte) error {
			if into := names[string(key)]; into != nil {
				*into = value
			}
			return nil
		})
	}
	find(a.Result, map[string]*[]byte{"structuredContent": &structured, "content": &content})
	find(structured, map[string]*[]byte{"result": &result, "error": &upstreamError})
	if result != nil {
		a.Result = result
		if modern && method == envelope.MethodRead { // 2026-07-28 wants every such result to say how long it may be kept
			a.Result = kept(result)
		}
		return a, nil
	}
	data := append([]byte(`{"`+metaExecution+`":`), appendExecution(nil, a)...)
	if upstreamError != nil {
		f := &failure{code: envelope.InternalError, message: "the MCP server answered with an error"}
		var in struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		if json.Unmarshal(upstreamError, &in) == nil {
			f.message = "the MCP server answered: " + clip(in.Message, 1<<10)
			if in.Code == envelope.InvalidParams || in.Code == resourceNotFound {
				f.code = in.Code
			}
		}
		f.data = oneLine(append(append(append(data, `,"upstream_error":`...), upstreamError...), '}'))
		return a, f
	}
	f := &failure{code: envelope.InternalError, message: firstText(content)}
	switch a.Code {
	case api.CodeActionUnknown, api.CodeArguments:
		f.code = envelope.InvalidParams
	case "":
		if !a.State.Completed() && a.ExecutionID != "" {
			f.message = "not finished yet, ask again: " + f.message
		}
	}
	if len(structured) > 2 {
		data = append(append(data, ','), structured[1:len(structured)-1]...) // our own words: its members are none of ours twice
	}
	f.data = oneLine(append(data, '}'))
	return a, f
}

// resourceNotFound is the code for that up to 2025-11-25.
const resourceNotFound = -32002

// kept adds what a result does not say of how long it may be kept: not at all.
func kept(result []byte) []byte {
	ttl, scope, members := false, false, 0
	_ = envelope.Members(result, func(key, _ []byte) error {
		members++
		ttl, scope = ttl || string(key) == "ttlMs", scope || string(key) == "cacheScope"
		return nil
	})
	var add []byte
	if !ttl {
		add = append(add, `"ttlMs":0,`...)
	}
	if !scope {
		add = append(add, `"cacheScope":"private",`...)
	}
	if members == 0 {
		add = bytes.TrimSuffix(add, []byte(","))
	}
	open := bytes.IndexByte(result, '{') + 1
	return append(append(append([]byte(nil), result[:open]...), add...), result[open:]...)
}

// firstText is the text of the first content of a result of ours.
func firstText(content []byte) string {
	var in []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &in) != nil || len(in) == 0 || in[0].Text == "" {
		return "it could not be read"
	}
	return in[0].Text
}

func clip(s string, most int) string {
	if len(s) > most {
		return string(bytes.ToValidUTF8([]byte(s[:most]), nil)) + "…"
	}
	return s
}

// oneLine keeps a line break between two tokens from ending the frame.
func oneLine(b []byte) []byte {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
	return b
}

// shared answers requests about resources and prompts that are no calls, where there are any; ok is false for everything else.
func (s *Server) shared(ctx context.Context, req mcp.Request) (result mcp.Result, err error, ok bool) { //nolint:revive // an answer, and whether there is one
	switch r := req.(type) {
	case *mcp.ReadResourceRequest:
		result, err = callOverHTTP(s, ctx, r)
		return result, err, true
	case *mcp.GetPromptRequest:
		result, err = callOverHTTP(s, ctx, r)
		return result, err, true
	}
	s.offer(false) // before the SDK says what we can
	resources, prompts := s.cfg.Engine.Shared()
	switch r := req.(type) {
	case *mcp.ListPromptsRequest:
		if prompts {
			result, err = s.listPrompts(r)
			return result, err, true
		}
	case *mcp.ListResourcesRequest:
		if resources {
			result, err = s.listResources(ctx, r.Extra, r.ProtocolVersion(), "resources")
			return result, err, true
		}
	case *mcp.ListResourceTemplatesRequest:
		if resources {
			result, err = s.listResources(ctx, r.Extra, r.ProtocolVersion(), "resourceTemplates")
			return result, err, true
		}
	}
	return nil, nil, false
}

// list begins a result that is a list of ours.
func (s *Server) list(protocol string, meta map[string]json.RawMessage) map[string]any {
	out := map[string]any{}
	if protocol >= firstModern {
		if meta == nil {
			meta = map[string]json.RawMessage{}
		}
		meta[envelope.MetaServerInfo] = s.serverInfo
		out["resultType"], out["ttlMs"], out["cacheScope"] = "complete", 0, "private"
	}
	if len(meta) > 0 {
		out["_meta"] = meta
	}
	return out
}

func encoded(v any) (mcp.Result, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return &rawResult{json: bytes.TrimSpace(b.Bytes())}, nil
}

var errNoPeer = &jsonrpc.Error{Code: envelope.InternalError, Message: "the peer of this request is not known"}

func (s *Server) listPrompts(req *mcp.ListPromptsRequest) (mcp.Result, error) {
	from := s.sourceOf(req.Extra)
	if from == nil {
		return nil, errNoPeer
	}
	out := s.list(req.ProtocolVersion(), nil)
	out["prompts"] = s.cfg.Engine.Prompts(from.peer)
	return encoded(out)
}

// listedResource is an entry of resources/list or resources/templates/list.
type listedResource struct {
	URI         string `json:"uri,omitempty"`
	Template    string `json:"uriTemplate,omitempty"`
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	MIMEType    string `json:"mimeType,omitempty"`
	Size        *int64 `json:"size,omitempty"`
}

// listsAtATime is how many lists of resources are made at a time.
const listsAtATime = 8

// metaLeftOut is the key of _meta under which a list says what is not in it.
const metaLeftOut = "dev.singlepass/left_out"

func (s *Server) listResources(ctx context.Context, extra *mcp.RequestExtra, protocol, member string) (mcp.Result, error) {
	from := s.sourceOf(extra)
	if from == nil {
		return nil, errNoPeer
	}
	// A list can be long, and any number of them can be asked for.
	select {
	case s.listing <- struct{}{}:
		defer func() { <-s.listing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	got, refused := s.cfg.Engine.Resources(ctx, from.peer)
	if refused != nil {
		_, f := whatWasRead(envelope.MethodRead, *refused, false)
		return nil, &jsonrpc.Error{Code: int64(f.code), Message: f.message, Data: f.data}
	}
	all := got.Resources
	if member == "resourceTemplates" {
		all = got.Templates
	}
	list := make([]listedResource, 0, len(all))
	for _, r := range all {
		l := listedResource{URI: r.URI, Name: r.Name, Title: r.Title, Description: r.Description, MIMEType: r.MIMEType, Size: r.Size}
		if member == "resourceTemplates" {
			l.URI, l.Template = "", r.URI
		}
		list = append(list, l)
	}
	var meta map[string]json.RawMessage
	if len(got.LeftOut) > 0 {
		b, err := json.Marshal(got.LeftOut)
		if err != nil {
			return nil, err
		}
		meta = map[string]json.RawMessage{metaLeftOut: b}
	}
	out := s.list(protocol, meta)
	out[member] = list
	return encoded(out)
}

// placeholder is what the SDK is given so that it says that we have resources or prompts, and tells clients of changes; no list shows it (see announce).
const placeholder = "changed"

// offer makes the SDK know whether there are resources and prompts, and, with news, tell clients that the lists may be others.
func (s *Server) offer(news bool) {
	s.offering.Lock()
	defer s.offering.Unlock()
	resources, prompts := s.cfg.Engine.Shared()
	if resources != s.offered.resources || news && resources {
		uri := upstream.Address(placeholder, placeholder)
		if resources {
			s.sdk.AddResource(&mcp.Resource{URI: uri, Name: placeholder}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return nil, errors.New("not a resource")
			})
		} else {
			s.sdk.RemoveResources(uri)
		}
	}
	if prompts != s.offered.prompts || news && prompts {
		if prompts {
			s.sdk.AddPrompt(&mcp.Prompt{Name: placeholder}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
				return nil, errors.New("not a prompt")
			})
		} else {
			s.sdk.RemovePrompts(placeholder)
		}
	}
	s.offered.resources, s.offered.prompts = resources, prompts
}

// newsPause is the least time between two notices that resources or prompts changed: an upstream that says so without end moves clients no more often than that.
const newsPause = time.Second

func (s *Server) announceShared() {
	for {
		changed := s.cfg.Engine.SharedChanged()
		s.offer(false)
		select {
		case <-s.stop:
			return
		case <-changed:
		}
		s.offer(true)
		pause := time.NewTimer(newsPause)
		select {
		case <-s.stop:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}
