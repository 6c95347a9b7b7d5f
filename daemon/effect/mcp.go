package effect

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// MCPCall is one tools/call to an upstream MCP server.
type MCPCall struct {
	Upstream string `json:"upstream"` // the name that the operator gave it
	// Identity is a digest of what the operator accepted under that name: command or URL, and credentials. A channel sends nothing if it stands for something else by now.
	Identity string   `json:"identity"`
	URL      string   `json:"url,omitempty"`     // of an upstream that is reached over HTTP
	Command  []string `json:"command,omitempty"` // of one that the daemon starts; shown to the person, with Identity as what counts
	Tool     string   `json:"tool"`              // by the upstream's own name for it
	// Pin is the digest of the tool's name, description and schema as they were accepted. A channel sends nothing if the upstream describes it otherwise by now.
	Pin       string `json:"pin"`
	Arguments []byte `json:"arguments"` // exactly the bytes of the JSON object that is sent
}

// Target names the tool as people read it.
func (m MCPCall) Target() string {
	return "mcp://" + m.Upstream + "/" + url.PathEscape(m.Tool)
}

func (m MCPCall) check() error {
	switch {
	case m.Upstream == "" || m.Identity == "" || m.Tool == "" || m.Pin == "":
		return errors.New("an MCP call names its upstream, that one's identity, the tool and its pin")
	case m.URL != "" && len(m.Command) > 0:
		return errors.New("an upstream has a URL or a command, not both")
	case !json.Valid(m.Arguments) || m.Arguments[0] != '{':
		return errors.New("the arguments of an MCP call are one JSON object, without white space before it")
	}
	for _, c := range m.Arguments {
		if c == '\n' || c == '\r' { // would end the message on a pipe
			return errors.New("the arguments of an MCP call have a line break between their values")
		}
	}
	if strings.ContainsFunc(m.Tool, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("tool %+q has a control character in its name", m.Tool)
	}
	return nil
}

func (m MCPCall) texts() []string {
	return append([]string{m.Upstream, m.Identity, m.URL, m.Tool, m.Pin, string(m.Arguments)}, m.Command...)
}
