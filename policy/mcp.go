package policy

import (
	"slices"
	"time"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
)

var (
	upstreamName = lazily(`^[a-z0-9][a-z0-9-]{0,31}$`)
	pinForm      = lazily(`^sha256:[0-9a-f]{64}$`)
)

// mcp reads which tool of which upstream a contract calls, and with what.
func (p *parser) mcp(n *node, path string, in *input) *MCP {
	m := &MCP{}
	p.object(n, path, []field{
		{"upstream", "write `upstream: NAME`, as spctl upstream list has it", func(n *node, path string) {
			m.Upstream, _ = p.pattern(n, path, upstreamName(), "write the name of an MCP server behind the gateway: 1 to 32 lower-case letters, digits and dashes")
		}},
		{"tool", "write `tool: NAME`, as spctl upstream tools has it", func(n *node, path string) {
			m.Tool, _ = p.text(n, path, 128, "write the tool's name")
		}},
		{"digest", "write `digest: sha256:…`, as spctl upstream tools has it", func(n *node, path string) {
			m.Pin, _ = p.pattern(n, path, pinForm(), "write the digest that spctl upstream tools shows: sha256: and 64 characters")
		}},
		{"arguments", "", func(n *node, path string) {
			if p.is(n, path, object, "write names and values, such as `amount: \"{amount}\"`") {
				m.arguments = p.jsonTemplate(n, path, in, asRoot)
			}
		}},
		{"timeout", "", func(n *node, path string) {
			p.object(n, path, []field{{"total", "", func(n *node, path string) { m.Total, _ = p.duration(n, path, time.Second, 24*time.Hour) }}})
		}},
		{"max_answer", "", func(n *node, path string) { m.MaxAnswer, _ = p.integer(n, path, 1, 16<<20) }},
	})
	return m
}

// mcpBlock holds what a contract of channel mcp has beside its block.
func (p *parser) mcpBlock(root *node, c *Contract) {
	if c.Channel != effect.MCP {
		c.MCP = nil
		return
	}
	c.HTTP, c.SSH = nil, nil
	if root.get("mcp") == nil && !p.saw("", "mcp") {
		p.problem(root, "/mcp", "write `mcp: {upstream: …, tool: …, digest: …}`", "the field %q is missing", "mcp")
	}
	if credential := root.get("credential"); credential != nil {
		p.problem(credential, "/credential", "remove it; the upstream was given its credentials by spctl upstream add", "a contract of channel mcp names no credential")
		c.Credential = ""
	}
}

// mcpReplay joins the class of an mcp contract and its arguments: a tool has no header for a key, so an argument has to carry it.
func (p *parser) mcpReplay(class *node, path string, c *Contract) {
	switch c.Replay.Class {
	case execution.StatusQuery:
		p.problem(class, path, "write `class: irreversible`", "a tool of an upstream cannot be asked what became of a call")
	case execution.Idempotent:
		if c.MCP != nil && !c.MCP.arguments.names(executionID) {
			p.problem(class, path, "give the argument that the tool reads its key from: `mcp: {arguments: {key: \"{execution_id}\", …}}`", "class idempotent needs {execution_id} among mcp.arguments")
		}
	}
}

// names says whether a placeholder stands anywhere in the template.
func (t *jsonTemplate) names(name string) bool {
	if t == nil {
		return false
	}
	return slices.ContainsFunc(t.text, func(q part) bool { return q.name == name }) ||
		slices.ContainsFunc(t.members, func(m jsonMember) bool { return m.value.names(name) }) ||
		slices.ContainsFunc(t.items, func(i *jsonTemplate) bool { return i.names(name) })
}
