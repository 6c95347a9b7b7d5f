package api

import (
	"encoding/json"
	"time"
)

// Upstream is an MCP server behind the gateway.
type Upstream struct {
	Name        string         `json:"upstream"`
	Transport   string         `json:"transport"` // stdio, http
	Command     []string       `json:"command,omitempty"`
	Dir         string         `json:"dir,omitempty"`
	Env         []string       `json:"env,omitempty"` // NAME=value, without secrets
	URL         string         `json:"url,omitempty"`
	Credentials []string       `json:"credentials,omitempty"`
	Identity    string         `json:"identity"`
	Added       time.Time      `json:"added,omitzero"`
	Files       []UpstreamFile `json:"files,omitempty"` // what the command names
	State       string         `json:"state"`           // unknown (not asked since the vault was opened), ready, failed
	Problem     string         `json:"problem,omitempty"`
	Revision    string         `json:"revision,omitempty"` // of the protocol
	Server      string         `json:"server,omitempty"`   // its own name and version
	Listed      time.Time      `json:"listed,omitzero"`
	Accepted    int            `json:"accepted"` // tools in force
	Waiting     int            `json:"waiting"`  // tools that are new, changed or gone

	Resources  bool `json:"resources"`              // agents may read its resources
	Prompts    int  `json:"prompts"`                // that agents may get
	ReadPerUse bool `json:"read_per_use,omitempty"` // the person is asked for each reading
}

// UpstreamFile is a program or script that a command names, as it was when the upstream was added.
type UpstreamFile struct {
	Path    string `json:"path"`
	Digest  string `json:"digest"`
	Changed string `json:"changed,omitempty"` // what is there now, if it is another: its digest, or why it cannot be read
}

// UpstreamRequest adds an upstream: a command or a URL.
type UpstreamRequest struct {
	Name        string   `json:"upstream"`
	Command     []string `json:"command,omitempty"` // an absolute path and its arguments
	Dir         string   `json:"dir,omitempty"`
	Env         []string `json:"env,omitempty"`
	URL         string   `json:"url,omitempty"`
	Credentials []string `json:"credentials,omitempty"`
}

// UpstreamTool is a tool of an upstream, as it describes itself now and as it was accepted.
type UpstreamTool struct {
	Name        string          `json:"tool"`
	Action      string          `json:"action"`                    // the name that agents call it by
	State       string          `json:"state"`                     // accepted, new, changed (withheld until it is accepted anew), gone (withheld), invalid
	Digest      string          `json:"digest,omitempty"`          // of name, title, description and schemas as they are now
	Accepted    string          `json:"accepted_digest,omitempty"` // as they were accepted
	Class       string          `json:"class,omitempty"`
	PerUse      bool            `json:"per_use,omitempty"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	Claims      json.RawMessage `json:"claims,omitempty"` // its annotations: the upstream's own words, which decide nothing
	Diff        string          `json:"diff,omitempty"`
	Problem     string          `json:"problem,omitempty"`
}

// UpstreamPrompt is a prompt of an upstream, as it describes itself now and as it was accepted.
type UpstreamPrompt struct {
	Name        string                   `json:"prompt"`
	Agents      string                   `json:"agents_name"`      // the name by which agents get it
	State       string                   `json:"state"`            // accepted, new, changed (not got until it is accepted anew), gone, invalid
	Digest      string                   `json:"digest,omitempty"` // of name, title, description and arguments as they are now
	Accepted    string                   `json:"accepted_digest,omitempty"`
	Title       string                   `json:"title,omitempty"`
	Description string                   `json:"description,omitempty"`
	Arguments   []UpstreamPromptArgument `json:"arguments,omitempty"`
	Diff        string                   `json:"diff,omitempty"`
	Problem     string                   `json:"problem,omitempty"`
}

// UpstreamPromptArgument is one of a prompt's arguments.
type UpstreamPromptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
}

// UpstreamShare opens what an upstream has to read, or closes it. What is absent stays as it is.
type UpstreamShare struct {
	Resources *bool             `json:"resources,omitempty"`
	Prompts   map[string]string `json:"prompts,omitzero"`  // all that agents may get from now on, with their digests as they were shown; empty closes them
	PerUse    *bool             `json:"per_use,omitempty"` // ask at every reading
}

// UpstreamAccept puts a tool into force as it was shown.
type UpstreamAccept struct {
	Tool   string `json:"tool"`
	Digest string `json:"digest"`            // as it was shown
	Action string `json:"action,omitempty"`  // the name for agents; made of upstream and tool where it is empty
	Class  string `json:"class,omitempty"`   // read_only or irreversible, which it is where this is empty
	PerUse *bool  `json:"per_use,omitempty"` // ask at every use; so it is where this is empty, but for read_only
	Total  string `json:"total,omitempty"`   // how long one attempt may take
}
