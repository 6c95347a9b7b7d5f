package effect

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// SSHCommand is one command on one host, complete but for the credential.
type SSHCommand struct {
	Host SSHHost `json:"host"`
	// Jump is the host through which the connection goes, with the same credential.
	Jump *SSHHost `json:"jump,omitempty"`
	// Command is one command line for the account's shell. Whatever in it comes from arguments was quoted by Quote.
	Command   string  `json:"command"`
	Directory string  `json:"directory,omitempty"` // absolute; empty means where the account lands
	Env       []Field `json:"env,omitempty"`       // in the order in which they are set
	Stdin     []byte  `json:"stdin,omitempty"`
	// Success lists the exit statuses by which the command says that it did it. Empty means 0. Every other one is a target_error.
	Success []int `json:"success,omitempty"`
	// Marker is set if the command runs under a marker, which a lost answer can be asked for.
	Marker *SSHMarker `json:"marker,omitempty"`
}

// SSHHost is an account on a host whose keys are pinned.
type SSHHost struct {
	User string `json:"user"`
	Name string `json:"name"` // a lower-case name, or an address without brackets
	Port int    `json:"port"`
	// Keys are the pinned host keys, as in authorized_keys without comment, sorted. The host has to show one of them; without any it is not connected to.
	Keys []string `json:"keys,omitempty"`
}

// SSHMarker says where a host remembers that a command was started and how it ended.
type SSHMarker struct {
	Folder string `json:"folder,omitempty"` // absolute; empty means .singlepass in the account's home
	Keep   int    `json:"keep"`             // days for which a result is kept there
}

// Address is the host as a URL: ssh://user@name:port.
func (h SSHHost) Address() string {
	name := h.Name
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return "ssh://" + url.User(h.User).String() + "@" + name + ":" + strconv.Itoa(h.Port)
}

// Succeeded reports whether the command says by this exit status that it did what was asked.
func (c SSHCommand) Succeeded(status int) bool {
	if len(c.Success) == 0 {
		return status == 0
	}
	return slices.Contains(c.Success, status)
}

// Quote writes s as exactly one word of a POSIX shell: whatever s holds, none of it is syntax (POSIX.1-2024, Shell Command Language, section 2.2.2). It refuses what no
// argument of a program can hold, and text that is not UTF-8, which a shell may read otherwise than we do.
func Quote(s string) (string, error) {
	switch {
	case strings.ContainsRune(s, 0):
		return "", errors.New("it has a NUL, which no argument of a program can hold")
	case !utf8.ValidString(s):
		return "", errors.New("it is not UTF-8")
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'", nil
}

var environmentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (h SSHHost) check() error {
	if h.User == "" || h.Name == "" || h.Port < 1 || h.Port > 65535 {
		return errors.New("an SSH host needs a user, a name and a port")
	}
	return nil
}

func (c *SSHCommand) check() error {
	if err := c.Host.check(); err != nil {
		return err
	}
	if c.Jump != nil {
		if err := c.Jump.check(); err != nil {
			return err
		}
	}
	if strings.TrimSpace(c.Command) == "" {
		return errors.New("the command is empty")
	}
	if c.Directory != "" && !strings.HasPrefix(c.Directory, "/") {
		return fmt.Errorf("directory %q is not absolute", c.Directory)
	}
	for _, f := range c.Env {
		if !environmentName.MatchString(f.Name) {
			return fmt.Errorf("%q is no name of an environment variable", f.Name)
		}
	}
	for _, status := range c.Success {
		if status < 0 || status > 255 {
			return fmt.Errorf("exit status %d is not between 0 and 255", status)
		}
	}
	if m := c.Marker; m != nil && (m.Keep < 1 || m.Folder != "" && !strings.HasPrefix(m.Folder, "/")) {
		return errors.New("a marker needs an absolute folder and a number of days")
	}
	for _, text := range c.texts() {
		if strings.ContainsRune(text, 0) {
			return errors.New("a NUL in an SSH command")
		}
	}
	return nil
}

func (c *SSHCommand) texts() []string {
	texts := []string{c.Command, c.Directory, c.Host.User, c.Host.Name}
	texts = append(texts, c.Host.Keys...)
	if c.Jump != nil {
		texts = append(append(texts, c.Jump.User, c.Jump.Name), c.Jump.Keys...)
	}
	for _, f := range c.Env {
		texts = append(texts, f.Name, f.Value)
	}
	if c.Marker != nil {
		texts = append(texts, c.Marker.Folder)
	}
	return texts
}
