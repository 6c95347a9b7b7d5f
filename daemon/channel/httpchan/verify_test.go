package httpchan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/vault/secret"
)

// question asks at url; an answer of status 200 means done, 404 not done, and its body is kept in seen.
func question(t testing.TB, url string, seen *channel.Reading) channel.Query {
	t.Helper()
	s := secret.New([]byte(canary))
	t.Cleanup(s.Wipe)
	return channel.Query{
		ExecutionID: "act_test", Attempt: 1, Secret: s,
		Effect: effect.Effect{
			Channel: effect.HTTP, HTTP: &effect.HTTPRequest{Method: "POST", URL: "http://127.0.0.1:1/never", Body: []byte(`{}`)}, Auth: &effect.Auth{Credential: "c", Kind: "header", Place: "X-Other"},
			Status: &effect.StatusRequest{
				HTTP: effect.HTTPRequest{Method: "GET", URL: url, Header: []effect.Field{{Name: "X-Of", Value: "act_test"}}},
				Auth: &effect.Auth{Credential: "reader", Kind: "bearer", Place: "Authorization"},
			},
		},
		Judge: func(r channel.Reading) (channel.Word, string) {
			if seen != nil {
				*seen = r
			}
			switch r.Status {
			case 200:
				return channel.Done, "it is done"
			case 404:
				return channel.NotDone, "it is not"
			case 418:
				return channel.Failed, "it failed"
			}
			return channel.CannotTell, "who knows"
		},
	}
}

func TestAQuestionIsTheStatusRequestAndNothingElse(t *testing.T) {
	var requests atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Method != "GET" || r.URL.RequestURI() != "/of/act_test?x=1" || r.Header.Get("Authorization") != "Bearer "+canary || r.Header.Get("X-Other") != "" || r.Header.Get("X-Of") != "act_test" || !r.Close {
			t.Errorf("asked %s %s %v", r.Method, r.URL, r.Header)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Mirror", canary)
		fmt.Fprintf(w, `{"state":"done","token":%q}`, canary)
	})
	var seen channel.Reading
	f := client(t, httpchan.Config{}).Verify(t.Context(), question(t, s.URL+"/of/act_test?x=1", &seen))
	if f.Word != channel.Done || f.Status != 200 || requests.Load() != 1 || !strings.Contains(f.Reason, "it is done") {
		t.Errorf("%+v after %d requests", f, requests.Load())
	}
	if !strings.HasPrefix(f.Evidence, "GET "+s.URL+"/of/act_test answered 200 (application/json, ") || strings.Contains(f.Evidence, "x=1") {
		t.Errorf("the evidence is %q", f.Evidence)
	}
	for name, text := range map[string]string{"result": string(f.Result), "answer": string(f.Answer), "reason": f.Reason, "evidence": f.Evidence, "body": string(seen.Body), "header": fmt.Sprint(seen.Header)} {
		if strings.Contains(text, canary) {
			t.Errorf("the secret is in the %s: %s", name, text)
		}
	}
	if !seen.Whole || !bytes.Contains(seen.Body, []byte(`"state":"done"`)) {
		t.Errorf("judged by %+v", seen)
	}
	for _, part := range []string{`"from":"status_query"`, `"isError":false`, "the answer to the call itself was lost"} {
		if part == "the answer to the call itself was lost" {
			part = "answer to the call itself was lost"
		}
		if !bytes.Contains(f.Result, []byte(part)) {
			t.Errorf("the result has no %s: %s", part, f.Result)
		}
	}
}

func TestOnlyDoneAndFailedHaveAResult(t *testing.T) {
	for status, want := range map[int]channel.Word{200: channel.Done, 418: channel.Failed, 404: channel.NotDone, 500: channel.CannotTell} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		f := client(t, httpchan.Config{}).Verify(t.Context(), question(t, s.URL+"/", nil))
		if f.Word != want || (f.Result != nil) != (want == channel.Done || want == channel.Failed) || f.Certain || f.Reason == "" || f.Answer == nil {
			t.Errorf("%d: %+v", status, f)
		}
		if want == channel.Failed && !bytes.Contains(f.Result, []byte(`"isError":true`)) {
			t.Errorf("a failure reads as success: %s", f.Result)
		}
	}
}

// A status endpoint may be anybody's. It can lie, but it cannot make us follow it, wait for it, or read without end.
func TestAHostileStatusEndpointTellsNothing(t *testing.T) {
	var elsewhere atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	for name, say := range map[string]func(w io.Writer, r *http.Request){
		"closes":                   func(io.Writer, *http.Request) {},
		"speaks another protocol":  says("220 mail.example ESMTP\r\n"),
		"switches protocols":       says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
		"a header without end":     func(w io.Writer, _ *http.Request) { endless(w, "HTTP/1.1 200 OK\r\nX: ", "a") },
		"informational for ever":   func(w io.Writer, _ *http.Request) { endless(w, "", "HTTP/1.1 103 Early Hints\r\n\r\n") },
		"redirects":                says("HTTP/1.1 307 Temporary Redirect\r\nLocation: " + other.URL + "/\r\nContent-Length: 0\r\n\r\n"),
		"asks for the credential":  says("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"),
		"is overloaded":            says("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 99999999999\r\nContent-Length: 0\r\n\r\n"),
		"a header with a line gap": says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
	} {
		url, connections := raw(t, say)
		var seen channel.Reading
		f := client(t, httpchan.Config{}).Verify(t.Context(), question(t, url, &seen))
		if f.Word != channel.CannotTell || f.Result != nil || f.Reason == "" || len(f.Evidence) > 1024 || f.After > time.Hour {
			t.Errorf("%s: %+v", name, f)
		}
		if n := connections.Load(); n != 1 || elsewhere.Load() != 0 {
			t.Errorf("%s: %d connections, %d elsewhere", name, n, elsewhere.Load())
		}
	}
}

func endless(w io.Writer, first, more string) {
	if _, err := io.WriteString(w, first); err != nil {
		return
	}
	for {
		if _, err := io.WriteString(w, strings.Repeat(more, 1000)); err != nil {
			return
		}
	}
}

func TestABodyThatIsNotWholeIsNotLookedInto(t *testing.T) {
	for name, say := range map[string]func(w io.Writer, r *http.Request){
		"longer than the limit": func(w io.Writer, _ *http.Request) {
			endless(w, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", `{"state":"done"} `)
		},
		"broken off":  says("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"state\":\"done\"}"),
		"bad chunks":  says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{\"state\":\"done\"}"),
		"packed":      says("HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 16\r\n\r\n{\"state\":\"done\"}"),
		"a gzip bomb": func(w io.Writer, _ *http.Request) { bomb(w) },
	} {
		url, _ := raw(t, say)
		var seen channel.Reading
		q := question(t, url, &seen)
		q.Limits.Answer = 1 << 17
		f := client(t, httpchan.Config{}).Verify(t.Context(), q)
		if seen.Status != 200 || seen.Whole || len(seen.Body) > 1<<17 {
			t.Errorf("%s: judged by %d bytes, whole %v; %+v", name, len(seen.Body), seen.Whole, f)
		}
	}
}

// bomb answers with 80 MiB of zeros, packed: each member holds 1 MiB.
func bomb(w io.Writer) {
	packed := bytes.Repeat(zip(strings.Repeat("\x00", 1<<20)), 80)
	fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", len(packed))
	_, _ = w.Write(packed)
}

func TestAStatusEndpointThatIsSilentIsLeftAtTheLimit(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for name, say := range map[string]func(w io.Writer, r *http.Request){
		"says nothing": func(io.Writer, *http.Request) { <-release },
		"a slow body": func(w io.Writer, _ *http.Request) {
			_, _ = io.WriteString(w, "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n1")
			<-release
		},
	} {
		url, _ := raw(t, say)
		var seen channel.Reading
		q := question(t, url, &seen)
		q.Limits.Total = 300 * time.Millisecond
		f := client(t, httpchan.Config{}).Verify(t.Context(), q)
		if name == "says nothing" && (f.Word != channel.CannotTell || !strings.Contains(f.Evidence, "was not answered")) || seen.Whole {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestAQuestionThatMayNotBeAskedIsNotAsked(t *testing.T) {
	url, connections := raw(t, says("HTTP/1.1 200 OK\r\n\r\n"))
	for name, change := range map[string]func(*channel.Query){
		"outside of the binding":    func(q *channel.Query) { q.Permitted = func(string) error { return io.EOF } },
		"no status request":         func(q *channel.Query) { q.Effect.Status = nil },
		"nobody judges":             func(q *channel.Query) { q.Judge = nil },
		"a secret that is missing":  func(q *channel.Query) { q.Secret = nil },
		"a control character":       func(q *channel.Query) { q.Effect.Status.HTTP.Header[0].Value = "a\nb" },
		"a cloud metadata address":  func(q *channel.Query) { q.Effect.Status.HTTP.URL = "http://169.254.169.254/latest" },
		"the address of everything": func(q *channel.Query) { q.Effect.Status.HTTP.URL = "http://0.0.0.0:1/" },
	} {
		q := question(t, url, nil)
		change(&q)
		f := client(t, httpchan.Config{}).Verify(t.Context(), q)
		if f.Word != channel.CannotTell || f.Reason == "" || f.Result != nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// The permission is asked once connected; what counts is that the target read nothing.
	if n := connections.Load(); n > 1 {
		t.Errorf("%d connections", n)
	}
}

func TestRetryAfterIsReadAndBounded(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"7": 7 * time.Second, "": 0, "-1": 0, "soon": 0, "1e9": 0, "2000000000": time.Hour, "99999999999999999999": 0,
		"Mon, 02 Jan 2006 15:04:05 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": time.Hour,
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(202)
		})
		if f := client(t, httpchan.Config{}).Verify(t.Context(), question(t, s.URL+"/", nil)); f.After != want {
			t.Errorf("%q: %v", header, f.After)
		}
	}
}

func TestAnAnswerThatSaysNotDoneIsTakenAndNoResult(t *testing.T) {
	judged := func(r channel.Reading) (channel.Word, json.RawMessage, string) {
		switch {
		case r.Status == 202 && len(r.Header["Location"]) == 1:
			return channel.Running, json.RawMessage(`{"Location":"` + r.Header["Location"][0] + `"}`), "it took the call"
		case r.Status == 202:
			return channel.CannotTell, nil, "it says not where"
		}
		return channel.Done, nil, ""
	}
	for name, c := range map[string]struct {
		answer  string
		verdict channel.Verdict
		status  int
		says    string
		kept    string
		after   time.Duration
	}{
		"taken":               {"HTTP/1.1 202 Accepted\r\nLocation: /jobs/7\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n", channel.Taken, 202, "it took the call", `{"Location":"/jobs/7"}`, 30 * time.Second},
		"for longer than may": {"HTTP/1.1 202 Accepted\r\nLocation: /jobs/7\r\nRetry-After: 99999999\r\nContent-Length: 0\r\n\r\n", channel.Taken, 202, "it took the call", `{"Location":"/jobs/7"}`, time.Hour},
		"not whole":           {"HTTP/1.1 202 Accepted\r\nLocation: /jobs/7\r\nContent-Length: 9\r\n\r\n{", channel.Taken, 202, "incomplete", `{"Location":"/jobs/7"}`, 0},
		"with the secret":     {"HTTP/1.1 202 Accepted\r\nLocation: /jobs/" + canary + "\r\nContent-Length: 0\r\n\r\n", channel.Taken, 202, "the secret was in the answer", "", 0},
		"where is not said":   {"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", channel.Unknown, 0, "it says not where", "", 0},
		"done":                {"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", channel.Success, 201, "", "", 0},
		"an error":            {"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}", channel.TargetError, 409, "", "", 0},
	} {
		url, connections := raw(t, says(c.answer))
		r := attempt(url, func(*channel.Request) {}, with(t, effect.Auth{Credential: "c", Kind: "bearer"}, canary))
		r.JudgeAnswer = judged
		o := client(t, httpchan.Config{}).Do(t.Context(), r)
		answered := c.verdict == channel.Success || c.verdict == channel.TargetError
		if o.Verdict != c.verdict || o.Status != c.status || !strings.Contains(o.Reason, c.says) || (o.Result != nil) != answered || o.After != c.after || connections.Load() != 1 {
			t.Errorf("%s: %+v", name, o)
		}
		if c.kept != "" && string(o.Kept) != c.kept || (c.verdict == channel.Taken) != (o.Kept != nil) || strings.Contains(string(o.Kept)+o.Reason+string(o.Answer), canary) {
			t.Errorf("%s: kept %s", name, o.Kept)
		}
	}
}

func TestAStatusRequestThatIsNotCompleteIsNotSent(t *testing.T) {
	var requests atomic.Int32
	s := serve(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	q := question(t, s.URL+"/", nil)
	q.Effect.Status.Fields = []string{"Location"}
	if f := client(t, httpchan.Config{}).Verify(t.Context(), q); f.Word != channel.CannotTell || requests.Load() != 0 || !strings.Contains(f.Reason, "not complete") {
		t.Errorf("%+v after %d requests", f, requests.Load())
	}
}

func TestTheTargetsOwnWordsInAStatusRequestAreNotShown(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"state":"done"}`) })
	q := question(t, s.URL+"/jobs/canary-not-a-secret-job", nil)
	q.Shown, q.Awaited = "GET {answer:Location} within "+s.URL+"/", true
	f := client(t, httpchan.Config{}).Verify(t.Context(), q)
	if f.Word != channel.Done || !strings.HasPrefix(f.Evidence, q.Shown+" answered 200") || strings.Contains(f.Evidence+f.Reason, "job") && !strings.Contains(f.Evidence, q.Shown) {
		t.Errorf("%+v", f)
	}
	if !bytes.Contains(f.Result, []byte("answered that it was not done")) || bytes.Contains(f.Result, []byte("was lost")) {
		t.Errorf("the result is %s", f.Result)
	}
	q.Permitted = func(string) error { return errors.New("the credential may not be used there") }
	if f = client(t, httpchan.Config{}).Verify(t.Context(), q); f.Word != channel.CannotTell || !strings.Contains(f.Evidence, "may not be used there") {
		t.Errorf("%+v", f)
	}
}
