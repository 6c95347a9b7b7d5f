package connect_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"singlepass.dev/cmd/spctl/internal/connect"
)

var (
	path  = []string{"mcpServers", "singlepass"}
	entry = connect.Entry{Command: "/usr/bin/spctl", Args: []string{"mcp"}}
)

func TestEditKeepsEveryOtherByte(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"nothing": {"", "{\n  \"mcpServers\": {\n    \"singlepass\": {\n      \"command\": \"/usr/bin/spctl\",\n      \"args\": [\n        \"mcp\"\n      ]\n    }\n  }\n}\n"},
		"other servers, tabs, order": {
			"{\n\t\"z\": 1,\n\t\"mcpServers\": {\n\t\t\"b\": {\"command\":   \"x\"},\n\t\t\"a\": {}\n\t},\n\t\"y\": [1,2 ,3]\n}",
			"{\n\t\"z\": 1,\n\t\"mcpServers\": {\n\t\t\"b\": {\"command\":   \"x\"},\n\t\t\"a\": {},\n\t\t\"singlepass\": {\n\t\t\t\"command\": \"/usr/bin/spctl\",\n\t\t\t\"args\": [\n\t\t\t\t\"mcp\"\n\t\t\t]\n\t\t}\n\t},\n\t\"y\": [1,2 ,3]\n}",
		},
		"one line":            {`{"a":1,"mcpServers":{"b":{}}}`, `{"a":1,"mcpServers":{"b":{}, "singlepass": {"command":"/usr/bin/spctl","args":["mcp"]}}}`},
		"one line, no member": {`{"a":1}`, `{"a":1, "mcpServers": {"singlepass":{"command":"/usr/bin/spctl","args":["mcp"]}}}`},
		"comments and trailing commas": {
			"{\n  // mine\n  \"mcpServers\": {\n    \"b\": {}, // keep\n  },\n}\n",
			"{\n  // mine\n  \"mcpServers\": {\n    \"b\": {},\n    \"singlepass\": {\n      \"command\": \"/usr/bin/spctl\",\n      \"args\": [\n        \"mcp\"\n      ]\n    }, // keep\n  },\n}\n",
		},
		"empty object with a comment": {
			"{\n  \"mcpServers\": {\n    /* none */\n  }\n}",
			"{\n  \"mcpServers\": {\n    \"singlepass\": {\n      \"command\": \"/usr/bin/spctl\",\n      \"args\": [\n        \"mcp\"\n      ]\n    }\n    /* none */\n  }\n}",
		},
		"an old entry": {`{"mcpServers":{"singlepass":{"command":"/old","args":["mcp"],"x":"}"},"b":{}}}`, `{"mcpServers":{"singlepass":{"command":"/usr/bin/spctl","args":["mcp"]},"b":{}}}`},
		"line breaks of Windows": {
			"{\r\n  \"a\": 1\r\n}\r\n",
			"{\r\n  \"a\": 1,\r\n  \"mcpServers\": {\r\n    \"singlepass\": {\r\n      \"command\": \"/usr/bin/spctl\",\r\n      \"args\": [\r\n        \"mcp\"\r\n      ]\r\n    }\r\n  }\r\n}\r\n",
		},
		"names that only look alike": {`{"x":{"mcpServers":1},"y":"\"mcpServers\":{"}`, `{"x":{"mcpServers":1},"y":"\"mcpServers\":{", "mcpServers": {"singlepass":{"command":"/usr/bin/spctl","args":["mcp"]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed, err := connect.Edit([]byte(c.in), path, entry)
			if err != nil || !changed {
				t.Fatalf("changed %t, %v", changed, err)
			}
			if string(got) != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			again, changed, err := connect.Edit(got, path, entry)
			if err != nil || changed || string(again) != string(got) {
				t.Errorf("the second time it changes again: %v\n%s", err, again)
			}
		})
	}
}

func TestWhatIsNotAConfigurationIsRefusedWithThePlace(t *testing.T) {
	for in, want := range map[string]string{
		`[]`:                                "1:1: an object",
		`{"a":1} x`:                         "1:9: something follows",
		"{\n  \"a\": nope\n}":               "a value",
		`{"a":1 "b":2}`:                     "a comma",
		`{"mcpServers":[]}`:                 "an object",
		`{"mcpServers":{},"mcpServers":{}}`: "twice",
		`{"a":"never ends`:                  "does not end",
		`{"a":` + strings.Repeat("[", 200):  "too deeply",
		`{"a":` + strings.Repeat(`{"a":`, 200) + `1`: "too deeply",
	} {
		if _, _, err := connect.Edit([]byte(in), path, entry); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", in, err, want)
		}
	}
}

func FuzzEdit(f *testing.F) {
	for _, in := range []string{"", "{}", `{"mcpServers":{"a":1,},}`, "{\n // c\n \"b\": [1, {\"c\": null}]\n}", `{"mcpServers":{"singlepass":/**/{}}}`} {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out, changed, err := connect.Edit([]byte(in), path, entry)
		if err != nil {
			return
		}
		if _, again, err := connect.Edit(out, path, entry); err != nil || again {
			t.Fatalf("%q: not settled after %q: %v", in, out, err)
		}
		if found, err := connect.Find(out, path); err != nil || found == nil {
			t.Fatalf("%q: the entry is not found in %q: %v", in, out, err)
		}
		var before, after map[string]any
		if json.Unmarshal([]byte(in), &before) != nil || !changed {
			return
		}
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		for k := range before {
			if _, ok := after[k]; !ok {
				t.Fatalf("%q lost %q: %q", in, k, out)
			}
		}
	})
}

func TestAnEntryIsFoundWithItsToken(t *testing.T) {
	entry := connect.HTTPEntry{Type: "http", URL: "http://127.0.0.1:7717/mcp", Headers: map[string]string{"Authorization": "Bearer canary-not-a-secret"}}
	src := []byte("{ // servers\n \"mcpServers\": {\"other\": {\"url\": \"x\"},},\n}")
	if found, err := connect.Find(src, path); err != nil || found != nil {
		t.Errorf("before it is there: %s, %v", found, err)
	}
	src, _, err := connect.Edit(src, path, entry)
	if err != nil {
		t.Fatal(err)
	}
	found, err := connect.Find(src, path)
	if err != nil {
		t.Fatal(err)
	}
	if url, token := connect.Token(found); url != entry.URL || token != "canary-not-a-secret" {
		t.Errorf("found %q, %q in %s", url, token, src)
	}
	for _, in := range []string{"", "{}", `{"mcpServers":{}}`} {
		if found, err := connect.Find([]byte(in), path); err != nil || found != nil {
			t.Errorf("%q: %s, %v", in, found, err)
		}
	}
	for _, in := range []string{"[]", `{"mcpServers":1}`, `{"mcpServers":{`} {
		if found, err := connect.Find([]byte(in), path); err == nil {
			t.Errorf("%q: %s", in, found)
		}
	}
	if url, token := connect.Token([]byte(`{"command":"spctl","args":["mcp"]}`)); url != "" || token != "" {
		t.Errorf("a command has the URL %q and the token %q", url, token)
	}
}

func TestWriteKeepsTheEarlierFileAndItsMode(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real.json"), filepath.Join(dir, "link.json")
	if err := os.WriteFile(file, []byte("before"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if _, err := connect.Write(link, []byte("something else"), []byte("after")); err == nil {
		t.Fatal("a file that was changed meanwhile was overwritten")
	}
	backup, err := connect.Write(link, []byte("before"), []byte("after"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{file: "after", backup: "before"} {
		b, err := os.ReadFile(name)
		if err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	fresh := filepath.Join(dir, "new", "mcp.json")
	if backup, err := connect.Write(fresh, nil, []byte("{}")); err != nil || backup != "" {
		t.Errorf("new file: %q, %v", backup, err)
	}
}
