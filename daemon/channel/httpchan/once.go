package httpchan

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"singlepass.dev/daemon/channel"
)

// inline is how much is written before anything is read. More is written while the answer is awaited, since a target may refuse a long body before it has read it.
const inline = 32 << 10

// once sends a request that has a side effect.
func (c *Channel) once(ctx context.Context, r channel.Request, p request) channel.Outcome {
	a, o := c.exchange(ctx, r, p)
	if a == nil {
		return o
	}
	if a.taken != nil {
		return *a.taken
	}
	return a.outcome(r, p)
}

// exchange writes one request onto a connection of its own and reads what comes back. Without an answer the outcome says why there is none.
func (c *Channel) exchange(ctx context.Context, r channel.Request, p request) (*answer, channel.Outcome) {
	total := time.Now().Add(r.Limits.Total)
	connecting, cancel := context.WithTimeout(ctx, min(r.Limits.Connect, r.Limits.Total))
	var client *tls.Certificate
	var raw *counted
	var conn net.Conn
	err := error(nil)
	if p.auth != nil && p.auth.Kind == "client-cert" {
		client, err = certificate(r)
	}
	if err == nil {
		raw, conn, err = c.connect(connecting, &p, r.Private, client)
	}
	cancel()
	if err != nil {
		return nil, notSent(describeConnect(ctx, err, r.Limits))
	}
	defer raw.Close() // not the TLS connection: its farewell can block, and the request's length is declared
	_ = raw.SetDeadline(total)
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	var message []byte
	if err := permitted(ctx, r); err != nil {
		return nil, notSent(err.Error())
	}
	if err := useSecret(r, func(secret []byte) (err error) {
		message, err = p.wire(c.cfg.UserAgent, secret, c.cfg.Now())
		return err
	}); err != nil {
		return nil, notSent(err.Error())
	}

	before := raw.accepted.Load()
	written := make(chan error, 1)
	write := func() {
		_, err := conn.Write(message)
		clear(message)
		written <- err
	}
	if len(message) <= inline {
		write()
	} else {
		go write()
	}

	var a *answer
	var readErr error
	if p.take == nil {
		a, readErr = read(conn, p.Method, r.Limits.Answer)
	} else if a, readErr = readHead(conn, p.Method); readErr == nil {
		taken := p.take(Answer{a.status, a.header, worded{a.stream, func(err error) string { return describe(ctx, err, r.Limits) }}})
		a.taken = &taken
	}
	_ = raw.Close()
	writeErr := <-written
	switch {
	case raw.accepted.Load() == before: // whatever was read then is no answer to this request
		return nil, notSent("the connection took no byte of the request: " + describe(ctx, writeErr, r.Limits))
	case readErr != nil && a == nil && writeErr != nil && !errors.Is(writeErr, net.ErrClosed):
		return nil, unknown("the request was partly sent, and " + describe(ctx, writeErr, r.Limits))
	case readErr != nil && a == nil:
		return nil, unknown("the request was sent, and " + describe(ctx, readErr, r.Limits))
	case readErr != nil:
		a.broken = describe(ctx, readErr, r.Limits)
	}
	return a, channel.Outcome{}
}

// Reasons why bytes are not an answer.
var (
	errHeader        = fmt.Errorf("the header of the answer is longer than %d KiB", headerLimit>>10)
	errInformational = fmt.Errorf("more than %d informational answers came before the answer", informationalLimit)
	errNotHTTP       = errors.New("what came back cannot be read as an HTTP answer")
	errSwitched      = errors.New("the target answered 101 (switching protocols) without being asked to")
	errClosed        = errors.New("the connection was closed before a whole answer came")
)

// noted remembers what the connection itself said, which a parser may take for the end of a strange line.
type noted struct {
	r   io.Reader
	err error
}

func (n *noted) Read(b []byte) (int, error) {
	c, err := n.r.Read(b)
	if err != nil {
		n.err = err
	}
	return c, err
}

// read reads one answer. With an answer and an error the body is not whole.
func read(conn io.Reader, method string, limit int64) (*answer, error) {
	a, err := readHead(conn, method)
	if err != nil {
		return nil, err
	}
	err = a.readBody(a.stream, limit)
	a.extra = err == nil && !a.cut && a.after()
	return a, err
}

// readHead reads an answer up to its body, which is left in stream.
func readHead(conn io.Reader, method string) (*answer, error) {
	wire := &noted{r: conn}
	head := &io.LimitedReader{R: wire, N: headerLimit}
	b := bufio.NewReader(head)
	for range informationalLimit + 1 {
		resp, err := http.ReadResponse(b, &http.Request{Method: method})
		switch {
		case err != nil && head.N == 0:
			return nil, errHeader
		case err != nil && errors.Is(wire.err, io.EOF):
			return nil, errClosed
		case err != nil && wire.err != nil:
			return nil, wire.err
		case err != nil, resp.ProtoMajor != 1, resp.StatusCode < 100: // the error may quote what came
			return nil, errNotHTTP
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errSwitched
		case resp.StatusCode < 200:
			continue
		}
		head.N = math.MaxInt64
		return &answer{status: resp.StatusCode, proto: resp.Proto, header: resp.Header, stream: resp.Body, after: func() bool { return b.Buffered() > 0 }}, nil
	}
	return nil, errInformational
}

// readBody takes up to limit bytes; a body that breaks is kept as far as it came.
func (a *answer) readBody(body io.Reader, limit int64) error {
	b, err := io.ReadAll(io.LimitReader(body, limit+1))
	if int64(len(b)) > limit {
		b, a.cut, err = b[:limit], true, nil
	}
	a.body = b
	return err
}

// isTransport tells an error of the connection from one of the bytes that came.
func isTransport(err error) bool {
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed)
}

// useSecret calls f with the secret, or with nil if the request has none.
func useSecret(r channel.Request, f func([]byte) error) error {
	if r.Secret == nil {
		return f(nil)
	}
	return r.Secret.Use(func(b []byte) error {
		if err := checkSecret(r.Effect.Auth, b); err != nil {
			return err
		}
		return f(b)
	})
}

// describeConnect says why there is no connection. No secret was near it.
func describeConnect(ctx context.Context, err error, l channel.Limits) string {
	text := printable(err.Error(), 300) // a certificate's names are the target's words
	switch {
	case ctx.Err() != nil:
		return why(ctx) + ": " + text
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("not connected within %v: %s", min(l.Connect, l.Total), text)
	}
	return text
}

// describe says what went wrong on a connection, and quotes nothing that a target sent.
func describe(ctx context.Context, err error, l channel.Limits) string {
	switch {
	case ctx.Err() != nil:
		return why(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("the limit of %v passed", l.Total)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection was reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "the connection was closed"
	case errors.Is(err, errHeader), errors.Is(err, errInformational), errors.Is(err, errNotHTTP), errors.Is(err, errSwitched), errors.Is(err, errClosed), isTransport(err):
		return err.Error()
	}
	return "its framing is broken"
}

// why says which end a context came to.
func why(ctx context.Context) string {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.DeadlineExceeded):
		return "the time limit passed"
	case errors.Is(cause, context.Canceled):
		return "the attempt was cancelled"
	default:
		return "the attempt was ended: " + cause.Error()
	}
}
