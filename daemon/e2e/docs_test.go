package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	code      = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	spctlCall = regexp.MustCompile(`(?:^|[\s;|/(>` + "`" + `])spctl((?: [a-z][a-z-]*)+)`)
)

// arguments are lower-case words that follow a command in the documents and are no commands themselves.
var arguments = map[string]bool{"deploy": true, "act": true}

func TestEveryCommandInTheDocumentsExists(t *testing.T) {
	spctl := build(t, "singlepass.dev/cmd/spctl")
	commands := map[string]string{}
	for _, pattern := range []string{"../../*.md", "../../docs/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, block := range code.FindAllString(string(text), -1) {
				for _, m := range spctlCall.FindAllStringSubmatch(block, -1) {
					words := strings.Fields(m[1])
					for len(words) > 0 && arguments[words[len(words)-1]] {
						words = words[:len(words)-1]
					}
					commands[strings.Join(words, " ")] = name
				}
			}
		}
	}
	if len(commands) < 10 {
		t.Fatalf("found only the commands %v", commands)
	}
	for command, name := range commands {
		help, _, status := run(t, exec.Command(spctl, append(strings.Fields(command), "--help")...))
		if status != 0 || !strings.Contains(help, "spctl "+command) {
			t.Errorf("%s names `spctl %s`, whose help is (exit status %d):\n%s", name, command, status, help)
		}
	}
}
