package policy

import (
	"strings"

	"singlepass.dev/daemon/fingerprint"
)

// defaults fills in what an agent left out, so that a default spelt out and one left out are one intent and one request. It knows defaults below properties and items;
// keywords.go refuses one that stands anywhere else.
type defaults struct {
	values  map[string]any // complete in themselves; they are shared between calls and never changed
	members map[string]*defaults
	items   *defaults
}

// filled says whether a schema is that of a member, reached by properties and items only.
func filled(path string) bool {
	member := false
	for rest := strings.TrimPrefix(path, "/input"); rest != ""; {
		step, more, _ := strings.Cut(rest[1:], "/")
		switch step {
		case "items":
			member = false
		case "properties":
			_, more, _ = strings.Cut(more, "/") // its name, whatever that is
			member = true
		default:
			return false
		}
		if rest = ""; more != "" {
			rest = "/" + more
		}
	}
	return member
}

// compileDefaults returns nil where there are none.
func compileDefaults(n *node) *defaults {
	d := &defaults{values: map[string]any{}, members: map[string]*defaults{}}
	if props := n.get("properties"); props != nil {
		for _, m := range props.members {
			below := compileDefaults(m.value)
			if below != nil {
				d.members[m.name] = below
			}
			if def := m.value.get("default"); def != nil {
				v, err := fingerprint.Decode(def.appendJSON(nil))
				if err != nil {
					continue // the schema as a whole went through Strict
				}
				below.fill(v)
				d.values[m.name] = v
			}
		}
	}
	if items := n.get("items"); items != nil {
		d.items = compileDefaults(items)
	}
	if len(d.values) == 0 && len(d.members) == 0 && d.items == nil {
		return nil
	}
	return d
}

// fill changes v in place. What it puts in is shared, so members are filled first.
func (d *defaults) fill(v any) {
	if d == nil {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for name, below := range d.members {
			if value, ok := v[name]; ok {
				below.fill(value)
			}
		}
		for name, value := range d.values {
			if _, ok := v[name]; !ok {
				v[name] = value
			}
		}
	case []any:
		for _, item := range v {
			d.items.fill(item)
		}
	}
}
