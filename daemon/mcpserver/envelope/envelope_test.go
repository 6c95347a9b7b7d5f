package envelope_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"singlepass.dev/daemon/mcpserver/envelope"
)

func TestAMessageIsReadWithoutTouchingItsInside(t *testing.T) {
	line := []byte(` {"params" : {"name":"a\u0062","arguments":{"n": 9007199254740993},"idempotencyKey":"k","_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}},"jsonrpc":"2.0","m\u0065thod":"tools/call","id":"x\n"} `)
	var m envelope.Message
	if err := envelope.Scan(line, &m); err != nil {
		t.Fatal(err)
	}
	if string(m.ID) != `"x\n"` || string(m.Method) != "tools/call" || m.Response {
		t.Errorf("got %+v", m)
	}
	var c envelope.ToolCall
	if err := envelope.ScanToolCall(m.Params, &c); err != nil {
		t.Fatal(err)
	}
	if string(c.Name) != "ab" || string(c.Arguments) != `{"n": 9007199254740993}` || string(c.Key) != "k" || c.KeySource != "sibling" || string(c.ProgressToken) != "7" || string(c.Protocol) != "2026-07-28" {
		t.Errorf("got name %q, arguments %s, key %q from %s, token %s, protocol %s", c.Name, c.Arguments, c.Key, c.KeySource, c.ProgressToken, c.Protocol)
	}
	if envelope.Revision(m.Params) != "2026-07-28" {
		t.Errorf("revision %q", envelope.Revision(m.Params))
	}
}

func TestWhatIsNoProperMessageIsRefusedByTheRightCode(t *testing.T) {
	for _, c := range []struct {
		name, line string
		code       int
		id         string
	}{
		{"garbage", `hello`, envelope.ParseError, ""},
		{"nothing", ``, envelope.ParseError, ""},
		{"cut off", `{"jsonrpc":"2.0","id":1,"method":"ping"`, envelope.ParseError, ""},
		{"two messages on a line", `{"jsonrpc":"2.0","id":1,"method":"ping"}{}`, envelope.ParseError, ""},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", envelope.ParseError, ""},
		{"a control character in a string", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\tb\"}", envelope.ParseError, ""},
		{"a number with a leading zero", `{"jsonrpc":"2.0","id":01,"method":"ping"}`, envelope.ParseError, ""},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, envelope.InvalidRequest, ""},
		{"no version", `{"id":1,"method":"ping"}`, envelope.InvalidRequest, "1"},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, envelope.InvalidRequest, "1"},
		{"no method", `{"jsonrpc":"2.0","id":1}`, envelope.InvalidRequest, "1"},
		{"a method that is a number", `{"jsonrpc":"2.0","id":1,"method":1}`, envelope.InvalidRequest, "1"},
		{"params that are a list", `{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}`, envelope.InvalidRequest, "1"},
		{"the method twice", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, envelope.InvalidRequest, ""},
		{"the method twice, once escaped", `{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"tools/call"}`, envelope.InvalidRequest, ""},
		{"the id twice", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, envelope.InvalidRequest, ""},
		{"a null id", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, envelope.InvalidRequest, ""},
		{"a fractional id", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, envelope.InvalidRequest, ""},
		{"an id that a float64 cannot hold", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, envelope.InvalidRequest, ""},
		{"an id with a lone surrogate", `{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`, envelope.InvalidRequest, ""},
		{"an endless id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 600) + `","method":"ping"}`, envelope.InvalidRequest, ""},
		{"deep nesting", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}}`, envelope.InvalidRequest, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m envelope.Message
			err := envelope.Scan([]byte(c.line), &m)
			var refused *envelope.Error
			if !errors.As(err, &refused) || refused.Code != c.code || string(m.ID) != c.id {
				t.Errorf("got %v with id %q, want code %d with id %q", err, m.ID, c.code, c.id)
			}
		})
	}
}

func TestWhatIsNoProperCallIsRefused(t *testing.T) {
	for name, params := range map[string]string{
		"no name":                       `{"arguments":{}}`,
		"an empty name":                 `{"name":""}`,
		"the name twice":                `{"name":"a","name":"b"}`,
		"arguments twice":               `{"name":"a","arguments":{},"arguments":{"b":1}}`,
		"arguments that are a list":     `{"name":"a","arguments":[]}`,
		"meta that is a list":           `{"name":"a","_meta":[]}`,
		"a key twice in meta":           `{"name":"a","_meta":{"x":1,"x":1}}`,
		"a key that is a number":        `{"name":"a","_meta":{"dev.singlepass/idempotency-key":1}}`,
		"a key that is null":            `{"name":"a","idempotencyKey":null}`,
		"an empty key":                  `{"name":"a","idempotencyKey":""}`,
		"a key with a lone surrogate":   `{"name":"a","idempotencyKey":"\udc00"}`,
		"two keys that differ":          `{"name":"a","idempotencyKey":"x","_meta":{"dev.singlepass/idempotency-key":"y"}}`,
		"a token that is an object":     `{"name":"a","_meta":{"progressToken":{}}}`,
		"a name with a lone surrogate":  `{"name":"\ud800x"}`,
		"the same key among many in it": `{"name":"a",` + manyKeys() + `,"k3":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			var c envelope.ToolCall
			var refused *envelope.Error
			if err := envelope.ScanToolCall([]byte(params), &c); !errors.As(err, &refused) || refused.Code != envelope.InvalidParams {
				t.Errorf("got %v", err)
			}
		})
	}
	var c envelope.ToolCall
	if err := envelope.ScanToolCall([]byte(`{"name":"a","idempotencyKey":"x","_meta":{"dev.singlepass/idempotency-key":"\u0078"},`+manyKeys()+`}`), &c); err != nil || string(c.Key) != "x" || c.KeySource != "meta" {
		t.Errorf("the same key in both places: %v, %q from %s", err, c.Key, c.KeySource)
	}
}

func manyKeys() string {
	var keys []string
	for _, c := range "0123456789abcdefghijklmnopqrstuvwxyz" {
		keys = append(keys, `"k`+string(c)+`":0`)
	}
	return strings.Join(keys, ",")
}

func TestIDsMeetHoweverTheyAreEscaped(t *testing.T) {
	if envelope.IDKey([]byte(`"a\u0062\/"`)) != envelope.IDKey([]byte(`"ab/"`)) {
		t.Error("two spellings of an id differ")
	}
	if envelope.IDKey([]byte(`"1"`)) == envelope.IDKey([]byte(`1`)) {
		t.Error("a string and a number are one id")
	}
}

// FuzzScan holds the scanner to encoding/json: what it accepts is valid, has no key twice, and means the same; what it calls a syntax error is one.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"b":[1.5e-7,true,null,"\ud83d\ude00"]}}}`,
		`{"jsonrpc":"2.0","id":"\u0061","result":{}}`, `{"jsonrpc":"2.0","method":"x","params":{}}`, `[]`, `{"jsonrpc":"2.0","id":-0,"method":"m"}`, `{"a":{"b":[[{}]]}}`, `{"":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var m envelope.Message
		err := envelope.Scan(line, &m)
		var refused *envelope.Error
		if errors.As(err, &refused) && refused.Code == envelope.ParseError {
			var object map[string]json.RawMessage
			if utf8.Valid(line) && json.Unmarshal(line, &object) == nil && object != nil {
				t.Fatalf("%q is called a syntax error and is none", line)
			}
			return
		}
		if err != nil {
			return
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(line, &object); err != nil {
			t.Fatalf("%q is accepted and is not JSON: %v", line, err)
		}
		var method string
		if raw, ok := object["method"]; ok {
			if err := json.Unmarshal(raw, &method); err != nil {
				t.Fatal(err)
			}
		}
		if method != string(m.Method) || !bytes.Equal(object["id"], m.ID) && !(m.Response && m.ID == nil) || m.Params != nil && !bytes.Equal(object["params"], m.Params) {
			t.Fatalf("%q is read as method %q, id %s, params %s", line, m.Method, m.ID, m.Params)
		}
		if n := members(t, line); n != len(object) {
			t.Fatalf("%q is accepted with %d members of %d names", line, n, len(object))
		}
	})
}

// members counts the members of the outermost object, repeated ones too.
func members(t *testing.T, line []byte) (n int) {
	dec := json.NewDecoder(bytes.NewReader(line))
	depth := 0
	key := false
	for {
		token, err := dec.Token()
		if err != nil {
			return n
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			key = depth == 1
			continue
		case json.Delim('}'), json.Delim(']'):
			depth--
			if depth == 1 {
				key = true
			}
			continue
		}
		if depth == 1 {
			if key {
				n++
			}
			key = !key
		}
	}
}

// FuzzScanToolCall holds the reading of params to encoding/json.
func FuzzScanToolCall(f *testing.F) {
	f.Add([]byte(`{"name":"a","arguments":{"x":1},"_meta":{"progressToken":"p","dev.singlepass/idempotency-key":"k"}}`))
	f.Add([]byte(`{"name":"\u0061","arguments":null,"idempotencyKey":"k"}`))
	f.Fuzz(func(t *testing.T, params []byte) {
		var m envelope.Message
		if envelope.Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+string(params)+`}`), &m) != nil || m.Params == nil {
			return
		}
		var c envelope.ToolCall
		if envelope.ScanToolCall(m.Params, &c) != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(m.Params, &want); err != nil {
			t.Fatalf("%q is accepted: %v", params, err)
		}
		var name string
		if err := json.Unmarshal(want["name"], &name); err != nil || name != string(c.Name) {
			t.Fatalf("%q: name %q, want %q, %v", params, c.Name, name, err)
		}
		if got := string(c.Arguments); got != string(want["arguments"]) && !(got == "" && string(want["arguments"]) == "null") {
			t.Fatalf("%q: arguments %s, want %s", params, got, want["arguments"])
		}
		var meta map[string]json.RawMessage
		_ = json.Unmarshal(want["_meta"], &meta)
		for _, raw := range []json.RawMessage{meta[envelope.MetaKey], want["idempotencyKey"]} {
			var key string
			if raw != nil && (json.Unmarshal(raw, &key) != nil || key != string(c.Key)) {
				t.Fatalf("%q: key %q, want %s", params, c.Key, raw)
			}
		}
	})
}

func BenchmarkScan(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":123,"method":"tools/call","params":{"name":"deploy_release","arguments":{"service":"billing","version":"1.2.3","region":"us-east-1"},"_meta":{"progressToken":123}}}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		var m envelope.Message
		var c envelope.ToolCall
		if envelope.Scan(line, &m) != nil || envelope.ScanToolCall(m.Params, &c) != nil {
			b.Fatal("refused")
		}
	}
}
