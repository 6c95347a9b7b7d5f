package control_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// raw opens a bare connection.
func (s *stand) raw() net.Conn {
	s.t.Helper()
	c, err := s.http.Transport.(*http.Transport).DialContext(context.Background(), "", "")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestConnectionsAreBoundedAndASilentOneCostsNobodyTheDaemon(t *testing.T) {
	s := started(t)
	s.http.CloseIdleConnections()
	var silent []net.Conn
	for range 300 {
		silent = append(silent, s.raw())
	}
	// They are taken in the order in which they came.
	for i := len(silent) - 1; i >= 256; i-- {
		if err := silent[i].SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil { // before silence alone ends it
			t.Fatal(err)
		}
		if _, err := silent[i].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d was taken: %v", i, err)
		}
	}
	for _, c := range silent {
		_ = c.Close()
	}
	for until := time.Now().Add(time.Minute); ; { // the places are given back when the daemon sees the ends
		resp, err := s.http.Do(s.request("GET", "/v1/status", "", ""))
		if err == nil {
			_ = resp.Body.Close()
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// Whatever somebody sends, as the first bytes of a connection or as a request that is proven, ends nothing but itself.
func TestGarbageIsRefusedAndTheNextRequestWorks(t *testing.T) {
	s := started(t)
	deep := strings.Repeat(`{"answer":`, 100_000)
	for name, text := range map[string]string{
		"no HTTP":             "\x00\xff\xfe nonsense\r\n\r\n",
		"a header too long":   "GET /v1/status HTTP/1.1\r\nHost: spd\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n",
		"two lengths":         "POST /v1/proof HTTP/1.1\r\nHost: spd\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
		"a length and pieces": "POST /v1/proof HTTP/1.1\r\nHost: spd\r\nContent-Length: 4\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"a folder above":      "GET /v1/../v1/approvals HTTP/1.1\r\nHost: spd\r\n\r\n",
		"a proxy's request":   "CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		c := s.raw()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(c, text) }()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && resp.StatusCode == 200 {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
	ticket := s.earn()
	for name, body := range map[string]string{
		"deep":             deep,
		"not UTF-8":        "{\"answer\":\"\xff\xfe\"}",
		"a huge number":    `{"answer":` + strings.Repeat("9", 100_000) + `}`,
		"one name twice":   `{"answer":"nonsense","answer":"nonsense too"}`,
		"a NUL":            "{\"answer\":\"once\x00\"}",
		"another field":    `{"answer":"once","force":true}`,
		"nothing":          "",
		"a list":           `["once"]`,
		"base64 that ends": `{"value":"` + base64.StdEncoding.EncodeToString([]byte("x"))[:3] + `"}`,
	} {
		if status, answer := s.do("POST", "/v1/approvals/card_none", ticket, body); status != 400 && status != 413 {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	for _, path := range []string{"/v1/approvals/%2e%2e", "/v1/approvals/" + strings.Repeat("x", 8<<10), "/v1/activity?limit=-1", "/v1/activity?since=yesterday", "/v1/activity/%00/payload"} {
		if status, answer := s.do("GET", path, ticket, ""); status < 400 || status >= 500 {
			t.Errorf("%.60s: %d %s", path, status, answer)
		}
	}
	if status, body := s.do("GET", "/v1/approvals", ticket, ""); status != 200 {
		t.Errorf("afterwards: %d %s", status, body)
	}
}
