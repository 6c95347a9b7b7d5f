package policy_test

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

func genericCommand(t *testing.T) *policy.Action {
	t.Helper()
	a, err := policy.GenericSSH("db")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The digest stands in journals: what was run is matched under it for ever.
func TestTheDigestOfGenericCommandsIsFrozen(t *testing.T) {
	c := genericCommand(t).Contract()
	if want := policy.Digest([]byte(`{"singlepass_generic":1,"tool":"ssh_run","credential":"db","class":"irreversible"}`)); c.Digest != want {
		t.Errorf("it is %s", c.Digest)
	}
	if c.Replay.Class != execution.Irreversible || !c.Approval.PerUse || c.Replay.Attempts != 1 {
		t.Errorf("a command is %+v, %+v", c.Replay, c.Approval)
	}
}

func TestAGenericCommandIsItsWordsEachOfThemData(t *testing.T) {
	a := genericCommand(t)
	for arguments, want := range map[string]effect.SSHCommand{
		`{"host":"ssh://deploy@DB1.example","command":["./migrate","--to","2; rm -rf /"]}`: {
			Host: effect.SSHHost{User: "deploy", Name: "db1.example", Port: 22}, Command: `'./migrate' '--to' '2; rm -rf /'`,
		},
		`{"host":"ssh://deploy@[2001:DB8:0::1]:2222","command":["sh","-c","echo \"$1\" | wc","sh","it's"],"directory":"/srv/my app","stdin":"yes\n"}`: {
			Host: effect.SSHHost{User: "deploy", Name: "2001:db8::1", Port: 2222}, Command: `'sh' '-c' 'echo "$1" | wc' 'sh' 'it'\''s'`, Directory: "/srv/my app", Stdin: []byte("yes\n"),
		},
		`{"host":"ssh://deploy@db1.example:22","command":["A=b","-x",""],"credential":"db"}`: {
			Host: effect.SSHHost{User: "deploy", Name: "db1.example", Port: 22}, Command: `'A=b' '-x' ''`,
		},
	} {
		p, err := a.Prepare(json.RawMessage(arguments))
		if err != nil {
			t.Errorf("%s: %v", arguments, err)
			continue
		}
		e, err := a.Render(p, "act_x")
		if err != nil {
			t.Errorf("%s: %v", arguments, err)
			continue
		}
		c := e.SSH
		if e.Channel != effect.SSH || e.Auth.Credential != "db" || c.Host.Address() != want.Host.Address() || c.Command != want.Command || c.Directory != want.Directory ||
			string(c.Stdin) != string(want.Stdin) || c.Env != nil || c.Marker != nil || c.Jump != nil || c.Host.Keys != nil {
			t.Errorf("%s: %+v", arguments, c)
		}
		if hosts := a.Hosts(p); len(hosts) != 1 || hosts[0].Address() != want.Host.Address() {
			t.Errorf("%s: it goes to %+v", arguments, hosts)
		}
		if _, err := e.Encode(); err != nil {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

func TestAGenericCommandThatCannotBeRunAsWrittenIsRefused(t *testing.T) {
	a := genericCommand(t)
	on := func(host string) string { return `{"host":"` + host + `","command":["id"]}` }
	with := func(more string) string { return `{"host":"ssh://deploy@h.example","command":["id"]` + more + `}` }
	words := func(list string) string { return `{"host":"ssh://deploy@h.example","command":` + list + `}` }
	for arguments, says := range map[string]string{
		on("h.example"):                        "no account on a host",
		on("https://deploy@h.example"):         "no account on a host",
		on("ssh:deploy@h.example"):             "no account on a host",
		on("ssh://h.example"):                  "names no account",
		on("ssh://-oProxyCommand=x@h.example"): "names no account",
		on("ssh://u:hunter2@h.example"):        "it has a password in it",
		on("ssh://u@h.example/"):               "something follows",
		on("ssh://u@h.example?x"):              "something follows",
		on("ssh://u@h.example#x"):              "something follows",
		on("ssh://u@h.example:"):               "its host is none",
		on("ssh://u@h.example:0"):              "its host is none",
		on("ssh://u@h.example:65536"):          "its host is none",
		on("ssh://u@-x"):                       "its host is none",
		words(`"id; id"`):                      "/command",
		words(`[]`):                            "/command",
		words(`[1]`):                           "/command",
		words(`[""]`):                          "names no program",
		words(`["id","a\u0000b"]`):             "/command/1: it has a NUL",
		with(`,"directory":"srv"`):             "not absolute",
		with(`,"directory":""`):                "not absolute",
		with(`,"directory":"/srv/../etc"`):     "moves to another folder",
		with(`,"directory":"/srv\n/x"`):        "control character",
		with(`,"env":{"A":"b"}`):               "env",
		with(`,"jump":"ssh://a@b"`):            "jump",
		`{"command":["id"]}`:                   "host",
		`{"host":"ssh://deploy@h.example"}`:    "command",
	} {
		_, err := a.Prepare(json.RawMessage(arguments))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

func TestTheFingerprintOfAGenericCommandIsThatOfTheWholeCommand(t *testing.T) {
	a := genericCommand(t)
	of := func(arguments string) string {
		p, err := a.Prepare(json.RawMessage(arguments))
		if err != nil {
			t.Fatalf("%s: %v", arguments, err)
		}
		return a.Fingerprint(func(b []byte) [32]byte { return sha256.Sum256(b) }, p, "exe:/a", "run:1")
	}
	const one = `{"host":"ssh://u@h.example","command":["a","b c"],"directory":"/srv","stdin":"x"}`
	for _, same := range []string{
		`{"stdin":"x","directory":"/srv","command":["a","b c"],"host":"ssh://u@H.example:22"}`, strings.Replace(one, `{"host"`, `{"credential":"db","intent_key":"k","host"`, 1),
	} {
		if of(same) != of(one) {
			t.Errorf("another intent: %s", same)
		}
	}
	for old, with := range map[string]string{
		"u@h": "v@h", "h.example": "h2.example", `h.example"`: `h.example:23"`, `"b c"`: `"b","c"`, "/srv": "/srv2", `,"directory":"/srv"`: "", `"x"`: `"y"`,
	} {
		if other := strings.Replace(one, old, with, 1); of(other) == of(one) {
			t.Errorf("the same intent: %s", other)
		}
	}
}
