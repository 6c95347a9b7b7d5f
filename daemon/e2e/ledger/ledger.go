// Package ledger is the target that the end-to-end tests count effects at: an HTTP service that appends every effect to
// a file, and syncs it, before it answers. What is in the file happened; what an agent was told is compared with it.
//
// It promises that a line is durable before the first byte of the answer leaves, that a request below /honours/ with an
// Idempotency-Key seen before is answered from the first one (and refused with 422 if its body differs, as
// draft-ietf-httpapi-idempotency-key-header-07 says), and that a request below /ignores/ is carried out each time.
// A path that ends in /echo says the credential back to the caller. It is a test's tool: it does not authenticate anybody,
// and keeps a digest of the Authorization header, never the header.
package ledger

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
)

// Kind says what a line of the ledger is about.
type Kind string

const (
	Effect   Kind = "effect"   // the target acted
	Replayed Kind = "replayed" // a known key: answered from the first time, nothing done
	Conflict Kind = "conflict" // a known key with another body: refused, nothing done
	Read     Kind = "read"     // a GET: nothing done
	Dropped  Kind = "dropped"  // the connection was cut before anything was done
)

// Entry is one line of the ledger file.
type Entry struct {
	Kind       Kind            `json:"kind"`
	Receipt    string          `json:"receipt,omitempty"` // of the effect; a replay repeats the first one's
	Method     string          `json:"method"`
	Path       string          `json:"path"`
	Key        string          `json:"key,omitempty"` // the Idempotency-Key header
	AuthSHA256 string          `json:"auth_sha256,omitempty"`
	Body       json.RawMessage `json:"body,omitempty"`
}

// Mode says what becomes of the answer to one request that has an effect.
type Mode string

const (
	Answer Mode = "answer" // at once
	Hold   Mode = "hold"   // after Release
	Cut    Mode = "cut"    // never: the connection is closed after the effect
	Drop   Mode = "drop"   // never: the connection is closed before the effect
	Fail   Mode = "fail"   // a 500 with the receipt: the effect happened and the target says it is unwell
	Accept Mode = "accept" // a 202 with the address of a job; the job is done after Release
)

// Status says how GET /status/KEY answers. The zero value tells the truth.
type Status string

const (
	Late Status = "late" // what was done does not show yet: "not_done" for every key
	Down Status = "down" // 503
)

// Event is told to Config.Notify.
type Event struct {
	Event string `json:"event"` // "entry": a line is durable; "answered", "gone": what became of the answer
	Entry Entry  `json:"entry"`
}

// Config is what New needs.
type Config struct {
	File   *os.File    // required: the ledger, opened for appending
	Notify func(Event) // required: called in the order in which things happened, one call at a time
}

// Server is the target. Its methods may be called by several goroutines.
type Server struct {
	cfg Config

	mu       sync.Mutex
	plans    []Mode           // taken by the next requests that have an effect
	released chan struct{}    // closed by Release, then replaced
	answers  map[string]saved // by path and key
	jobs     map[string]job   // by their address
	status   Status
}

type job struct {
	receipt string
	done    <-chan struct{}
}

type saved struct {
	receipt string
	body    []byte
}

// New returns a target that writes to cfg.File.
func New(cfg Config) (*Server, error) {
	if cfg.File == nil || cfg.Notify == nil {
		return nil, errors.New("making a ledger: File and Notify are required")
	}
	return &Server{cfg: cfg, released: make(chan struct{}), answers: map[string]saved{}, jobs: map[string]job{}}, nil
}

// Plan sets what becomes of the answers to the next requests that have an effect, in that order; later ones are answered.
func (s *Server) Plan(modes ...Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans = append(s.plans, modes...)
}

// Release lets every held answer go.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.released)
	s.released = make(chan struct{})
}

// SetStatus sets how questions about keys are answered from now on.
func (s *Server) SetStatus(st Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = st
}

const maxBody = 1 << 20

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e := Entry{Method: r.Method, Path: r.URL.Path, Key: r.Header.Get("Idempotency-Key")}
	if json.Valid(body) {
		e.Body = body
	}
	if auth := r.Header.Get("Authorization"); auth != "" {
		sum := sha256.Sum256([]byte(auth))
		e.AuthSHA256 = hex.EncodeToString(sum[:])
	}
	if r.Method == http.MethodGet {
		s.read(w, e)
		return
	}
	s.act(w, r, e)
}

var errDown = errors.New("the status of keys cannot be told now")

// read answers GET /status/KEY with what became of that key, GET /jobs/ID with how far that job is, and every other path with a constant.
func (s *Server) read(w http.ResponseWriter, e Entry) {
	e.Kind = Read
	s.mu.Lock()
	err := s.appendLocked(e)
	answer := map[string]any{"balance": 250}
	if key, ok := strings.CutPrefix(e.Path, "/status/"); ok {
		answer = map[string]any{"state": "not_done"}
		if s.status == Down {
			err = errors.Join(err, errDown)
		}
		for known, a := range s.answers {
			if s.status == "" && strings.HasSuffix(known, " "+key) {
				answer = map[string]any{"state": "done", "receipt": a.receipt}
			}
		}
	}
	if j, ok := s.jobs[e.Path]; ok {
		answer = map[string]any{"state": "running"}
		select {
		case <-j.done:
			answer = map[string]any{"state": "done", "receipt": j.receipt}
		default:
		}
		if s.status == Down {
			err = errors.Join(err, errDown)
		}
	}
	s.mu.Unlock()
	switch {
	case errors.Is(err, errDown):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *Server) act(w http.ResponseWriter, r *http.Request, e Entry) {
	s.mu.Lock()
	first, known := s.answers[e.Path+" "+e.Key]
	switch {
	case e.Key == "" || !known || !strings.HasPrefix(e.Path, "/honours/"):
		e.Kind = Effect
	case bytes.Equal(first.body, e.Body):
		e.Kind, e.Receipt = Replayed, first.receipt
	default:
		e.Kind = Conflict
	}
	mode := Answer
	if e.Kind == Effect {
		e.Receipt = "rcpt_" + strings.ToLower(rand.Text())
		if len(s.plans) > 0 {
			mode, s.plans = s.plans[0], s.plans[1:]
		}
		if mode == Drop {
			e.Kind, e.Receipt = Dropped, ""
		}
	}
	err := s.appendLocked(e)
	if err == nil && e.Kind == Effect && e.Key != "" {
		s.answers[e.Path+" "+e.Key] = saved{e.Receipt, e.Body}
	}
	released := s.released
	address := ""
	if err == nil && mode == Accept {
		address = "/jobs/" + strings.ToLower(rand.Text())
		s.jobs[address] = job{e.Receipt, released}
	}
	s.mu.Unlock()

	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	switch mode {
	case Accept:
		w.Header().Set("Location", address)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusAccepted)
		if err := http.NewResponseController(w).Flush(); err != nil {
			s.notify("gone", e)
			return
		}
		s.notify("answered", e)
		return
	case Cut, Drop:
		panic(http.ErrAbortHandler)
	case Hold:
		select {
		case <-released:
		case <-r.Context().Done():
			s.notify("gone", e)
			return
		}
	}
	s.answer(w, e, mode, r.Header.Get("Authorization"))
}

// spellings is what a careless or hostile target would say back of the credential that it was sent.
func spellings(auth string) []string {
	secret := strings.TrimPrefix(auth, "Bearer ")
	return []string{
		auth, secret, url.QueryEscape(secret), hex.EncodeToString([]byte(secret)),
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.URLEncoding.EncodeToString([]byte(secret)),
	}
}

func (s *Server) answer(w http.ResponseWriter, e Entry, mode Mode, auth string) {
	status := http.StatusCreated
	switch {
	case e.Kind == Conflict:
		status = http.StatusUnprocessableEntity
	case mode == Fail:
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	answer := map[string]any{"receipt": e.Receipt, "request": e.Body}
	if strings.HasSuffix(e.Path, "/echo") {
		answer["echo"] = spellings(auth)
	}
	err := json.NewEncoder(w).Encode(answer)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		s.notify("gone", e)
		return
	}
	s.notify("answered", e)
}

// appendLocked makes the line durable and then tells of it.
func (s *Server) appendLocked(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding ledger entry: %w", err)
	}
	if _, err := s.cfg.File.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("appending to ledger: %w", err)
	}
	if err := s.cfg.File.Sync(); err != nil {
		return fmt.Errorf("syncing ledger: %w", err)
	}
	s.cfg.Notify(Event{"entry", e})
	return nil
}

func (s *Server) notify(event string, e Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Notify(Event{event, e})
}

// ReadFile returns the entries of a ledger file.
func ReadFile(name string) ([]Entry, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading ledger: %w", err)
	}
	var entries []Entry
	for line := range bytes.Lines(data) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading ledger %s, line %d: %w", name, len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
