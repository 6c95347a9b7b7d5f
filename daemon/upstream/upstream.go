// Package upstream holds what is known of an MCP server behind the gateway, as values: what the operator accepted it to be, and what it says of its tools.
//
// Promises: an Identity stands for exactly one command or URL with its credentials; a Pin stands for exactly one name, title, description and schemas of a tool, whatever the order in
// which the upstream writes the members. What an upstream says is bounded and strict JSON before any of it is used.
//
// Non-promises: a pin says how a tool describes itself. What the program behind it does can change without a word, and no pin sees that.
//
// Frozen, because accepted contracts and records hold them: the JSON of Definition and Tool, and how Identity and Pin are computed (testdata). Fields may be added if an absent
// one leaves both as they were.
package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of what an upstream is and says.
const (
	MaxTools     = 512       // of one upstream
	MaxToolBytes = 128 << 10 // of one tool's description of itself
	maxArguments = 256
	maxWords     = 32 << 10 // bytes of a command
)

// Definition is what the operator accepted as an upstream. Exactly one of Command and URL is set.
type Definition struct {
	Name    string   `json:"name"`
	Command []string `json:"command,omitempty"` // an absolute path and its arguments
	Dir     string   `json:"dir,omitempty"`     // where it runs; the root folder where there is none
	Env     []string `json:"env,omitempty"`     // NAME=value, without secrets
	URL     string   `json:"url,omitempty"`
	// Secrets are the credentials of kind env that a command finds in its environment, sorted.
	Secrets []string `json:"secrets,omitempty"`
	// Credential is sent with every request to a URL. Empty where none is needed.
	Credential string `json:"credential,omitempty"`
}

// HTTP says that the upstream is reached at a URL.
func (d Definition) HTTP() bool { return d.URL != "" }

// Credentials lists the names of the credentials that the upstream is given.
func (d Definition) Credentials() []string {
	var names []string
	if d.Credential != "" {
		names = append(names, d.Credential)
	}
	return append(names, d.Secrets...)
}

var (
	nameForm     = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// loaders are variables by which code comes into a program, or by which it finds its libraries: an accepted command would not be what runs.
var loaders = []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "PATH"}

// Validate reports what is wrong with a definition, and what to write instead.
func (d Definition) Validate() error {
	switch {
	case !nameForm.MatchString(d.Name):
		return fmt.Errorf("the name %q is not possible: write 1 to 32 lower-case letters, digits and dashes, the first a letter or digit", clip(d.Name))
	case (len(d.Command) == 0) == (d.URL == ""):
		return errors.New("an upstream has a command or a URL: write one of them")
	}
	if d.URL != "" {
		return d.validateURL()
	}
	if d.Credential != "" {
		return errors.New("a command finds its credentials in its environment: use one of kind env")
	}
	size := 0
	for _, word := range append(append([]string{d.Dir}, d.Command...), d.Env...) {
		if size += len(word); !utf8.ValidString(word) || strings.ContainsRune(word, 0) {
			return errors.New("a command and its environment are UTF-8 without NUL")
		}
	}
	switch {
	case len(d.Command) > maxArguments || size > maxWords:
		return fmt.Errorf("the command is too long: at most %d arguments and %d bytes", maxArguments, maxWords)
	case !strings.HasPrefix(d.Command[0], "/"):
		return fmt.Errorf("the program %q has no absolute path", clip(d.Command[0]))
	case d.Dir != "" && !strings.HasPrefix(d.Dir, "/"):
		return fmt.Errorf("the folder %q has no absolute path", clip(d.Dir))
	}
	var seen []string
	for _, e := range d.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok {
			return fmt.Errorf("the variable %q has no value: write NAME=value", clip(e))
		}
		seen = append(seen, name)
	}
	for i, name := range seen {
		switch {
		case !variableForm.MatchString(name):
			return fmt.Errorf("%q is no name of a variable: write letters, digits and _", clip(name))
		case slices.Contains(loaders, name):
			return fmt.Errorf("the variable %s decides which program runs: write it into the command", name)
		case slices.Contains(seen[:i], name):
			return fmt.Errorf("the variable %s is set twice", name)
		}
	}
	if !slices.IsSorted(d.Secrets) || len(slices.Compact(slices.Clone(d.Secrets))) != len(d.Secrets) || slices.Contains(d.Secrets, "") {
		return errors.New("the credentials are not sorted, or one is named twice")
	}
	return nil
}

func (d Definition) validateURL() error {
	if len(d.Env)+len(d.Secrets) > 0 || d.Dir != "" {
		return errors.New("an upstream at a URL has no environment and no folder")
	}
	u, err := url.Parse(d.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("the URL is not https://HOST/PATH")
	case u.User != nil:
		return errors.New("the URL names a user: use a credential")
	case u.Fragment != "" || strings.Contains(d.URL, "#"):
		return errors.New("the URL has a fragment: leave it out")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("http sends everything readably; it is possible only to this machine (127.0.0.1, ::1, localhost): write https")
	}
	return nil
}

func loopback(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.") && strings.Trim(host, "0123456789.") == ""
}

// Identity is a digest of everything in the definition.
func (d Definition) Identity() string {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and slices of strings
	}
	return digest("singlepass.dev/upstream/v1", b)
}

func digest(domain string, b []byte) string {
	sum := sha256.Sum256(append([]byte(domain+"\x00"), b...))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
