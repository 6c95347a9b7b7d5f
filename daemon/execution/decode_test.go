package execution_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"singlepass.dev/daemon/execution"
)

// same holds DecodeEvent to what encoding/json makes of the same bytes.
func same(t *testing.T, b []byte) {
	t.Helper()
	var want execution.Event
	wrong := json.Unmarshal(b, &want)
	got, err := execution.DecodeEvent(b)
	if (err == nil) != (wrong == nil) {
		t.Fatalf("%q: error %v, and of encoding/json %v", b, err, wrong)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%q\n got %+v\nwant %+v", b, got, want)
	}
}

func TestAnEventIsDecodedAsByTheStructTags(t *testing.T) {
	full := execution.Event{Acceptance: &execution.Acceptance{}, Caller: &execution.Caller{}}
	for _, text := range []string{"plain", `quote " back \ <tag> & é`, "line\nbreak\x00\x7f", " "} {
		every(reflect.ValueOf(&full).Elem(), text, func() { same(t, full.AppendJSON(nil)) })
	}
}

// odd is JSON that no version of ours writes.
var odd = []string{
	``, `{}`, `null`, `[]`, `{`, `{"kind"}`, `{"kind":}`, `{"kind":"a",}`, `{,"kind":"a"}`, `{"kind":"a"}}`, `{"kind":"a"} `, `{"kind":"a"}x`, ` {"kind" : "a"}`,
	`{"kind":"a","kind":"b"}`, `{"KIND":"a"}`, `{"kind":"a","Kind":"b"}`, `{"kind":null}`, `{"kind":1}`, `{"kind":"\u0061"}`, `{"k\u0069nd":"a"}`, `{"later":"a"}`, `{"later":{"kind":"a"}}`,
	`{"attempt":1}`, `{"attempt":-1}`, `{"attempt":-0}`, `{"attempt":01}`, `{"attempt":1.0}`, `{"attempt":1e3}`, `{"attempt":-}`, `{"attempt":"1"}`, `{"attempt":+1}`,
	`{"attempt":999999999999999999}`, `{"attempt":9223372036854775807}`, `{"attempt":9223372036854775808}`, `{"attempt":1,"attempt":2}`,
	`{"caller_waiting":true}`, `{"caller_waiting":false}`, `{"caller_waiting":True}`, `{"caller_waiting":truex}`, `{"caller_waiting":tru}`, `{"caller_waiting":null}`,
	`{"caller":null}`, `{"caller":{}}`, `{"caller":{},"caller":{"run":"r"}}`, `{"caller":{"run":"r"},"caller":{"call":"c"}}`, `{"caller":{"at":"2026-07-22T14:03:18Z"}}`, `{"caller":{"at":"soon"}}`,
	`{"caller":{"disputed":true,"disputed":false}}`, `{"acceptance":{"attach_window":3600000000000}}`, `{"acceptance":[]}`, `{"acceptance":{"class":"read_only"},"kind":"accepted"}`,
	"{\"kind\":\"a\x01\"}", "{\"kind\":\"a\xff\"}", "{\"kind\":\"a\tb\"}",
}

func TestOddEventsAreDecodedAsByTheStructTags(t *testing.T) {
	for _, text := range odd {
		same(t, []byte(text))
	}
}

func FuzzDecodeEvent(f *testing.F) {
	for _, text := range odd {
		f.Add([]byte(text))
	}
	full := execution.Event{Acceptance: &execution.Acceptance{}, Caller: &execution.Caller{}}
	every(reflect.ValueOf(&full).Elem(), "plain", func() { f.Add(full.AppendJSON(nil)) })
	f.Fuzz(func(t *testing.T, b []byte) { same(t, b) })
}

func BenchmarkDecode(b *testing.B) {
	event := benchEvent.AppendJSON(nil)
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := execution.DecodeEvent(event); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var ev execution.Event
			if err := json.Unmarshal(event, &ev); err != nil {
				b.Fatal(err)
			}
		}
	})
}
