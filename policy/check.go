package policy

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"singlepass.dev/daemon/fingerprint"
)

// check is a compiled schema of the plain kind that nearly all actions have: types, ranges, lengths, patterns, enumerations, lists and objects of such. It is many times
// faster than the library, and knows the place of what is wrong. FuzzCheckIsTheLibrary holds both against each other.
type check struct {
	types            []string
	enum             []string // canonical forms; nil when there is none
	minimum, maximum *float64
	above, below     *float64 // exclusive
	minRunes         int
	maxRunes         int // -1: no limit
	pattern          *regexp.Regexp
	items            *check
	minItems         int
	maxItems         int // -1: no limit
	properties       map[string]*check
	required         []string
	closed           bool // additionalProperties: false
}

// compileCheck returns nil for a schema that has anything else than what check knows. The schema has been through the library already, so values have the right types.
func compileCheck(n *node) *check {
	c := &check{maxRunes: -1, maxItems: -1}
	if n.kind != object {
		return nil
	}
	for _, m := range n.members {
		v := m.value
		ok := true
		switch m.name {
		case "title", "description", "default", "examples", "deprecated", "format", "secret", "$comment":
		case "type":
			if v.kind == text {
				c.types = []string{v.text}
			} else {
				for _, item := range v.items {
					c.types = append(c.types, item.text)
				}
			}
		case "enum":
			c.enum = []string{}
			for _, item := range v.items {
				ok = c.allow(item) && ok
			}
		case "const":
			// Both at once would need a second list.
			ok = n.get("enum") == nil && c.allow(v)
		case "minimum":
			c.minimum, ok = float(v)
		case "maximum":
			c.maximum, ok = float(v)
		case "exclusiveMinimum":
			c.above, ok = float(v)
		case "exclusiveMaximum":
			c.below, ok = float(v)
		case "minLength":
			c.minRunes, ok = count(v)
		case "maxLength":
			c.maxRunes, ok = count(v)
		case "minItems":
			c.minItems, ok = count(v)
		case "maxItems":
			c.maxItems, ok = count(v)
		case "pattern":
			var err error
			c.pattern, err = regexp.Compile(v.text)
			ok = err == nil && v.kind == text && v.text != ""
		case "items":
			c.items = compileCheck(v)
			ok = c.items != nil
		case "properties":
			c.properties = map[string]*check{}
			for _, p := range v.members {
				if c.properties[p.name] = compileCheck(p.value); c.properties[p.name] == nil {
					return nil
				}
			}
		case "required":
			for _, item := range v.items {
				c.required = append(c.required, item.text)
			}
		case "additionalProperties":
			ok = v.kind == boolean
			c.closed = v.text == "false"
		default:
			ok = false
		}
		if !ok {
			return nil
		}
	}
	return c
}

func (c *check) allow(n *node) bool {
	v, err := fingerprint.Decode(n.appendJSON(nil))
	if err != nil {
		return false
	}
	c.enum = append(c.enum, string(fingerprint.Append(nil, v)))
	return true
}

func float(n *node) (*float64, bool) {
	f, err := strconv.ParseFloat(n.text, 64)
	return &f, err == nil && n.kind == number
}

func count(n *node) (int, bool) {
	i, err := strconv.Atoi(n.text)
	return i, err == nil && n.kind == number && i >= 0
}

// jsonType names the type of a value as fingerprint.Decode makes it.
func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

func shown(v any) string { return clip(string(fingerprint.Append(nil, v)), 80) }

func (c *check) validate(v any, pointer string) *ArgumentError {
	wrong := func(remedy, format string, args ...any) *ArgumentError {
		return &ArgumentError{pointer, fmt.Sprintf(format, args...), remedy}
	}
	if c.types != nil {
		got := jsonType(v)
		if !slices.Contains(c.types, got) && (got != "integer" || !slices.Contains(c.types, "number")) {
			return wrong(fmt.Sprintf("send %s", oneOf(c.types)), "%s is of type %s", shown(v), got)
		}
	}
	if c.enum != nil {
		if form := string(fingerprint.Append(nil, v)); !slices.Contains(c.enum, form) {
			return wrong("send "+clip(oneOf(c.enum), 200), "%s is not possible", clip(form, 80))
		}
	}
	switch v := v.(type) {
	case float64:
		switch {
		case c.minimum != nil && v < *c.minimum:
			return wrong(fmt.Sprintf("send at least %v", *c.minimum), "%s is too small", shown(v))
		case c.maximum != nil && v > *c.maximum:
			return wrong(fmt.Sprintf("send at most %v", *c.maximum), "%s is too large", shown(v))
		case c.above != nil && v <= *c.above:
			return wrong(fmt.Sprintf("send more than %v", *c.above), "%s is too small", shown(v))
		case c.below != nil && v >= *c.below:
			return wrong(fmt.Sprintf("send less than %v", *c.below), "%s is too large", shown(v))
		}
	case string:
		if c.minRunes > 0 || c.maxRunes >= 0 {
			n := utf8.RuneCountInString(v)
			if n < c.minRunes {
				return wrong(fmt.Sprintf("send at least %d characters", c.minRunes), "%s is too short", shown(v))
			}
			if c.maxRunes >= 0 && n > c.maxRunes {
				return wrong(fmt.Sprintf("send at most %d characters", c.maxRunes), "%s is too long", shown(v))
			}
		}
		if c.pattern != nil && !c.pattern.MatchString(v) {
			return wrong("send text that matches "+c.pattern.String(), "%s does not match the pattern", shown(v))
		}
	case []any:
		if len(v) < c.minItems {
			return wrong(fmt.Sprintf("send at least %d", c.minItems), "%d items are too few", len(v))
		}
		if c.maxItems >= 0 && len(v) > c.maxItems {
			return wrong(fmt.Sprintf("send at most %d", c.maxItems), "%d items are too many", len(v))
		}
		if c.items != nil {
			for i, item := range v {
				if err := c.items.validate(item, pointer+"/"+strconv.Itoa(i)); err != nil {
					return err
				}
			}
		}
	case map[string]any:
		return c.members(v, pointer)
	}
	return nil
}

func (c *check) members(v map[string]any, pointer string) *ArgumentError {
	for _, name := range c.required {
		if _, ok := v[name]; !ok {
			return &ArgumentError{sub(pointer, name), "it is missing", "send it"}
		}
	}
	unknown, found := "", false // an argument may have an empty name
	for name, value := range v {
		p := c.properties[name]
		if p == nil {
			if c.closed && (!found || name < unknown) {
				unknown, found = name, true
			}
			continue
		}
		if err := p.validate(value, pointer); err != nil {
			err.Pointer = sub(pointer, name) + err.Pointer[len(pointer):]
			return err
		}
	}
	if found {
		remedy := "leave it out"
		names := make([]string, 0, len(c.properties))
		for name := range c.properties {
			names = append(names, name)
		}
		slices.Sort(names)
		if near := nearest(unknown, names); near != "" {
			remedy = fmt.Sprintf("did you mean %q? otherwise leave it out", near)
		}
		return &ArgumentError{sub(pointer, clip(unknown, 80)), "no such argument", remedy}
	}
	return nil
}

func oneOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	s := ""
	for i, name := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			s += " or "
		default:
			s += ", "
		}
		s += name
	}
	return s
}
