package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/effect"
)

func TestEveryChannelsEffectIsShownAsItIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		in   effect.Effect
		want api.Effect
	}{
		"a command on a host": {
			effect.Effect{Channel: effect.SSH, SSH: &effect.SSHCommand{
				Host: effect.SSHHost{User: "ops", Name: "db1.example", Port: 22, Keys: []string{"ssh-ed25519 AAAA"}}, Jump: &effect.SSHHost{User: "ops", Name: "gate.example", Port: 2222},
				Command: "rotate 'a b'", Directory: "/srv", Env: []effect.Field{{Name: "LANG", Value: "C"}}, Stdin: []byte("in"), Marker: &effect.SSHMarker{Keep: 3},
			}},
			api.Effect{Channel: "ssh", Body: "in", Size: 2, SSH: &api.SSH{
				Host: "ssh://ops@db1.example:22", Keys: []string{"ssh-ed25519 AAAA"}, Jump: "ssh://ops@gate.example:2222", Command: "rotate 'a b'", Directory: "/srv",
				Env: []api.Field{{Name: "LANG", Value: "C"}}, Marker: true,
			}},
		},
		"a call of an upstream's tool": {
			effect.Effect{Channel: effect.MCP, MCP: &effect.MCPCall{Upstream: "files", Command: []string{"files", "--root", "/srv"}, Tool: "write", Arguments: []byte(`{"a":1}`)}},
			api.Effect{Channel: "mcp", Body: `{"a":1}`, Size: 7, MCP: &api.MCP{Upstream: "files", Tool: "write", Command: []string{"files", "--root", "/srv"}}},
		},
		"a request with a question for a lost answer": {
			effect.Effect{
				Channel: effect.HTTP, HTTP: &effect.HTTPRequest{Method: "POST", URL: "https://a.example/?x=1", Body: []byte{0xff}}, Auth: &effect.Auth{Credential: "k", Kind: "query", Place: "key"},
				Status: &effect.StatusRequest{HTTP: effect.HTTPRequest{Method: "GET", URL: "https://a.example/s"}, Auth: &effect.Auth{Credential: "k", Kind: "bearer"}},
			},
			api.Effect{Channel: "http", Method: "POST", URL: "https://a.example/?x=1&key=‹credential k›", BodyB64: "/w==", Size: 1, Status: &api.Effect{
				Channel: "http", Method: "GET", URL: "https://a.example/s", Header: []api.Field{{Name: "Authorization", Value: "Bearer ‹credential k›"}},
			}},
		},
	} {
		if diff := cmp.Diff(c.want, control.Effect(c.in)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
