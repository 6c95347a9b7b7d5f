package sshchan_test

import (
	"context"
	"encoding/json"
	"net"
	"testing"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/sshchan"
	"singlepass.dev/daemon/channel/sshchan/sshdtest"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/vault/secret"
)

func dial(ctx context.Context, host, port string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
}

func newChannel(t *testing.T, change ...func(*sshchan.Config)) *sshchan.Channel {
	t.Helper()
	cfg := sshchan.Config{Dial: dial, Now: time.Now}
	for _, f := range change {
		f(&cfg)
	}
	c, err := sshchan.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// host is the account that a server lets in.
func host(s *sshdtest.Server) effect.SSHHost {
	return effect.SSHHost{User: s.User, Name: s.Host, Port: s.Port, Keys: []string{s.HostKey}}
}

// command is a request to a server.
func command(t *testing.T, s *sshdtest.Server, line string, change ...func(*channel.Request)) channel.Request {
	t.Helper()
	r := channel.Request{
		ExecutionID: "act_01TEST", Attempt: 1, SideEffect: true,
		Effect: effect.Effect{
			Channel: effect.SSH, SSH: &effect.SSHCommand{Host: host(s), Command: line}, Auth: &effect.Auth{Credential: "key", Kind: "ssh-key"},
		},
		Secret: secret.New(append([]byte(nil), s.Key...)),
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

// told is the structured content of a result.
type told struct {
	ExitStatus     *int   `json:"exit_status"`
	Signal         string `json:"signal"`
	Stdout         string `json:"stdout"`
	Stderr         string `json:"stderr"`
	StdoutEncoding string `json:"stdout_encoding"`
	StdoutCut      bool   `json:"stdout_cut"`
	StdoutBytes    int64  `json:"stdout_bytes"`
	Incomplete     bool   `json:"incomplete"`
	Scrubbed       bool   `json:"scrubbed"`
}

func result(t *testing.T, raw json.RawMessage) (told, string) {
	t.Helper()
	var v struct {
		Content []struct{ Type, Text string }
		Told    told `json:"structuredContent"`
		IsError *bool
	}
	if err := json.Unmarshal(raw, &v); err != nil || len(v.Content) != 1 || v.Content[0].Type != "text" || v.IsError == nil {
		t.Fatalf("no tool result: %v\n%s", err, raw)
	}
	return v.Told, v.Content[0].Text
}
