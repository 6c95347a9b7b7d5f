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
					commands[strings.TrimSpace(m[1])] = name
				}
			}
		}
	}
	if len(commands) < 10 {
		t.Fatalf("found only the commands %v", commands)
	}
	for command, name := range commands {
		words := strings.Fields(command)
		parent := ""
		for n := range words {
			known := strings.Join(words[:n+1], " ")
			help, _, status := run(t, exec.Command(spctl, append(words[:n+1:n+1], "--help")...))
			if status == 0 && strings.Contains(help, "spctl "+known) {
				parent = help
				continue
			}
			// What follows a command that has no commands beneath it are its arguments.
			if n == 0 || strings.Contains(parent, "[command]") {
				t.Errorf("%s names `spctl %s`, and the help of `spctl %s` is (exit status %d):\n%s", name, command, known, status, help)
			}
			break
		}
	}
}
