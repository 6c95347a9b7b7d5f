package policy

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
)

// commandSchema takes the command as words only. An agent that means a line of shell says so, as [sh, -c, LINE], and the person sees it as one; there is no environment, which would be a
// second way to choose what runs.
const commandSchema = `{"type":"object","properties":{` +
	`"host":{"type":"string","maxLength":500,"description":"The account and the host, as ssh://USER@HOST or ssh://USER@HOST:PORT."},` +
	`"command":{"type":"array","items":{"type":"string","maxLength":65536},"minItems":1,"maxItems":1024,"description":"The program and its arguments, each one word: no shell reads them. ` +
	`For a line of shell send [\"sh\", \"-c\", \"LINE\"]."},` +
	`"directory":{"type":"string","maxLength":4096,"description":"The absolute path of the directory to run it in. Without it, where the account lands."},` +
	`"stdin":{"type":"string","description":"Text for its standard input. Without it, that is empty."},` +
	`"credential":{"type":"string","maxLength":64,"description":"The credential's name. Needed only where several are for the account."}` +
	`},"required":["host","command"],"additionalProperties":false}`

// GenericSSH makes the action of generic commands with a credential. Nobody knows what a command does, so each is irreversible and asked for.
func GenericSSH(credential string) (*Action, error) {
	c := &Contract{
		Action: GenericSSHTool, Title: "Run a command over SSH", Channel: effect.SSH, Credential: credential,
		Description: "Runs one command on a host over SSH with a credential of the person's, which you never see. The person sees the whole command and is asked before it is run. " +
			"Prefer another tool where one does what you need.",
		SSH: &SSH{},
	}
	return c.generic(execution.Irreversible, commandSchema)
}

// genericHost reads the account and the host. What it returns is written in one way only, and has no keys.
func genericHost(written string) (effect.SSHHost, *ArgumentError) {
	refuse := func(problem string) (effect.SSHHost, *ArgumentError) {
		return effect.SSHHost{}, &ArgumentError{"/host", problem, "send ssh://USER@HOST or ssh://USER@HOST:PORT"}
	}
	u, err := url.Parse(written)
	if err != nil || u.Scheme != "ssh" || u.Opaque != "" {
		return refuse("it is no account on a host")
	}
	name := strings.ToLower(u.Hostname())
	switch _, password := u.User.Password(); {
	case password:
		return refuse("it has a password in it; the credential is put in place for you") // not quoted back
	case !sshUser().MatchString(u.User.Username()):
		return refuse("it names no account")
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(written, "#"):
		return refuse("something follows the host")
	case !hostname(name) || strings.HasSuffix(u.Host, ":") || !port(u.Port()):
		return refuse("its host is none")
	}
	if a, err := netip.ParseAddr(name); err == nil {
		name = a.String()
	}
	h := effect.SSHHost{User: u.User.Username(), Name: name, Port: 22}
	if digits := u.Port(); digits != "" {
		if h.Port, err = strconv.Atoi(digits); err != nil {
			return refuse("its port is none")
		}
	}
	return h, nil
}

// genericCommand makes the command of checked arguments: each word quoted, so that it is one, whatever it holds.
func genericCommand(values map[string]any) (*effect.SSHCommand, *ArgumentError) {
	refuse := func(pointer, problem, remedy string) (*effect.SSHCommand, *ArgumentError) {
		return nil, &ArgumentError{pointer, problem, remedy}
	}
	written, _ := values["host"].(string)
	host, wrong := genericHost(written)
	if wrong != nil {
		return nil, wrong
	}
	c := &effect.SSHCommand{Host: host}
	words, _ := values["command"].([]any)
	line := make([]string, 0, len(words))
	for i, w := range words {
		word, _ := w.(string)
		quoted, err := effect.Quote(word)
		switch at := sub("/command", itoa(i)); {
		case err != nil:
			return refuse(at, err.Error(), "send text without it")
		case i == 0 && strings.TrimSpace(word) == "":
			return refuse(at, "it names no program", "send the program first, then its arguments")
		}
		line = append(line, quoted)
	}
	if len(line) == 0 {
		return refuse("/command", "it is empty", "send the program and its arguments")
	}
	c.Command = strings.Join(line, " ")
	c.Directory, _ = values["directory"].(string)
	if _, given := values["directory"]; given {
		switch {
		case !strings.HasPrefix(c.Directory, "/"):
			return refuse("/directory", "it is not absolute", "send a path that begins with /, or leave it out")
		case dots(c.Directory):
			return refuse("/directory", "it has a part that moves to another folder (. or ..)", "send the path that is meant")
		case strings.ContainsFunc(c.Directory, control):
			return refuse("/directory", "it has a control character", "send a path without it")
		}
	}
	if text, _ := values["stdin"].(string); text != "" {
		c.Stdin = []byte(text)
	}
	return c, nil
}
