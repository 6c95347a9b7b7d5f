package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/fingerprint"
	"singlepass.dev/daemon/upstream"
)

// MCP says which tool of which upstream an action calls.
type MCP struct {
	Upstream  string // the name that the operator gave it
	Tool      string // the upstream's own name for it
	Pin       string // the digest of what the tool said of itself when it was accepted
	Method    string // of what is read of it; empty where a tool is called
	Total     time.Duration
	MaxAnswer int64

	arguments *jsonTemplate     // nil: the call's own arguments
	prompts   map[string]string // those that can be got, with their pins
}

// UpstreamTool is a tool of an upstream as the operator accepted it: the tool's own words, and the operator's choices. It stands in the vault where another action has its file,
// and its bytes are what the digest of the contract covers. The JSON form is frozen; fields may be added.
type UpstreamTool struct {
	Version  int             `json:"singlepass_upstream_tool"` // 1
	Action   string          `json:"action"`                   // the name that agents call it by
	Upstream string          `json:"upstream"`
	Tool     upstream.Tool   `json:"tool"`
	Class    execution.Class `json:"class"`
	PerUse   bool            `json:"per_use"`
	Total    string          `json:"total,omitempty"` // how long one attempt may take, as a Go duration; the channel's default where it is empty
}

// upstreamMark is how the source of an accepted upstream tool begins; no YAML contract that Parse takes begins so.
var upstreamMark = []byte(`{"singlepass_upstream_tool":`)

// IsUpstreamTool tells the source of an accepted upstream tool from that of a contract in YAML.
func IsUpstreamTool(src []byte) bool { return bytes.HasPrefix(src, upstreamMark) }

// Source returns the bytes that are accepted.
func (u UpstreamTool) Source() ([]byte, error) {
	u.Version = 1
	src, err := json.Marshal(u)
	if err != nil {
		return nil, fmt.Errorf("writing the contract of an upstream's tool: %w", err)
	}
	_, err = ParseUpstreamTool(src)
	return src, err
}

// DecodeUpstreamTool reads back what Source wrote.
func DecodeUpstreamTool(src []byte) (UpstreamTool, error) {
	var u UpstreamTool
	d := json.NewDecoder(bytes.NewReader(src))
	d.DisallowUnknownFields()
	if err := d.Decode(&u); err != nil {
		return u, fmt.Errorf("reading the contract of an upstream's tool: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || u.Version != 1 {
		return u, errors.New("reading the contract of an upstream's tool: it has a form that this program does not know: use a newer singlepass")
	}
	return u, nil
}

// ParseUpstreamTool makes a contract of an accepted tool.
//
// The arguments are the upstream's own affair: its schema is held against them where it can be compiled, no default is filled in, and all of them count in the fingerprint.
func ParseUpstreamTool(src []byte) (*Contract, error) {
	u, err := DecodeUpstreamTool(src)
	if err != nil {
		return nil, err
	}
	pin, err := u.Tool.Pin()
	switch {
	case err != nil:
		return nil, err
	case !upstream.LegalName(u.Action):
		return nil, fmt.Errorf("%q is no name for a tool: write 1 to 64 letters, digits, dots, dashes and underscores", clip(u.Action, 80))
	case u.Upstream == "":
		return nil, errors.New("the upstream is not named")
	case u.Class != execution.ReadOnly && u.Class != execution.Irreversible:
		return nil, fmt.Errorf("class %q is not possible for a tool that is accepted as it is: choose read_only or irreversible", u.Class)
	}
	c := &Contract{
		Action: u.Action, Title: clip(u.Tool.Title, 120), Description: strings.TrimSpace(u.Tool.Description), Channel: effect.MCP, Digest: Digest(src),
		Approval: Approval{PerUse: u.PerUse}, MCP: &MCP{Upstream: u.Upstream, Tool: u.Tool.Name, Pin: pin},
		Replay: Replay{
			Class: u.Class, AttachWindow: DefaultAttachWindow, AfterDelivery: execution.Ask, IntentScope: ScopeRun, Attempts: 1,
		},
		Retention: Retention{Result: DefaultRetention},
	}
	if u.Class == execution.ReadOnly {
		c.Replay.AfterDelivery, c.Replay.Attempts = execution.New, DefaultAttempts
	}
	if u.Total != "" {
		if c.MCP.Total, err = time.ParseDuration(u.Total); err != nil || c.MCP.Total < time.Second || c.MCP.Total > 24*time.Hour {
			return nil, fmt.Errorf("%q is no time for one attempt: write 1s to 24h", clip(u.Total, 80))
		}
	}
	if c.input, err = foreignInput(u.Tool.InputSchema); err != nil {
		return nil, err
	}
	c.Input, c.Replay.Fingerprint = c.input.schema, c.input.names()
	return c, nil
}

// foreignInput takes a schema that an upstream wrote.
func foreignInput(schema json.RawMessage) (*input, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, schema); err != nil {
		return nil, fmt.Errorf("the tool's input schema cannot be used: %w", err)
	}
	in := &input{schema: compact.Bytes(), byName: map[string]*property{}, usable: true, foreign: true}
	top, err := members(in.schema)
	if err != nil {
		return nil, err
	}
	for _, m := range top {
		if m.name != "properties" {
			continue
		}
		properties, err := members(m.value)
		if err != nil {
			return nil, err
		}
		for _, one := range properties {
			p := &property{name: one.name}
			in.properties, in.byName[p.name] = append(in.properties, p), p
		}
	}
	// A schema that the library does not take (a pattern of another language, say) is left to the upstream, which holds it against the arguments anyway.
	var s jsonschema.Schema
	if json.Unmarshal(in.schema, &s) == nil {
		if resolved, err := s.Resolve(nil); err == nil {
			in.resolved = resolved
		}
	}
	return in, nil
}

type rawMember struct {
	name  string
	value json.RawMessage
}

// members returns those of a JSON object, in its order.
func members(object json.RawMessage) ([]rawMember, error) {
	wrong := func(err error) ([]rawMember, error) {
		return nil, fmt.Errorf("the tool's input schema cannot be used: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return wrong(errors.New("not an object"))
	}
	var out []rawMember
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return wrong(err)
		}
		m := rawMember{name: t.(string)}
		if err := d.Decode(&m.value); err != nil {
			return wrong(err)
		}
		out = append(out, m)
	}
	return out, nil
}

// publishForeign adds intent_key to an upstream's schema. Everything else stays as it is and where it is.
func publishForeign(in *input) json.RawMessage {
	top, err := members(in.schema)
	if err != nil {
		panic(err) // foreignInput has read it
	}
	own := `"` + intentKey + `":` + intentKeySchema
	b := []byte{'{'}
	wrote := false
	for _, m := range top {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(fingerprint.Append(b, m.name), ':')
		if m.name != "properties" {
			b = append(b, m.value...)
			continue
		}
		wrote = true
		inner := bytes.TrimSuffix(m.value, []byte("}"))
		b = append(b, inner...)
		if len(inner) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, own...), '}')
	}
	if !wrote {
		b = append(b, `,"properties":{`+own+`}`...)
	}
	return append(b, '}')
}

// On returns the action with what its upstream is now: an action without it is matched, but not rendered. PerUse asks each time, since a credential of the upstream does.
func (a *Action) On(d upstream.Definition, perUse bool) *Action {
	on := *a
	c := *a.contract
	c.Credential = d.Credential
	c.Approval.PerUse = c.Approval.PerUse || perUse
	on.contract, on.upstream = &c, &d
	return &on
}

// renderMCP makes the exact call.
func (a *Action) renderMCP(p Prepared, id string) (effect.Effect, error) {
	if a.upstream == nil {
		return effect.Effect{}, fmt.Errorf("rendering %s: the upstream %q is not there", a.contract.Action, a.contract.MCP.Upstream)
	}
	m := a.contract.MCP
	arguments := []byte(p.Arguments)
	if m.arguments != nil {
		r := renderer{values: p.values, id: id, in: a.contract.input}
		if arguments, _ = r.json(nil, m.arguments); r.err != nil {
			return effect.Effect{}, r.err
		}
	}
	pin, wrong := m.pinOf(p)
	if wrong != nil {
		return effect.Effect{}, wrong
	}
	e := effect.Effect{Channel: effect.MCP, MCP: &effect.MCPCall{
		Upstream: m.Upstream, Identity: a.upstream.Identity(), URL: a.upstream.URL, Command: a.upstream.Command, Tool: m.Tool, Pin: pin, Arguments: arguments, Method: m.Method,
	}}
	if a.contract.Credential != "" {
		e.Auth = &effect.Auth{Credential: a.contract.Credential}
	}
	return e, nil
}
