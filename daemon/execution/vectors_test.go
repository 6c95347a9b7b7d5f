package execution_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"singlepass.dev/daemon/execution"
)

type vector struct {
	At    time.Time       `json:"at"`
	Event json.RawMessage `json:"event"`
	State execution.State `json:"state"` // after the event
}

// Old journals are read for ever: these lines must decode, say the same, and be written the same way again.
func TestFrozenEvents(t *testing.T) {
	f, err := os.Open("testdata/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stories := map[string]execution.Execution{}
	kinds, fields := map[execution.Kind]bool{}, map[string]bool{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		d := json.NewDecoder(bytes.NewReader(v.Event))
		d.DisallowUnknownFields()
		var ev execution.Event
		if err := d.Decode(&ev); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if b, err := json.Marshal(ev); err != nil || !bytes.Equal(b, v.Event) {
			t.Errorf("line %d is written again as\n%s, and was\n%s", n, b, v.Event)
		}
		ev.At = v.At
		x, err := execution.Apply(stories[ev.ID], ev)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if x.State != v.State {
			t.Errorf("line %d leads to %s, not %s", n, x.State, v.State)
		}
		stories[ev.ID], kinds[ev.Kind] = x, true
		set(reflect.ValueOf(ev), "", fields)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, k := range execution.Kinds() {
		if !kinds[k] {
			t.Errorf("no vector for kind %s", k)
		}
	}
	all := map[string]bool{}
	names(reflect.TypeFor[execution.Event](), "", all)
	for name := range all {
		if !fields[name] && name != ".Caller.Delivered" && name != ".Caller.Disputed" { // Apply's own
			t.Errorf("no vector sets %s", name)
		}
	}
}

// set marks the fields of a struct that are not zero, names all of them.
func set(v reflect.Value, path string, to map[string]bool) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		set(v.Elem(), path, to)
		return
	}
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
		to[path] = to[path] || !v.IsZero()
		return
	}
	for i := range v.NumField() {
		set(v.Field(i), path+"."+v.Type().Field(i).Name, to)
	}
}

func names(typ reflect.Type, path string, to map[string]bool) {
	if typ.Kind() == reflect.Pointer {
		names(typ.Elem(), path, to)
		return
	}
	if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() {
		to[path] = true
		return
	}
	for i := range typ.NumField() {
		names(typ.Field(i).Type, path+"."+typ.Field(i).Name, to)
	}
}
