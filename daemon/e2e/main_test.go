package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait for an event. It is long because the machine may be busy, and is reached only by a failure.
const patience = 60 * time.Second

// binaries is where what the tests run is built, once for all of them.
var binaries string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sp-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for the binaries:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	return m.Run()
}

// build builds one command of the module and returns its path.
func build(t *testing.T, pkg string) string {
	t.Helper()
	once, _ := builds.LoadOrStore(pkg, sync.OnceValues(func() (string, error) {
		out := filepath.Join(binaries, filepath.Base(pkg))
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if b, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", pkg, err, b)
		}
		return out, nil
	}))
	path, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var builds sync.Map // package: func() (path string, err error)

const nodeDir = "testdata/node"

// nodeModules installs what package-lock.json pins, unless it is there.
var nodeModules = sync.OnceValue(func() error {
	lock, err := os.ReadFile(filepath.Join(nodeDir, "package-lock.json"))
	if err != nil {
		return err
	}
	stamp := filepath.Join(nodeDir, "node_modules", ".installed")
	if done, err := os.ReadFile(stamp); err == nil && string(done) == string(lock) {
		return nil
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is needed for the MCP clients (run: bash .ci/setup): %w", tool, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = nodeDir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("installing the MCP clients: %w\n%s", err, out)
	}
	return os.WriteFile(stamp, lock, 0o600)
})
