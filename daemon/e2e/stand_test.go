package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/e2e/ledger"
)

// canary is the credential of every test here. It may be seen by the target, and by nobody else.
const canary = "canary-not-a-secret-7Qm+/=\"&%x"

// stand is one Singlepass home with its daemon, its target, and its operator.
type stand struct {
	owner  *testing.T // what the processes live as long as
	t      *testing.T // what is tested now
	target *target
	bin    string // of spctl
	dir    string
	home   string
	env    []string
	spd    *process
	mcpURL string

	cards *process // spctl approvals --follow --json
	tape  *process // spctl activity --follow --json

	began time.Time // of what is tested now; older records are not about it
}

type option struct {
	config  string            // config.yaml
	actions map[string]string // name: contract with {target}; nil: the usual ones
	extra   map[string]string // contracts that are written but not accepted
	keyring bool              // a vault whose device secret lies in a real keyring
}

// usualActions are one action of each class that matters here. {target} is the ledger.
var usualActions = map[string]string{
	"charge_once": charge("charge_once", "/ignores/charge", "class: irreversible\n  attach_window: 1h"),
	"charge_keyed": charge("charge_keyed", "/honours/charge",
		"class: idempotent\n  idempotency_header: Idempotency-Key\n  key_lifetime: 24h\n  attach_window: 1h"),
	"balance": `action: balance
title: Read the balance
description: Reads the balance of the account.
channel: http
input: {type: object, properties: {account: {type: string, default: main}}, additionalProperties: false}
credential: ledger
approval: session
http: {method: GET, url: "{target}/balance"}
replay: {class: read_only}
`,
}

func charge(name, path, replay string) string {
	return fmt.Sprintf(`action: %s
title: Charge an account
description: Charges one order to the account.
channel: http
input:
  type: object
  properties:
    order: {type: string}
    amount: {type: integer, minimum: 1}
  required: [order, amount]
  additionalProperties: false
credential: ledger
approval: session
http:
  method: POST
  url: "{target}%s"
  json: {order: "{order}", amount: "{amount}"}
replay:
  %s
`, name, path, replay)
}

// newStand starts a target and a daemon on a new home, with an unlocked vault, a credential and accepted contracts.
func newStand(t *testing.T, o option) *stand {
	t.Helper()
	dir, err := os.MkdirTemp("", "sp-") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &stand{owner: t, t: t, dir: dir, home: filepath.Join(dir, "h"), target: startTarget(t), bin: build(t, "singlepass.dev/cmd/spctl")}
	s.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8"}
	if o.keyring {
		s.env = startKeyring(t, dir)
	}
	s.env = append(s.env, "SINGLEPASS_PASSPHRASE_FILE="+filepath.Join(dir, "passphrase"))
	s.write("passphrase", "correct horse battery staple e2e\n")
	actions := filepath.Join(s.home, "config", "actions")
	if err := os.MkdirAll(actions, 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("h/config/config.yaml", o.config)
	contracts := o.actions
	if contracts == nil {
		contracts = usualActions
	}
	accept := []string{"action", "accept"}
	for name, text := range contracts {
		accept = append(accept, s.write("h/config/actions/"+name+".yaml", strings.ReplaceAll(text, "{target}", s.target.url)))
	}
	for name, text := range o.extra {
		s.write("h/config/actions/"+name+".yaml", strings.ReplaceAll(text, "{target}", s.target.url))
	}

	s.startDaemon()
	if o.keyring {
		s.spctl("init")
	} else {
		s.spctl("init", "--no-keyring")
	}
	if s.status().Vault != "unlocked" {
		s.spctl("unlock")
	}
	secret := s.write("secret", canary)
	s.spctl("credential", "add", "ledger", "--kind", "bearer", "--target", s.target.url, "--value-file", secret)
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	s.spctl(accept...)
	s.watch()
	return s
}

func (s *stand) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// wipe removes a file with a secret, as a person does that was told to.
func (s *stand) wipe(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
		s.t.Fatal(err)
	}
}

// startDaemon starts spd and waits until it is ready.
func (s *stand) startDaemon() {
	s.t.Helper()
	cmd := exec.Command(build(s.t, "singlepass.dev/cmd/spd"), "--home", s.home, "--mcp-http", "127.0.0.1:0")
	cmd.Env = s.env
	s.spd = start(s.owner, "spd", cmd, true)
	s.spd.t = s.t
	var ready map[string]any
	s.spd.next("ready", func(l line) bool { return l.Msg == "ready" }).into(s.t, &ready)
	for _, v := range ready {
		if url, ok := v.(string); ok && strings.HasPrefix(url, "http://") {
			s.mcpURL = url
		}
	}
	if s.mcpURL == "" {
		s.t.Fatalf("spd is ready without an MCP URL: %v", ready)
	}
}

// watch follows the cards and the activity of the running, unlocked daemon.
func (s *stand) watch() {
	s.t.Helper()
	s.cards = start(s.owner, "approvals", s.command("approvals", "--follow", "--json"), false)
	s.tape = start(s.owner, "activity", s.command("activity", "--follow", "--json"), false)
	s.cards.t, s.tape.t = s.t, s.t
}

// killDaemon kills spd with SIGKILL; restart brings it back, unlocked.
func (s *stand) killDaemon() {
	s.spd.kill()
	<-s.cards.exit
	<-s.tape.exit
}

func (s *stand) restart() {
	s.t.Helper()
	s.startDaemon()
	s.spctl("unlock")
	s.watch()
}

func (s *stand) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.bin, append([]string{"--home", s.home}, args...)...)
	cmd.Env = s.env
	return cmd
}

// spctl runs the operator's command, which must succeed.
func (s *stand) spctl(args ...string) string {
	s.t.Helper()
	out, errs, status := run(s.t, s.command(args...))
	if status != 0 {
		s.t.Fatalf("spctl %s: exit status %d\n%s%s", strings.Join(args, " "), status, out, errs)
	}
	return out
}

func (s *stand) status() (st api.Status) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.spctl("status", "--json")), &st); err != nil {
		s.t.Fatal(err)
	}
	return st
}

// about makes t the test that this stand is used for from now on. Records of before are not about it.
func (s *stand) about(t *testing.T) {
	s.t, s.began = t, time.Now()
	for _, p := range []*process{s.target.process, s.spd, s.cards, s.tape} {
		p.t = t
	}
	s.target.release()
	s.target.next("acknowledgement", event("done"))
}

// record waits until the journal has a record that matches, of an execution that was accepted in this test.
func (s *stand) record(what string, match func(api.Record) bool) api.Record {
	s.t.Helper()
	var r api.Record
	from := 0
	_, err := s.tape.scan("record: "+what, &from, func(l line) bool {
		r = api.Record{}
		return json.Unmarshal([]byte(l.raw), &r) == nil && r.AcceptedAt.After(s.began) && match(r)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// records returns the newest record of each execution, in no order.
func (s *stand) records() map[string]api.Record {
	s.t.Helper()
	all := map[string]api.Record{}
	for l := range strings.Lines(s.spctl("activity", "--json")) {
		var r api.Record
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			s.t.Fatalf("reading activity %q: %v", l, err)
		}
		all[r.ExecutionID] = r
	}
	return all
}

// nextCard waits for a card that has not been seen yet.
func (s *stand) nextCard() api.Card {
	s.t.Helper()
	var e api.CardEvent
	s.cards.next("card", func(l line) bool { return isNewCard(l, &e) }).into(s.t, &e)
	return e.Card
}

func isNewCard(l line, e *api.CardEvent) bool {
	*e = api.CardEvent{}
	return json.Unmarshal([]byte(l.raw), e) == nil && (e.Event == "waiting" || e.Event == "added")
}

// agreeable makes the operator approve whatever is asked, for the session. It is the worst case for "one effect": nothing is held back by
// a person.
func (s *stand) agreeable() {
	follow, from := s.cards, 0
	go func() {
		for {
			var e api.CardEvent
			if _, err := follow.scan("card", &from, func(l line) bool { return isNewCard(l, &e) }); err != nil {
				select {
				case <-follow.exit:
					return
				default:
					continue // no card for a long time is nothing special
				}
			}
			how := "--once"
			if slices.Contains(e.Answers, "session") {
				how = "--session"
			}
			_ = s.command("approve", e.Card.Card, how).Run() // a card that stays makes its test fail, by its time limit
		}
	}()
}

// stdio and http say how an agent reaches this Singlepass.
func (s *stand) stdio() server {
	return server{Command: s.bin, Args: []string{"--home", s.home, "mcp"}}
}

func (s *stand) http() server { return server{URL: s.mcpURL, Token: s.token()} }

// token is that of the clients that come over HTTP.
func (s *stand) token() string {
	s.t.Helper()
	path := filepath.Join(s.dir, "e2e.token")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.spctl("connect", "e2e", "--http", "--token-file", path)
		b, err = os.ReadFile(path)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (s *stand) server(transport string) server {
	if transport == "http" {
		return s.http()
	}
	return s.stdio()
}

// agent starts a client, connects it, and lets the operator authorize its run.
func (s *stand) agent(kind clientKind, transport string) *client {
	s.t.Helper()
	c := startClient(s.t, kind)
	if r := c.connect(s.server(transport)); r.Server != "singlepass" {
		s.t.Errorf("the server calls itself %q", r.Server)
	}
	if r := c.mustCall(request{tool: "balance", args: map[string]any{}}); r.IsError || !strings.Contains(string(r.raw), "250") {
		s.t.Fatalf("the first call of the run got no balance: %s", r.raw)
	}
	return c
}

// wantReceipt says that the agent was shown the receipt of an effect that the ledger has.
func (s *stand) wantReceipt(r *result) {
	s.t.Helper()
	receipt := r.receipt()
	for _, e := range s.target.entries(ledger.Effect) {
		if e.Receipt == receipt {
			if sum := sha256.Sum256([]byte("Bearer " + canary)); e.AuthSHA256 != hex.EncodeToString(sum[:]) {
				s.t.Errorf("the target was not sent the credential")
			}
			return
		}
	}
	s.t.Errorf("the agent was shown the receipt %q, which the ledger does not have: %s", receipt, r.raw)
}

func args(order string) map[string]any { return map[string]any{"order": order, "amount": 100} }
