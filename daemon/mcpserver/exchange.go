package mcpserver

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/mcpserver/envelope"
)

// exchange is one call over HTTP: what was scanned from its body, and what became of its answer.
type exchange struct {
	conn *httpConn
	ctx  context.Context // of the HTTP request: it ends when the client disconnects
	id   string          // raw
	key  string          // empty where the client cannot cancel by id
	tc   envelope.ToolCall

	method string

	report sync.Mutex // orders Delivered before Disputed

	mu        sync.Mutex
	phase     phase // owner: mu
	begun     bool  // owner: mu; the SDK handed it over
	delivered func(evidence string)
	disputed  func()
}

// exchangeHTTP serves a POST that carries a call.
func (s *Server) exchangeHTTP(w http.ResponseWriter, r *http.Request, m *envelope.Message, hc *httpConn, modern bool) {
	ex := &exchange{conn: hc, ctx: r.Context(), id: string(m.ID), method: string(m.Method), phase: running}
	if err := envelope.ScanCall(ex.method, m.Params, &ex.tc); err != nil {
		refuseHTTP(w, http.StatusBadRequest, m.ID, err)
		return
	}
	if !modern {
		ex.key = r.Header.Get(headerSession) + "\n" + envelope.IDKey(m.ID)
		if !s.http.admit(ex) {
			refuseHTTP(w, http.StatusConflict, m.ID, &envelope.Error{
				Code:    envelope.InvalidRequest,
				Message: "a request with this id is still being handled and its answer is still to come; every request needs an id of its own",
			})
			return
		}
	}
	defer s.http.enter()()
	out := &recorder{ResponseWriter: w}
	s.forwardHTTP(out, r, &source{peer: hc.identity, http: ex}, modern)
	flushErr := http.NewResponseController(w).Flush()
	ex.mu.Lock()
	worth, begun := ex.phase == answered && ex.delivered != nil, ex.begun
	ex.mu.Unlock()
	if !begun && ex.key != "" {
		s.http.forget(ex) // the SDK refused it
	}
	if !worth || out.failed || flushErr != nil || r.Context().Err() != nil {
		return
	}
	leave, acknowledged := s.http.enter(), hc.acknowledgement()
	go func() {
		defer leave()
		if acknowledged() {
			ex.take()
		}
	}()
}

// callOverHTTP is where the SDK's transport hands over a call.
func callOverHTTP[P interface {
	mcp.Params
	GetProgressToken() any
}](s *Server, ctx context.Context, req *mcp.ServerRequest[P],
) (mcp.Result, error) {
	from := s.sourceOf(req.Extra)
	if from == nil || from.http == nil {
		return nil, &jsonrpc.Error{Code: envelope.InternalError, Message: "the peer of this call is not known; it was not taken"}
	}
	ex := from.http
	ex.mu.Lock()
	ex.begun = true
	ex.mu.Unlock()
	if ex.key != "" {
		defer s.http.leave(ex)
	}
	protocol, client := req.Extra.Header.Get(headerProtocol), ""
	var serverInfo []byte
	if protocol == "" {
		protocol = req.ProtocolVersion()
	}
	if req.ProtocolVersion() >= firstModern && string(ex.tc.Protocol) >= firstModern {
		serverInfo = s.serverInfo
	}
	if info := req.ClientInfo(); info != nil {
		if raw, err := json.Marshal(info); err == nil {
			client = clientName(raw)
		}
	}
	c := call.Call{
		Peer: from.peer, Method: reading(ex.method), Tool: string(ex.tc.Name), Arguments: json.RawMessage(ex.tc.Arguments), Key: string(ex.tc.Key), KeySource: ex.tc.KeySource,
		Correlation: execution.Caller{
			Transport: "http", Connection: ex.conn.id, RequestID: ex.id, Session: req.Session.ID(), Protocol: protocol, Client: client, Key: ex.tc.KeySource,
		},
	}
	stop := func() {}
	if token := req.Params.GetProgressToken(); token != nil {
		c.Progress, stop = progressOverHTTP(ctx, req.Session, token)
	}
	// Up to 2025-11-25 a client could come back for the answer of a broken stream, but answers are kept with the execution and not with the stream: whoever disconnects is
	// detached, and a repeat of the call gets the answer.
	asking, detach := context.WithCancel(ctx)
	defer detach()
	defer context.AfterFunc(ex.ctx, detach)()
	a := s.ask(asking, c)
	stop()
	answer, failed := a, (*failure)(nil)
	if ex.method != envelope.MethodCall {
		answer, failed = whatWasRead(ex.method, a, serverInfo != nil)
	}
	var result []byte
	var err error
	if failed == nil {
		result, err = appendResult(nil, answer, serverInfo)
	}
	if err != nil && asking.Err() != nil { // whoever hung up has no answer coming
		return nil, &jsonrpc.Error{Code: envelope.InternalError, Message: "the caller is gone"}
	}
	if err != nil {
		s.cfg.Logger.Error("framing an answer", "execution", a.ExecutionID, "error", err)
		return nil, &jsonrpc.Error{Code: envelope.InternalError, Message: "the answer could not be written; what was done is recorded: ask execution_status for " + a.ExecutionID}
	}
	ex.mu.Lock()
	if ex.phase == running && asking.Err() == nil {
		ex.phase, ex.delivered, ex.disputed = answered, a.Delivered, a.Disputed
	} else {
		ex.phase = cancelled
	}
	ex.mu.Unlock()
	if failed != nil {
		return nil, &jsonrpc.Error{Code: int64(failed.code), Message: failed.message, Data: failed.data}
	}
	return &rawResult{json: result}, nil
}

// progressOverHTTP sends progress on the response's own stream, from a goroutine: a slow reader loses progress, not the engine's time. stop ends it before the answer.
func progressOverHTTP(ctx context.Context, session *mcp.ServerSession, token any) (send func(call.Progress), stop func()) {
	queue := make(chan call.Progress, 16)
	var mu sync.Mutex
	var ended bool
	var done sync.WaitGroup
	done.Go(func() {
		for p := range queue {
			_ = session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Message: p.Message, Progress: p.Progress, Total: p.Total})
		}
	})
	send = func(p call.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		select {
		case queue <- p:
		default:
		}
	}
	stop = func() {
		mu.Lock()
		ended = true
		close(queue)
		mu.Unlock()
		done.Wait()
	}
	return send, stop
}

// take reports the answer as delivered, unless the client cancelled before.
func (ex *exchange) take() {
	ex.report.Lock()
	defer ex.report.Unlock()
	ex.mu.Lock()
	if ex.phase != answered {
		ex.mu.Unlock()
		return
	}
	ex.phase = taken
	ex.mu.Unlock()
	ex.delivered(evidenceHTTP)
}

func (h *httpState) admit(ex *exchange) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.calls[ex.key]; old != nil {
		old.mu.Lock()
		busy := old.phase == running
		old.mu.Unlock()
		if busy {
			return false
		}
	}
	h.calls[ex.key] = ex
	return true
}

// leave keeps an answered exchange for a while, so that a late cancellation finds it.
func (h *httpState) leave(ex *exchange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.done[h.next]; old != nil && h.calls[old.key] == old {
		delete(h.calls, old.key)
	}
	h.done[h.next] = ex
	h.next = (h.next + 1) % len(h.done)
}

func (h *httpState) forget(ex *exchange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls[ex.key] == ex {
		delete(h.calls, ex.key)
	}
}

// enter counts something that drain waits for, until the returned function is called.
func (h *httpState) enter() (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active == 0 {
		h.quiet = make(chan struct{})
	}
	h.active++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.active--; h.active == 0 {
			close(h.quiet)
		}
	}
}

// cancelled notes a client's cancellation. The SDK, which gets it too, ends the context of a call that still runs.
func (h *httpState) cancelled(run, session string, params []byte) {
	id, err := envelope.RequestID(params)
	if err != nil {
		return
	}
	h.mu.Lock()
	ex := h.calls[session+"\n"+envelope.IDKey(id)]
	h.mu.Unlock()
	if ex == nil || ex.conn.identity.Run != run {
		return
	}
	ex.report.Lock()
	defer ex.report.Unlock()
	ex.mu.Lock()
	disputed := ex.phase == taken && ex.disputed != nil
	ex.phase = cancelled
	ex.mu.Unlock()
	if disputed {
		ex.disputed()
	}
}

// drain waits for the exchanges in flight and for their acknowledgements.
func (h *httpState) drain(ctx context.Context) {
	h.mu.Lock()
	quiet, active := h.quiet, h.active
	h.mu.Unlock()
	if active == 0 {
		return
	}
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// recorder notes whether a write of a response failed.
type recorder struct {
	http.ResponseWriter
	failed bool
}

func (r *recorder) Write(p []byte) (int, error) {
	n, err := r.ResponseWriter.Write(p)
	if err != nil {
		r.failed = true
	}
	return n, err
}

// Flush is what the SDK's event streams ask for.
func (r *recorder) Flush() {
	if err := http.NewResponseController(r.ResponseWriter).Flush(); err != nil {
		r.failed = true
	}
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
