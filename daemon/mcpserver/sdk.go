package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/mcpserver/envelope"
	"singlepass.dev/daemon/peer"
)

// firstModern is the first revision without initialize: each request names its revision (SEP-2575).
const firstModern = "2026-07-28"

// referenceHeader carries, inside this process only, where a message came from: the SDK hands a request's headers through to the middleware.
const referenceHeader = "Singlepass-Internal-Source"

// source is where a message that went through the SDK came from.
type source struct {
	peer *peer.Identity
	http *exchange // nil on agent.sock
}

func (s *Server) sourceOf(extra *mcp.RequestExtra) *source {
	if extra == nil {
		return nil
	}
	from, ok := s.sources.Load(extra.Header.Get(referenceHeader))
	if !ok {
		return nil
	}
	return from.(*source)
}

// rawResult is a result whose JSON is ready.
type rawResult struct {
	mcp.ResultBase
	json json.RawMessage
}

func (r *rawResult) MarshalJSON() ([]byte, error) { return r.json, nil }

// middleware answers what the engine knows, in front of everything that the SDK would answer itself. A panic behind it ends the request and not the daemon.
func (s *Server) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				s.cfg.Logger.Error("handling a request panicked", "method", method, "panic", fmt.Sprint(p))
				result, err = nil, &jsonrpc.Error{Code: envelope.InternalError, Message: "a fault in the daemon ended this request; what was recorded stays recorded"}
			}
		}()
		switch r := req.(type) {
		case *mcp.ListToolsRequest:
			return s.listTools(r)
		case *mcp.CallToolRequest:
			return callOverHTTP(s, ctx, r)
		}
		if method == "logging/setLevel" {
			// The SDK would say yes, and nothing would ever be logged to the client: what a tool says on the way is passed on as progress.
			return nil, &jsonrpc.Error{Code: envelope.MethodNotFound, Message: "not supported"}
		}
		if result, err, ok := s.shared(ctx, req); ok {
			return result, err
		}
		return next(ctx, method, req)
	}
}

func (s *Server) listTools(req *mcp.ListToolsRequest) (mcp.Result, error) {
	from := s.sourceOf(req.Extra)
	if from == nil {
		return nil, &jsonrpc.Error{Code: envelope.InternalError, Message: "the peer of this request is not known"}
	}
	tools, _ := s.cfg.Engine.Tools(from.peer)
	var out bytes.Buffer
	out.WriteByte('{')
	if req.ProtocolVersion() >= firstModern {
		fmt.Fprintf(&out, `"_meta":{%q:%s},"resultType":"complete","ttlMs":0,"cacheScope":"private",`, envelope.MetaServerInfo, s.serverInfo)
	}
	out.WriteString(`"tools":[`)
	for i := range tools {
		if i > 0 {
			out.WriteByte(',')
		}
		tool, err := json.Marshal(&tools[i])
		if err != nil {
			return nil, fmt.Errorf("listing tool %q: %w", tools[i].Name, err)
		}
		out.Write(tool)
	}
	out.WriteString(`]}`)
	return &rawResult{json: out.Bytes()}, nil
}

// checkModern checks what a 2026-07-28 request must carry about itself.
func (s *Server) checkModern(tc *envelope.ToolCall) error {
	if !slices.Contains(s.versions, string(tc.Protocol)) {
		data, _ := json.Marshal(mcp.UnsupportedProtocolVersionData{Supported: s.versions, Requested: string(tc.Protocol)})
		return &unsupported{data: data}
	}
	if len(tc.Capabilities) == 0 || tc.Capabilities[0] != '{' {
		return &envelope.Error{Code: envelope.InvalidParams, Message: fmt.Sprintf("missing or invalid _meta field %q", envelope.MetaCapabilities)}
	}
	if tc.ClientInfo != nil && tc.ClientInfo[0] != '{' {
		return &envelope.Error{Code: envelope.InvalidParams, Message: fmt.Sprintf("invalid _meta field %q", envelope.MetaClientInfo)}
	}
	return nil
}

// unsupported is the refusal of a revision, with the ones that are spoken.
type unsupported struct{ data []byte }

func (*unsupported) Error() string { return "unsupported protocol version" }

// forward gives a message to the SDK's session of this connection, which is made when the first one comes.
func (c *conn) forward(line []byte, m *envelope.Message) {
	msg, err := jsonrpc.DecodeMessage(bytes.Clone(line))
	if err != nil {
		c.refuse(m.ID, envelope.InvalidRequest, "the message cannot be read: "+err.Error())
		return
	}
	var shaken chan struct{}
	if req, ok := msg.(*jsonrpc.Request); ok {
		req.Extra = &mcp.RequestExtra{Header: http.Header{referenceHeader: {c.ref}}}
		if m.ID != nil {
			r := &request{id: bytes.Clone(m.ID), key: envelope.IDKey(m.ID), forSDK: true, endless: req.Method == "subscriptions/listen"}
			if err := c.admit(r); err != nil {
				c.refuseErr(m.ID, err)
				return
			}
			if c.tooMany() {
				c.dismiss(r.key)
				c.refuse(m.ID, envelope.InternalError, fmt.Sprintf("this connection already has %d requests in flight; repeat it when one of them was answered", c.s.cfg.MaxCalls))
				return
			}
			if req.Method == "initialize" {
				shaken = make(chan struct{})
				c.mu.Lock()
				c.handshake, c.shaken = r.key, shaken
				c.mu.Unlock()
			}
		}
	}
	if c.session == nil {
		// The session lives as long as the connection, which closes it.
		if c.session, err = c.s.sdk.Connect(context.WithoutCancel(c.ctx), transport{c}, nil); err != nil {
			c.refuse(m.ID, envelope.InternalError, err.Error())
			return
		}
	}
	select {
	case c.toSDK <- msg:
	case <-c.ctx.Done():
		return
	}
	if shaken == nil {
		return
	}
	// A client may send tools/call right behind initialize; its turn comes when the revision is settled.
	select {
	case <-shaken:
	case <-c.ctx.Done():
	}
}

// transport is the SDK's end of a connection.
type transport struct{ c *conn }

func (t transport) Connect(context.Context) (mcp.Connection, error) { return t, nil }

func (t transport) SessionID() string { return "" }

func (t transport) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-t.c.toSDK:
		return msg, nil
	case <-t.c.ctx.Done():
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t transport) Write(_ context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	resp, isResponse := msg.(*jsonrpc.Response)
	return t.c.out.send(false, func(dst []byte) []byte { return append(dst, data...) }, func(uint64) {
		if isResponse {
			t.c.answeredBySDK(resp)
		}
	})
}

// Close ends the SDK's use of the connection; the connection itself ends where it is read.
func (t transport) Close() error { return nil }

// dismiss forgets a request of the SDK's that has its answer.
func (c *conn) dismiss(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismissLocked(key)
}

func (c *conn) dismissLocked(key string) {
	if r := c.requests[key]; r != nil && r.forSDK && r.phase == running {
		delete(c.requests, key)
		c.leaveLocked(r)
	}
}

func (c *conn) answeredBySDK(resp *jsonrpc.Response) {
	raw, err := json.Marshal(resp.ID.Raw())
	if err != nil {
		return
	}
	key := envelope.IDKey(raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismissLocked(key)
	if key != c.handshake || c.shaken == nil {
		return
	}
	if resp.Error == nil && c.protocol == "" {
		var result struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		if json.Unmarshal(resp.Result, &result) == nil {
			c.protocol = result.ProtocolVersion
		}
		if init := c.session.InitializeParams(); init != nil && init.ClientInfo != nil {
			c.client = strings.ToValidUTF8(init.ClientInfo.Name+"/"+init.ClientInfo.Version, "")
		}
	}
	close(c.shaken)
	c.handshake, c.shaken = "", nil
}
