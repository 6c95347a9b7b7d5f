package httpchan

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
)

var _ channel.Verifier = (*Channel)(nil)

// Verify asks the target what became of an attempt, by the effect's status request.
func (c *Channel) Verify(ctx context.Context, q channel.Query) channel.Finding {
	s := q.Effect.Status
	if s == nil || q.Judge == nil {
		return cannotTell("the action has no status request")
	}
	if len(s.Fields) > 0 {
		return cannotTell("the status request is not complete: it needs fields of the target's own answer")
	}
	r := channel.Request{
		ExecutionID: q.ExecutionID, Attempt: q.Attempt, SideEffect: true, Secret: q.Secret, Limits: q.Limits, Permitted: q.Permitted, Private: q.Private,
		Effect: effect.Effect{Channel: effect.HTTP, HTTP: &s.HTTP, Auth: s.Auth},
	}
	limit(&r.Limits, DefaultStatus)
	p, err := plan(r)
	if err != nil {
		return cannotTell("the status request cannot be sent as it is: " + err.Error())
	}
	asked := q.Shown
	if asked == "" {
		asked = s.HTTP.Method + " " + r.Effect.Target()
	}
	a, o := c.exchange(ctx, r, p)
	if a == nil {
		f := cannotTell("the status request was not answered: " + o.Reason)
		f.Evidence = asked + " was not answered: " + o.Reason
		return f
	}
	a.asked, a.later = true, q.Awaited
	scrubbed, odd := a.clean(r, p)
	f := channel.Finding{Status: a.status, After: retryAfter(a.header, time.Now()), Answer: a.forOperator(scrubbed)}
	f.Evidence = fmt.Sprintf("%s answered %d (%s, %d bytes, sha256 %x)", asked, a.status, contentType(a.header), len(a.body), sha256.Sum256(a.body))
	f.Word, f.Reason = q.Judge(a.reading())
	if odd != "" {
		f.Reason = join(f.Reason, odd)
	}
	if f.Word == channel.Done || f.Word == channel.Failed {
		f.Result = a.result(f.Word == channel.Failed, scrubbed)
	}
	return f
}

func cannotTell(reason string) channel.Finding {
	return channel.Finding{Word: channel.CannotTell, Reason: reason}
}

func contentType(h http.Header) string {
	if media := h.Get("Content-Type"); media != "" {
		return printable(media, 80)
	}
	return "no content type"
}

// mostAfter bounds how long a target can make us wait.
const mostAfter = time.Hour

// retryAfter reads RFC 9110, section 10.2.3.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, mostAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, min(at.Sub(now), mostAfter))
	}
	return 0
}
