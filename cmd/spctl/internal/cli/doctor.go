package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/daemon/harden"
	"singlepass.dev/daemon/home"
	"singlepass.dev/vault/keychain"
)

// finding is one line of doctor.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"` // ok; note: works, could be better; missing: does not work
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"` // a command, or what to do
}

func (a *app) doctorCommand() *cobra.Command {
	return a.reading(&cobra.Command{
		Use: "doctor", Short: "say what is missing on this machine, and the command that mends it", GroupID: "start", Args: cobra.NoArgs,
		Long: `Looks at the folders, the daemon, the vault, the session bus and its keyring, the journal, and the tokens in the
configurations of the clients that spctl connect knows. It changes nothing and needs
no proof. Exit code 0 means that nothing is missing.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.doctor(c.Context()) },
	})
}

func (a *app) doctor(ctx context.Context) error {
	h, err := a.places()
	if err != nil {
		return err
	}
	list := a.examine(ctx, h)
	missing := 0
	for _, f := range list {
		if f.State == "missing" {
			missing++
		}
		if a.json {
			if err := a.printJSON(f); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(a.out, "%-8s %-12s %s\n", f.State, f.Check, oneLine(f.Text))
		if f.Fix != "" {
			fmt.Fprintf(a.out, "%22s-> %s\n", "", oneLine(f.Fix))
		}
	}
	if missing > 0 {
		return exitError{api.ExitFailed}
	}
	return nil
}

func (a *app) examine(ctx context.Context, h home.Home) []finding {
	var list []finding
	add := func(check, state, text, fix string) { list = append(list, finding{check, state, text, fix}) }

	problems := h.Problems()
	for _, err := range problems {
		var p *home.Problem
		if errors.As(err, &p) {
			add("folders", "missing", p.Path+" "+p.What, p.Fix)
		} else {
			add("folders", "missing", err.Error(), "")
		}
	}
	if len(problems) == 0 {
		add("folders", "ok", h.Config+", "+h.Data+", "+h.Run, "")
	}
	if _, err := h.LoadConfig(); err != nil {
		add("config", "missing", err.Error(), "edit "+h.ConfigFile())
	} else {
		add("config", "ok", h.ConfigFile(), "")
	}
	if h.Root == "" && a.cfg.Getenv("XDG_RUNTIME_DIR") == "" {
		add("sockets", "note", "XDG_RUNTIME_DIR is not set; the sockets lie in "+h.Run, "log in by a session of the system, or leave it")
	}

	spd := besideSelf("spd")
	if spd == "" {
		add("programs", "missing", "spd does not lie beside spctl", "install both programs into one folder")
	} else {
		add("programs", "ok", spd, "")
		list = append(list, identityFinding(spd))
	}
	// An own client without a proof: doctor never asks for the passphrase.
	o := &client.Operator{Socket: h.OperatorSocket()}
	defer o.Close()
	s, err := o.Status(ctx)
	var e *api.Error
	var known *api.Status
	switch {
	case err == nil:
		add("daemon", "ok", fmt.Sprintf("%s, pid %d", s.Version, s.PID), "")
		list = append(list, vaultFindings(s)...)
		known = &s
	case errors.As(err, &e) && e.Code == api.CodeStranger:
		add("daemon", "missing", e.Message, e.Hint)
	default:
		add("daemon", "missing", "it is not running", startCommand(spd, h))
	}

	if err != nil || s.Vault == "uninitialized" || s.Keyring != "not_used" {
		list = append(list, keyringFinding(ctx))
	}
	list = append(list, a.tokenFindings(ctx, o, known)...)
	list = append(list, systemFindings()...)
	return list
}

// identityFinding says how spctl knows that the program which asks for the passphrase is spd.
func identityFinding(spd string) finding {
	if _, sealed := harden.GroupOf(spd); sealed {
		return finding{"identity", "ok", "spd has a group of its own, by which the kernel vouches for it before a passphrase is sent", ""}
	}
	both := spd + " " + filepath.Join(filepath.Dir(spd), "spctl")
	return finding{
		"identity", "note", "spd has no group of its own, so another program of yours that takes its socket could ask for the passphrase",
		"sudo groupadd --system singlepass; sudo chown root:singlepass " + both + "; sudo chmod 2755 " + both + "; then restart spd",
	}
}

// besideSelf finds a program in spctl's own folder.
func besideSelf(name string) string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(self), name)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

// startCommand is the exact command that starts the daemon here: the system's service manager where it has the unit, else the program itself.
func startCommand(spd string, h home.Home) string {
	if h.Root == "" {
		out, err := exec.Command("systemctl", "--user", "list-unit-files", "--no-legend", "singlepass.service").Output()
		if err == nil && bytes.Contains(out, []byte("singlepass.service")) {
			return "systemctl --user enable --now singlepass"
		}
	}
	if spd == "" {
		spd = "spd"
	}
	if h.Root != "" {
		return fmt.Sprintf("%s --home %s &", spd, h.Root)
	}
	return spd + " &"
}

func vaultFindings(s api.Status) []finding {
	var list []finding
	switch s.Vault {
	case "uninitialized":
		list = append(list, finding{"vault", "missing", "there is none yet", "spctl init"})
	case "locked":
		list = append(list, finding{"vault", "note", strings.TrimSuffix("it is locked: "+s.Reason, ": "), "spctl unlock"})
	default:
		list = append(list, finding{"vault", "ok", "it is open", ""})
	}
	if s.Keyring == "not_used" {
		list = append(list, finding{"keyring", "note", "the vault was made without one: the passphrase alone opens it", "choose a long passphrase: spctl passphrase change"})
	}
	if s.Journal == "ok" {
		list = append(list, finding{"journal", "ok", "it is written", ""})
	} else {
		list = append(list, finding{"journal", "missing", s.Journal + ": " + s.Problem, "spctl audit verify"})
	}
	if s.Vault == "unlocked" && s.Actions == 0 {
		list = append(list, finding{"actions", "note", "no contract is in force, so an agent can ask for nothing", "spctl action accept FILE"})
	}
	if s.Unknown > 0 {
		list = append(list, finding{"outcomes", "note", "waiting for your verdict: " + plural(s.Unknown, "lost answer", ""), "spctl activity --state unknown"})
	}
	return list
}

// keyringFinding asks the real keyring for an entry that is not there: that it says so means that it works. Package keychain never lets it open a prompt.
func keyringFinding(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	value, err := keychain.New().Get(ctx, "doctor")
	value.Wipe()
	f := finding{Check: "keyring", State: "missing"}
	install := "sudo apt-get install gnome-keyring dbus-user-session"
	switch {
	case err == nil, errors.Is(err, keychain.ErrNotFound):
		return finding{"keyring", "ok", "the Secret Service answers and is unlocked", ""}
	case errors.Is(err, keychain.ErrNoBus):
		f.Text, f.Fix = "there is no session bus, so no keyring", "log in to a desktop session, or choose a weaker vault on purpose: spctl init --no-keyring"
	case errors.Is(err, keychain.ErrNoService):
		f.Text, f.Fix = "no Secret Service runs on the session bus", install
	case errors.Is(err, keychain.ErrNoCollection):
		f.Text, f.Fix = "the Secret Service has no default keyring", "log in to the desktop once, or make one in Passwords and Keys (seahorse)"
	case errors.Is(err, keychain.ErrCollectionLocked):
		f.Text, f.Fix = "the keyring is locked", "unlock it in Passwords and Keys (seahorse), or log in to the desktop again"
	default:
		f.Text = err.Error()
	}
	return f
}

// systemFindings notes settings of the machine that make Singlepass weaker or its agents harder to connect.
func systemFindings() []finding {
	var list []finding
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && strings.TrimSpace(string(b)) == "0" {
		list = append(list, finding{
			"system", "note", "programs of yours may attach to each other's memory (kernel.yama.ptrace_scope is 0); spd and spctl mcp protect themselves, agents do not",
			"sudo sysctl -w kernel.yama.ptrace_scope=1",
		})
	}
	if _, err := exec.LookPath("node"); err != nil {
		list = append(list, finding{"node", "note", "not installed; Singlepass does not need it, several agents and MCP servers do", "sudo apt-get install nodejs npm"})
	}
	return list
}
