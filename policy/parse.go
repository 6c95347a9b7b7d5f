package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
)

// ReservedTools are our own tools' names, which no action can take.
var ReservedTools = []string{"execution_status", "execution_wait", "executions_recent", "request_credential", "http_request", "ssh_run"}

var (
	toolName       = lazily(`^[A-Za-z0-9_-]{1,64}$`)
	credentialName = lazily(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// Parse reads one contract. Its error is *Problems: everything that is wrong, each with its place and what to write instead. filename is used in messages only.
func Parse(filename string, src []byte) (*Contract, error) {
	p := &parser{file: filename, places: map[string]*node{}}
	c := &Contract{Digest: Digest(src)}
	if root := p.tree(src); root != nil {
		p.contract(root, c)
	}
	if len(p.problems.List) > 0 {
		p.problems.sort()
		return nil, &p.problems
	}
	return c, nil
}

func (p *parser) contract(root *node, c *Contract) {
	p.object(root, "", []field{
		{"action", "write `action: NAME`, the tool's name", func(n *node, path string) {
			c.Action, _ = p.pattern(n, path, toolName(), "write 1 to 64 of: letters, digits, _ and -")
			if slices.Contains(ReservedTools, c.Action) {
				p.problem(n, path, "choose another name", "%q is one of Singlepass's own tools", c.Action)
			}
		}},
		{"title", "", func(n *node, path string) {
			c.Title, _ = p.text(n, path, 120, "write a short title, or remove the field")
			if strings.ContainsAny(c.Title, "\n\t") {
				p.problem(n, path, "write it in one line", "a line break or tab in the title")
			}
		}},
		{"description", "write `description: …`, what the agent's model reads", func(n *node, path string) {
			c.Description, _ = p.text(n, path, 4000, "write what the action does")
			c.Description = strings.TrimSpace(c.Description)
		}},
		{"channel", "write `channel: http`, `channel: ssh` or `channel: mcp`", func(n *node, path string) {
			c.Channel, _ = enum(p, n, path, effect.HTTP, effect.SSH, effect.MCP)
		}},
		{"input", "write `input: {type: object, properties: {}}`, the JSON Schema of the arguments", func(n *node, path string) { c.input = p.input(n, path) }},
		{"credential", "", func(n *node, path string) {
			c.Credential, _ = p.pattern(n, path, credentialName(), "write the name of a credential in the vault: 1 to 64 of letters, digits, . _ and -")
		}},
		{"approval", "", func(n *node, path string) { p.approval(n, path, c) }},
		{"replay", "", func(n *node, path string) {}}, // after http, whose header fields it looks at
		{"http", "", func(n *node, path string) { c.HTTP = p.http(n, path, c.input) }},
		{"ssh", "", func(n *node, path string) { c.SSH = p.ssh(n, path, c.input) }},
		{"mcp", "", func(n *node, path string) { c.MCP = p.mcp(n, path, c.input) }},
		{"retention", "", func(n *node, path string) { p.retention(n, path, c) }},
	})
	if root.kind != object {
		return
	}
	if c.Channel == effect.HTTP && c.HTTP == nil && root.get("http") == nil && !p.saw("", "http") {
		p.problem(root, "/http", "write `http: {method: …, url: …}`", "the field %q is missing", "http")
	}
	p.channelBlocks(root, c)
	p.mcpBlock(root, c)
	c.Retention.Result = defaulted(c.Retention.Result, DefaultRetention)
	replay := root.get("replay")
	if replay == nil {
		replay = &node{kind: object, line: root.line, column: root.column}
	}
	p.replay(replay, "/replay", c)
	if c.input != nil {
		c.Input = c.input.schema
	}
}

func defaulted(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// approval takes session, per_use, {per_use_if: CONDITION}, or a bare condition, which is told from a misspelt word by its use of args.
func (p *parser) approval(n *node, path string, c *Contract) {
	const remedy = "write session, per_use, or {per_use_if: 'a CEL condition over args'}"
	condition := func(n *node, path string) {
		source, ok := p.text(n, path, 2000, "write a CEL condition, such as args.amount > 100")
		if !ok || c.input == nil {
			return
		}
		compiled, problem, remedy := compileCondition(source, c.input)
		if problem != "" {
			p.problem(n, path, remedy, "%s", problem)
			return
		}
		c.Approval.PerUseIf, c.condition = source, compiled
	}
	switch {
	case n.kind == object:
		p.object(n, path, []field{{"per_use_if", "write `per_use_if: 'args.amount > 100'`", condition}})
	case !p.is(n, path, text, remedy):
	case n.text == "session":
	case n.text == "per_use":
		c.Approval.PerUse = true
	case strings.Contains(n.text, "args."), strings.Contains(n.text, "args["):
		condition(n, path)
	default:
		if near := nearest(n.text, []string{"session", "per_use"}); near != "" {
			p.problem(n, path, fmt.Sprintf("did you mean %q? %s", near, remedy), "%q is not known here", clip(n.text, 80))
			return
		}
		p.problem(n, path, remedy, "%q is not known here", clip(n.text, 80))
	}
}

func (p *parser) retention(n *node, path string, c *Contract) {
	p.object(n, path, []field{{"result", "", func(n *node, path string) {
		c.Retention.Result, _ = p.duration(n, path, time.Minute, maxDuration)
	}}})
}

func (p *parser) replay(n *node, path string, c *Contract) {
	r := &c.Replay
	r.Class, r.IntentScope = execution.Irreversible, ScopeRun
	var accepted, status, wait *node
	p.object(n, path, []field{
		{"class", "", func(n *node, path string) { r.Class, _ = enum(p, n, path, execution.Classes()...) }},
		{"idempotency_header", "", func(n *node, path string) { r.IdempotencyHeader = p.idempotencyHeader(n, path, c.HTTP) }},
		{"key_lifetime", "", func(n *node, path string) { r.KeyLifetime, _ = p.duration(n, path, time.Minute, maxDuration) }},
		{"fingerprint", "", func(n *node, path string) { p.fingerprint(n, path, c) }},
		{"attach_window", "", func(n *node, path string) { r.AttachWindow, _ = p.duration(n, path, time.Second, maxDuration) }},
		{"after_delivery", "", func(n *node, path string) {
			r.AfterDelivery, _ = enum(p, n, path, execution.Ask, execution.Return, execution.New)
		}},
		{"intent_scope", "", func(n *node, path string) { r.IntentScope, _ = enum(p, n, path, ScopeRun, ScopeDurable) }},
		{"attempts", "", func(n *node, path string) {
			attempts, _ := p.integer(n, path, 1, MaxAttempts)
			r.Attempts = int(attempts)
		}},
		{"accepted", "", func(n *node, path string) { accepted = n }},
		{"status", "", func(n *node, path string) { status = n }},
		{"wait", "", func(n *node, path string) { wait = n }},
	})
	if n.kind != object || r.Class == "" {
		return
	}
	has := func(name string) bool { return n.get(name) != nil }
	place := func(name string) *node {
		if f := n.get(name); f != nil {
			return f
		}
		return n
	}
	const byItself = "remove it; a lost answer of this class is never followed by a second attempt"
	switch r.Class {
	case execution.Idempotent:
		for name, hint := range map[string]string{
			"idempotency_header": "write the header that the target reads its key from, such as `idempotency_header: Idempotency-Key`",
			"key_lifetime":       "write how long the target remembers a key, such as `key_lifetime: 24h`; past it, a lost answer is irreversible",
		} {
			if !has(name) && (c.Channel != effect.MCP || name != "idempotency_header") {
				p.problem(n, sub(path, name), hint, "class idempotent needs %q", name)
			}
		}
	case execution.StatusQuery:
		p.statusQuery(place("class"), accepted, status, wait, path, c)
	}
	if r.Class != execution.StatusQuery {
		for _, name := range []string{"accepted", "status", "wait"} {
			if has(name) {
				p.problem(place(name), sub(path, name), "remove it, or write `class: status_query` if the target can be asked", "%q belongs to class status_query, not %s", name, r.Class)
			}
		}
	}
	if c.SSH != nil {
		p.markers(place("class"), sub(path, "class"), c)
	}
	if c.Channel == effect.MCP {
		p.mcpReplay(place("class"), sub(path, "class"), c)
		if header := n.get("idempotency_header"); header != nil && r.Class == execution.Idempotent {
			p.problem(header, sub(path, "idempotency_header"), "remove it, and give the key as an argument under mcp.arguments: {execution_id}", "a call of a tool has no headers")
		}
	}
	if r.Class != execution.Idempotent {
		for _, name := range []string{"idempotency_header", "key_lifetime"} {
			if has(name) {
				p.problem(place(name), sub(path, name), "remove it, or write `class: idempotent` if the target honours the key", "%q belongs to class idempotent, not %s", name, r.Class)
			}
		}
	}
	automatic := r.Class != execution.Irreversible
	switch {
	case !automatic && r.Attempts > 1:
		p.problem(place("attempts"), sub(path, "attempts"), byItself, "class %s has one attempt", r.Class)
	case r.Attempts == 0 && automatic:
		r.Attempts = DefaultAttempts
	case r.Attempts == 0:
		r.Attempts = 1
	}
	if r.Class == execution.ReadOnly {
		r.AttachWindow = defaulted(r.AttachWindow, DefaultAttachWindow)
	} else if !has("attach_window") {
		p.problem(n, sub(path, "attach_window"), "write for how long the same call is taken for a retry, such as `attach_window: 1h`",
			"an action with a side effect (class %s) needs %q", r.Class, "attach_window")
	}
	if r.AfterDelivery == "" {
		r.AfterDelivery = execution.Ask
		if r.Class == execution.ReadOnly {
			r.AfterDelivery = execution.New
		}
	}
	if r.Fingerprint == nil && c.input != nil {
		r.Fingerprint = c.input.names()
	}
}

func (p *parser) fingerprint(n *node, path string, c *Contract) {
	const remedy = "write a list of argument names"
	if !p.is(n, path, list, remedy) {
		return
	}
	names := []string{}
	for i, item := range n.items {
		at := fmt.Sprintf("%s/%d", path, i)
		switch {
		case !p.is(item, at, text, remedy), c.input == nil:
		case c.input.byName[item.text] == nil:
			known := c.input.names()
			remedy := "use one of: " + strings.Join(known, ", ")
			if near := nearest(item.text, known); near != "" {
				remedy = fmt.Sprintf("did you mean %q? %s", near, remedy)
			}
			p.problem(item, at, remedy, "%q is no argument of this action", clip(item.text, 80))
		case slices.Contains(names, item.text):
			p.problem(item, at, "keep one of them", "%q is listed twice", item.text)
		default:
			names = append(names, item.text)
		}
	}
	if len(n.items) == 0 && c.input != nil && len(c.input.properties) > 0 {
		p.problem(n, path, "list at least one argument, or remove the field to count all of them", "every call would be the same intent, whatever its arguments")
	}
	c.Replay.Fingerprint = names
}
