package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/egress"
)

func TestThroughAJumpHostACommandRunsOnceAndItsLostResultIsRecovered(t *testing.T) {
	t.Parallel()
	m := newHostWith(t, "", true)
	m.agreeable()
	c := m.agent(clientKinds[4], "stdio")
	migrate := func(version string) request {
		return request{tool: "migrate", args: map[string]any{"version": version}}
	}
	call := c.call(migrate("v1"))
	m.begun()("well")
	m.wantMigrated(must(t, call()), "v1", "well")
	if m.jump.Connections() != 1 || m.sshd.Connections() != 1 {
		t.Errorf("%d connections came to the jump host and %d to the host, not one each", m.jump.Connections(), m.sshd.Connections())
	}

	// The way through it is lost in the middle; the host itself goes on.
	call = c.call(migrate("v2"))
	proceed := m.begun()
	m.jump.Kill()
	proceed("after all")
	m.wantMigrated(must(t, call()), "v2", "after all")
	m.wantRuns("v2", 1)

	// A jump host that is not known is connected to as little as any other.
	m.spctl("host", "remove", m.jump.Address())
	before := m.jump.Connections() + m.sshd.Connections()
	unknown := c.mustCall(migrate("v3"))
	if !unknown.IsError || !strings.Contains(string(unknown.raw), "spctl host add "+m.jump.Address()) || m.jump.Connections()+m.sshd.Connections() != before {
		t.Errorf("of an unknown jump host the agent is told %s", unknown.raw)
	}
	m.wantRuns("v3", 0)
}

func TestAPasswordOpensAnAccountAndReachesNobodyElse(t *testing.T) {
	t.Parallel()
	m := newHostWith(t, canary, false)
	m.agreeable()
	c := m.agent(clientKinds[4], "stdio")
	once := func(version string) request {
		return request{tool: "migrate_once", args: map[string]any{"version": version}}
	}
	call := c.call(once("v1"))
	m.begun()("well")
	m.wantMigrated(must(t, call()), "v1", "well")

	// A wrong one is proof that nothing was sent.
	m.spctl("credential", "rotate", "db", "--value-file", m.write("wrong", canary+"-wrong\n"))
	m.wipe("wrong")
	r := c.mustCall(once("v2"))
	if said := r.meta(t); !r.IsError || said.State != "not_sent" || !strings.Contains(string(r.raw), "does not let "+m.sshd.User+" in") {
		t.Errorf("of a wrong password the agent is told %+v: %s", said, r.raw)
	}
	m.wantRuns("v2", 0)
	wantClean(t, map[string][]byte{"the agent's answer": r.raw})
	wantClean(t, filesBelow(t, m.dir, logDir(t)))
}

// atTerminal runs spctl at a terminal of its own, and answers its question.
func (s *stand) atTerminal(question, answer string, args ...string) (said string, status int) {
	s.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer master.Close()
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := s.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	_ = slave.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	var all strings.Builder
	asked := false
	for b := make([]byte, 4096); ; {
		n, err := master.Read(b) // ends with an error when nobody has the terminal open any more
		all.Write(b[:n])
		if !asked && strings.Contains(all.String(), question) {
			asked = true
			_, _ = io.WriteString(master, answer+"\n")
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
	if !asked {
		s.t.Errorf("it did not ask %q: %s", question, all.String())
	}
	return all.String(), cmd.ProcessState.ExitCode()
}

func TestAHostIsAskedForItsKeysAndPinnedOnlyByThePersonsWord(t *testing.T) {
	t.Parallel()
	m := newMigration(t)
	c := m.agent(clientKinds[4], "stdio")
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(m.sshd.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	fingerprint, address := ssh.FingerprintSHA256(key), m.sshd.Address()
	m.spctl("host", "remove", address)
	known := func() bool { return strings.Contains(m.spctl("host", "list"), fingerprint) }

	// Without a terminal nobody can say that it is the right one.
	alone := m.command("host", "add", address)
	alone.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if out, err := alone.CombinedOutput(); err == nil || !strings.Contains(string(out), fingerprint) || !strings.Contains(string(out), "--fingerprint") || known() {
		t.Errorf("without a terminal: %v: %s", err, out)
	}
	if out, err := m.command("host", "add", address, "--fingerprint", "SHA256:of-another-host").CombinedOutput(); err == nil || !strings.Contains(string(out), "nothing was pinned") || known() {
		t.Errorf("with another fingerprint: %v: %s", err, out)
	}
	question := "Are these the fingerprints of " + address + "? [y/N]"
	if said, status := m.atTerminal(question, "n", "host", "add", address); status == 0 || !strings.Contains(said, fingerprint+" (ssh-ed25519)") || known() {
		t.Errorf("after a no: exit status %d: %s", status, said)
	}
	if r := c.mustCall(request{tool: "migrate_once", args: map[string]any{"version": "v1"}}); !r.IsError {
		t.Errorf("a host that nobody vouched for was used: %s", r.raw)
	}
	if said, status := m.atTerminal(question, "y", "host", "add", address); status != 0 || !strings.Contains(said, "added "+address) || !known() {
		t.Errorf("after a yes: exit status %d: %s", status, said)
	}
	call := c.call(request{tool: "migrate_once", args: map[string]any{"version": "v2"}})
	m.begun()("well")
	m.wantMigrated(must(t, call()), "v2", "well")
	m.wantRuns("v1", 0)
	m.spctl("host", "remove", address)
	m.spctl("host", "add", address, "--fingerprint", fingerprint)
	if !known() {
		t.Error("a script that expects the right fingerprint pins nothing")
	}
}

// privateName is a name of this machine that does not say so itself, and a listener where it leads.
func privateName(t *testing.T) (string, net.Listener) {
	t.Helper()
	own, _ := os.Hostname()
	for _, name := range []string{own, "ip6-localhost", "ip6-loopback"} {
		addresses, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", name)
		if err != nil || len(addresses) == 0 || name == "localhost" {
			continue
		}
		private := true
		for _, a := range addresses {
			private = private && egress.IsPrivate(a.Unmap())
		}
		if l, err := net.Listen("tcp", netip.AddrPortFrom(addresses[0].Unmap(), 0).String()); err == nil {
			if private {
				return name, l
			}
			_ = l.Close()
		}
	}
	t.Skip("no name leads to this machine alone: /etc/hosts has neither its own nor ip6-localhost")
	return "", nil
}

func TestANameThatLeadsIntoAPrivateNetworkNeedsThePersonsLeave(t *testing.T) {
	t.Parallel()
	name, l := privateName(t)
	got := make(chan string, 8)
	api := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		_, _ = io.WriteString(w, "done")
	})}}
	api.Start()
	t.Cleanup(api.Close)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	target := "http://" + net.JoinHostPort(name, port) + "/"

	s := newStand(t, option{})
	s.agreeable()
	s.spctl("credential", "add", "inside", "--kind", "bearer", "--target", target, "--allow-plaintext", "--generic", "--value-file", s.write("value", canary))
	s.wipe("value")
	c := s.agent(clientKinds[4], "stdio")
	post := func(body string) *result {
		return c.mustCall(request{tool: "http_request", args: map[string]any{"method": "POST", "url": target + "orders", "body": body}})
	}
	refused := post("one")
	if said := refused.meta(t); !refused.IsError || said.State != "not_sent" || !strings.Contains(string(refused.raw), "--allow-private") || len(got) != 0 {
		t.Errorf("without leave the agent is told %+v, and %d requests came: %s", said, len(got), refused.raw)
	}
	s.spctl("credential", "change", "inside", "--allow-private")
	if shown := s.spctl("credential", "show", "inside"); !strings.Contains(shown, "private networks") {
		t.Errorf("the leave is not shown: %s", shown)
	}
	if r := post("two"); r.IsError || len(got) != 1 || <-got != "Bearer "+canary {
		t.Errorf("with leave the agent is told %s", r.raw)
	}
	s.spctl("credential", "change", "inside", "--allow-private=false")
	if r := post("three"); !r.IsError || len(got) != 0 {
		t.Errorf("after the leave was taken back the agent is told %s", r.raw)
	}
}

func TestAnUpstreamOverHTTPGetsAnAccessTokenAndAnotherWhenItExpires(t *testing.T) {
	t.Parallel()
	tokens := &issuer{refresh: firstRefresh, life: 3600}
	endpoint := httptest.NewServer(tokens)
	t.Cleanup(endpoint.Close)

	s := newStand(t, option{})
	s.agreeable()
	server := start(t, "charge-server", node(t, "charge-server.mjs", s.target.url, "http"), false)
	var ready struct{ URL string }
	server.next("ready", event("ready")).into(t, &ready)
	behind, err := url.Parse(ready.URL)
	if err != nil {
		t.Fatal(err)
	}
	// What stands before the upstream lets in whoever has the token of now.
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: behind.Scheme, Host: behind.Host}) }, FlushInterval: -1}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed := false
		tokens.change(func() { allowed = tokens.valid != "" && r.Header.Get("Authorization") == "Bearer "+tokens.valid })
		if !allowed {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)

	s.spctl("credential", "add", "bank-token", "--kind", "oauth2", "--target", front.URL+"/mcp", "--token-url", endpoint.URL+"/token", "--client-id", "agent",
		"--grant", "refresh_token", "--client-auth", "post", "--value-file", s.write("value", "client_secret='"+clientSecret+"'\nrefresh_token='"+firstRefresh+"'\n"))
	s.wipe("value")
	s.spctl("upstream", "add", "bank", "--url", front.URL+"/mcp", "--credential", "bank-token")
	s.spctl("upstream", "accept", "bank", "--tool", "charge", "--approval", "session")
	c := s.agent(clientKinds[0], "stdio")
	charge := func(order string) *result {
		t.Helper()
		r := c.mustCall(request{tool: "bank.charge", args: args(order)})
		if strings.Contains(string(r.raw), "canary") {
			t.Errorf("the agent sees a secret: %s", r.raw)
		}
		return r
	}
	if r := charge("A-1"); r.IsError || r.receipt() == "" {
		t.Errorf("the agent is told %s", r.raw)
	}
	first, _ := tokens.state()

	// It is no longer taken: a known outcome, after which another one is got. Nothing is sent again by itself.
	tokens.change(func() { tokens.valid = "" })
	if r := charge("A-2"); !r.IsError || !strings.Contains(string(r.raw), "401") {
		t.Errorf("of a token that is no longer taken the agent is told %s", r.raw)
	}
	s.target.wantEffects(t, "A-2", 0)
	if r := charge("A-3"); r.IsError || r.receipt() == "" {
		t.Errorf("with another token the agent is told %s", r.raw)
	}
	if n, _ := tokens.state(); n != first+1 {
		t.Errorf("%d tokens were got, not %d", n, first+1)
	}

	// From here on each is past its time as soon as it was used: every call gets its own.
	tokens.change(func() { tokens.valid, tokens.life = "", 0 })
	charge("A-4")
	for _, order := range []string{"A-5", "A-6"} {
		if r := charge(order); r.IsError {
			t.Errorf("%s: the agent is told %s", order, r.raw)
		}
	}
	for order, n := range map[string]int{"A-1": 1, "A-3": 1, "A-4": 0, "A-5": 1, "A-6": 1} {
		s.target.wantEffects(t, order, n)
	}
	wantClean(t, filesBelow(t, s.dir, logDir(t)))
}
