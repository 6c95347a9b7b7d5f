package demo

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// shop is the target: it writes an order into its ledger, and syncs it, before it answers. It honours no idempotency key, so each request that reaches it is an order.
type shop struct {
	url   string
	token string // stands for a real credential; made for this run
	file  *os.File
	http  *http.Server

	mu      sync.Mutex // owns what follows
	orders  []string
	taken   chan struct{} // closed when an order is written whose answer is held
	release chan struct{} // closed when the answer may go
}

func openShop(file string) (*shop, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the shop's ledger: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the shop: %w", err), f.Close())
	}
	s := &shop{url: "http://" + l.Addr().String(), token: rand.Text(), file: f}
	s.http = &http.Server{Handler: http.HandlerFunc(s.order), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.http.Serve(l) }()
	return s, nil
}

func (s *shop) close() {
	_ = s.http.Close()
	_ = s.file.Close()
}

// hold keeps the next answer back. taken is closed when its order is written; release lets the answer go, and may be called twice.
func (s *shop) hold() (taken <-chan struct{}, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, r := make(chan struct{}), make(chan struct{})
	s.taken, s.release = t, r
	return t, sync.OnceFunc(func() { close(r) })
}

func (s *shop) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.orders...)
}

func (s *shop) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = nil
}

func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Item     string `json:"item"`
		Quantity int    `json:"quantity"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil || json.Unmarshal(body, &in) != nil || r.Method != http.MethodPost {
		http.Error(w, "not an order", http.StatusBadRequest)
		return
	}
	by := "nobody in particular"
	if r.Header.Get("Authorization") == "Bearer "+s.token {
		by = "the credential \"shop\"" // the ledger never holds the credential itself
	}
	s.mu.Lock()
	line := fmt.Sprintf("%s  %d × %s, paid by %s", time.Now().Format("15:04:05.000"), in.Quantity, strings.TrimSpace(in.Item), by)
	number := len(s.orders) + 1
	_, err = fmt.Fprintln(s.file, line)
	err = errors.Join(err, s.file.Sync())
	s.orders = append(s.orders, line)
	taken, release := s.taken, s.release
	s.taken, s.release = nil, nil
	s.mu.Unlock()
	if err != nil {
		http.Error(w, "the ledger cannot be written", http.StatusInternalServerError)
		return
	}
	if taken != nil {
		close(taken)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"order": number, "item": in.Item, "quantity": in.Quantity, "status": "shipped"})
}
