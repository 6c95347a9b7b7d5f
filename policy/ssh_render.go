package policy

import (
	"slices"
	"strconv"
	"strings"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/fingerprint"
)

func itoa(i int) string { return strconv.Itoa(i) }

// renderSSH makes the exact command of a prepared call. The hosts' keys are not the contract's: the caller adds them from the inventory.
func (a *Action) renderSSH(p Prepared, id string) (effect.Effect, error) {
	c := a.contract
	s := c.SSH
	r := renderer{values: p.values, id: id, in: c.input}
	cmd := &effect.SSHCommand{Host: effect.SSHHost{User: s.User, Name: s.Host, Port: s.Port}}
	if s.Jump != nil {
		cmd.Jump = &effect.SSHHost{User: s.Jump.User, Name: s.Jump.Host, Port: s.Jump.Port}
	}
	if s.line != nil {
		cmd.Command = r.shellLine(s.line)
	} else {
		cmd.Command = r.words(s.words)
	}
	if s.directory != nil {
		cmd.Directory = r.folder(s.directory)
	}
	if s.stdin != nil {
		text, _ := r.text(*s.stdin)
		cmd.Stdin = []byte(text)
	}
	for _, pair := range s.env {
		if value, ok := r.text(pair.template); ok {
			if strings.ContainsRune(value, 0) {
				r.refuse(pair.template, "it has a NUL, which no variable can hold", "send text without it")
			}
			cmd.Env = append(cmd.Env, effect.Field{Name: pair.Name, Value: value})
		}
	}
	if !slices.Equal(s.Success, []int{0}) {
		cmd.Success = slices.Clone(s.Success)
	}
	if s.Marker != nil {
		cmd.Marker = &effect.SSHMarker{Folder: s.Marker.Folder, Keep: s.Marker.Keep}
	}
	if r.err != nil {
		return effect.Effect{}, r.err
	}
	e := effect.Effect{Channel: effect.SSH, SSH: cmd}
	if c.Credential != "" {
		e.Auth = &effect.Auth{Credential: c.Credential}
	}
	return e, nil
}

const optionRemedy = "send a value that does not begin with -; a contract that means such values writes -- before it"

// words writes a list as a line in which each word is exactly one, quoted. A group of which an argument is absent is left out as a whole.
func (r *renderer) words(groups [][]command) string {
	var line []string
	for _, group := range groups {
		words := make([]string, 0, len(group))
		whole := true
		for _, c := range group {
			text, ok := r.text(c.template)
			if !ok {
				whole = false
				break
			}
			if c.guarded && strings.HasPrefix(text, "-") {
				r.refuse(c.template, "it begins with -, so the command would take it for an option", optionRemedy)
			}
			quoted, err := effect.Quote(text)
			if err != nil {
				r.refuse(c.template, err.Error(), "send text without it")
			}
			words = append(words, quoted)
		}
		if whole {
			line = append(line, words...)
		}
	}
	return strings.Join(line, " ")
}

func (r *renderer) shellLine(l *shellLine) string {
	var b strings.Builder
	for i, part := range l.template {
		if part.name == "" {
			b.WriteString(part.literal)
			continue
		}
		value, _ := r.argument(part.name)
		if l.guarded[i] && strings.HasPrefix(value, "-") {
			r.refuse(template{part}, "it begins with -, so the command would take it for an option", optionRemedy)
		}
		quoted, err := effect.Quote(value)
		if err != nil {
			r.refuse(template{part}, err.Error(), "send text without it")
		}
		b.WriteString(quoted)
	}
	return b.String()
}

// folder fills a path. An argument stays within its part of the path.
func (r *renderer) folder(t template) string {
	var b strings.Builder
	for _, part := range t {
		if part.name == "" {
			b.WriteString(part.literal)
			continue
		}
		value, _ := r.argument(part.name)
		if value == "" || strings.ContainsRune(value, '/') || strings.ContainsFunc(value, control) {
			r.refuse(template{part}, "it is empty, or has a slash or a control character, but stands in the path of a folder", "send a plain name")
		}
		b.WriteString(value)
	}
	if dots(b.String()) {
		r.refuse(t, "it has a part that moves to another folder (. or ..)", "send a plain name")
	}
	return b.String()
}

// identity is what of an SSH contract makes an intent besides its arguments: the account on the host, the command as it is written, and its directory. The host's keys are not in it: a key
// that was replaced since does not hide what was already sent. They are in the effect, which an approval is bound to.
func (s *SSH) identity() (target, method string) {
	words := make([]any, len(s.Command))
	for i, w := range s.Command {
		words[i] = w
	}
	form := map[string]any{"command": words, "directory": s.Directory, "shell": s.line != nil}
	return s.Target(), string(fingerprint.Append(nil, form))
}

// Hosts are those that a prepared call goes to, without their keys: the host of the command, and the one in front of it. An action of another channel goes to none.
func (a *Action) Hosts(p Prepared) []effect.SSHHost {
	switch s := a.contract.SSH; {
	case s == nil:
		return nil
	case a.contract.Generic:
		written, _ := p.values["host"].(string)
		host, wrong := genericHost(written)
		if wrong != nil {
			return nil // cannot happen: Prepare has checked it
		}
		return []effect.SSHHost{host}
	case s.Jump != nil:
		return []effect.SSHHost{{User: s.User, Name: s.Host, Port: s.Port}, {User: s.Jump.User, Name: s.Jump.Host, Port: s.Jump.Port}}
	default:
		return []effect.SSHHost{{User: s.User, Name: s.Host, Port: s.Port}}
	}
}

// Target is the account on the host, as a URL.
func (s *SSH) Target() string {
	return effect.SSHHost{User: s.User, Name: s.Host, Port: s.Port}.Address()
}
