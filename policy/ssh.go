package policy

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/vault/material"
)

// DefaultMarkerKeep is for how many days a host keeps a marker whose contract does not say.
const DefaultMarkerKeep = 7

// SSH is the command that the action runs on a host.
type SSH struct {
	Host, User string
	Port       int
	Jump       *SSHJump // the connection goes through it; nil without one
	Command    []string // as written: one text for a line, or the words of a list, a group's included
	Directory  string   // as written; empty for where the account lands
	Connect    time.Duration
	Total      time.Duration
	MaxOutput  int64 // bytes of each of the two outputs; 0: the channel's default
	Success    []int // the exit statuses that mean success
	// Marker is set for class status_query: the host remembers that the command was started and how it ended.
	Marker *SSHMarker

	line      *shellLine  // a command that is one text
	words     [][]command // a command that is a list: words, and groups of words that stand or fall together
	directory template
	stdin     *template
	env       []Pair
}

// SSHJump is the host through which the connection goes.
type SSHJump struct {
	Host, User string
	Port       int
}

// SSHMarker is where the host keeps what happened.
type SSHMarker struct {
	Folder string // absolute; empty for .singlepass in the account's home
	Keep   int    // days
}

// command is one word of a command, with whether its value has to be kept from being an option.
type command struct {
	template template
	guarded  bool
}

const (
	inCommand   use = "the command"
	inGroup     use = "a group of the command"
	inDirectory use = "the directory"
	inVariable  use = "a variable"
	inStdin     use = "the standard input"
)

var (
	sshUser      = lazily(`^[A-Za-z0-9_][A-Za-z0-9_.@+$-]{0,63}$`)
	variableName = lazily(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

func (p *parser) ssh(n *node, path string, in *input) *SSH {
	s := &SSH{Port: 22, Success: []int{0}}
	p.object(n, path, []field{
		{"host", "write `host: NAME`, a host that was added with spctl host add", func(n *node, path string) { s.Host = p.sshHost(n, path) }},
		{"port", "", func(n *node, path string) { s.Port = p.sshPort(n, path) }},
		{"user", "write `user: NAME`, the account on the host", func(n *node, path string) { s.User = p.sshAccount(n, path) }},
		{"jump", "", func(n *node, path string) {
			j := &SSHJump{Port: 22}
			p.object(n, path, []field{
				{"host", "write `host: NAME`", func(n *node, path string) { j.Host = p.sshHost(n, path) }},
				{"port", "", func(n *node, path string) { j.Port = p.sshPort(n, path) }},
				{"user", "write `user: NAME`", func(n *node, path string) { j.User = p.sshAccount(n, path) }},
			})
			s.Jump = j
		}},
		{"command", "write `command: [PROGRAM, ARGUMENT, …]`", func(n *node, path string) { p.command(n, path, s, in) }},
		{"directory", "", func(n *node, path string) { p.directory(n, path, s, in) }},
		{"stdin", "", func(n *node, path string) {
			t := p.template(n, path, in, inStdin)
			s.stdin = &t
		}},
		{"env", "", func(n *node, path string) { s.env = p.variables(n, path, in) }},
		{"timeout", "", func(n *node, path string) {
			p.object(n, path, []field{
				{"connect", "", func(n *node, path string) { s.Connect, _ = p.duration(n, path, time.Second, 5*time.Minute) }},
				{"total", "", func(n *node, path string) { s.Total, _ = p.duration(n, path, time.Second, 24*time.Hour) }},
			})
			if s.Connect > 0 && s.Total > 0 && s.Connect > s.Total {
				p.problem(n, path, "write a total that is at least as long as connect", "connecting may take %s, but the whole attempt only %s", plainDuration(s.Connect), plainDuration(s.Total))
			}
		}},
		{"max_output", "", func(n *node, path string) { s.MaxOutput, _ = p.integer(n, path, 1, maxAnswerLimit) }},
		{"success", "", func(n *node, path string) { s.Success = p.exitStatuses(n, path) }},
		{"marker", "", func(n *node, path string) { s.Marker = p.marker(n, path) }},
	})
	return s
}

func (p *parser) sshHost(n *node, path string) string {
	const remedy = "write the host's name or address"
	if !p.is(n, path, text, remedy) {
		return ""
	}
	switch host := strings.ToLower(n.text); {
	case strings.ContainsAny(host, "{}"):
		p.problem(n, path, "write the host out; make one action for each host", "a placeholder in the host: where a command runs is fixed by the contract")
	case strings.Contains(host, "@"):
		p.problem(n, path, "write the account under user", "a user in the host")
	case !hostname(host):
		p.problem(n, path, remedy+", and the port under port", "%q is no host", clip(n.text, 80))
	default:
		if a, err := netip.ParseAddr(host); err == nil {
			host = a.String()
		}
		return host
	}
	return ""
}

func (p *parser) sshPort(n *node, path string) int {
	i, _ := p.integer(n, path, 1, 65535)
	return int(i)
}

func (p *parser) sshAccount(n *node, path string) string {
	name, _ := p.pattern(n, path, sshUser(), "write the account's name")
	return name
}

func (p *parser) exitStatuses(n *node, path string) []int {
	const remedy = "write a list such as [0, 3]"
	if !p.is(n, path, list, remedy) {
		return nil
	}
	if len(n.items) == 0 {
		p.problem(n, path, remedy, "no exit status would mean success")
	}
	var all []int
	for i, item := range n.items {
		if status, ok := p.integer(item, sub(path, itoa(i)), 0, 255); ok {
			all = append(all, int(status))
		}
	}
	return all
}

func (p *parser) marker(n *node, path string) *SSHMarker {
	m := &SSHMarker{Keep: DefaultMarkerKeep}
	p.object(n, path, []field{
		{"folder", "", func(n *node, path string) {
			const remedy = "write an absolute path, a folder of the account's own"
			folder, ok := p.text(n, path, 1000, remedy)
			if ok && (!strings.HasPrefix(folder, "/") || dots(folder) || strings.ContainsFunc(folder, control) || len(strings.Trim(folder, "/")) == 0) {
				p.problem(n, path, remedy, "%q is not possible here", clip(folder, 80))
			}
			m.Folder = folder
		}},
		{"keep", "", func(n *node, path string) {
			d, ok := p.duration(n, path, 24*time.Hour, 365*24*time.Hour)
			if ok && d%(24*time.Hour) != 0 {
				p.problem(n, path, "write whole days, such as 7d", "%s is not whole days", n.text)
			}
			m.Keep = int(d / (24 * time.Hour))
		}},
	})
	return m
}

func control(c rune) bool { return c < ' ' || c == 0x7f }

// notSecret keeps secret arguments out of what other accounts of the host can see in its list of processes.
func (p *parser) notSecret(n *node, path string, t template, in *input, where use) {
	for _, part := range t {
		if a := named(in, part.name); a != nil && a.secret {
			p.problem(n, path, "pass it on standard input: stdin: \"{"+part.name+"}\"", "{%s} is secret, and %s is seen by every account of the host", part.name, where)
		}
	}
}

func named(in *input, name string) *property {
	if in == nil || name == "" {
		return nil
	}
	return in.byName[name]
}

func (p *parser) variables(n *node, path string, in *input) []Pair {
	pairs := p.pairs(n, path, in, inVariable)
	for _, pair := range pairs {
		m := n.members[slices.IndexFunc(n.members, func(m member) bool { return m.name == pair.Name })]
		at := sub(path, m.name)
		switch {
		case !variableName().MatchString(pair.Name):
			p.add(m.line, m.column, at, "write letters, digits and underscores, and no digit at the beginning", "%q is no name of a variable", clip(pair.Name, 80))
		case !pair.template.isLiteral() && material.CheckVariable(pair.Name) != nil:
			p.add(m.line, m.column, at, "write its value out", "%s decides what program runs or what it loads: an argument must not set it", pair.Name)
		}
		p.notSecret(m.value, at, pair.template, in, inVariable)
	}
	return pairs
}

// directory takes an absolute path, with arguments as whole or partial segments.
func (p *parser) directory(n *node, path string, s *SSH, in *input) {
	t := p.template(n, path, in, inDirectory)
	if t == nil {
		return
	}
	s.Directory, s.directory = n.text, t
	p.notSecret(n, path, t, in, inDirectory)
	switch literal := t.literalText(); {
	case t[0].name != "" || !strings.HasPrefix(literal, "/"):
		p.problem(n, path, "write a path that begins with /", "the directory is not absolute")
	case dots(literal) && t.isLiteral():
		p.problem(n, path, "write the path that is meant", "a part of the path that moves to another folder: %q", clip(n.text, 80))
	case strings.ContainsFunc(literal, control):
		p.problem(n, path, "remove it", "a control character in the directory")
	}
}

// command reads a list of words, of which one may be a group, or one line of shell.
func (p *parser) command(n *node, path string, s *SSH, in *input) {
	const remedy = "write a list of words, such as [./deploy, --to, \"{version}\"], or one line of shell"
	switch {
	case n.kind == text:
		s.line = p.shellLine(n, path, in)
		s.Command = []string{n.text}
		return
	case !p.is(n, path, list, remedy):
		return
	case len(n.items) == 0:
		p.problem(n, path, remedy, "the command is empty")
		return
	}
	var before []*node // the words in front, of groups too
	guarded := true
	word := func(n *node, path string, u use) (command, bool) {
		t := p.template(n, path, in, u)
		if n.kind != text {
			return command{}, false
		}
		if strings.ContainsRune(n.text, 0) {
			p.problem(n, path, "remove it", "a NUL in a word")
		}
		p.notSecret(n, path, t, in, inCommand)
		if n.text == "--" {
			guarded = false
		}
		if len(before) == 0 && !t.isLiteral() {
			p.problem(n, path, "write the program out", "an argument would choose the program that runs")
		}
		if len(before) > 0 && !t.isLiteral() && runsText(before) {
			p.problem(n, path, `write the program out and pass the argument behind it: [sh, -c, 'echo "$1"', sh, "{name}"]`, "an argument would be read as a program by a shell")
		}
		before = append(before, n)
		s.Command = append(s.Command, n.text)
		return command{t, guarded && len(t) > 0 && t[0].name != "" && t[0].name != executionID}, true
	}
	for i, item := range n.items {
		at := sub(path, itoa(i))
		var group []command
		if item.kind == list && i > 0 {
			for j, inner := range item.items {
				if c, ok := word(inner, sub(at, itoa(j)), inGroup); ok {
					group = append(group, c)
				}
			}
			if len(item.items) == 0 {
				p.problem(item, at, "write the words that belong together, such as [--to, \"{version}\"]", "the group is empty")
			}
		} else if c, ok := word(item, at, inCommand); ok {
			group = []command{c}
		}
		s.words = append(s.words, group)
	}
}

var (
	shellName    = lazily(`^(.*/)?(sh|bash|dash|ksh|zsh|ash|mksh|busybox|python[0-9.]*|perl|ruby|node|psql|mysql)$`)
	programFlag  = lazily(`^-[A-Za-z]*[ce]$`)
	longFlag     = regexp.MustCompile(`^--(eval|command|execute)$`)
	evaluateWord = []string{"eval", "exec"}
)

// runsText says whether the word that follows is read as a program: sh -c, eval, and their like.
func runsText(before []*node) bool {
	last := before[len(before)-1].text
	if slices.Contains(evaluateWord, last) {
		return true
	}
	if !programFlag().MatchString(last) && !longFlag.MatchString(last) {
		return false
	}
	return slices.ContainsFunc(before[:len(before)-1], func(n *node) bool { return shellName().MatchString(n.text) })
}

// channelBlocks holds an ssh contract to its own block, and each block to its channel.
func (p *parser) channelBlocks(root *node, c *Contract) {
	if c.Channel == "" {
		return
	}
	for _, name := range []string{"http", "ssh", "mcp"} {
		if b := root.get(name); b != nil && name != string(c.Channel) {
			p.problem(b, "/"+name, "remove it, or write `channel: "+name+"`", "%q belongs to channel %s, not %s", name, name, c.Channel)
		}
	}
	if c.Channel != effect.SSH {
		c.SSH = nil
		return
	}
	c.HTTP = nil
	if root.get("ssh") == nil && !p.saw("", "ssh") {
		p.problem(root, "/ssh", "write `ssh: {host: …, user: …, command: […]}`", "the field %q is missing", "ssh")
	}
	if c.Credential == "" && root.get("credential") == nil && !p.saw("", "credential") {
		p.problem(root, "/credential", "name a credential of kind ssh-key or ssh-password", "a command on an SSH host needs a credential")
	}
}

// markers joins the class of an ssh contract and its marker.
func (p *parser) markers(class *node, path string, c *Contract) {
	switch c.Replay.Class {
	case execution.Idempotent:
		p.problem(class, path, "write `class: status_query`, which keeps a marker on the host, or `class: irreversible`", "an SSH host recognizes no idempotency key")
	case execution.StatusQuery:
		if c.SSH.Marker == nil {
			c.SSH.Marker = &SSHMarker{Keep: DefaultMarkerKeep}
		}
	default:
		if c.SSH.Marker != nil {
			p.problemAt("/ssh/marker", "remove it, or write `class: status_query`", "a marker belongs to class status_query, not %s", c.Replay.Class)
			c.SSH.Marker = nil
		}
	}
}
