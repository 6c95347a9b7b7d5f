package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault"
	"singlepass.dev/vault/keychain"
)

// maxBody bounds a request: a credential or a contract, with room.
const maxBody = 1 << 20

// request is one request after admission.
type request struct {
	*http.Request
	by     string // who proved presence; empty where no proof was asked for
	scheme string // how
	peer   Peer
	doubt  string // of its origin
}

// answer is what a handler returns: a value for the body, or nil for none.
type answerFunc func(r request) (any, error)

// need says whether a call needs the operator's proof.
type need int

const (
	proof    need = iota + 1
	noProof       // whoever may use the socket
	ownProof      // the passphrase is in the body and proves itself
)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	call := func(pattern string, n need, f answerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			defer s.recovered(w)
			req, err := s.open(w, r, n)
			var body any
			if err == nil {
				body, err = f(req)
			}
			if err == nil && req.doubt != "" {
				s.cfg.Doubted(req.peer, req.doubt)
			}
			s.refused(w, r, err)
			s.reply(w, body, err)
		})
	}
	stream := func(pattern string, f func(r request, send func(any) error) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			defer s.recovered(w)
			req, err := s.open(w, r, proof)
			if err == nil && r.ContentLength != 0 {
				// While a body is unread, net/http does not look whether its sender is still there, and the stream would outlive it.
				err = api.Errorf(api.CodeUsage, "a stream takes no body")
			}
			if err != nil {
				s.refused(w, r, err)
				s.reply(w, nil, err)
				return
			}
			if req.doubt != "" {
				s.cfg.Doubted(req.peer, req.doubt)
			}
			s.stream(w, req, f)
		})
	}

	call("GET /v1/status", noProof, s.status)
	call("POST /v1/vault/init", ownProof, s.initVault)
	call("POST /v1/vault/unlock", ownProof, s.unlock)
	call("POST /v1/vault/lock", noProof, s.lock)
	call("POST /v1/vault/passphrase", ownProof, s.changePassphrase) // the old one
	call("POST /v1/proof", proof, func(request) (any, error) { return nil, nil })

	call("POST /v1/ticket", proof, s.earnTicket)
	call("DELETE /v1/ticket", noProof, s.giveBackTicket) // it is in the body

	call("GET /v1/credentials", proof, s.credentials)
	call("POST /v1/credentials", proof, s.addCredential)
	call("GET /v1/credentials/{name}", proof, s.credential)
	call("PATCH /v1/credentials/{name}", proof, s.changeCredential)
	call("POST /v1/credentials/{name}/rotate", proof, s.rotateCredential)
	call("DELETE /v1/credentials/{name}", proof, s.removeCredential)

	call("GET /v1/hosts", proof, s.hosts)
	call("POST /v1/hosts/look", proof, s.lookHost)
	call("POST /v1/hosts", proof, s.addHost)
	call("DELETE /v1/hosts/{address}", proof, s.removeHost)

	call("GET /v1/actions", proof, s.actions)
	call("POST /v1/actions", proof, s.acceptAction)
	call("GET /v1/actions/{name}", proof, s.action)
	call("DELETE /v1/actions/{name}", proof, s.removeAction)

	call("GET /v1/upstreams", proof, s.upstreams)
	call("POST /v1/upstreams", proof, s.addUpstream)
	call("DELETE /v1/upstreams/{name}", proof, s.removeUpstream)
	call("GET /v1/upstreams/{name}/tools", proof, s.upstreamTools)
	call("POST /v1/upstreams/{name}/tools", proof, s.acceptUpstreamTool)
	call("GET /v1/upstreams/{name}/prompts", proof, s.upstreamPrompts)
	call("POST /v1/upstreams/{name}/share", proof, s.shareUpstream)

	call("GET /v1/approvals", proof, s.approvals)
	stream("GET /v1/approvals/stream", s.streamApprovals)
	call("GET /v1/approvals/{card}", proof, s.card)
	call("POST /v1/approvals/{card}", proof, s.answer)

	call("GET /v1/sessions", proof, s.sessions)
	call("DELETE /v1/sessions/{run}", proof, s.revoke)

	call("GET /v1/grants", proof, s.grants)
	call("DELETE /v1/grants/{grant}", proof, s.revokeGrant)

	call("GET /v1/refusals", proof, s.refusals)
	stream("GET /v1/refusals/stream", s.streamRefusals)
	call("GET /v1/activity", proof, s.activity)
	stream("GET /v1/activity/stream", s.streamActivity)
	call("GET /v1/activity/{id}", proof, s.execution)
	call("GET /v1/activity/{id}/payload", proof, s.payload)
	call("POST /v1/activity/{id}/check", proof, s.check)
	call("POST /v1/activity/{id}/settle", proof, s.settle)

	call("GET /v1/settings", proof, s.settings)
	call("PUT /v1/settings/{key}", proof, s.changeSetting)

	call("GET /v1/http-clients", proof, s.httpClients)
	call("POST /v1/http-clients", proof, s.issueHTTPToken)
	call("DELETE /v1/http-clients/{client}", proof, s.revokeHTTPToken)
	call("POST /v1/http-clients/check", noProof, s.checkHTTPToken) // whoever has a token could try it

	call("POST /v1/journal/accept", proof, s.acceptQuarantine)

	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.reply(w, nil, api.Errorf(api.CodeMissing, "%s %s is not part of this version's operator interface", r.Method, r.URL.Path).
			WithHint("spctl and spd may be of different versions; restart spd"))
	})
	return mux
}

func (s *Server) open(w http.ResponseWriter, r *http.Request, n need) (request, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	p, err := s.admit(r)
	if err != nil {
		return request{}, err
	}
	req := request{Request: r, peer: p}
	if n == ownProof || n == proof && !byTicket(r) {
		if req.doubt, err = s.attended(p); err != nil {
			return request{}, err
		}
	}
	if n == proof {
		if req.by, req.scheme, err = s.prove(r, p); err != nil {
			return request{}, err
		}
	}
	return req, nil
}

// refused tells of an error that means that somebody tries to be the operator.
func (s *Server) refused(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	e := s.translate(err)
	switch code := e.Code; code {
	case api.CodeProofWrong, api.CodeTooManyTries, api.CodeAgentCaller: // a ticket that is over is nothing special
		p, _ := r.Context().Value(peerKey{}).(Peer)
		s.cfg.Refused(p, code, e.Message)
		if code == api.CodeAgentCaller {
			w.Header().Set("Connection", "close") // it has nothing to ask here, and takes a place
		}
	}
}

// decode reads a body strictly: one JSON value in UTF-8, no name twice, no unknown field, nothing after it. It wipes the bytes that it read.
func (r request) decode(into any) error {
	b, err := io.ReadAll(r.Body)
	defer clear(b)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return api.Errorf(api.CodeTooLarge, "the request has more than %d bytes", tooLarge.Limit)
	case err != nil:
		return api.Errorf(api.CodeUsage, "the request could not be read")
	}
	// encoding/json would take the second of two equal names, and put other characters in the place of what is not UTF-8.
	if !jsontext.Value(b).IsValid() {
		return api.Errorf(api.CodeUsage, "the request is not one JSON value in UTF-8 with each name once")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		// The library's words may quote the value, which can be a secret; the field and the place do not.
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return api.Errorf(api.CodeUsage, "field %q does not take a JSON %s", wrong.Field, kindOnly(wrong.Value))
		}
		return api.Errorf(api.CodeUsage, "the request is not the JSON that this path takes")
	}
	return nil
}

// kindOnly cuts the value from encoding/json's description ("number 17").
func kindOnly(value string) string {
	for i, c := range value {
		if c == ' ' {
			return value[:i]
		}
	}
	return value
}

func (s *Server) reply(w http.ResponseWriter, body any, err error) {
	w.Header().Set("Cache-Control", "no-store")
	status := http.StatusOK
	if err != nil {
		e := s.translate(err)
		body, status = struct {
			Error *api.Error `json:"error"`
		}{e}, e.Code.HTTPStatus()
	}
	if body == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	b, err := json.Marshal(body)
	if err != nil {
		s.cfg.Logger.Error("encoding an answer", "error", err)
		http.Error(w, `{"error":{"code":"internal","message":"the answer could not be encoded"}}`, http.StatusInternalServerError)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// recovered keeps a fault in one request from ending the daemon.
func (s *Server) recovered(w http.ResponseWriter) {
	if fault := recover(); fault != nil {
		s.cfg.Logger.Error("panic in an operator request", "fault", fault)
		s.reply(w, nil, api.Errorf(api.CodeInternal, "the daemon met a fault of its own; its log says more"))
	}
}

// translate finds the code of an error: its own, the composition's, or the vault's. Anything else is a fault of ours, whose text stays in the log.
func (s *Server) translate(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	if s.cfg.Translate != nil {
		if e, ok := s.cfg.Translate(err); ok {
			return e
		}
	}
	var tries *vault.TooManyTriesError
	switch {
	case errors.As(err, &tries):
		e := api.Errorf(api.CodeTooManyTries, "too many wrong passphrases").WithRetryAfter(tries.RetryAfter)
		return e.WithHint("the next one is taken in %s", time.Duration(e.RetryAfter)*time.Second)
	case errors.Is(err, vault.ErrTooManyTries):
		return api.Errorf(api.CodeTooManyTries, "too many wrong passphrases")
	case errors.Is(err, vault.ErrLocked):
		return api.Errorf(api.CodeVaultLocked, "the vault is locked").WithHint("spctl unlock")
	case errors.Is(err, vault.ErrUninitialized):
		return api.Errorf(api.CodeUninitialized, "there is no vault yet").WithHint("spctl init")
	case errors.Is(err, vault.ErrInitialized):
		return api.Errorf(api.CodeConflict, "there is a vault already").WithHint("spctl unlock")
	case errors.Is(err, vault.ErrWrongPassphrase):
		return api.Errorf(api.CodeProofWrong, "the passphrase does not open this vault")
	case errors.Is(err, vault.ErrPassphraseUnfit):
		return api.Errorf(api.CodeUsage, "%v", err)
	case errors.Is(err, vault.ErrKitMistyped):
		return api.Errorf(api.CodeUsage, "%v", vault.ErrKitMistyped)
	case isKeyring(err):
		return api.Errorf(api.CodeKeyring, "%v", err).WithHint("spctl doctor")
	case errors.Is(err, vault.ErrNotFound):
		return api.Errorf(api.CodeMissing, "%v", err)
	case errors.Is(err, vault.ErrExists):
		return api.Errorf(api.CodeExists, "%v", err)
	case errors.Is(err, vault.ErrTampered), errors.Is(err, vault.ErrSealingKeyChanged):
		return api.Errorf(api.CodeUnverified, "%v", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return api.Errorf(api.CodeShuttingDown, "the request ended before it was done")
	}
	s.cfg.Logger.Error("operator request failed", "error", err)
	return api.Errorf(api.CodeInternal, "%v", err)
}

func isKeyring(err error) bool {
	for _, e := range []error{
		keychain.ErrNotFound, keychain.ErrNoBus, keychain.ErrNoService, keychain.ErrNoCollection, keychain.ErrCollectionLocked, keychain.ErrTimeout, keychain.ErrMalformed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// stream sends one JSON value a line until f returns.
func (s *Server) stream(w http.ResponseWriter, r request, f func(request, func(any) error) error) {
	c := http.NewResponseController(w)
	// A stream lives longer than the server's limits; each line has its own, so that a reader that stopped reading does not hold the daemon.
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		s.reply(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	send := func(v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := c.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return err
		}
		return c.Flush()
	}
	if err := c.Flush(); err != nil {
		return
	}
	if err := f(r, send); err != nil && r.Context().Err() == nil {
		// The status is sent already: the last line carries the error.
		_ = send(struct {
			Error *api.Error `json:"error"`
		}{s.translate(err)})
	}
}
