package effect_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"singlepass.dev/daemon/effect"
)

func wholeSSH() effect.Effect {
	return effect.Effect{
		Channel: effect.SSH,
		SSH: &effect.SSHCommand{
			Host:      effect.SSHHost{User: "deploy", Name: "db1.internal.example", Port: 22, Keys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAo="}},
			Jump:      &effect.SSHHost{User: "jump", Name: "2001:db8::1", Port: 2222, Keys: []string{"ssh-rsa AAAAB3NzaC1yc2E="}},
			Command:   `'./migrate' --to 'it'\''s <é>'`,
			Directory: "/srv/app",
			Env:       []effect.Field{{Name: "PGDATABASE", Value: "shop"}},
			Stdin:     []byte("yes\n\x00"),
			Success:   []int{0, 3},
			Marker:    &effect.SSHMarker{Folder: "/var/lib/singlepass", Keep: 7},
		},
		Auth: &effect.Auth{Credential: "db-key", Kind: "ssh-key", Certificate: "ssh-ed25519-cert-v01@openssh.com AAAA"},
	}
}

// Written once, as testdata/v1.json was.
func TestTheFormOfACommandIsFrozen(t *testing.T) {
	vector, err := os.ReadFile("testdata/ssh-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	vector = bytes.TrimSuffix(vector, []byte("\n"))
	digest, err := os.ReadFile("testdata/ssh-v1.sha256")
	if err != nil {
		t.Fatal(err)
	}
	got, err := wholeSSH().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, vector) {
		t.Errorf("encoded:\n%s\nfrozen:\n%s", got, vector)
	}
	back, err := effect.Decode(vector)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, wholeSSH()) {
		t.Errorf("decoded %+v", back)
	}
	sum, err := wholeSSH().Digest()
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(sum[:]) != strings.TrimSpace(string(digest)) {
		t.Errorf("digest %x, frozen %s", sum, digest)
	}
}

func TestEveryPartOfACommandIsInItsDigest(t *testing.T) {
	first, err := wholeSSH().Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*effect.SSHCommand){
		"user":        func(c *effect.SSHCommand) { c.Host.User = "root" },
		"host":        func(c *effect.SSHCommand) { c.Host.Name = "db2.internal.example" },
		"port":        func(c *effect.SSHCommand) { c.Host.Port++ },
		"host key":    func(c *effect.SSHCommand) { c.Host.Keys[0] += "x" },
		"another key": func(c *effect.SSHCommand) { c.Host.Keys = append(c.Host.Keys, "ssh-rsa AAAA") },
		"jump":        func(c *effect.SSHCommand) { c.Jump = nil },
		"jump's key":  func(c *effect.SSHCommand) { c.Jump.Keys[0] += "x" },
		"command":     func(c *effect.SSHCommand) { c.Command += " " },
		"directory":   func(c *effect.SSHCommand) { c.Directory += "/" },
		"variable":    func(c *effect.SSHCommand) { c.Env[0].Name += "X" },
		"its value":   func(c *effect.SSHCommand) { c.Env[0].Value += "x" },
		"stdin":       func(c *effect.SSHCommand) { c.Stdin[0]++ },
		"success":     func(c *effect.SSHCommand) { c.Success[1]++ },
		"marker":      func(c *effect.SSHCommand) { c.Marker = nil },
		"its folder":  func(c *effect.SSHCommand) { c.Marker.Folder += "x" },
		"its days":    func(c *effect.SSHCommand) { c.Marker.Keep++ },
	} {
		e := wholeSSH()
		change(e.SSH)
		if sum, err := e.Digest(); err != nil || sum == first {
			t.Errorf("%s: the digest stays (%v)", name, err)
		}
	}
}

func TestAnImpossibleCommandIsNoEffect(t *testing.T) {
	for name, change := range map[string]func(*effect.Effect){
		"no command":         func(e *effect.Effect) { e.SSH.Command = " " },
		"no user":            func(e *effect.Effect) { e.SSH.Host.User = "" },
		"no host":            func(e *effect.Effect) { e.SSH.Host.Name = "" },
		"port 0":             func(e *effect.Effect) { e.SSH.Host.Port = 0 },
		"a port past 65535":  func(e *effect.Effect) { e.SSH.Jump.Port = 65536 },
		"relative directory": func(e *effect.Effect) { e.SSH.Directory = "app" },
		"variable a=b":       func(e *effect.Effect) { e.SSH.Env[0].Name = "a=b" },
		"status 256":         func(e *effect.Effect) { e.SSH.Success[0] = 256 },
		"NUL":                func(e *effect.Effect) { e.SSH.Command += "\x00" },
		"NUL in a variable":  func(e *effect.Effect) { e.SSH.Env[0].Value = "\x00" },
		"not UTF-8":          func(e *effect.Effect) { e.SSH.Directory += "\xff" },
		"relative folder":    func(e *effect.Effect) { e.SSH.Marker.Folder = "x" },
		"no days":            func(e *effect.Effect) { e.SSH.Marker.Keep = 0 },
		"HTTP with it":       func(e *effect.Effect) { e.Channel = effect.HTTP },
		"nothing":            func(e *effect.Effect) { e.SSH = nil },
	} {
		e := wholeSSH()
		change(&e)
		if b, err := e.Encode(); err == nil {
			t.Errorf("%s: encoded as %s", name, b)
		}
	}
}

func TestTheTargetOfACommandIsItsAccount(t *testing.T) {
	if got := wholeSSH().Target(); got != "ssh://deploy@db1.internal.example:22" {
		t.Error(got)
	}
	if got := wholeSSH().SSH.Jump.Address(); got != "ssh://jump@[2001:db8::1]:2222" {
		t.Error(got)
	}
}

func TestACommandSucceedsByStatusZeroUnlessTheContractListsOthers(t *testing.T) {
	if c := (effect.SSHCommand{}); !c.Succeeded(0) || c.Succeeded(1) {
		t.Error("nothing is listed")
	}
	if c := (effect.SSHCommand{Success: []int{3}}); c.Succeeded(0) || !c.Succeeded(3) {
		t.Error("3 is listed")
	}
}

// shells are the real ones that a quoted word is read by.
func shells(tb testing.TB) map[string][]string {
	found := map[string][]string{}
	for name, command := range map[string][]string{"sh": {"sh"}, "dash": {"dash"}, "bash": {"bash"}, "bash, POSIX": {"bash", "--posix"}, "busybox": {"busybox", "sh"}} {
		if _, err := exec.LookPath(command[0]); err != nil {
			tb.Fatalf("%v: run .ci/setup", err)
		}
		found[name] = command
	}
	return found
}

// nasty are arguments that would be syntax if anything about quoting were wrong.
var nasty = []string{
	"", " ", "a b", "'", "''", "'\\''", `"`, "`id`", "$(id)", "$HOME", "${HOME}", "$((1+1))", "*", "?", "[a-z]*", "~", "~root", "a;id", "a&id", "a|id", "a>b", "a<b", "#c", "!!", "!x", "{a,b}",
	"a\nid\n", "\n", "\r\n", "\t", "\\", "\\\\", "\\'", "-rf", "--", "--help", "a=b", "if", "(", ")", "'; id; '", "'\"'\"'", "\x01\x1b[31m", "é", "日本", "\u2028", "\ufeff", "%s%n", "$'\\x41'", "\\c", "-n", "-e a",
}

func TestNoArgumentIsSyntaxToARealShell(t *testing.T) {
	for name, command := range shells(t) {
		t.Run(name, func(t *testing.T) {
			line := `printf '%s\0'`
			for _, s := range nasty {
				quoted, err := effect.Quote(s)
				if err != nil {
					t.Fatalf("%q: %v", s, err)
				}
				line += " " + quoted
			}
			out, err := exec.Command(command[0], append(command[1:], "-c", line)...).Output()
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.Join(nasty, "\x00") + "\x00"; string(out) != want {
				t.Errorf("the words arrived as\n%q, not\n%q", out, want)
			}
		})
	}
}

func FuzzQuotedTextIsOneWord(f *testing.F) {
	for _, s := range nasty {
		f.Add(s)
	}
	f.Add("\x00")
	f.Add("\xff")
	found := shells(f)
	f.Fuzz(func(t *testing.T, s string) {
		quoted, err := effect.Quote(s)
		if refused := strings.Contains(s, "\x00") || !utf8.ValidString(s); refused != (err != nil) {
			t.Fatalf("%q: %v", s, err)
		}
		if err != nil || len(s) > 1<<16 {
			return
		}
		for name, command := range found {
			out, err := exec.Command(command[0], append(command[1:], "-c", `printf '%s\0' before `+quoted+" after")...).Output()
			if err != nil || string(out) != "before\x00"+s+"\x00after\x00" {
				t.Fatalf("%s: %q became %q (%v)", name, s, out, err)
			}
		}
	})
}
