package cli_test

import (
	"strings"
	"testing"

	"singlepass.dev/cmd/spctl/internal/cli"
	"singlepass.dev/daemon/api"
)

func TestACardShowsAllOfACommandAndOfAToolsCall(t *testing.T) {
	var b strings.Builder
	cli.PrintEffect(&b, api.Effect{
		Channel: "ssh", Body: "yes\x1b[2J\n", Size: 8,
		SSH: &api.SSH{Host: "ssh://deploy@db1:22", Jump: "ssh://jump@gate:22", Directory: "/srv", Command: "'./migrate' 'a\nrm -rf /'", Env: []api.Field{{Name: "A", Value: "b"}}},
	})
	for _, want := range []string{"ssh://deploy@db1:22", "ssh://jump@gate:22", "/srv", "A=b", "| './migrate' 'a\n", "| rm -rf /'\n", "| yes"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not show %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a character that moves the cursor is shown as it is")
	}
	b.Reset()
	cli.PrintEffect(&b, api.Effect{Channel: "http", Method: "POST", URL: "https://a.example/jobs", Status: &api.Effect{
		Channel: "http", Method: "GET", URL: "{answer:Location}", Header: []api.Field{{Name: "Authorization", Value: "Bearer ‹credential a›"}}, Within: "https://a.example/jobs",
		Conditions: []api.Condition{{Name: "accepted", When: "status == 202"}, {Name: "not_done", When: "status == 404"}},
	}})
	for _, want := range []string{"asks later\tGET {answer:Location}\n", "\tAuthorization: Bearer ‹credential a›\n", "only within\thttps://a.example/jobs\n", "accepted\tif status == 202\n", "not done\tif status == 404\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("of a status request it does not show %q:\n%s", want, b.String())
		}
	}
	b.Reset()
	cli.PrintEffect(&b, api.Effect{Channel: "mcp", Body: `{"a":1}`, MCP: &api.MCP{Upstream: "bank", Tool: "pay"}})
	if !strings.Contains(b.String(), "pay of bank") || !strings.Contains(b.String(), `| {"a":1}`) {
		t.Errorf("of a tool's call it shows\n%s", b.String())
	}
}
