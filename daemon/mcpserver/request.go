package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/mcpserver/envelope"
	"singlepass.dev/daemon/peer"
)

// phase is where a request stands. The zero value is invalid.
type phase uint8

const (
	running   phase = iota + 1 // being handled
	answered                   // the answer was queued or written
	taken                      // and reported as delivered
	cancelled                  // by the client, before or after
)

// request is one request of a connection. Its fields belong to conn.mu, except id, key and method, which are fixed.
type request struct {
	id       []byte // raw
	key      string
	method   string // of a call
	phase    phase
	forSDK   bool
	endless  bool               // subscriptions/listen, which is answered only when it is cancelled
	cancel   context.CancelFunc // nil for the SDK's
	position uint64             // bytes of the connection up to the answer's end

	delivered func(evidence string)
	disputed  func()
}

// admit enters a request, or says why not.
func (c *conn) admit(r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.requests[r.key]; old != nil && old.phase == running {
		return &envelope.Error{Code: envelope.InvalidRequest, Message: "a request with this id is still being handled and its answer is still to come; every request needs an id of its own"}
	}
	c.running++
	if !r.endless {
		if c.inflight == 0 {
			c.quiet = make(chan struct{})
		}
		c.inflight++
	}
	r.phase = running
	c.requests[r.key] = r
	return nil
}

// retire keeps an ended request for a while, so that a cancellation that comes late finds it. The caller holds mu.
func (c *conn) retireLocked(r *request) {
	if old := c.answered[c.next]; old != nil && c.requests[old.key] == old {
		delete(c.requests, old.key)
	}
	c.answered[c.next] = r
	c.next = (c.next + 1) % len(c.answered)
}

// leaveLocked ends what admit began. The caller holds mu.
func (c *conn) leaveLocked(r *request) {
	c.running--
	if r.endless {
		return
	}
	if c.inflight--; c.inflight == 0 {
		close(c.quiet)
	}
}

// tooMany says that the connection has more requests in flight than it may, the one that was just admitted included.
func (c *conn) tooMany() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running > c.s.cfg.MaxCalls
}

// toolCall takes a call and answers it from another goroutine.
func (c *conn) toolCall(m *envelope.Message) {
	params, method := bytes.Clone(m.Params), string(m.Method)
	var tc envelope.ToolCall
	if err := envelope.ScanCall(method, params, &tc); err != nil {
		c.refuseErr(m.ID, err)
		return
	}
	protocol, modern, err := c.revision(method, &tc)
	if err != nil {
		c.refuseErr(m.ID, err)
		return
	}
	r := &request{id: bytes.Clone(m.ID), key: envelope.IDKey(m.ID), method: method}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(c.ctx)
	if err := c.admit(r); err != nil {
		r.cancel()
		c.refuseErr(m.ID, err)
		return
	}
	// What the client took before it sent this call is reported first: a repeat then finds its original delivered.
	c.checkDrained()
	tooMany := c.tooMany()
	transport := "socket"
	if c.peer.Via == peer.ViaBridge {
		transport = "stdio"
	}
	request := call.Call{
		Peer: c.peer, Method: reading(method), Tool: string(tc.Name), Arguments: json.RawMessage(tc.Arguments), Key: string(tc.Key), KeySource: tc.KeySource,
		Correlation: execution.Caller{
			Transport: transport, Connection: c.id, RequestID: string(r.id), Protocol: protocol, Client: c.describe(tc.ClientInfo), Key: tc.KeySource,
		},
	}
	if tc.ProgressToken != nil {
		request.Progress = func(p call.Progress) { c.progress(r, tc.ProgressToken, p) }
	}
	var serverInfo []byte
	if modern {
		serverInfo = c.s.serverInfo
	}
	c.calls.Add(1)
	c.s.crew.Go(func() {
		defer c.calls.Done()
		defer r.cancel()
		if tooMany {
			c.answer(r, tooManyCalls(c.s.cfg.MaxCalls), serverInfo)
			return
		}
		c.answer(r, c.s.ask(ctx, request), serverInfo)
	})
}

func tooManyCalls(limit int) call.Answer {
	return call.Answer{Code: api.CodeTooManyCalls, Result: refusal(string(api.CodeTooManyCalls),
		fmt.Sprintf("this connection already has %d calls in flight; this one was not taken and nothing was sent for it", limit),
		"repeat it when one of the others was answered")}
}

// revision holds a call to the order of its protocol: up to 2025-11-25 initialize comes first, from 2026-07-28 each request names its revision and the client's capabilities.
func (c *conn) revision(method string, tc *envelope.ToolCall) (protocol string, modern bool, err error) {
	if string(tc.Protocol) >= firstModern {
		if err := c.s.checkModern(tc); err != nil {
			return "", false, err
		}
		return string(tc.Protocol), true, nil
	}
	c.mu.Lock()
	protocol = c.protocol
	c.mu.Unlock()
	if protocol == "" {
		return "", false, &envelope.Error{Code: envelope.InvalidRequest, Message: method + " came before initialize"}
	}
	return protocol, false, nil
}

// answer writes an answer, unless the client has cancelled: then it waits for nobody, and the answer stays with the execution.
func (c *conn) answer(r *request, a call.Answer, serverInfo []byte) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leaveLocked(r)
	}()
	c.mu.Lock()
	if r.phase == cancelled || c.ctx.Err() != nil {
		c.retireLocked(r)
		c.mu.Unlock()
		return
	}
	r.phase, r.delivered, r.disputed = answered, a.Delivered, a.Disputed
	c.retireLocked(r)
	c.mu.Unlock()
	err := c.out.send(true, func(dst []byte) []byte {
		from := len(dst)
		result, failed := a, (*failure)(nil)
		if r.method != envelope.MethodCall {
			result, failed = whatWasRead(r.method, a, serverInfo != nil)
		}
		if failed != nil {
			return appendError(dst, r.id, failed.code, failed.message, failed.data)
		}
		dst = append(dst, `{"jsonrpc":"2.0","id":`...)
		dst = append(dst, r.id...)
		dst = append(dst, `,"result":`...)
		dst, err := appendResult(dst, result, serverInfo)
		if err != nil {
			c.s.cfg.Logger.Error("framing an answer", "tool_execution", a.ExecutionID, "error", err)
			r.delivered = nil
			return appendError(dst[:from], r.id, envelope.InternalError, "the answer could not be written; what was done is recorded: ask execution_status for "+a.ExecutionID, nil)
		}
		return append(dst, '}')
	}, func(position uint64) {
		c.mu.Lock()
		defer c.mu.Unlock()
		r.position = position
		if r.delivered != nil && r.phase == answered && c.peer.Via != peer.ViaBridge && c.raw != nil {
			c.waiting = append(c.waiting, r)
		}
	})
	if err != nil {
		c.s.cfg.Logger.Debug("writing an answer", "connection", c.id, "error", err)
	}
}

// progress passes progress on while the request runs. It never waits for a slow reader: progress is worth nothing late.
func (c *conn) progress(r *request, token []byte, p call.Progress) {
	if c.out.pending() > 1<<20 {
		return
	}
	_ = c.out.send(false, func(dst []byte) []byte {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.phase != running {
			return dst
		}
		return appendProgress(dst, token, p)
	}, nil)
}

func appendProgress(dst, token []byte, p call.Progress) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...)
	dst = append(dst, token...)
	dst = append(dst, `,"progress":`...)
	dst = strconv.AppendFloat(dst, p.Progress, 'f', -1, 64)
	if p.Total != 0 {
		dst = append(dst, `,"total":`...)
		dst = strconv.AppendFloat(dst, p.Total, 'f', -1, 64)
	}
	if p.Message != "" {
		dst = append(dst, `,"message":`...)
		dst = appendString(dst, p.Message)
	}
	return append(dst, `}}`...)
}

// cancelled handles a client's cancellation: it detaches the caller and never the effect. For an answer that was reported delivered it is a dispute.
func (c *conn) cancelled(line []byte, m *envelope.Message) {
	id, err := envelope.RequestID(m.Params)
	if err != nil {
		c.s.cfg.Logger.Debug("ignoring a cancellation", "connection", c.id, "error", err)
		return
	}
	c.report.Lock()
	defer c.report.Unlock()
	var disputed func()
	c.mu.Lock()
	r := c.requests[envelope.IDKey(id)]
	if r != nil && !r.forSDK {
		if r.phase == taken {
			disputed = r.disputed
		}
		if r.phase == running {
			r.cancel()
		}
		r.phase = cancelled
	}
	c.mu.Unlock()
	if disputed != nil {
		disputed()
	}
	if r != nil && r.forSDK {
		c.forward(line, m)
	}
}
