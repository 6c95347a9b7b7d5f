package execution_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"singlepass.dev/daemon/execution"
)

// TestTheHandWrittenEncodingIsThatOfTheStructTags sets every field, one at a time and all together, to values that are easy and to values that are not.
func TestTheHandWrittenEncodingIsThatOfTheStructTags(t *testing.T) {
	full := execution.Event{Acceptance: &execution.Acceptance{}, Caller: &execution.Caller{}}
	n := 0
	check := func(ev *execution.Event) {
		t.Helper()
		n++
		want, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		if got := ev.AppendJSON(nil); string(got) != string(want) {
			t.Fatalf("\n got %s\nwant %s", got, want)
		}
	}
	check(&execution.Event{})
	check(&full)
	for _, text := range []string{"plain", `quote " back \ <tag> & é`, "line\nbreak\x00\x7f", "bad \xff utf-8", " "} {
		every(reflect.ValueOf(&full).Elem(), text, func() { check(&full) })
	}
	if n < 150 {
		t.Errorf("only %d events were compared", n)
	}
}

// every sets the fields one after the other, and calls f after each.
func every(v reflect.Value, text string, f func()) {
	for i := range v.NumField() {
		field := v.Field(i)
		switch x := field.Addr().Interface().(type) {
		case *time.Time:
			*x = time.Date(2026, 7, 22, 14, 3, 18, 120_000_000+i, time.UTC)
		default:
			switch field.Kind() {
			case reflect.String:
				field.SetString(text)
			case reflect.Int, reflect.Int64:
				field.SetInt(int64(i) + 1)
			case reflect.Bool:
				field.SetBool(true)
			case reflect.Pointer:
				every(field.Elem(), text, f)
			default:
				panic(fmt.Sprintf("field %d is of a kind that the encoding does not know: %s", i, field.Kind()))
			}
		}
		f()
	}
}

var benchEvent = execution.Event{Kind: execution.KindAccepted, ID: "act_01J4K8J7DX7V01J4K8J7DX7V", Acceptance: &execution.Acceptance{
	Tool: "pay", Channel: "http", Target: "https://api.example.com/v1/pay", Class: execution.Irreversible, Actor: "exe:/usr/bin/agent", Run: "run_pflr6dy3dqdinhqwnzdjtmfn54",
	Scope: "run:run_pflr6dy3dqdinhqwnzdjtmfn54", AttachWindow: time.Hour,
}, Caller: &execution.Caller{Call: "run_pflr6dy3dqdinhqwnzdjtmfn54/1", Run: "run_pflr6dy3dqdinhqwnzdjtmfn54", Transport: "stdio", RequestID: "1"}}

func BenchmarkEncode(b *testing.B) {
	ev := benchEvent
	b.Run("by hand", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf = ev.AppendJSON(buf[:0])
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(&ev); err != nil {
				b.Fatal(err)
			}
		}
	})
}
