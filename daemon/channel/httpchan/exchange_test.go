package httpchan_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
)

func TestAnExchangeLeavesAnAnswerToItsReaderWhileItComes(t *testing.T) {
	asked := make(chan struct{})
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "one\n")
		w.(http.Flusher).Flush()
		<-asked
		_, _ = io.WriteString(w, "two\n")
	}))
	t.Cleanup(server.Close)
	r := attempt(server.URL + "/")
	o := client(t, httpchan.Config{}).Exchange(t.Context(), r, func(a httpchan.Answer) channel.Outcome {
		lines := bufio.NewReader(a.Body)
		first, err := lines.ReadString('\n')
		if err != nil || a.Status != http.StatusAccepted {
			t.Errorf("%q, %d, %v", first, a.Status, err)
		}
		close(asked)
		second, _ := lines.ReadString('\n')
		return channel.Outcome{Verdict: channel.Success, Reason: first + second}
	})
	if o.Verdict != channel.Success || o.Reason != "one\ntwo\n" || requests != 1 {
		t.Errorf("%+v after %d requests", o, requests)
	}
}

func TestAnExchangeWithoutAnAnswerIsNotGivenToItsReader(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(server.Close)
	never := func(httpchan.Answer) channel.Outcome {
		t.Error("it was called")
		return channel.Outcome{}
	}
	if o := client(t, httpchan.Config{}).Exchange(t.Context(), attempt(server.URL+"/"), never); o.Verdict != channel.Unknown {
		t.Errorf("%+v", o)
	}
	server.Close()
	if o := client(t, httpchan.Config{}).Exchange(t.Context(), attempt(server.URL+"/"), never); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "connect") {
		t.Errorf("%+v", o)
	}
}
