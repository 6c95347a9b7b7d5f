package sshchan_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/sshchan"
	"singlepass.dev/daemon/channel/sshchan/sshdtest"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/vault/secret"
	"singlepass.dev/vault/sshkey"
)

func TestWhatFailsBeforeTheCommandIsAskedForIsNotSent(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{})
	trace := filepath.Join(t.TempDir(), "trace")
	_, otherKey := sshdtest.NewKey(t)
	otherUser, _ := sshdtest.NewKey(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	rsa := "ssh-rsa " + rsaKey(t)
	for name, c := range map[string]struct {
		change func(*channel.Request)
		want   string
	}{
		"no pinned key": {func(r *channel.Request) { r.Effect.SSH.Host.Keys = nil }, "spctl host add 127.0.0.1:"},
		"another key":   {func(r *channel.Request) { r.Effect.SSH.Host.Keys = []string{otherKey} }, "shows another host key than the pinned one"},
		"a key of another type": {
			func(r *channel.Request) { r.Effect.SSH.Host.Keys = []string{rsa} }, "shows another host key than the pinned one: it shows of another type only",
		},
		"another user's key": {func(r *channel.Request) { r.Secret = secret.New(otherUser) }, `does not let ` + s.User + ` in with the credential "key"`},
		"no such account":    {func(r *channel.Request) { r.Effect.SSH.Host.User = "nobody-is-called-so" }, "does not let nobody-is-called-so in"},
		"nobody listens":     {func(r *channel.Request) { r.Effect.SSH.Host.Port = port(closed) }, "connection refused"},
		"nobody answers": {func(r *channel.Request) {
			r.Effect.SSH.Host.Port, r.Limits.Connect = port(silent), 100*time.Millisecond
		}, "it took longer than the limit of 100ms"},
		"not permitted": {
			func(r *channel.Request) { r.Permitted = func(string) error { return os.ErrPermission } }, "not permitted",
		},
		"no secret":       {func(r *channel.Request) { r.Secret = nil }, "needs a credential"},
		"another kind":    {func(r *channel.Request) { r.Effect.Auth.Kind = "bearer" }, "opens no SSH connection"},
		"a wiped secret":  {func(r *channel.Request) { r.Secret.Wipe() }, "cannot be used"},
		"no key at all":   {func(r *channel.Request) { r.Secret = secret.New([]byte("canary-not-a-secret")) }, "no private key"},
		"too long a line": {func(r *channel.Request) { r.Effect.SSH.Command += strings.Repeat(" ", 100<<10) }, "standard input"},
		"not SSH":         {func(r *channel.Request) { r.Effect = effect.Effect{Channel: effect.HTTP, HTTP: &effect.HTTPRequest{}} }, "no SSH command"},
		"a jump not known": {func(r *channel.Request) {
			r.Effect.SSH.Jump = &effect.SSHHost{User: "x", Name: "127.0.0.1", Port: s.Port}
		}, "spctl host add"},
	} {
		t.Run(name, func(t *testing.T) {
			r := command(t, s, "echo ran >>"+trace, c.change)
			o := newChannel(t).Do(t.Context(), r)
			if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, c.want) || o.Result != nil {
				t.Errorf("%+v, want %q", o, c.want)
			}
			if strings.Contains(o.Reason, "canary") {
				t.Errorf("the reason shows the secret: %s", o.Reason)
			}
			if _, err := os.Stat(trace); err == nil {
				t.Fatal("it ran")
			}
		})
	}
}

func rsaKey(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rsa")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-C", "", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))[1]
}

func TestAHostThatOpensNoSessionGetsNoCommand(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{Extra: "MaxSessions 0"})
	if o := newChannel(t).Do(t.Context(), command(t, s, "true")); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "opened no session") {
		t.Errorf("%+v", o)
	}
}

func TestACommandGoesThroughAJumpHostWhoseKeyIsPinnedToo(t *testing.T) {
	t.Parallel()
	gate, inner := sshdtest.New(t, sshdtest.Config{}), sshdtest.New(t, sshdtest.Config{})
	// One key for both: the credential is the same.
	if err := inner.Authorize(gate.Key); err != nil {
		t.Fatal(err)
	}
	jump := host(gate)
	r := command(t, inner, "echo inside", func(r *channel.Request) {
		r.Effect.SSH.Jump = &jump
		r.Secret = secret.New(append([]byte(nil), gate.Key...))
	})
	o := newChannel(t).Do(t.Context(), r)
	if got, _ := result(t, o.Result); o.Verdict != channel.Success || got.Stdout != "inside\n" {
		t.Errorf("%+v", o)
	}
	if gate.Connections() != 1 || inner.Connections() != 1 {
		t.Errorf("%d and %d connections", gate.Connections(), inner.Connections())
	}
	_, other := sshdtest.NewKey(t)
	jump.Keys = []string{other}
	if o := newChannel(t).Do(t.Context(), r); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, gate.Address()+" shows another host key") {
		t.Errorf("with another key of the jump host: %+v", o)
	}
	if inner.Connections() != 1 {
		t.Error("the inner host was reached through a jump host that is not the pinned one")
	}
	jump.Keys = []string{gate.HostKey}
	inner.Stop()
	if o := newChannel(t).Do(t.Context(), r); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "through "+gate.Address()) {
		t.Errorf("with nobody behind the jump host: %+v", o)
	}
}

func TestACertificateOpensAnAccountThatTrustsItsAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"ca", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	s := sshdtest.New(t, sshdtest.Config{Extra: "TrustedUserCAKeys " + dir + "/ca.pub"})
	if out, err := exec.Command("ssh-keygen", "-q", "-s", dir+"/ca", "-I", "test", "-n", s.User, dir+"/user.pub").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(dir + "/user-cert.pub")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := sshkey.Certificate(string(text))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(dir + "/user")
	if err != nil {
		t.Fatal(err)
	}
	r := command(t, s, "true", func(r *channel.Request) {
		r.Effect.Auth.Certificate = certificate
		r.Secret = secret.New(append([]byte(nil), key...))
	})
	if o := newChannel(t).Do(t.Context(), r); o.Verdict != channel.Success {
		t.Errorf("%+v", o)
	}
	r.Effect.Auth.Certificate = ""
	if o := newChannel(t).Do(t.Context(), r); o.Verdict != channel.NotSent {
		t.Errorf("without its certificate: %+v", o)
	}
}

// scripted is a server of our own, for what OpenSSH does not do on order.
type scripted struct {
	address  *net.TCPAddr
	hostKey  string
	password string
	refuses  string // why it opens no session

	mu    sync.Mutex
	execs int
}

// newScripted answers each exec request as serve says.
func newScripted(t *testing.T, password string, serve func(session ssh.Channel, r *ssh.Request, conn net.Conn)) *scripted {
	t.Helper()
	private, public := sshdtest.NewKey(t)
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{address: l.Addr().(*net.TCPAddr), hostKey: public, password: password}
	cfg := &ssh.ServerConfig{
		PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil },
		KeyboardInteractiveCallback: func(_ ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
			answers, err := ask("", "", []string{"Password: "}, []bool{false})
			if err != nil || len(answers) != 1 || answers[0] != password {
				return nil, os.ErrPermission
			}
			return nil, nil
		},
	}
	cfg.AddHostKey(signer)
	var work sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); work.Wait() })
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			work.Go(func() {
				_, channels, requests, err := ssh.NewServerConn(conn, cfg)
				if err != nil {
					return
				}
				go ssh.DiscardRequests(requests)
				for c := range channels {
					if s.refuses != "" {
						_ = c.Reject(ssh.Prohibited, s.refuses)
						continue
					}
					session, requests, err := c.Accept()
					if err != nil {
						return
					}
					go func() {
						for r := range requests {
							if r.Type == "exec" {
								s.mu.Lock()
								s.execs++
								s.mu.Unlock()
								serve(session, r, conn)
							}
						}
					}()
				}
			})
		}
	})
	return s
}

func (s *scripted) request(t *testing.T) channel.Request {
	key, _ := sshdtest.NewKey(t)
	r := channel.Request{
		ExecutionID: "act_01TEST", Attempt: 1, SideEffect: true,
		Effect: effect.Effect{
			Channel: effect.SSH, Auth: &effect.Auth{Credential: "key", Kind: "ssh-key"},
			SSH: &effect.SSHCommand{Host: effect.SSHHost{User: "deploy", Name: "127.0.0.1", Port: s.address.Port, Keys: []string{s.hostKey}}, Command: "true"},
		},
		Secret: secret.New(key),
	}
	if s.password != "" {
		r.Effect.Auth.Kind, r.Secret = "ssh-password", secret.New([]byte(s.password))
	}
	return r
}

func exit(status uint32) []byte { return ssh.Marshal(struct{ S uint32 }{status}) }

func TestARefusedCommandIsNotSentAndAnUnansweredOneIsUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve func(ssh.Channel, *ssh.Request, net.Conn)
		want  channel.Verdict
		told  string
	}{
		"refused":                     {func(_ ssh.Channel, r *ssh.Request, _ net.Conn) { _ = r.Reply(false, nil) }, channel.NotSent, "refused to start"},
		"cut before the reply":        {func(_ ssh.Channel, _ *ssh.Request, c net.Conn) { _ = c.Close() }, channel.Unknown, "the request to start the command was sent"},
		"closed before the reply":     {func(s ssh.Channel, _ *ssh.Request, _ net.Conn) { _ = s.Close() }, channel.Unknown, "the request to start the command was sent"},
		"closed without a status":     {func(s ssh.Channel, r *ssh.Request, _ net.Conn) { _ = r.Reply(true, nil); _ = s.Close() }, channel.Unknown, "without saying how it ended"},
		"cut without a status":        {func(_ ssh.Channel, r *ssh.Request, c net.Conn) { _ = r.Reply(true, nil); _ = c.Close() }, channel.Unknown, "the connection was lost"},
		"silent, until it is noticed": {func(_ ssh.Channel, r *ssh.Request, _ net.Conn) { _ = r.Reply(true, nil) }, channel.Unknown, "longer than the limit"},
		"a status that is none": {func(s ssh.Channel, r *ssh.Request, _ net.Conn) {
			_ = r.Reply(true, nil)
			_, _ = s.SendRequest("exit-status", false, []byte{1})
			_ = s.Close()
		}, channel.Unknown, "without saying how it ended"},
		"a status, and then the cut": {func(s ssh.Channel, r *ssh.Request, c net.Conn) {
			_ = r.Reply(true, nil)
			_, _ = s.Write([]byte("half"))
			_, _ = s.SendRequest("exit-status", false, exit(0))
			_ = c.Close()
		}, channel.Success, "incomplete"},
		"a signal": {func(s ssh.Channel, r *ssh.Request, _ net.Conn) {
			_ = r.Reply(true, nil)
			_, _ = s.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Signal string
				Core   bool
				M, L   string
			}{Signal: "TERM"}))
			_ = s.Close()
		}, channel.TargetError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, "", c.serve)
			r := s.request(t)
			if strings.HasPrefix(name, "silent") {
				r.Limits.Total = 300 * time.Millisecond
			}
			o := newChannel(t).Do(t.Context(), r)
			if o.Verdict != c.want || !strings.Contains(o.Reason, c.told) {
				t.Errorf("%+v", o)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.execs != 1 {
				t.Errorf("it was asked for %d times", s.execs)
			}
		})
	}
}

func TestAHostThatStopsAnsweringIsNoticedAndTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	t.Cleanup(func() { close(held) })
	var once sync.Once
	gone := &muted{muted: make(chan struct{}), held: held}
	s := newScripted(t, "", func(_ ssh.Channel, r *ssh.Request, _ net.Conn) {
		_ = r.Reply(true, nil)
		once.Do(func() { close(gone.muted) })
	})
	c := newChannel(t, func(cfg *sshchan.Config) {
		cfg.KeepAlive = 20 * time.Millisecond
		cfg.Dial = func(ctx context.Context, name, port string) (net.Conn, error) {
			conn, err := dial(ctx, name, port)
			if err != nil {
				return nil, err
			}
			return &mutedConn{Conn: conn, m: gone}, nil
		}
	})
	if o := c.Do(t.Context(), s.request(t)); o.Verdict != channel.Unknown || !strings.Contains(o.Reason, "stopped answering") {
		t.Errorf("%+v", o)
	}
}

// muted is a network over which nothing arrives at the host any more.
type muted struct{ muted, held chan struct{} }

type mutedConn struct {
	net.Conn
	m *muted
}

func (c *mutedConn) Write(b []byte) (int, error) {
	select {
	case <-c.m.muted:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

func TestAPasswordOpensAConnectionAlsoWhereTheHostAsksForIt(t *testing.T) {
	t.Parallel()
	const password = "canary-not-a-secret-9d"
	s := newScripted(t, password, func(c ssh.Channel, r *ssh.Request, _ net.Conn) {
		_ = r.Reply(true, nil)
		_, _ = c.Write([]byte("your password is " + password + "\n"))
		_, _ = c.Stderr().Write([]byte(password))
		_, _ = c.SendRequest("exit-status", false, exit(0))
		_ = c.Close()
	})
	o := newChannel(t).Do(t.Context(), s.request(t))
	got, text := result(t, o.Result)
	if o.Verdict != channel.Success || !got.Scrubbed || strings.Contains(text+got.Stdout+got.Stderr+o.Reason+string(o.Answer), "canary") {
		t.Errorf("%+v\n%s", o, o.Result)
	}
}

func TestAHostThatSaysThePasswordBackInItsRefusalIsQuotedWithoutIt(t *testing.T) {
	t.Parallel()
	const password = "canary-not-a-secret-9d"
	s := newScripted(t, password, nil)
	s.refuses = "no session for " + password
	o := newChannel(t).Do(t.Context(), s.request(t))
	if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "no session for ") || strings.Contains(o.Reason, "canary") {
		t.Errorf("%+v", o)
	}
}

func TestOutputIsBoundedAndHonestAboutWhatItIs(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{})
	o := newChannel(t).Do(t.Context(), command(t, s, `printf 'ab\377'; head -c 300000 /dev/zero | tr '\0' x >&2`, func(r *channel.Request) { r.Limits.Answer = 1000 }))
	got, text := result(t, o.Result)
	if o.Verdict != channel.Success || got.StdoutEncoding != "base64" || got.Stdout != "YWL/" || len(got.Stderr) != 1000 || !strings.Contains(text, "300000 bytes") {
		t.Errorf("%+v\n%.300s", o.Verdict, text)
	}
	if len(o.Result) > 8000 {
		t.Errorf("the result has %d bytes", len(o.Result))
	}
	if o := newChannel(t).Do(t.Context(), command(t, s, "sleep 8 & echo started")); o.Verdict != channel.Success || !strings.Contains(o.Reason, "left behind") {
		t.Errorf("a process that was left behind: %+v", o)
	}
}
