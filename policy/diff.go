package policy

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Diff shows what changed between two versions of a contract as a unified diff, and "" when nothing did. Either may be a file that Parse refuses, so characters that a
// terminal would act on, or that a reader would not see, are written out.
func Diff(oldName string, old []byte, newName string, new []byte) string {
	return visible(string(diff.Diff(oldName, old, newName, new)))
}

func visible(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if r != '\n' && r != '\t' && hidden(r) {
			fmt.Fprintf(&b, "<%U>", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
