// Package proxytest is a real HTTP proxy on this machine, for tests: it opens tunnels (CONNECT), writes down what it was asked, and fails where a test says.
package proxytest

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Asked is one request that the proxy got.
type Asked struct {
	Method, Address, Host, Authorization string
	Fields                               int   // header fields, Proxy-Authorization among them
	Bytes                                int64 // what came through the tunnel from the client; complete once Wait has returned
}

// Config says how a proxy behaves. Every field is optional.
type Config struct {
	// Dial connects to what was asked for; nil connects to Target whatever was asked for.
	Dial   func(address string) (net.Conn, error)
	Target string           // where every tunnel leads, if Dial is nil
	Answer string           // what is answered instead of opening a tunnel, after which the connection is closed; "silence" answers nothing and keeps it
	After  string           // what is sent right behind the answer that opens a tunnel
	Cut    bool             // the tunnel is closed when the first bytes have come through it, and they go nowhere
	TLS    *tls.Certificate // the proxy is an https one
	Heard  func()           // called when a request has come
}

// Proxy is a running proxy.
type Proxy struct {
	Address string // host and port
	cfg     Config
	l       net.Listener
	work    sync.WaitGroup
	stop    chan struct{}

	mu    sync.Mutex
	asked []*Asked
}

// Start runs a proxy until the end of the test.
func Start(t testing.TB, cfg Config) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: l.Addr().String(), cfg: cfg, l: l, stop: make(chan struct{})}
	p.work.Add(1)
	go p.accept()
	t.Cleanup(p.Close)
	return p
}

// Close ends the proxy. It may be called more than once.
func (p *Proxy) Close() {
	p.mu.Lock()
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	p.mu.Unlock()
	_ = p.l.Close()
	p.work.Wait()
}

// Asked returns what the proxy was asked, in order.
func (p *Proxy) Asked() []Asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Asked, len(p.asked))
	for i, a := range p.asked {
		out[i] = *a
	}
	return out
}

func (p *Proxy) accept() {
	defer p.work.Done()
	for {
		conn, err := p.l.Accept()
		if err != nil {
			return
		}
		p.work.Add(1)
		go func() {
			defer p.work.Done()
			over := make(chan struct{})
			defer close(over)
			p.work.Add(1)
			go func() {
				defer p.work.Done()
				select {
				case <-p.stop:
				case <-over:
				}
				_ = conn.Close()
			}()
			p.serve(conn)
		}()
	}
}

func (p *Proxy) serve(conn net.Conn) {
	if p.cfg.TLS != nil {
		conn = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{*p.cfg.TLS}})
	}
	in := bufio.NewReader(conn)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	a := &Asked{Method: r.Method, Address: r.RequestURI, Host: r.Host, Authorization: r.Header.Get("Proxy-Authorization"), Fields: len(r.Header)}
	p.mu.Lock()
	p.asked = append(p.asked, a)
	p.mu.Unlock()
	if p.cfg.Heard != nil {
		p.cfg.Heard()
	}
	switch {
	case p.cfg.Answer == "silence":
		<-p.stop
		return
	case p.cfg.Answer != "":
		_, _ = io.WriteString(conn, p.cfg.Answer)
		return
	case r.Method != http.MethodConnect:
		_, _ = io.WriteString(conn, "HTTP/1.1 405 Method Not Allowed\r\n\r\n")
		return
	}
	dial := p.cfg.Dial
	if dial == nil {
		dial = func(string) (net.Conn, error) { return net.Dial("tcp", p.cfg.Target) }
	}
	target, err := dial(r.RequestURI)
	if err != nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer target.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"+p.cfg.After)
	count := func(n int64) {
		p.mu.Lock()
		a.Bytes += n
		p.mu.Unlock()
	}
	if p.cfg.Cut {
		n, _ := in.Read(make([]byte, 1))
		count(int64(n))
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(conn, target)
		_ = conn.Close()
	}()
	n, _ := io.Copy(target, in)
	count(n)
	_ = target.Close()
	<-done
}
