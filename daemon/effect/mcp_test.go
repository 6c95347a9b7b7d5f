package effect_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"reflect"
	"strings"
	"testing"

	"singlepass.dev/daemon/effect"
)

func wholeMCP() effect.Effect {
	return effect.Effect{
		Channel: effect.MCP,
		MCP: &effect.MCPCall{
			Upstream: "bank", Identity: "sha256:0f", Command: []string{"/usr/bin/node", "/srv/bank.mjs"}, Tool: "charge", Pin: "sha256:1e",
			Arguments: []byte(`{"amount":9007199254740991,"note":"<é> & more"}`),
		},
	}
}

// As for HTTP: written once, never regenerated.
func TestAnMCPCallIsFrozenInVersionOne(t *testing.T) {
	vector, err := os.ReadFile("testdata/v1-mcp.json")
	if err != nil {
		t.Fatal(err)
	}
	vector = bytes.TrimSuffix(vector, []byte("\n"))
	digest, err := os.ReadFile("testdata/v1-mcp.sha256")
	if err != nil {
		t.Fatal(err)
	}
	got, err := wholeMCP().Encode()
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
	if !reflect.DeepEqual(back, wholeMCP()) {
		t.Errorf("decoded %+v", back)
	}
	sum, err := wholeMCP().Digest()
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(sum[:]) != strings.TrimSpace(string(digest)) {
		t.Errorf("digest %x, frozen %s", sum, digest)
	}
}

// As for HTTP: written once, never regenerated.
func TestAReadingIsFrozenInVersionOne(t *testing.T) {
	e := wholeMCP()
	e.MCP.Tool, e.MCP.Pin, e.MCP.Method, e.MCP.Arguments = "", "", "resources/read", []byte(`{"uri":"file:///a"}`)
	const want = `{"channel":"mcp","mcp":{"upstream":"bank","identity":"sha256:0f","command":["/usr/bin/node","/srv/bank.mjs"],"tool":"","pin":"","arguments":"eyJ1cmkiOiJmaWxlOi8vL2EifQ==","method":"resources/read"}}`
	got, err := e.Encode()
	if err != nil || string(got) != want {
		t.Errorf("encoded:\n%s\nfrozen:\n%s (%v)", got, want, err)
	}
	if back, err := effect.Decode([]byte(want)); err != nil || !reflect.DeepEqual(back, e) {
		t.Errorf("decoded %+v (%v)", back, err)
	}
}

func TestTheTargetOfAnMCPCallIsItsUpstreamAndTool(t *testing.T) {
	e := wholeMCP()
	e.MCP.Tool = "a b/c"
	if got := e.Target(); got != "mcp://bank/a%20b%2Fc" {
		t.Error(got)
	}
}

func TestAnMCPCallThatCannotBeSentAsItIsIsRefused(t *testing.T) {
	for name, change := range map[string]func(*effect.MCPCall){
		"no upstream":            func(m *effect.MCPCall) { m.Upstream = "" },
		"no identity":            func(m *effect.MCPCall) { m.Identity = "" },
		"no tool":                func(m *effect.MCPCall) { m.Tool = "" },
		"no pin":                 func(m *effect.MCPCall) { m.Pin = "" },
		"two places":             func(m *effect.MCPCall) { m.URL = "https://a.example/mcp" },
		"no arguments":           func(m *effect.MCPCall) { m.Arguments = nil },
		"arguments are a list":   func(m *effect.MCPCall) { m.Arguments = []byte(`[]`) },
		"two values":             func(m *effect.MCPCall) { m.Arguments = []byte(`{}{}`) },
		"line break":             func(m *effect.MCPCall) { m.Arguments = []byte("{\n}") },
		"not UTF-8":              func(m *effect.MCPCall) { m.Arguments = []byte("{\"a\":\"\xff\"}") },
		"control in the name":    func(m *effect.MCPCall) { m.Tool = "a\x1bb" },
		"not UTF-8 in a command": func(m *effect.MCPCall) { m.Command = []string{"\xff"} },
	} {
		e := wholeMCP()
		change(e.MCP)
		if b, err := e.Encode(); err == nil {
			t.Errorf("%s: encoded as %s", name, b)
		}
	}
}
