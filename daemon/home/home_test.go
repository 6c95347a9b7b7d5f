package home_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/home"
)

func environment(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

func TestAHomeOfItsOwnHoldsEverything(t *testing.T) {
	for _, h := range []home.Home{
		resolve(t, "/srv/p", environment(home.Variable, "/elsewhere", "XDG_DATA_HOME", "/x")),
		resolve(t, "", environment(home.Variable, "/srv/p", "XDG_DATA_HOME", "/x")),
	} {
		want := home.Home{Root: "/srv/p", Config: "/srv/p/config", Data: "/srv/p/data", Run: "/srv/p/run"}
		if h != want {
			t.Errorf("got %+v, want %+v", h, want)
		}
	}
}

func TestWithoutOneItFollowsXDGAndIgnoresRelativePaths(t *testing.T) {
	h := resolve(t, "", environment("HOME", "/home/u", "XDG_CONFIG_HOME", "/c", "XDG_DATA_HOME", "relative", "XDG_RUNTIME_DIR", "/r"))
	want := home.Home{Config: "/c/singlepass", Data: "/home/u/.local/share/singlepass", Run: "/r/singlepass"}
	if h != want {
		t.Errorf("got %+v, want %+v", h, want)
	}
	if _, err := home.Resolve("", environment()); err == nil || !strings.Contains(err.Error(), "--home") {
		t.Errorf("without HOME: got %v, want an error that names --home", err)
	}
}

func TestCreateMakesPrivateFolders(t *testing.T) {
	h := resolve(t, filepath.Join(t.TempDir(), "h"), environment())
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{h.Root, h.Config, h.Actions(), h.Data, h.Journal(), h.Run} {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %o", dir, info.Mode().Perm())
		}
	}
}

func TestWhatOthersCanReachIsRefusedWithTheFix(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, h home.Home)
		want  string
	}{
		"open folder":       {func(t *testing.T, h home.Home) { must(t, os.Chmod(h.Data, 0o750)) }, "chmod 700 "},
		"symlinked folder":  {func(t *testing.T, h home.Home) { must(t, os.Rename(h.Run, h.Run+"2"), os.Symlink(h.Run+"2", h.Run)) }, "symbolic link"},
		"file for a folder": {func(t *testing.T, h home.Home) { must(t, os.Remove(h.Run), os.WriteFile(h.Run, nil, 0o600)) }, "not a folder"},
		"open vault": {func(t *testing.T, h home.Home) {
			must(t, os.WriteFile(h.Vault(), nil, 0o640), os.Chmod(h.Vault(), 0o640))
		}, "chmod 600 "},
		"symlinked vault": {func(t *testing.T, h home.Home) { must(t, os.Symlink("/dev/null", h.Vault())) }, "not a regular file"},
		"open parent":     {func(t *testing.T, h home.Home) { must(t, os.Chmod(filepath.Dir(h.Root), 0o777)) }, "chmod o-w "},
	} {
		t.Run(name, func(t *testing.T) {
			h := resolve(t, filepath.Join(t.TempDir(), "h"), environment())
			must(t, h.Create())
			must(t, h.Check())
			c.spoil(t, h)
			if err := h.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Check: got %v, want %q", err, c.want)
			}
			if err := h.Create(); err == nil && name != "file for a folder" {
				t.Error("Create accepted it")
			}
		})
	}
}

func TestAForeignFolderIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	h := resolve(t, filepath.Join(t.TempDir(), "h"), environment())
	must(t, h.Create(), os.Chown(h.Data, 12345, -1))
	if err := h.Check(); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Errorf("got %v", err)
	}
}

func TestAFolderBelowSomebodyElsesIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	top := t.TempDir()
	theirs, ours := filepath.Join(top, "theirs"), filepath.Join(top, "ours")
	must(t, os.Mkdir(theirs, 0o755), os.Mkdir(ours, 0o700), os.Chown(theirs, 12345, -1))
	// A link of theirs that leads to a folder of ours today can lead elsewhere tomorrow; a link of ours may lead through one of theirs.
	must(t, os.Symlink(ours, filepath.Join(theirs, "link")), os.Symlink(ours, filepath.Join(top, "link")), os.Lchown(filepath.Join(top, "link"), 12345, -1))
	must(t, os.Symlink("theirs/link", filepath.Join(top, "link2")), os.Symlink("ours", filepath.Join(top, "own")))
	for _, below := range []string{"theirs", "theirs/link", "link", "link2"} {
		if err := resolve(t, filepath.Join(top, below, "h"), environment()).Create(); err == nil || !strings.Contains(err.Error(), "belongs to user 12345, who can exchange") {
			t.Errorf("below %s: got %v", below, err)
		}
	}
	must(t, resolve(t, filepath.Join(top, "own", "h"), environment()).Create())
}

func TestASocketPathThatDoesNotFitIsRefusedBeforeAnythingIsMade(t *testing.T) {
	h := resolve(t, filepath.Join(t.TempDir(), strings.Repeat("x", 100)), environment())
	err := h.Create()
	if err == nil || !strings.Contains(err.Error(), "shorter folder") {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(h.Root); err == nil {
		t.Error("the folder was made all the same")
	}
}

func TestConfigDefaultsAndValues(t *testing.T) {
	h := resolve(t, filepath.Join(t.TempDir(), "h"), environment())
	must(t, h.Create())
	c, err := h.LoadConfig()
	must(t, err)
	want := home.Config{AnswerWithin: 45 * time.Second, Actions: h.Actions(), SegmentSize: 64 << 20}
	if c != want {
		t.Errorf("defaults: got %+v, want %+v", c, want)
	}
	must(t, os.WriteFile(h.ConfigFile(), []byte("answer_within: 5s\nmcp_http: 127.0.0.1:0\nactions: mine\nsegment_size: 1MiB\n"), 0o600))
	c, err = h.LoadConfig()
	must(t, err)
	want = home.Config{AnswerWithin: 5 * time.Second, MCPHTTP: "127.0.0.1:0", Actions: filepath.Join(h.Config, "mine"), SegmentSize: 1 << 20}
	if c != want {
		t.Errorf("values: got %+v, want %+v", c, want)
	}
	must(t, os.WriteFile(h.ConfigFile(), []byte("mcp_http: off\n"), 0o600))
	if c, err = h.LoadConfig(); err != nil || c.MCPHTTP != "" {
		t.Errorf("off: got %q, %v", c.MCPHTTP, err)
	}
}

func TestConfigErrorsNameLineAndColumn(t *testing.T) {
	for text, want := range map[string]string{
		"segment_size: 1MiB\nanswer_whithin: 5s\n":   ":2:1: ",
		"\nanswer_within: soon\n":                    ":2:16: answer_within: \"soon\"",
		"\ncard_ttl: 1h\n":                           ":2:11: card_ttl: this is a security setting, and lies in the vault",
		"idle_lock: never\n":                         ":1:12: idle_lock: this is a security setting",
		"mcp_http: 0.0.0.0:80\n":                     ":1:11: mcp_http: \"0.0.0.0:80\" is not a loopback",
		"segment_size: 1\n":                          ":1:15: segment_size: ",
		"answer_within: 999h\n":                      ":1:16: answer_within: ",
		"answer_within: [1]\n":                       ":1:16: ",
		"answer_within: 5s\nanswer_within: 6s\n":     ":2:1: ",
		"segment_size: 99999999999999999999999GiB\n": ":1:15: ",
	} {
		h := resolve(t, filepath.Join(t.TempDir(), "h"), environment())
		must(t, h.Create(), os.WriteFile(h.ConfigFile(), []byte(text), 0o600))
		if _, err := h.LoadConfig(); err == nil || !strings.Contains(err.Error(), "config.yaml"+want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestReadPrivateChecksTheFileThatItOpens(t *testing.T) {
	dir := t.TempDir()
	good, open, link := filepath.Join(dir, "good"), filepath.Join(dir, "open"), filepath.Join(dir, "link")
	must(t, os.WriteFile(good, []byte("12345"), 0o600), os.WriteFile(open, []byte("1"), 0o600), os.Chmod(open, 0o604), os.Symlink(good, link))
	if b, err := home.ReadPrivate(good, 5); err != nil || string(b) != "12345" {
		t.Errorf("good: %q, %v", b, err)
	}
	for path, want := range map[string]string{good: "4 are allowed", open: "chmod 600 ", link: "symbolic link", filepath.Join(dir, "none"): "no such file"} {
		if _, err := home.ReadPrivate(path, 4); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

func resolve(t *testing.T, flag string, getenv func(string) string) home.Home {
	t.Helper()
	h, err := home.Resolve(flag, getenv)
	must(t, err)
	return h
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
