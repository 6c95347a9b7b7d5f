package httpchan_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
)

// raw is a target that reads a request on each connection, says what it is told to, and closes. It counts the connections.
func raw(t testing.TB, say func(w io.Writer, r *http.Request)) (url string, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	connections = new(atomic.Int64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				say(conn, r)
			}()
		}
	}()
	return "http://" + l.Addr().String(), connections
}

func says(text string) func(io.Writer, *http.Request) {
	return func(w io.Writer, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func TestAnAnswerIsKnownByItsStatusAndUnknownWithoutOne(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, c := range []struct {
		name, answer string
		verdict      channel.Verdict
		status       int
		reason, body string
		onceOnly     bool // net/http reads it in its own way
	}{
		{name: "with a length", answer: ok + "Content-Length: 2\r\n\r\nhi", verdict: channel.Success, status: 200, body: `"hi"`},
		{name: "in chunks", answer: ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", verdict: channel.Success, status: 200, body: `"hi"`},
		{name: "until the end", answer: ok + "\r\nhi", verdict: channel.Success, status: 200, body: `"hi"`},
		{name: "HTTP/1.0", answer: "HTTP/1.0 200 OK\r\n\r\nhi", verdict: channel.Success, status: 200, body: `"hi"`},
		{name: "204", answer: "HTTP/1.1 204 No Content\r\n\r\n", verdict: channel.Success, status: 204},
		{name: "no phrase", answer: "HTTP/1.1 202\r\nContent-Length: 0\r\n\r\n", verdict: channel.Success, status: 202},
		{name: "after 100 and 103", answer: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nhi", verdict: channel.Success, status: 200, body: `"hi"`},
		{name: "500", answer: "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno", verdict: channel.TargetError, status: 500, body: `"no"`},
		{name: "302", answer: "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", verdict: channel.TargetError, status: 302},
		{name: "307", answer: "HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", verdict: channel.TargetError, status: 307},
		{name: "999", answer: "HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", verdict: channel.TargetError, status: 999},
		{name: "more than announced", answer: ok + "Content-Length: 2\r\n\r\nhiHTTP/1.1 500 No\r\n\r\n", verdict: channel.Success, status: 200, body: `"hi"`, reason: "sent more than", onceOnly: true},

		{name: "shorter than announced", answer: ok + "Content-Length: 20\r\n\r\nhi", verdict: channel.Success, status: 200, body: `"hi"`, reason: "incomplete: the connection was closed"},
		{name: "500, shorter", answer: "HTTP/1.1 500 No\r\nContent-Length: 20\r\n\r\nhi", verdict: channel.TargetError, status: 500, body: `"hi"`, reason: "incomplete"},
		{name: "a JSON body that breaks off", answer: ok + "Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"id\":7", verdict: channel.Success, status: 200, body: `"{\"id\":7"`, reason: "incomplete"},
		{name: "a chunk that breaks off", answer: ok + "Transfer-Encoding: chunked\r\n\r\n8\r\nhi", verdict: channel.Success, status: 200, body: `"hi"`, reason: "incomplete"},
		{name: "no last chunk", answer: ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", verdict: channel.Success, status: 200, body: `"hi"`, reason: "incomplete"},
		{name: "a bad chunk", answer: ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nzz\r\n", verdict: channel.Success, status: 200, body: `"hi"`, reason: "incomplete: its framing is broken"},
		{name: "a character that breaks off", answer: ok + "Content-Length: 20\r\n\r\nh\xc3", verdict: channel.Success, status: 200, body: `"h"`, reason: "incomplete"},

		{name: "nothing", answer: "", verdict: channel.Unknown, reason: "closed before a whole answer"},
		{name: "half a status line", answer: "HTTP/1.1 20", verdict: channel.Unknown, reason: "closed before a whole answer"},
		{name: "half a header", answer: ok + "Content-Ty", verdict: channel.Unknown, reason: "closed before a whole answer"},
		{name: "another protocol", answer: "SSH-2.0-OpenSSH_9.2\r\n\r\n", verdict: channel.Unknown, reason: "cannot be read as an HTTP answer"},
		{name: "HTTP/2 in words", answer: "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", verdict: channel.Unknown, reason: "cannot be read", onceOnly: true},
		{name: "status 099", answer: "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n", verdict: channel.Unknown, reason: "cannot be read", onceOnly: true},
		{name: "status +20", answer: "HTTP/1.1 +20 Odd\r\nContent-Length: 0\r\n\r\n", verdict: channel.Unknown, reason: "cannot be read", onceOnly: true},
		{name: "two lengths", answer: ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", verdict: channel.Unknown, reason: "cannot be read"},
		{name: "a header that is none", answer: ok + "canary\r\n\r\n", verdict: channel.Unknown, reason: "cannot be read"},
		{name: "an unknown transfer coding", answer: ok + "Transfer-Encoding: canary\r\n\r\nhi", verdict: channel.Unknown, reason: "cannot be read"},
		{name: "101", answer: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhi", verdict: channel.Unknown, reason: "101"},
		{name: "informational without end", answer: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 40), verdict: channel.Unknown, reason: "informational", onceOnly: true},
		{name: "a header without end", answer: ok + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 400), verdict: channel.Unknown, reason: "header of the answer is longer", onceOnly: true},
		{name: "a line without end", answer: "HTTP/1.1 200 " + strings.Repeat("a", 400<<10), verdict: channel.Unknown, reason: "header of the answer is longer", onceOnly: true},
	} {
		both(t, func(t *testing.T, class func(*channel.Request)) {
			t.Run(c.name, func(t *testing.T) {
				url, connections := raw(t, says(c.answer))
				r := attempt(url+"/x", class)
				o := client(t, httpchan.Config{}).Do(t.Context(), r)
				if n := connections.Load(); n != 1 {
					t.Errorf("%d connections", n)
				}
				if !r.SideEffect && c.onceOnly {
					return
				}
				if o.Verdict != c.verdict || o.Status != c.status || strings.Contains(o.Reason, "canary") {
					t.Fatalf("%+v", o)
				}
				if (o.Reason == "") != (c.reason == "") || r.SideEffect && !strings.Contains(o.Reason, c.reason) {
					t.Errorf("reason %q, not %q", o.Reason, c.reason)
				}
				if c.verdict == channel.Unknown {
					if o.Result != nil || o.Answer != nil {
						t.Errorf("%+v", o)
					}
					return
				}
				got := read(t, o)
				if string(got.StructuredContent.Body) != c.body {
					t.Errorf("body %s, not %s", got.StructuredContent.Body, c.body)
				}
				incomplete := strings.Contains(c.reason, "incomplete")
				if got.StructuredContent.Incomplete != incomplete || strings.Contains(got.Content[0].Text, "incomplete") != incomplete {
					t.Errorf("%s", o.Result)
				}
			})
		})
	}
}

func TestABodyIsGivenAsItCame(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, "hello")
	_ = z.Close()
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	for _, c := range []struct {
		name, kind, coding, body, want, encoding string
	}{
		{name: "numbers and keys", kind: "application/json", body: `{"n":9007199254740993,"e":1.0e400,"a":1,"a":2,"z":"\u00e9\/<é>"}`, want: `{"n":9007199254740993,"e":1.0e400,"a":1,"a":2,"z":"\u00e9\/<é>"}`},
		{name: "white space between", kind: "application/json; charset=utf-8", body: "{\r\n  \"a\": [1, 2]\n}\n", want: `{"a":[1,2]}`},
		{name: "problem", kind: "application/problem+json", body: `"x"`, want: `"x"`},
		{name: "object without a type", body: ` {"a":1}`, want: `{"a":1}`},
		{name: "object called text", kind: "text/plain", body: `{"a":1}`, want: `{"a":1}`},
		{name: "number called text", kind: "text/plain", body: `12`, want: `"12"`},
		{name: "broken JSON", kind: "application/json", body: `{"a":`, want: `"{\"a\":"`},
		{name: "two values", kind: "application/json", body: `{} {}`, want: `"{} {}"`},
		{name: "too deep", kind: "application/json", body: deep, want: `"` + deep + `"`},
		{name: "text", kind: "text/html", body: "<p>a\r\nb\u2028\x00</p>", want: `"<p>a\r\nb` + "\u2028" + `\u0000</p>"`},
		{name: "not UTF-8", kind: "application/json", body: "\"\xff\"", want: `"` + base64.StdEncoding.EncodeToString([]byte("\"\xff\"")) + `"`, encoding: "base64"},
		{name: "compressed all the same", kind: "text/plain", coding: "gzip", body: zipped.String(), want: `"` + base64.StdEncoding.EncodeToString(zipped.Bytes()) + `"`, encoding: "base64"},
		{name: "identity", kind: "text/plain", coding: "identity", body: "a", want: `"a"`},
	} {
		both(t, func(t *testing.T, class func(*channel.Request)) {
			t.Run(c.name, func(t *testing.T) {
				s := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Accept-Encoding") != "identity" {
						t.Errorf("%v", r.Header)
					}
					w.Header()["Content-Type"] = nil
					if c.kind != "" {
						w.Header().Set("Content-Type", c.kind)
					}
					if c.coding != "" {
						w.Header().Set("Content-Encoding", c.coding)
					}
					_, _ = io.WriteString(w, c.body)
				})
				got := read(t, client(t, httpchan.Config{}).Do(t.Context(), attempt(s.URL+"/", class)))
				if string(got.StructuredContent.Body) != c.want || got.StructuredContent.BodyEncoding != c.encoding {
					t.Errorf("%s %s, not %s", got.StructuredContent.BodyEncoding, got.StructuredContent.Body, c.want)
				}
				end := "\n\n" + c.body
				if c.encoding != "" {
					end = "\n\n" + base64.StdEncoding.EncodeToString([]byte(c.body))
				}
				if text := got.Content[0].Text; !strings.HasPrefix(text, "HTTP 200 OK\n") || !strings.HasSuffix(text, end) {
					t.Errorf("%q", text)
				}
			})
		})
	}
}

func TestALongAnswerIsCutAndSaysSo(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		const limit = 1000
		for _, long := range []int{limit, limit + 1, 1 << 20} {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat("é", long/2)+strings.Repeat("x", long%2))
			})
			o := client(t, httpchan.Config{}).Do(t.Context(), attempt(s.URL+"/", class, func(r *channel.Request) { r.Limits.Answer = limit }))
			got := read(t, o)
			cut := long > limit
			if o.Verdict != channel.Success || got.StructuredContent.Cut != cut || strings.Contains(o.Reason, "cut after 1000 bytes") != cut || strings.Contains(got.Content[0].Text, "was cut") != cut {
				t.Errorf("%d: %s", long, o.Reason)
			}
			if len(got.StructuredContent.Body) != limit+2 {
				t.Errorf("%d bytes are told", len(got.StructuredContent.Body)-2)
			}
		}
	})
}

func TestAFloodEndsAndIsCalledWhatItIs(t *testing.T) {
	for name, c := range map[string]struct {
		first, again string
		verdict      channel.Verdict
		reason       string
	}{
		"informational answers":      {"", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", channel.Unknown, ""},
		"fields":                     {"HTTP/1.1 200 OK\r\n", "X-A: " + strings.Repeat("a", 1000) + "\r\n", channel.Unknown, ""},
		"a body":                     {"HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("b", 1<<12), channel.Success, "cut after"},
		"chunks":                     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "4\r\nbbbb\r\n", channel.Success, "cut after"},
		"extensions of chunks":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1;" + strings.Repeat("x", 4000) + "\r\nb\r\n", channel.Success, "incomplete"},
		"fields behind the last one": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X-A: " + strings.Repeat("a", 1000) + "\r\n", channel.Success, "incomplete"},
	} {
		both(t, func(t *testing.T, class func(*channel.Request)) {
			url, _ := raw(t, func(w io.Writer, _ *http.Request) {
				_, err := io.WriteString(w, c.first)
				for err == nil { // until the other end has had enough
					_, err = io.WriteString(w, c.again)
				}
			})
			o := client(t, httpchan.Config{}).Do(t.Context(), attempt(url+"/", class))
			if o.Verdict != c.verdict || !strings.Contains(o.Reason, c.reason) || len(o.Result) > 8<<20 {
				t.Errorf("%s: %s, %d, %s", name, o.Verdict, o.Status, o.Reason)
			}
		})
	}
}

func TestABodyLongerThanAHeaderMayBeIsWhole(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 900<<10)) })
		o := client(t, httpchan.Config{}).Do(t.Context(), attempt(s.URL+"/", class))
		if got := read(t, o); o.Reason != "" || len(got.StructuredContent.Body) != 900<<10+2 {
			t.Errorf("%s: %d bytes", o.Reason, len(got.StructuredContent.Body))
		}
	})
}

func TestAHeadAnswerHasNoBody(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Length", "7") })
	for _, sideEffect := range []bool{true, false} {
		o := client(t, httpchan.Config{}).Do(t.Context(), attempt(s.URL+"/", readOnly, func(r *channel.Request) {
			r.SideEffect, r.Effect.HTTP.Method = sideEffect, "HEAD"
		}))
		if got := read(t, o); o.Verdict != channel.Success || got.StructuredContent.Body != nil {
			t.Errorf("%s", o.Result)
		}
	}
}

func TestTheContractSaysWhichStatusesSucceed(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		for status, want := range map[int]channel.Verdict{409: channel.Success, 200: channel.TargetError} {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) })
			o := client(t, httpchan.Config{}).Do(t.Context(), attempt(s.URL+"/", class, func(r *channel.Request) { r.Effect.HTTP.Success = []int{409} }))
			if o.Verdict != want || o.Status != status {
				t.Errorf("%d: %+v", status, o)
			}
		}
	})
}

func TestCookiesAndTheSecretAreKeptFromTheOperatorToo(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Set-Cookie", "session=canary-cookie")
			w.Header().Set("X-Seen", r.Header.Get("X-Key"))
			w.Header()["X-"+r.Header.Get("X-Key")] = []string{"1"}
			w.Header().Set("X-Odd", "a\tb")
			for _, name := range []string{"Location", "Link", "ETag", "X-More"} {
				w.Header()[name] = []string{"/" + r.Header.Get("X-Key"), "/again/" + r.Header.Get("X-Key")}
			}
		})
		o := client(t, httpchan.Config{}).Do(t.Context(), attempt(s.URL+"/", class, with(t, effect.Auth{Credential: "c", Kind: "header", Place: "X-Key"}, "Canarynotasecret")))
		if strings.Contains(strings.ToLower(string(o.Answer)+string(o.Result)), "canary") || !bytes.Contains(o.Answer, []byte(`"X-Seen","value":"[secret]"`)) || !bytes.Contains(o.Answer, []byte("[withheld]")) || !bytes.Contains(o.Answer, []byte(`"scrubbed":true`)) {
			t.Errorf("%s", o.Answer)
		}
	})
}

func TestAHeaderOfManyFieldsIsBounded(t *testing.T) {
	url, _ := raw(t, func(w io.Writer, _ *http.Request) {
		_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
		for i := range 1000 {
			fmt.Fprintf(w, "X-%d: %s\r\nLocation: %s\r\n", i, strings.Repeat("a", 50), strings.Repeat("b", 50))
		}
		_, _ = io.WriteString(w, "\r\n")
	})
	o := client(t, httpchan.Config{}).Do(t.Context(), attempt(url+"/"))
	if o.Verdict != channel.Success || len(o.Answer) > 16<<10 || len(o.Result) > 4<<10 {
		t.Errorf("%s: %d, %d", o.Verdict, len(o.Answer), len(o.Result))
	}
}
