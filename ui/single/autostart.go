package single

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Entry is the name of the autostart entry's file.
const Entry = "singlepass-tray.desktop"

// Autostart writes the entry that starts the program with the desktop session, without its window, or removes it (Desktop Application Autostart Specification 0.5). config is the
// person's configuration folder, XDG_CONFIG_HOME; home is the value of --home, or empty.
func Autostart(config, program, home string, on bool) (file string, err error) {
	file = filepath.Join(config, "autostart", Entry)
	if !on {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return file, fmt.Errorf("removing the autostart entry: %w", err)
		}
		return file, nil
	}
	exec := quoted(program) + " --background"
	if home != "" {
		exec += " --home " + quoted(home)
	}
	text := "[Desktop Entry]\nType=Application\nName=Singlepass\nComment=Asks you before an AI agent's call is carried out\nIcon=singlepass\nExec=" + exec +
		"\nTerminal=false\nX-GNOME-Autostart-enabled=true\n"
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return file, fmt.Errorf("writing the autostart entry: %w", err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return file, fmt.Errorf("writing the autostart entry: %w", err)
	}
	return file, nil
}

// HasAutostart says whether the entry is there.
func HasAutostart(config string) bool {
	_, err := os.Stat(filepath.Join(config, "autostart", Entry))
	return err == nil
}

// quoted is one argument of an Exec line (Desktop Entry Specification 1.5, "The Exec key"): in quotes, with what is special there escaped, the backslash once more for the
// string's own escapes, and the percent sign doubled.
func quoted(s string) string {
	s = strings.NewReplacer(`\`, `\\\\`, `"`, `\\"`, "`", "\\\\`", `$`, `\\$`, `%`, `%%`).Replace(s)
	return `"` + s + `"`
}
