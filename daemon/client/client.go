// Package client is how programs of the person's side talk to the daemon: spctl, the tray, and tests.
//
// Promises: the zero Operator with its Socket set works. Before the first byte is sent, the socket must lie in a private folder of ours, be ours, and be served by the installed spd
// (SO_PEERCRED: the group that spd was installed with, see package harden; or the file behind /proc/PID/exe, compared by device and inode). No proof goes to a stranger.
//
// Non-promises: where spd was installed without a group of its own, the kernel does not show its executable, because it made itself undumpable, and the check ends at the owner. No
// cryptography mends that: a locked daemon knows nothing that a program of the same user could not read from the same files and the same keyring. An installed spd that another
// program of the user started, on another home, passes as one.
//
// An error that the daemon answered is an *api.Error; so is the one for a daemon that is not running (api.CodeNoDaemon) and for a stranger (api.CodeStranger).
package client

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault/secret"
)

// Operator asks at the operator's socket. It is safe for concurrent use; its fields are not changed once it is used.
type Operator struct {
	Socket string // required: the path of operator.sock
	Daemon string // optional: the installed spd; by default the one beside this program
	// Proof is asked once, before the first request that needs one. The value is the caller's to wipe after the last request. Nil: such requests fail.
	Proof func(ctx context.Context) (scheme string, value *secret.Bytes, err error)
	// Tickets makes this client earn a ticket by the first passphrase and use it from then on: for a program that stays, as the tray does, and never for one command. Proof is then
	// asked whenever a ticket has to be earned, and its value is wiped here; Init and Unlock earn one too. See EarnTicket.
	Tickets bool

	once   sync.Once
	http   *http.Client
	proof  sync.Once
	scheme string
	value  *secret.Bytes
	failed error
	ticket ticketHolder
}

// maxAnswer bounds one answer, and one line of a stream.
const maxAnswer = 64 << 20

func (o *Operator) client() *http.Client {
	o.once.Do(func() {
		o.http = &http.Client{
			Transport: &http.Transport{
				DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return o.dial(ctx) },
				DisableCompression: true,
				IdleConnTimeout:    30 * time.Second,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	})
	return o.http
}

// dial connects and looks who is there.
func (o *Operator) dial(ctx context.Context) (net.Conn, error) {
	if err := checkSocket(o.Socket); err != nil {
		return nil, err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", o.Socket)
	if err != nil {
		return nil, notRunning(o.Socket)
	}
	if err := checkServer(c, o.Daemon); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func notRunning(socket string) *api.Error {
	return api.Errorf(api.CodeNoDaemon, "the daemon is not running (nothing answers at %s)", socket).WithHint("start it: systemctl --user start singlepass, or run spd in another terminal")
}

// Close drops idle connections.
func (o *Operator) Close() {
	o.client().CloseIdleConnections()
}

func (o *Operator) authorize(ctx context.Context, r *http.Request) error {
	if o.Tickets {
		return o.useTicket(ctx, r)
	}
	o.proof.Do(func() {
		if o.Proof == nil {
			o.failed = api.Errorf(api.CodeProofNeeded, "the operator's proof is needed").WithHint("give the passphrase at the terminal, or with --passphrase-file FILE")
			return
		}
		// Who answers is looked at before the person is asked, so that nobody types a passphrase in vain.
		c, err := o.dial(ctx)
		if err != nil {
			o.failed = err
			return
		}
		_ = c.Close()
		o.scheme, o.value, o.failed = o.Proof(ctx)
	})
	if o.failed != nil {
		return o.failed
	}
	return setProof(r, o.scheme, o.value)
}

func setProof(r *http.Request, scheme string, value *secret.Bytes) error {
	return value.Use(func(b []byte) error {
		r.Header.Set("Authorization", scheme+" "+base64.StdEncoding.EncodeToString(b))
		return nil
	})
}

// do sends one request, and once more where the daemon says that the ticket is over: it does so before anything is done. in is nil for no body. The caller closes the answer's body.
func (o *Operator) do(ctx context.Context, method, path string, proof bool, in any) (*http.Response, error) {
	authorize := o.authorize
	if !proof {
		authorize = nil
	}
	resp, err := o.send(ctx, method, path, authorize, in)
	if proof && o.Tickets && errors.Is(err, &api.Error{Code: api.CodeTicketOver}) {
		return o.send(ctx, method, path, authorize, in)
	}
	return resp, err
}

// send sends one request.
func (o *Operator) send(ctx context.Context, method, path string, authorize func(context.Context, *http.Request) error, in any) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://spd"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("asking the daemon: %w", err)
	}
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encoding the request: %w", err)
		}
		r.Body, r.ContentLength = &wipedBody{b: b}, int64(len(b))
		r.Header.Set("Content-Type", "application/json")
	}
	if authorize != nil {
		if err := authorize(ctx, r); err != nil {
			return nil, err
		}
	}
	resp, err := o.client().Do(r)
	if err != nil {
		var e *api.Error
		if errors.As(err, &e) {
			return nil, e
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, api.Errorf(api.CodeNoDaemon, "the daemon went away before it answered: %v", unwrapURL(err)).WithHint("look again with spctl status; what you asked for may have happened")
	}
	if resp.StatusCode >= 400 {
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		err := answered(b, resp.StatusCode)
		if errors.Is(err, &api.Error{Code: api.CodeTicketOver}) {
			o.ticket.over(r)
		}
		return nil, err
	}
	return resp, nil
}

// wipedBody is a request's body, which may hold a secret: it is wiped when the transport is done with it. The transport may close it while it still reads.
type wipedBody struct {
	mu sync.Mutex // owns what follows
	b  []byte
	n  int
}

func (w *wipedBody) Read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n >= len(w.b) {
		return 0, io.EOF
	}
	n := copy(p, w.b[w.n:])
	w.n += n
	return n, nil
}

func (w *wipedBody) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.b)
	w.n = len(w.b)
	return nil
}

func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func answered(b []byte, status int) error {
	var body struct {
		Error *api.Error `json:"error"`
	}
	if err := json.Unmarshal(b, &body); err != nil || body.Error == nil {
		return api.Errorf(api.CodeInternal, "the daemon answered with status %d and nothing that can be read", status)
	}
	return body.Error
}

func call[T any](ctx context.Context, o *Operator, method, path string, proof bool, in any) (T, error) {
	resp, err := o.do(ctx, method, path, proof, in)
	if err != nil {
		var out T
		return out, err
	}
	return decoded[T](resp)
}

// decoded reads an answer to its end.
func decoded[T any](resp *http.Response) (T, error) {
	var out T
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNoContent {
		return out, nil
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil {
		// Unknown fields are ignored: fields may be added, and the daemon may be newer.
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		return out, fmt.Errorf("reading the daemon's answer: %w", err)
	}
	return out, nil
}

type none struct{}

func stream[T any](ctx context.Context, o *Operator, path string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		resp, err := o.do(ctx, http.MethodGet, path, true, nil)
		if err != nil {
			yield(zero, err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(make([]byte, 0, 64<<10), maxAnswer)
		for lines.Scan() {
			var item struct {
				Error *api.Error `json:"error"`
			}
			var v T
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				yield(zero, fmt.Errorf("reading the daemon's stream: %w", err))
				return
			}
			if json.Unmarshal(lines.Bytes(), &item) == nil && item.Error != nil {
				yield(zero, item.Error)
				return
			}
			if !yield(v, nil) {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err := lines.Err(); err != nil {
			yield(zero, api.Errorf(api.CodeNoDaemon, "the daemon went away: %v", err))
		}
	}
}

// Status says how the daemon is. It needs no proof.
func (o *Operator) Status(ctx context.Context) (api.Status, error) {
	return call[api.Status](ctx, o, http.MethodGet, "/v1/status", false, nil)
}

// Init makes the vault and leaves it unlocked.
func (o *Operator) Init(ctx context.Context, in api.InitRequest) (api.InitAnswer, error) {
	out, err := call[api.InitAnswer](ctx, o, http.MethodPost, "/v1/vault/init", false, in)
	o.earnBy(ctx, in.Passphrase, err)
	return out, err
}

// Unlock opens the vault.
func (o *Operator) Unlock(ctx context.Context, in api.UnlockRequest) (api.Status, error) {
	out, err := call[api.Status](ctx, o, http.MethodPost, "/v1/vault/unlock", false, in)
	o.earnBy(ctx, in.Passphrase, err)
	return out, err
}

// Lock shuts the vault. It needs no proof.
func (o *Operator) Lock(ctx context.Context) (api.Status, error) {
	return call[api.Status](ctx, o, http.MethodPost, "/v1/vault/lock", false, nil)
}

// ChangePassphrase changes the passphrase.
func (o *Operator) ChangePassphrase(ctx context.Context, in api.PassphraseRequest) error {
	_, err := call[none](ctx, o, http.MethodPost, "/v1/vault/passphrase", false, in)
	return err
}

// Prove only checks the proof.
func (o *Operator) Prove(ctx context.Context) error {
	_, err := call[none](ctx, o, http.MethodPost, "/v1/proof", true, nil)
	return err
}

// Credentials lists the credentials.
func (o *Operator) Credentials(ctx context.Context) ([]api.Credential, error) {
	return call[[]api.Credential](ctx, o, http.MethodGet, "/v1/credentials", true, nil)
}

// Credential describes one credential.
func (o *Operator) Credential(ctx context.Context, name string) (api.Credential, error) {
	return call[api.Credential](ctx, o, http.MethodGet, "/v1/credentials/"+url.PathEscape(name), true, nil)
}

// AddCredential adds a credential.
func (o *Operator) AddCredential(ctx context.Context, in api.CredentialRequest) error {
	_, err := call[none](ctx, o, http.MethodPost, "/v1/credentials", true, in)
	return err
}

// ChangeCredential changes what a credential allows.
func (o *Operator) ChangeCredential(ctx context.Context, name string, in api.CredentialChange) error {
	_, err := call[none](ctx, o, http.MethodPatch, "/v1/credentials/"+url.PathEscape(name), true, in)
	return err
}

// RotateCredential replaces a credential's secret. The caller wipes value.
func (o *Operator) RotateCredential(ctx context.Context, name string, value []byte) error {
	_, err := call[none](ctx, o, http.MethodPost, "/v1/credentials/"+url.PathEscape(name)+"/rotate", true, map[string][]byte{"secret": value})
	return err
}

// RotateKey replaces the private key of an ssh-key credential by one that is encrypted.
func (o *Operator) RotateKey(ctx context.Context, name string, value, passphrase []byte) error {
	_, err := call[none](ctx, o, http.MethodPost, "/v1/credentials/"+url.PathEscape(name)+"/rotate", true, map[string][]byte{"secret": value, "key_passphrase": passphrase})
	return err
}

// Hosts lists the SSH hosts that are known.
func (o *Operator) Hosts(ctx context.Context) ([]api.Host, error) {
	return call[[]api.Host](ctx, o, http.MethodGet, "/v1/hosts", true, nil)
}

// LookHost shows the keys that a host shows, or that a file has for it, and pins none.
func (o *Operator) LookHost(ctx context.Context, in api.HostLook) (api.Host, error) {
	return call[api.Host](ctx, o, http.MethodPost, "/v1/hosts/look", true, in)
}

// AddHost pins a host's keys.
func (o *Operator) AddHost(ctx context.Context, h api.Host) error {
	_, err := call[none](ctx, o, http.MethodPost, "/v1/hosts", true, h)
	return err
}

// RemoveHost lets go of them.
func (o *Operator) RemoveHost(ctx context.Context, address string) error {
	_, err := call[none](ctx, o, http.MethodDelete, "/v1/hosts/"+url.PathEscape(address), true, nil)
	return err
}

// RemoveCredential removes a credential.
func (o *Operator) RemoveCredential(ctx context.Context, name string) error {
	_, err := call[none](ctx, o, http.MethodDelete, "/v1/credentials/"+url.PathEscape(name), true, nil)
	return err
}

// Actions lists the contracts, accepted ones and those that wait.
func (o *Operator) Actions(ctx context.Context) ([]api.Action, error) {
	return call[[]api.Action](ctx, o, http.MethodGet, "/v1/actions", true, nil)
}

// Action shows one contract.
func (o *Operator) Action(ctx context.Context, name string) (api.Action, error) {
	return call[api.Action](ctx, o, http.MethodGet, "/v1/actions/"+url.PathEscape(name), true, nil)
}

// AcceptAction makes exactly these bytes the contract in force.
func (o *Operator) AcceptAction(ctx context.Context, in api.ActionRequest) (api.Action, error) {
	return call[api.Action](ctx, o, http.MethodPost, "/v1/actions", true, in)
}

// RemoveAction withdraws a contract.
func (o *Operator) RemoveAction(ctx context.Context, name string) error {
	_, err := call[none](ctx, o, http.MethodDelete, "/v1/actions/"+url.PathEscape(name), true, nil)
	return err
}

// Cards lists the cards that wait.
func (o *Operator) Cards(ctx context.Context) ([]api.Card, error) {
	return call[[]api.Card](ctx, o, http.MethodGet, "/v1/approvals", true, nil)
}

// Card shows one card.
func (o *Operator) Card(ctx context.Context, id string) (api.Card, error) {
	return call[api.Card](ctx, o, http.MethodGet, "/v1/approvals/"+url.PathEscape(id), true, nil)
}

// WatchCards yields every waiting card, then every change. It ends when ctx does, without an error, or with the error that ended it.
func (o *Operator) WatchCards(ctx context.Context) iter.Seq2[api.CardEvent, error] {
	return stream[api.CardEvent](ctx, o, "/v1/approvals/stream")
}

// Answer answers a card.
func (o *Operator) Answer(ctx context.Context, card string, in api.CardAnswer) error {
	_, err := call[none](ctx, o, http.MethodPost, "/v1/approvals/"+url.PathEscape(card), true, in)
	return err
}

// Sessions lists the sessions.
func (o *Operator) Sessions(ctx context.Context) ([]api.Session, error) {
	return call[[]api.Session](ctx, o, http.MethodGet, "/v1/sessions", true, nil)
}

// RevokeSession ends the session of a run.
func (o *Operator) RevokeSession(ctx context.Context, run string) error {
	_, err := call[none](ctx, o, http.MethodDelete, "/v1/sessions/"+url.PathEscape(run), true, nil)
	return err
}

// Grants lists the standing grants, the oldest first.
func (o *Operator) Grants(ctx context.Context) ([]api.Grant, error) {
	return call[[]api.Grant](ctx, o, http.MethodGet, "/v1/grants", true, nil)
}

// RevokeGrant ends a standing grant, with the sessions that came from it.
func (o *Operator) RevokeGrant(ctx context.Context, grant string) error {
	_, err := call[none](ctx, o, http.MethodDelete, "/v1/grants/"+url.PathEscape(grant), true, nil)
	return err
}

// Query selects activity. Empty fields match everything.
type Query struct {
	Run, Tool, State, Credential string
	Text                         string // in the id, tool, target, actor, credential or reason, whatever the case
	Since, Until                 time.Time
	Before                       string // an execution id: the page after the one that ended with it
	Limit                        int
}

func (q Query) encode() string {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("run", q.Run)
	set("tool", q.Tool)
	set("state", q.State)
	set("credential", q.Credential)
	set("text", q.Text)
	set("before", q.Before)
	if !q.Until.IsZero() {
		v.Set("until", q.Until.UTC().Format(time.RFC3339))
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

// Activity lists executions, the newest first.
func (o *Operator) Activity(ctx context.Context, q Query) ([]api.Record, error) {
	return call[[]api.Record](ctx, o, http.MethodGet, "/v1/activity"+q.encode(), true, nil)
}

// WatchActivity yields the executions that are there, oldest first, then every change; one may come twice. It ends as WatchCards does.
func (o *Operator) WatchActivity(ctx context.Context, q Query) iter.Seq2[api.RecordEvent, error] {
	return stream[api.RecordEvent](ctx, o, "/v1/activity/stream"+q.encode())
}

// Refusals lists the calls that were not accepted, newest first. Of the query Run, Tool, Since, Until and Limit count.
func (o *Operator) Refusals(ctx context.Context, q Query) ([]api.Refusal, error) {
	return call[[]api.Refusal](ctx, o, http.MethodGet, "/v1/refusals"+q.encode(), true, nil)
}

// WatchRefusals yields the refused calls that are there, oldest first, then every new one. It ends as WatchCards does.
func (o *Operator) WatchRefusals(ctx context.Context, q Query) iter.Seq2[api.RefusalEvent, error] {
	return stream[api.RefusalEvent](ctx, o, "/v1/refusals/stream"+q.encode())
}

// Execution shows one execution.
func (o *Operator) Execution(ctx context.Context, id string) (api.Record, error) {
	return call[api.Record](ctx, o, http.MethodGet, "/v1/activity/"+url.PathEscape(id), true, nil)
}

// Payload opens what was asked for and what came of it.
func (o *Operator) Payload(ctx context.Context, id string) (api.Payload, error) {
	return call[api.Payload](ctx, o, http.MethodGet, "/v1/activity/"+url.PathEscape(id)+"/payload", true, nil)
}

// Check asks the target whether it acted.
func (o *Operator) Check(ctx context.Context, id string) (api.Checked, error) {
	return call[api.Checked](ctx, o, http.MethodPost, "/v1/activity/"+url.PathEscape(id)+"/check", true, nil)
}

// Settle gives the operator's verdict on an unknown outcome.
func (o *Operator) Settle(ctx context.Context, id string, in api.Verdict) (api.Record, error) {
	return call[api.Record](ctx, o, http.MethodPost, "/v1/activity/"+url.PathEscape(id)+"/settle", true, in)
}

// Settings lists the security settings.
func (o *Operator) Settings(ctx context.Context) ([]api.Setting, error) {
	return call[[]api.Setting](ctx, o, http.MethodGet, "/v1/settings", true, nil)
}

// ChangeSetting changes a security setting; nil is its default.
func (o *Operator) ChangeSetting(ctx context.Context, key string, value *string) (api.Setting, error) {
	return call[api.Setting](ctx, o, http.MethodPut, "/v1/settings/"+url.PathEscape(key), true, api.SettingRequest{Value: value})
}

// HTTPClients lists the clients that have a token for MCP over HTTP.
func (o *Operator) HTTPClients(ctx context.Context) ([]api.HTTPClient, error) {
	return call[[]api.HTTPClient](ctx, o, http.MethodGet, "/v1/http-clients", true, nil)
}

// IssueHTTPToken makes a client's token; an earlier one of the same name counts no more.
func (o *Operator) IssueHTTPToken(ctx context.Context, in api.HTTPClientRequest) (api.HTTPClientToken, error) {
	return call[api.HTTPClientToken](ctx, o, http.MethodPost, "/v1/http-clients", true, in)
}

// RevokeHTTPToken ends a client's token.
func (o *Operator) RevokeHTTPToken(ctx context.Context, client string) error {
	_, err := call[none](ctx, o, http.MethodDelete, "/v1/http-clients/"+url.PathEscape(client), true, nil)
	return err
}

// CheckHTTPToken asks whether a token counts. It needs no proof: whoever has the token could try it.
func (o *Operator) CheckHTTPToken(ctx context.Context, token string) (api.HTTPTokenState, error) {
	return call[api.HTTPTokenState](ctx, o, http.MethodPost, "/v1/http-clients/check", false, api.HTTPTokenCheck{Token: token})
}

// AcceptQuarantine ends a quarantine.
func (o *Operator) AcceptQuarantine(ctx context.Context, reason string) error {
	_, err := call[none](ctx, o, http.MethodPost, "/v1/journal/accept", true, api.Quarantine{Reason: reason})
	return err
}
