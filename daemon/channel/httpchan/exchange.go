package httpchan

import (
	"context"
	"errors"
	"io"
	"net/http"

	"singlepass.dev/daemon/channel"
)

// Answer is an answer whose body is still on its way.
type Answer struct {
	Status int
	Header http.Header
	Body   io.Reader // its errors say what happened to the connection, in words, and quote nothing that came
}

// Exchange sends a request as Do sends one with a side effect, whatever r says, and leaves the answer to take: for a protocol that lies in HTTP and streams. What take returns is the
// outcome. It is called at most once, when a whole final status line and header came; where it is not, the outcome says why, as Do does. The answer is not scrubbed: take does that.
func (c *Channel) Exchange(ctx context.Context, r channel.Request, take func(Answer) channel.Outcome) channel.Outcome {
	p, refused := c.prepare(&r)
	if refused != nil {
		return *refused
	}
	p.take = take
	return c.once(ctx, r, p)
}

// worded puts what a connection says into words that can be shown.
type worded struct {
	io.Reader
	words func(error) string
}

func (t worded) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = errors.New(t.words(err))
	}
	return n, err
}
