package mcpchan_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"singlepass.dev/daemon/channel/mcpchan"
)

// Whatever an upstream writes: if it is passed on, each URI of the contents has the upstream's name before it for a reader who takes names in any case, and nothing else is changed.
func FuzzEachURIOfWhatIsReadSaysWhoseItIs(f *testing.F) {
	for _, seed := range []string{
		`{"contents":[{"uri":"a"},{"uri":"b","x":{"uri":"c"}}],"uri":"d"}`, `{ "contents" : [ { "x" : 1 , "uri" : "a" } ] }`, `{"contents":[{"uri":"a","uri":"b"}]}`, `{"contents":[{"URI":"a"}]}`,
		`{"\u0063ontents":[{"\u0075ri":"a"}]}`, `{"contents":[{"\u0075ri":"a","uri":"b"}]}`, `{"contents":[]}`, `{"contents":[{"uri":"a"}],"contents":[{"uri":"b"}]}`, `{"contents":[{"uri":"\ud800"}]}`,
		"{\"contents\":[{\"ur\u0131\":\"a\"}]}", "{\"content\u017f\":[{\"uri\":\"b\"}],\"contents\":[{\"uri\":\"a\"}]}",
	} {
		f.Add([]byte(seed))
	}
	const prefix = "singlepass+bank:"
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := mcpchan.Addressed(raw, prefix)
		if err != nil {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q became %q, which is no JSON", raw, got)
		}
		var in, out struct {
			Contents []struct{ URI *string }
		}
		if json.Unmarshal(raw, &in) != nil || json.Unmarshal(got, &out) != nil || len(in.Contents) != len(out.Contents) {
			t.Fatalf("%q became %q", raw, got)
		}
		for i, c := range out.Contents {
			if c.URI == nil || in.Contents[i].URI == nil || *c.URI != prefix+*in.Contents[i].URI {
				t.Errorf("%q became %q", raw, got)
			}
		}
		if len(got) != len(raw)+len(prefix)*len(in.Contents) || !strings.Contains(string(raw), prefix) && !bytes.Equal(bytes.ReplaceAll(got, []byte(prefix), nil), raw) {
			t.Errorf("more was changed: %q became %q", raw, got)
		}
	})
}
