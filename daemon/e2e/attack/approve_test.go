package attack_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/harden"
)

func init() {
	roles["operator"] = actAsOperator
	roles["tray"] = actAsTray
	roles["replay"] = replay
}

// request asks at the operator's socket with a proof, and says what came back.
func request(method, path, proof, body string) (int, string, error) {
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(os.Getenv("SINGLEPASS_HOME"), "run/operator.sock"))
	}}}
	r, err := http.NewRequest(method, "http://spd"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", proof)
	resp, err := web.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func byPassphrase() string {
	return "Passphrase " + base64.StdEncoding.EncodeToString([]byte(passphrase))
}

// actAsOperator asks for everything that an operator may, with the right passphrase. Its argument is a card.
func actAsOperator(args []string) error {
	unlock := `{"passphrase":"` + base64.StdEncoding.EncodeToString([]byte(passphrase)) + `"}`
	for _, c := range [][3]string{
		{"POST", "/v1/approvals/" + args[0], `{"answer":"session"}`},
		{"GET", "/v1/approvals", ""},
		{"GET", "/v1/activity", ""},
		{"POST", "/v1/ticket", ""},
		{"POST", "/v1/vault/unlock", unlock},
		{"GET", "/v1/status", ""},
		{"DELETE", "/v1/credentials/bank", ""},
		{"PUT", "/v1/settings/card_ttl", `{"value":"24h"}`},
		{"POST", "/v1/http-clients", `{"client":"x"}`},
		{"DELETE", "/v1/http-clients/x", ""},
		{"POST", "/v1/http-clients/check", `{"token":"x"}`},
		{"POST", "/v1/journal/accept", `{"reason":"x"}`},
	} {
		status, body, err := request(c[0], c[1], byPassphrase(), c[2])
		if err != nil {
			return err
		}
		if status != 403 || !strings.Contains(body, string(api.CodeAgentCaller)) {
			return fmt.Errorf("%s %s: %d %s", c[0], c[1], status, body)
		}
	}
	return nil
}

// actAsTray is a program of the person's that stays: it earns a ticket, shows it, as no program of ours would, and uses it whenever it is told to.
func actAsTray([]string) error {
	if err := harden.Close(); err != nil { // as the tray does: the daemon cannot see its executable
		return err
	}
	status, body, err := request("POST", "/v1/ticket", byPassphrase(), "")
	var ticket api.Ticket
	if err := errors.Join(err, json.Unmarshal([]byte(body), &ticket)); err != nil || status != 200 {
		return fmt.Errorf("earning a ticket: %d %s %w", status, body, err)
	}
	text := base64.StdEncoding.EncodeToString(ticket.Ticket)
	fmt.Println("ticket", text)
	orders := make([]byte, 1)
	for {
		if _, err := os.Stdin.Read(orders); err != nil {
			return nil
		}
		status, body, err := request("GET", "/v1/approvals", "Ticket "+text, "")
		fmt.Println("used", status, strings.TrimSpace(body), err)
	}
}

// replay uses a ticket that another process earned.
func replay(args []string) error {
	for _, c := range [][3]string{{"GET", "/v1/approvals", ""}, {"POST", "/v1/approvals/" + args[1], `{"answer":"once"}`}} {
		status, body, err := request(c[0], c[1], "Ticket "+args[0], c[2])
		if err != nil {
			return err
		}
		if status != 401 && status != 403 {
			return fmt.Errorf("%s %s: %d %s", c[0], c[1], status, body)
		}
		fmt.Println(status, body)
	}
	return nil
}

func TestAnAgentCannotApproveByTheCommandLine(t *testing.T) {
	s := begin(t)
	a := s.agent()
	a.pay("1")
	card := s.card().Card
	spctl := filepath.Join(s.bin, "spctl")
	copied := filepath.Join(s.dir, "copied")
	for name, argv := range map[string][]string{
		"itself":                           {spctl, "approve", card, "--session"},
		"through a shell":                  {"/bin/sh", "-c", spctl + " approve " + card + " --once"},
		"in a new session of its terminal": {"/usr/bin/setsid", "--wait", spctl, "approve", card, "--once"},
		"by a copy":                        {"/bin/sh", "-c", "cp " + spctl + " " + filepath.Dir(spctl) + "/spd " + s.dir + "; mv " + s.dir + "/spctl " + copied + "; exec " + copied + " approve " + card + " --once"},
		"unlocking":                        {spctl, "unlock"},
		"reading":                          {spctl, "activity"},
		"its contract":                     {spctl, "action", "remove", "pay"},
	} {
		if r := a.runs(argv...); r.Status == 0 || r.Status != 4 && r.Status != 69 {
			t.Errorf("%s: exit status %d\n%s", name, r.Status, r.Out)
		}
	}
	s.log.wait("an agent's process asked at the operator socket")
	s.wantActed(0)
	if got := s.card().Card; got != card {
		t.Errorf("the card %s is gone, there is %s", card, got)
	}
}

func TestAnAgentCannotApproveByTheSocketEvenWithThePassphrase(t *testing.T) {
	s := begin(t)
	a := s.agent()
	a.pay("1")
	card := s.card().Card
	if r := a.does("operator " + card); r.Status != 0 {
		t.Errorf("the agent itself: %s", r.Out)
	}
	a.order(order{Run: []string{filepath.Join(s.bin, "agent")}, Env: []string{"ATTACK_ROLE=operator " + card}})
	if r := a.reported(); r.Status != 0 {
		t.Errorf("its child: %s", r.Out)
	}
	s.wantActed(0)
}

func TestATicketIsWorthNothingToAnotherProcess(t *testing.T) {
	s := begin(t)
	a := s.agent()
	a.pay("1")
	card := s.card().Card
	tray := s.command("agent")
	tray.Env = append(tray.Env, "ATTACK_ROLE=tray")
	stdin, err := tray.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := tray.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	says := collect(t, tray, stdout)
	ticket := strings.TrimPrefix(says.wait("ticket "), "ticket ")
	use := func() string {
		t.Helper()
		if _, err := io.WriteString(stdin, "."); err != nil {
			t.Fatal(err)
		}
		return says.wait("used ")
	}
	if l := use(); !strings.HasPrefix(l, "used 200 ") {
		t.Fatalf("its owner: %s", l)
	}
	stranger := s.command("agent")
	stranger.Env = append(stranger.Env, "ATTACK_ROLE=replay "+ticket+" "+card)
	if out, status := run(stranger); status != 0 || !strings.Contains(out, string(api.CodeProofWrong)) {
		t.Errorf("a stranger: %s", out)
	}
	if r := a.does("replay " + ticket + " " + card); r.Status != 0 {
		t.Errorf("an agent: %s", r.Out)
	}
	if l := use(); !strings.HasPrefix(l, "used 200 ") {
		t.Errorf("its owner, after others tried: %s", l)
	}
	if r := s.status().Refused; r == nil || r.WrongProofs < 2 || r.Agents < 2 {
		t.Errorf("the person is shown %+v", r)
	}
	s.spctl("lock")
	if l := use(); !strings.HasPrefix(l, "used 401 ") {
		t.Errorf("after a lock: %s", l)
	}
	s.wantActed(0)
}
