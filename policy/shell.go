package policy

import (
	"strings"
)

// shellLine is one line of POSIX shell with placeholders, each of which becomes exactly one quoted word, or a part of one.
type shellLine struct {
	template template
	guarded  []bool // of each part: whether its value has to be kept from being an option
}

// shellLine reads a line and checks that each placeholder stands where quoting makes it a word: not within quotes, not where text is read a second time.
func (p *parser) shellLine(n *node, path string, in *input) *shellLine {
	if strings.TrimSpace(n.text) == "" {
		p.problem(n, path, "write a command", "the command is empty")
		return nil
	}
	t := p.template(n, path, in, inCommand)
	if t == nil {
		return nil
	}
	p.notSecret(n, path, t, in, inCommand)
	l := &shellLine{template: t, guarded: make([]bool, len(t))}
	if strings.ContainsRune(n.text, 0) {
		p.problem(n, path, "remove it", "a NUL in the command")
		return l
	}
	s := scanner{start: true, begins: true}
	for i, part := range t {
		if part.name == "" {
			for _, c := range []byte(part.literal) {
				s.take(c)
			}
			continue
		}
		if problem, remedy := s.refuses(); problem != "" {
			p.problem(n, path, strings.ReplaceAll(remedy, "{}", "{"+part.name+"}"), "{%s} %s", part.name, problem)
			return l
		}
		l.guarded[i] = s.start && !s.options && part.name != executionID
		s.start, s.begins, s.last = false, false, 0
		s.word = append(s.word, '?') // so that "a" and "{x}" together are no known word
	}
	if s.odd != "" && !t.isLiteral() {
		p.problem(n, path, "write the command as a list of words, or as [sh, -c, 'the script with \"$1\"', sh, \"{name}\"]", "%s, in which it cannot be told what an argument would become", s.odd)
	}
	return l
}

// scanner follows a line of shell (POSIX.1-2024, Shell Command Language, sections 2.2 and 2.3) as far as is needed to know what a word in it is. What it does not follow is odd,
// and then no argument is put into the line.
type scanner struct {
	single, double, escaped, comment bool

	start   bool   // at the beginning of a word
	begins  bool   // of a command's first word
	options bool   // "--" was there in this command
	second  bool   // the next word is read again, as a program
	word    []byte // the word that is being read
	words   []string
	last    byte
	odd     string
}

func (s *scanner) take(c byte) {
	previous := s.last
	s.last = c
	switch {
	case s.comment:
		if c == '\n' {
			s.comment = false
			s.separate()
		}
		return
	case s.single:
		s.single = c != '\''
		if s.single {
			s.word = append(s.word, c)
		}
		return
	case s.escaped:
		s.escaped, s.start = false, false
		s.word = append(s.word, c)
		s.last = 0
		return
	case c == '\\':
		s.escaped = true
		s.start = false
		return
	case c == '`':
		s.note("a backquote")
	case previous == '$' && strings.IndexByte("({'\"", c) >= 0 && (s.double || c != '('):
		s.note("$" + string(c))
	case previous == '(' && c == '(':
		s.note("((")
	case previous == '<' && c == '<' && !s.double:
		s.note("<<")
	}
	if c == '"' {
		s.double, s.start = !s.double, false
		return
	}
	if s.double {
		s.word = append(s.word, c)
		return
	}
	switch c {
	case '\'':
		s.single, s.start = true, false
	case ' ', '\t':
		s.endWord()
	case '\n', ';', '&', '|', '(', ')':
		s.separate()
	case '<', '>':
		s.endWord()
		s.begins = false
	case '#':
		if s.start {
			s.comment = true
			return
		}
		s.word = append(s.word, c)
	default:
		s.start = false
		s.word = append(s.word, c)
	}
}

func (s *scanner) note(what string) {
	if s.odd == "" {
		s.odd = what + " is in the command"
	}
}

// starters are words behind which another command begins.
var starters = map[string]bool{
	"if": true, "then": true, "else": true, "elif": true, "do": true, "while": true, "until": true, "!": true, "{": true,
	"exec": true, "command": true, "env": true, "nohup": true, "sudo": true, "time": true, "nice": true, "doas": true, "xargs": true, "setsid": true,
}

func (s *scanner) endWord() {
	if len(s.word) > 0 || !s.start {
		w := string(s.word)
		s.words = append(s.words, w)
		s.options = s.options || w == "--"
		assignment := s.begins && strings.Contains(w, "=")
		s.begins = s.begins && starters[w] || assignment
		s.second = s.programFollows()
	}
	s.word, s.start = s.word[:0], true
}

func (s *scanner) separate() {
	s.endWord()
	s.words, s.options, s.begins, s.second = nil, false, true, false
}

// programFollows says whether the next word is read as a program.
func (s *scanner) programFollows() bool {
	last := s.words[len(s.words)-1]
	if last == "eval" {
		return true
	}
	if len(s.words) > 1 && s.words[0] == "eval" {
		return true
	}
	if !programFlag().MatchString(last) && !longFlag.MatchString(last) {
		return false
	}
	for _, w := range s.words[:len(s.words)-1] {
		if shellName().MatchString(w) {
			return true
		}
	}
	return false
}

// refuses says why a placeholder cannot stand here, and what to write instead.
func (s *scanner) refuses() (problem, remedy string) {
	const bare = "write it bare: {} becomes one word, whatever it holds"
	switch {
	case s.comment:
		return "stands in a comment, which a line break in it would end", "remove it"
	case s.single, s.double:
		return "stands within quotes, which it would end", bare
	case s.escaped, s.last == '$':
		return "stands behind a " + map[bool]string{true: "backslash", false: "$"}[s.escaped] + ", which would change its quotes", bare
	case s.odd != "":
		return "stands in a command with what cannot be followed: " + s.odd, "write the command as a list of words, or as [sh, -c, 'the script with \"$1\"', sh, \"{}\"]"
	case s.second:
		return "would be read as a program", `write the program out and pass the argument behind it: sh -c 'echo "$1"' sh {}`
	case s.begins && s.start:
		return "would choose the program that runs", "write the program out"
	}
	return "", ""
}
