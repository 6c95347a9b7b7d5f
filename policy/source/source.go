// Package source says of a contract's bytes what can be said without understanding them: their digest, and how two versions differ. It is apart from package policy so that
// a program which only shows contracts need not link what evaluates them.
package source

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"

	"github.com/rogpeppe/go-internal/diff"
)

// Digest is what an operator accepts: the hash of the exact bytes of a contract's file.
func Digest(src []byte) string {
	sum := sha256.Sum256(src)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Diff shows what changed between two versions of a contract as a unified diff, and "" when nothing did. Either may be anything at all, so characters that a terminal would
// act on, or that a reader would not see, are written out.
func Diff(oldName string, old []byte, newName string, new []byte) string {
	return visible(string(diff.Diff(oldName, old, newName, new)))
}

func visible(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if r != '\n' && r != '\t' && Hidden(r) {
			fmt.Fprintf(&b, "<%U>", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Hidden reports whether a character cannot be seen, or changes how others are shown: controls, formatting and separators of lines and paragraphs.
func Hidden(r rune) bool {
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}
