// The documents are held to what is really there.
package singlepass_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"singlepass.dev/policy"
)

// documents reads every document by its path from the root of the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = string(b)
		}
	}
	if len(texts) < 5 {
		t.Fatalf("found only %d documents", len(texts))
	}
	return texts
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

func TestEveryLinkWithinTheRepositoryLeadsSomewhere(t *testing.T) {
	links := 0
	for name, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
	}
	if links == 0 {
		t.Error("found no link")
	}
}

var makeTarget = regexp.MustCompile("`make ([a-z]+)`|bash \\.ci/setup ([a-z]+)")

func TestEveryMakeTargetThatIsNamedExists(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range documents(t) {
		for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
			if target := m[1] + m[2]; !strings.Contains(string(makefile), "\n"+target+":") {
				t.Errorf("%s names the make target %s, which there is not", name, target)
			}
		}
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(action:.*?)```")

func TestEveryContractInTheDocumentsIsAccepted(t *testing.T) {
	contracts := 0
	for name, text := range documents(t) {
		for _, m := range yamlBlock.FindAllStringSubmatch(text, -1) {
			contracts++
			if _, err := policy.Parse(name, []byte(m[1])); err != nil {
				t.Errorf("a contract in %s: %v", name, err)
			}
		}
	}
	if contracts == 0 {
		t.Error("found no contract")
	}
}

// properties collects the names of all properties that a JSON Schema describes, but for those of the schema of a schema.
func properties(schema map[string]any, into map[string]bool) {
	for keyword, value := range schema {
		if keyword == "properties" {
			for name := range value.(map[string]any) {
				into[name] = true
			}
		}
		if keyword == "input" {
			continue
		}
		switch v := value.(type) {
		case map[string]any:
			properties(v, into)
		case []any:
			for _, item := range v {
				if m, ok := item.(map[string]any); ok {
					properties(m, into)
				}
			}
		}
	}
}

func TestTheContractReferenceHasEveryField(t *testing.T) {
	b, err := os.ReadFile("policy/contract.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	fields := map[string]bool{}
	properties(schema, fields)
	if len(fields) < 20 {
		t.Fatalf("the schema has only the fields %v", fields)
	}
	reference := documents(t)["docs/contracts.md"]
	for field := range fields {
		if !regexp.MustCompile("`[^`\n]*\\b" + field + "\\b[^`\n]*`").MatchString(reference) {
			t.Errorf("docs/contracts.md does not describe %q", field)
		}
	}
}

func TestTheInterfaceReferenceHasEveryCodeOfARefusedCall(t *testing.T) {
	source, err := os.ReadFile("daemon/api/codes.go")
	if err != nil {
		t.Fatal(err)
	}
	calls, _, found := strings.Cut(string(source), "// Codes of refused operator requests.")
	codes := regexp.MustCompile(`Code = "([a-z_]+)"`).FindAllStringSubmatch(calls, -1)
	if !found || len(codes) < 10 {
		t.Fatalf("found only the codes %v", codes)
	}
	reference := documents(t)["docs/interface.md"]
	for _, code := range codes {
		if !strings.Contains(reference, "| `"+code[1]+"` |") {
			t.Errorf("docs/interface.md does not describe %q", code[1])
		}
	}
}

// The threat model names the test that holds each promise. A name that nobody has any more would be a promise that nobody holds.
func TestTheThreatModelNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(b, -1) {
			there[string(m[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(…?)`").FindAllSubmatch(text, -1)
	if len(names) < 40 {
		t.Fatalf("the threat model names %d tests", len(names))
	}
	for _, m := range names {
		found := there[string(m[1])]
		if len(m[2]) > 0 {
			for name := range there {
				found = found || strings.HasPrefix(name, string(m[1]))
			}
		}
		if !found {
			t.Errorf("there is no test %s", m[1])
		}
	}
}

var exposure = regexp.MustCompile(`Overall exposure level for singlepass\.service: ([0-9.]+)`)

func TestTheFiguresOfSystemdAnalyzeAreTrue(t *testing.T) {
	version, err := exec.Command("systemd-analyze", "--version").Output()
	if err != nil || !strings.HasPrefix(string(version), "systemd 252") {
		t.Skip("the documents speak of systemd 252, which is not here")
	}
	unit, err := os.ReadFile("assets/singlepass.service")
	if err != nil {
		t.Fatal(err)
	}
	sandbox, err := os.ReadFile("assets/singlepass-sandbox.conf")
	if err != nil {
		t.Fatal(err)
	}
	text := documents(t)["docs/threat-model.md"]
	for what, unit := range map[string]string{"the unit": string(unit), "with its sandbox": string(unit) + string(sandbox)} {
		dir := t.TempDir()
		file := filepath.Join(dir, "singlepass.service")
		if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("systemd-analyze", "--user", "--offline=true", "--no-pager", "security", file)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
		out, err := cmd.CombinedOutput()
		m := exposure.FindSubmatch(out)
		if m == nil {
			t.Fatalf("%s: %v\n%s", what, err, out)
		}
		if say := what + " " + string(m[1]); !strings.Contains(text, say) {
			t.Errorf("docs/threat-model.md does not say %q", say)
		}
	}
}
