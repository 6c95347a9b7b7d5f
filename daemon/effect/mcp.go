package effect

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// MCPCall is one request to an upstream MCP server: tools/call, or, with Method, something that is only read.
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
	// Method is resources/read or prompts/get; the arguments are then all of its parameters, Tool is empty, and Pin is that of the prompt. Absent for a tool.
	Method string `json:"method,omitempty"`
}

// Target names the tool as people read it. Of what is read it says no more than that: a resource's URI can hold as much as its contents, and targets stand open in the journal.
func (m MCPCall) Target() string {
	if m.Method != "" {
		return "mcp://" + m.Upstream + "?" + m.Method
	}
	return "mcp://" + m.Upstream + "/" + url.PathEscape(m.Tool)
}

func (m MCPCall) check() error {
	switch {
	case m.Method != "" && m.Method != "resources/read" && m.Method != "prompts/get":
		return fmt.Errorf("%q is no method by which something is read", m.Method)
	case m.Method != "" && (m.Upstream == "" || m.Identity == "" || m.Tool != "" || (m.Pin == "") != (m.Method == "resources/read")):
		return errors.New("what is read of an upstream names it and its identity, no tool, and the pin of a prompt")
	case m.Method == "" && (m.Upstream == "" || m.Identity == "" || m.Tool == "" || m.Pin == ""):
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
	return append([]string{m.Upstream, m.Identity, m.URL, m.Tool, m.Pin, m.Method, string(m.Arguments)}, m.Command...)
}
