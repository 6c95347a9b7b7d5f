package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// lazily compiles an expression when it is first needed: every start of every command would pay for it otherwise, the bridge's too, which reads no contract.
func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// field is one field that an object of the contract may have.
type field struct {
	name string
	hint string // for a required field: what to write when it is missing
	read func(n *node, path string)
}

// object reads n as an object with these fields and no others. Fields are read in the order of the table, not of the file.
func (p *parser) object(n *node, path string, fields []field) {
	if n.kind == bad {
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if n.kind != object {
		p.problem(n, path, "write an object with some of: "+strings.Join(names, ", "), "found %s%s", n.kind, n.quoted())
		return
	}
	for _, m := range n.members {
		if !slices.Contains(names, m.name) {
			remedy := "known here: " + strings.Join(names, ", ")
			if near := nearest(m.name, names); near != "" {
				remedy = fmt.Sprintf("did you mean %q? %s", near, remedy)
			}
			p.add(m.line, m.column, sub(path, m.name), remedy, "unknown field %q", m.name)
		}
	}
	for _, f := range fields {
		switch value := n.get(f.name); {
		case value != nil:
			f.read(value, sub(path, f.name))
		case f.hint != "" && !p.saw(path, f.name):
			p.problem(n, sub(path, f.name), f.hint, "the field %q is missing", f.name)
		}
	}
}

// saw says whether the file has such a field that could not be read; its problem is reported already.
func (p *parser) saw(path, name string) bool { return p.places[sub(path, name)] != nil }

func (n *node) quoted() string {
	switch n.kind {
	case text:
		return " (" + strconv.Quote(clip(n.text, 60)) + ")"
	case number, boolean:
		return " (" + n.text + ")"
	}
	return ""
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// is reports a node of the wrong kind.
func (p *parser) is(n *node, path string, want kind, remedy string) bool {
	switch n.kind {
	case want:
		return true
	case bad:
		return false
	case number, boolean, null:
		if want == text && n.kind != null {
			remedy = fmt.Sprintf("quote it: %q", n.text)
		}
	}
	p.problem(n, path, remedy, "found %s%s where %s is needed", n.kind, n.quoted(), want)
	return false
}

func (p *parser) text(n *node, path string, maxRunes int, remedy string) (string, bool) {
	if !p.is(n, path, text, remedy) {
		return "", false
	}
	switch s := n.text; {
	case strings.TrimSpace(s) == "":
		p.problem(n, path, remedy, "found an empty text")
	case len([]rune(s)) > maxRunes:
		p.problem(n, path, fmt.Sprintf("write at most %d characters", maxRunes), "the text is too long")
	default:
		return s, true
	}
	return "", false
}

func (p *parser) pattern(n *node, path string, pattern *regexp.Regexp, remedy string) (string, bool) {
	if !p.is(n, path, text, remedy) {
		return "", false
	}
	if !pattern.MatchString(n.text) {
		p.problem(n, path, remedy, "%s is not possible here", strconv.Quote(clip(n.text, 80)))
		return "", false
	}
	return n.text, true
}

func enum[T ~string](p *parser, n *node, path string, values ...T) (T, bool) {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	remedy := "write one of: " + strings.Join(names, ", ")
	if !p.is(n, path, text, remedy) {
		return "", false
	}
	if !slices.Contains(names, n.text) {
		if near := nearest(n.text, names); near != "" {
			remedy = fmt.Sprintf("did you mean %q? %s", near, remedy)
		}
		p.problem(n, path, remedy, "%s is not known here", strconv.Quote(clip(n.text, 80)))
		return "", false
	}
	return T(n.text), true
}

func (p *parser) integer(n *node, path string, low, high int64) (int64, bool) {
	remedy := fmt.Sprintf("write a whole number from %d to %d", low, high)
	if n.kind == text {
		p.problem(n, path, remedy+", without quotes", "found text%s where a number is needed", n.quoted())
		return 0, false
	}
	if !p.is(n, path, number, remedy) {
		return 0, false
	}
	i, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil || i < low || i > high {
		p.problem(n, path, remedy, "%s is not possible here", n.text)
		return 0, false
	}
	return i, true
}

var durationForm = lazily(`^(?:([0-9]{1,5})d)?(?:([0-9]{1,7})h)?(?:([0-9]{1,8})m)?(?:([0-9]{1,9})s)?$`)

const maxDuration = 10 * 365 * 24 * time.Hour

// duration reads days, hours, minutes and seconds, in this order: 30d, 1h30m, 45s.
func (p *parser) duration(n *node, path string, low, high time.Duration) (time.Duration, bool) {
	const remedy = "write days, hours, minutes and seconds, such as 30d, 24h, 1h30m or 45s"
	if n.kind == number {
		p.problem(n, path, remedy, "%s has no unit", n.text)
		return 0, false
	}
	if !p.is(n, path, text, remedy) {
		return 0, false
	}
	m := durationForm().FindStringSubmatch(n.text)
	if m == nil || n.text == "" {
		p.problem(n, path, remedy, "%s is not a duration", strconv.Quote(clip(n.text, 80)))
		return 0, false
	}
	var d time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		count, _ := strconv.Atoi("0" + m[i+1])
		if d += min(time.Duration(count), maxDuration/unit+1) * unit; d > maxDuration {
			d = maxDuration + 1
		}
	}
	if d < low || d > high {
		p.problem(n, path, fmt.Sprintf("write at least %s and at most %s", plainDuration(low), plainDuration(high)), "%s is out of range", n.text)
		return 0, false
	}
	return d, true
}

// plainDuration writes a duration as a contract does.
func plainDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / u.unit; n > 0 && (u.name != "d" || d >= 48*time.Hour) {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	return b.String()
}

// nearest finds the one name that a misspelt one is most likely meant to be.
func nearest(word string, names []string) string {
	best, distance := "", 3
	for _, name := range names {
		if d := editDistance(strings.ToLower(word), strings.ToLower(name)); d < distance && d < len(name) {
			best, distance = name, d
		}
	}
	return best
}

func editDistance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
