package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The official suite, as released, against spd over HTTP: its requests are its own, and come from its own process. It cannot be given a token, which with-token.mjs adds. The tools that it calls are those of
// conformance-server.mjs behind the gateway.
func TestTheOfficialConformanceSuiteFindsNothingThatIsNotMeant(t *testing.T) {
	t.Parallel()
	s := newStand(t, option{})
	s.agreeable()
	cmd := node(t, "conformance-server.mjs")
	s.spctl("upstream", "add", "suite", "--dir", absolute(t, nodeDir), "--", "node", cmd.Args[1])
	accept := []string{"action", "accept"}
	const schema = "json_schema_2020_12_tool" // its own schema is what is looked at
	for l := range strings.Lines(s.spctl("upstream", "tools", "suite", "--json")) {
		var tool struct{ Tool, Digest string }
		if err := json.Unmarshal([]byte(l), &tool); err != nil {
			t.Fatal(err)
		}
		if tool.Tool != schema {
			input := map[string]string{"test_sampling": "prompt: {type: string}", "test_elicitation": "message: {type: string}"}[tool.Tool]
			accept = append(accept, s.write("h/config/actions/"+tool.Tool+".yaml", fmt.Sprintf(
				"action: %[1]s\ndescription: The suite's.\nchannel: mcp\ninput: {type: object, properties: {%[3]s}}\napproval: session\nmcp: {upstream: suite, tool: %[1]s, digest: %[2]q}\nreplay: {class: read_only}\n",
				tool.Tool, tool.Digest, input)))
		}
	}
	s.spctl(accept...)
	s.spctl("upstream", "accept", "suite", "--tool", schema, "--as", schema, "--class", "read_only", "--approval", "session")

	s.spctl("upstream", "share", "suite", "--resources", "--prompts", "--approval", "session")

	suite := node(t, "--import", "./with-token.mjs", "node_modules/@modelcontextprotocol/conformance/dist/index.js",
		"server", "--url", s.mcpURL, "--suite", "all", "--expected-failures", "conformance-expected.yml")
	suite.Env = append(os.Environ(), "MCP_TOKEN="+s.token())
	out, errs, status := run(t, suite)
	if status != 0 {
		t.Errorf("the suite ended with status %d\n%s%s", status, out, errs)
	}
	// That nothing failed has to mean that it looked.
	for _, scenario := range []string{"server-initialize", "ping", "tools-list", "tools-call-simple-text", "tools-call-error", "tools-call-with-progress", "json-schema-2020-12", "server-sse-multiple-streams", "resources-list", "prompts-list", "dns-rebinding-protection"} {
		if !strings.Contains(out, "✓ "+scenario+": ") {
			t.Errorf("%s did not pass\n%s", scenario, out)
		}
	}
	for _, method := range []string{"sampling/createMessage", "elicitation/create"} {
		from := 0
		if _, err := s.spd.scan("the refusal of "+method, &from, func(l line) bool {
			return l.Msg == "an upstream asked for something that is refused" && strings.Contains(l.raw, method)
		}); err != nil {
			t.Error(err)
		}
	}
}

func TestEachExpectedFailureOfTheConformanceSuiteHasItsReason(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(nodeDir, "conformance-expected.yml"))
	if err != nil {
		t.Fatal(err)
	}
	entry := regexp.MustCompile(`^  - ([a-z0-9-]+) # .{10,}$`)
	var names []string
	for _, l := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		switch m := entry.FindStringSubmatch(l); {
		case m != nil && slices.Contains(names, m[1]):
			t.Errorf("%s stands there twice", m[1])
		case m != nil:
			names = append(names, m[1])
		case !strings.HasPrefix(strings.TrimSpace(l), "#") && l != "server:":
			t.Errorf("an entry without its reason: %q", l)
		}
	}
}

// inspect runs the inspector's command line (what @modelcontextprotocol/inspector --cli starts), each time a process of its own. It is the 1.x line: 2.x asks for a newer Node.js than the other clients here.
func (s *stand) inspect(t *testing.T, args ...string) (out, errs string, status int) {
	t.Helper()
	cmd := node(t, append([]string{"cli.js", "--cli", s.mcpURL, "--transport", "http"}, args...)...)
	cmd.Dir = filepath.Join(nodeDir, "node_modules/@modelcontextprotocol/inspector-cli/build") // it looks for its package.json from where it is started
	return run(t, cmd)
}

func TestTheInspectorListsAndCallsTools(t *testing.T) {
	t.Parallel()
	s := newStand(t, option{})
	s.agreeable()
	token := []string{"--header", "Authorization: Bearer " + s.token()}
	out, errs, status := s.inspect(t, append(token, "--method", "tools/list")...)
	var list struct{ Tools []tool }
	if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 {
		t.Fatalf("tools/list: status %d, %v\n%s%s", status, err, out, errs)
	}
	for _, want := range []string{"charge_once", "balance", "execution_status", "executions_recent"} {
		if !slices.ContainsFunc(list.Tools, func(x tool) bool { return x.Name == want && len(x.InputSchema) > 0 && x.Description != "" }) {
			t.Errorf("%s is not listed: %s", want, out)
		}
	}
	out, errs, status = s.inspect(t, append(token, "--method", "tools/call", "--tool-name", "charge_once", "--tool-arg", "order=I-1", "amount=100")...)
	var r result
	if err := json.Unmarshal([]byte(out), &r); err != nil || status != 0 {
		t.Fatalf("tools/call: status %d, %v\n%s%s", status, err, out, errs)
	}
	s.wantReceipt(&r)
	s.target.wantEffects(t, "I-1", 1)
	// Arguments that the contract does not take are refused in the inspector's own way of saying them.
	out, _, _ = s.inspect(t, append(token, "--method", "tools/call", "--tool-name", "charge_once", "--tool-arg", "order=I-2", "amount=0")...)
	if !strings.Contains(out, "arguments_invalid") {
		t.Errorf("an amount of 0: %s", out)
	}
	s.target.wantEffects(t, "I-2", 0)
	// Without its token it gets nowhere, and says why.
	out, errs, status = s.inspect(t, "--method", "tools/list")
	if status == 0 || !strings.Contains(out+errs, "spctl connect CLIENT --http") {
		t.Errorf("without a token: status %d\n%s%s", status, out, errs)
	}
}
