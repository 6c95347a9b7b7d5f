package policy

import (
	"encoding/json"
	"fmt"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/upstream"
)

// What agents may read of an upstream has no contract in a file: the operator opened the upstream's resources or prompts, and what stands for a contract is made of that. Its names have a slash, which no
// action's has.

const (
	resourceSchema = `{"type":"object","properties":{"uri":{"type":"string"}},"required":["uri"],"additionalProperties":false}`
	promptSchema   = `{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object","additionalProperties":{"type":"string"}}},"required":["name"],"additionalProperties":false}`
)

// SharedName names the action by which something of an upstream is read.
func SharedName(name, method string) string { return name + "/" + method }

// sharedSource is what the digest of such an action is made of.
type sharedSource struct {
	Version  int               `json:"singlepass_upstream_shared"` // 1
	Upstream string            `json:"upstream"`
	Method   string            `json:"method"`
	PerUse   bool              `json:"per_use"`
	Prompts  map[string]string `json:"prompts,omitempty"` // their pins
}

// SharedResources makes the action by which agents read resources of an upstream.
func SharedResources(name string, perUse bool) (*Action, error) {
	return shared(sharedSource{Version: 1, Upstream: name, Method: upstream.ReadResource, PerUse: perUse}, "Read a resource of "+name, resourceSchema)
}

// SharedPrompts makes the action by which agents get prompts of an upstream: those that the operator accepted, as they were described then.
func SharedPrompts(name string, prompts []upstream.Prompt, perUse bool) (*Action, error) {
	src := sharedSource{Version: 1, Upstream: name, Method: upstream.GetPrompt, PerUse: perUse, Prompts: map[string]string{}}
	for _, p := range prompts {
		src.Prompts[p.Name] = p.Pin()
	}
	return shared(src, "Get a prompt of "+name, promptSchema)
}

func shared(src sharedSource, title, schema string) (*Action, error) {
	b, err := json.Marshal(src)
	if err != nil {
		return nil, fmt.Errorf("describing what is read of an upstream: %w", err)
	}
	c := &Contract{
		Action: SharedName(src.Upstream, src.Method), Title: title, Channel: effect.MCP, Digest: Digest(b), Approval: Approval{PerUse: src.PerUse},
		MCP:       &MCP{Upstream: src.Upstream, Method: src.Method, prompts: src.Prompts},
		Replay:    Replay{Class: execution.ReadOnly, AttachWindow: DefaultAttachWindow, AfterDelivery: execution.New, IntentScope: ScopeRun, Attempts: DefaultAttempts},
		Retention: Retention{Result: DefaultRetention},
	}
	if c.input, err = foreignInput(json.RawMessage(schema)); err != nil {
		return nil, err
	}
	c.Input, c.Replay.Fingerprint = c.input.schema, c.input.names()
	return Compile(c)
}

// pinOf returns what the call is held against at the upstream: the pin of a prompt, and nothing for a resource, of which no upstream says beforehand what it is.
func (m *MCP) pinOf(p Prepared) (string, *ArgumentError) {
	if m.Method != upstream.GetPrompt {
		return m.Pin, nil
	}
	name, _ := p.values["name"].(string)
	pin, ok := m.prompts[name]
	if !ok {
		return "", &ArgumentError{"/name", "the person has accepted no such prompt", "list the prompts again"}
	}
	return pin, nil
}
