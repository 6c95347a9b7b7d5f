// Package singlepass_test holds what no package can hold alone: who may import whom, and why.
package singlepass_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// rule says what the packages beneath a path may not import, directly or (where deep is set) through others, and why.
type rule struct {
	who    []string // import paths without the module; "…/" at the end means everything beneath
	banned []string // import paths; "…/" at the end means everything beneath
	except []string // packages of ours that may
	deep   bool     // also through other packages
	why    string
}

const module = "singlepass.dev/"

var rules = []rule{
	{
		who: []string{"policy", "approval", "daemon/execution", "daemon/effect", "daemon/fingerprint"}, banned: []string{"net", "net/http", "os", "os/exec", "go.etcd.io/bbolt", "database/sql"},
		why: "decisions are values and pure functions: they can be tested exhaustively only without I/O",
	},
	{
		who:    []string{"daemon/api", "daemon/effect", "daemon/execution", "approval", "vault/secret", "daemon/chain", "daemon/scrub", "daemon/visible", "daemon/httptoken"},
		banned: []string{module + "…/"}, except: []string{"vault/secret"}, deep: true,
		why: "these are leaves: everybody may import them because they import nothing of ours",
	},
	{
		who: []string{"daemon/mcpserver", "daemon/bridge", "daemon/client", "cmd/spctl/…/", "ui", "ui/…/", "cmd/sp-tray"}, deep: true,
		banned: []string{module + "vault", module + "daemon/journal", module + "daemon/engine", module + "daemon/records", module + "daemon/index", module + "daemon/server", "go.etcd.io/bbolt"},
		why:    "what faces an agent or runs outside the daemon must not be able to touch the vault or the journal, even by mistake (spctl doctor looks at the keyring, so keychain is not banned)",
	},
	{
		who: []string{"cmd/spctl/…/", "cmd/spctl", "daemon/bridge", "daemon/client"}, banned: []string{module + "policy", "cel.dev/…/", "google.golang.org/protobuf/…/"}, deep: true,
		why: "spctl is started for every agent, and a Go program initializes all that it links before its first line: what evaluates contracts is asked of spd",
	},
	{
		who: []string{"daemon/channel/…/"}, banned: []string{module + "vault", module + "daemon/engine", module + "daemon/journal", module + "policy", module + "approval"}, deep: true,
		why: "a channel sees one credential for one request and nothing else: it decides nothing",
	},
	{
		who: []string{"daemon/journal", "daemon/chain", "daemon/audit"}, banned: []string{module + "policy", module + "approval", module + "vault", module + "daemon/engine"}, deep: true,
		why: "the journal records and knows no policy; audit must work from the files alone",
	},
	{
		who: []string{"vault/…/", "vault"}, banned: []string{module + "daemon/…/", module + "policy", module + "approval"}, deep: true,
		why: "the vault holds credentials and knows nothing of what they are used for",
	},
	{
		who: []string{"cmd/…/", "daemon/…/", "vault/…/", "vault", "policy", "approval", "ui/…/", "ui"}, banned: []string{module + "vault/vaulttest", module + "daemon/control/controltest"}, except: []string{"daemon/control/controltest"},
		why: "what makes passphrases cheap to check is for tests, and tests are not seen here",
	},
	{
		who:    []string{"cmd/spd", "cmd/spctl/…/", "cmd/spctl", "daemon/…/", "vault/…/", "vault", "policy", "approval"},
		banned: []string{"C", "runtime/cgo", "fyne.io/…/"}, deep: true,
		why: "spd and spctl build without cgo; Fyne stays in ui and cmd/sp-tray",
	},
	{
		who: []string{"ui", "ui/…/"}, banned: []string{"fyne.io/fyne/v2/app", "github.com/go-gl/…/", "runtime/cgo", "C"}, deep: true,
		why: "views are tested without cgo and without a display; only cmd/sp-tray opens a real window",
	},
	{
		who: []string{"ui/card", "ui/record", "ui/activity", "ui/sessions", "ui/vaultview", "ui/actions", "ui/pending", "ui/look", "ui/words"}, banned: []string{module + "ui", module + "ui/watch"}, deep: true,
		why: "a view takes the small interface that it uses; who stands behind it is the frame's business",
	},
	{
		who: []string{"ui/watch", "ui/notify", "ui/single"}, banned: []string{"fyne.io/fyne/…/"}, deep: true,
		why: "what runs at the same time is tested under the race detector, and Fyne is not compiled for it",
	},
	{
		who: []string{"daemon/engine"}, banned: []string{module + "daemon/mcpserver", module + "daemon/control", module + "daemon/journal", module + "daemon/index", "go.etcd.io/bbolt", "net/http"},
		why: "the engine is reached by faces and reaches records and channels through its own small interfaces",
	},
}

func TestPackagesImportOnlyWhatTheirLayerMay(t *testing.T) {
	direct, all := imports(t)
	for _, r := range rules {
		used := false
		for pkg := range direct {
			if !matches(r.who, pkg) || slices.Contains(r.except, pkg) {
				continue
			}
			used = true
			list := direct[pkg]
			if r.deep {
				list = all[pkg]
			}
			for _, imported := range list {
				if imported == module+pkg || slices.Contains(r.except, strings.TrimPrefix(imported, module)) {
					continue
				}
				if matches(r.banned, imported) {
					t.Errorf("%s imports %s: %s", pkg, imported, r.why)
				}
			}
		}
		if !used && !slices.ContainsFunc(r.who, func(s string) bool { return strings.HasPrefix(s, "ui") }) {
			t.Errorf("no package is held by the rule about %v; is a name wrong?", r.who)
		}
	}
}

func TestTheRootHoldsOnlyWhatWasAgreed(t *testing.T) {
	direct, _ := imports(t)
	for pkg := range direct {
		top, _, _ := strings.Cut(pkg, "/")
		if pkg != "" && !slices.Contains([]string{"cmd", "daemon", "vault", "approval", "ui", "policy", "assets"}, top) {
			t.Errorf("package %s is at a place that is not agreed", pkg)
		}
	}
}

func TestTheWindowsWorkGoesThroughItsLoop(t *testing.T) {
	out, err := exec.Command("grep", "-rnE", "--include=*.go", `fyne\.Do(AndWait)?\(`, "ui", "cmd").Output()
	if err != nil && len(out) > 0 {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "ui/look/thread.go:") {
			t.Errorf("what fyne.Do sends waits until the loop has rested; use look.Do: %s", line)
		}
	}
}

func matches(list []string, path string) bool {
	return slices.ContainsFunc(list, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "…/"); ok {
			return strings.HasPrefix(path, prefix)
		}
		return p == path
	})
}

// imports returns what every package of ours imports directly and in all, by its path without the module.
func imports(t *testing.T) (direct, all map[string][]string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-f", `{{.ImportPath}}|{{join .Imports " "}}|{{join .Deps " "}}`, "./...")
	// Without cgo nothing of Fyne's window is compiled, so -e: cmd/sp-tray's imports are listed all the same.
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("listing packages: %v", err)
	}
	direct, all = map[string][]string{}, map[string][]string{}
	for line := range strings.Lines(string(out)) {
		part := strings.Split(strings.TrimSpace(line), "|")
		if len(part) != 3 {
			continue
		}
		pkg := strings.TrimPrefix(strings.TrimPrefix(part[0], strings.TrimSuffix(module, "/")), "/")
		direct[pkg], all[pkg] = strings.Fields(part[1]), strings.Fields(part[2])
	}
	return direct, all
}
