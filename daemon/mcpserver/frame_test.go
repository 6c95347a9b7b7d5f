package mcpserver_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/mcpserver"
)

// FuzzAppendResult holds the splicing of _meta to its promise: one line of valid JSON in which our word is ours, and everything else is what the engine gave.
func FuzzAppendResult(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `{"content":[]}`, "{\n\"content\" : [ ],\r\n \"_meta\":{} }", `{"_meta":{"a":1,"dev.singlepass/execution":{},"dev.singlepass\/x":2}}`,
		"{\"_meta\":{\"a\":[\n{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\r\n]},\"b\":1}",
		`{"_meta":[]}`, `{"_m\u0065ta":{"x":1},"b":2}`, `{"resultType":"input_required","a":"\n"}`, `[]`, `{"a":1,"a":2}`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, result []byte, modern bool) {
		var serverInfo []byte
		if modern {
			serverInfo = []byte(`{"name":"singlepass"}`)
		}
		out, err := mcpserver.AppendResult([]byte("x"), call.Answer{ExecutionID: "act_1", State: execution.Delivered, Recorded: true, Result: result}, serverInfo)
		if err != nil {
			if string(out) != "x" {
				t.Fatalf("a refused result left %q", out)
			}
			return
		}
		out = out[1:]
		if bytes.ContainsAny(out, "\r\n") {
			t.Fatalf("%q became more than a line: %q", result, out)
		}
		var got, want map[string]json.RawMessage
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%q became %q: %v", result, out, err)
		}
		if err := json.Unmarshal(result, &want); err != nil {
			t.Fatalf("%q was taken: %v", result, err)
		}
		var meta map[string]json.RawMessage
		if err := json.Unmarshal(got["_meta"], &meta); err != nil || string(meta["dev.singlepass/execution"]) != `{"execution_id":"act_1","state":"completed_result_delivered","recorded":true}` {
			t.Fatalf("%q became %q", result, out)
		}
		if bytes.Count(out, []byte(`"dev.singlepass/execution"`)) > 1+bytes.Count(result, []byte("execution")) {
			t.Fatalf("our word stands twice in %q", out)
		}
		if modern && want["resultType"] == nil {
			want["resultType"] = json.RawMessage(`"complete"`)
		}
		delete(got, "_meta")
		delete(want, "_meta")
		if len(got) != len(want) {
			t.Fatalf("%q became %q", result, out)
		}
		for name, value := range want {
			line := bytes.Map(func(r rune) rune {
				if r == '\n' || r == '\r' {
					return ' '
				}
				return r
			}, value)
			if !bytes.Equal(got[name], value) && !bytes.Equal(got[name], line) {
				t.Fatalf("%q: member %q became %s", result, name, got[name])
			}
		}
	})
}
