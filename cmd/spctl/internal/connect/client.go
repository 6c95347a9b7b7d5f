package connect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Client is an agent's MCP client whose configuration is known.
type Client struct {
	Name  string   // as it is given to spctl connect
	Title string   // as people call it
	Path  []string // of our entry in its file
	Typed bool     // its entries carry "type": "stdio"
	Next  string   // what to do afterwards
	file  func(places Places) string

	// For MCP over HTTP; web is nil where the client's file takes no URL. A token must not lie in a folder that is shared, so these are the user's own files.
	webTitle, webNext string
	web               func(places Places) string
	webTyped          bool // its entries carry "type": "http"
}

// Places are where configurations lie.
type Places struct {
	Home    string // the user's
	Config  string // XDG_CONFIG_HOME, or .config below Home
	Project string // the working directory
}

// File is the client's configuration file.
func (c Client) File(p Places) string { return c.file(p) }

// OverHTTP returns the same client as one that is given a URL; ok is false where its configuration takes none.
func (c Client) OverHTTP() (over Client, ok bool) {
	if c.web == nil {
		return Client{}, false
	}
	c.Title, c.Next, c.file, c.Typed = c.webTitle, c.webNext, c.web, c.webTyped
	return c, true
}

// Clients lists the clients that are known.
func Clients() []Client {
	return []Client{
		{
			Name: "claude-desktop", Title: "Claude Desktop", Path: []string{"mcpServers", "singlepass"}, Next: "quit Claude Desktop and start it again",
			file: func(p Places) string { return filepath.Join(p.Config, "Claude", "claude_desktop_config.json") },
		},
		{
			Name: "claude-code", Title: "Claude Code, this project", Path: []string{"mcpServers", "singlepass"}, Typed: true, Next: "start claude in this folder and approve the server once",
			file:     func(p Places) string { return filepath.Join(p.Project, ".mcp.json") },
			webTitle: "Claude Code, every project", webNext: "start claude again", webTyped: true,
			web: func(p Places) string { return filepath.Join(p.Home, ".claude.json") },
		},
		{
			Name: "cursor", Title: "Cursor", Path: []string{"mcpServers", "singlepass"}, Next: "switch singlepass on in Cursor's MCP settings",
			file:     func(p Places) string { return filepath.Join(p.Home, ".cursor", "mcp.json") },
			webTitle: "Cursor", webNext: "switch singlepass on in Cursor's MCP settings",
			web: func(p Places) string { return filepath.Join(p.Home, ".cursor", "mcp.json") },
		},
		{
			Name: "vscode", Title: "VS Code, this folder", Path: []string{"servers", "singlepass"}, Typed: true, Next: "open the folder in VS Code and start the server when it asks",
			file:     func(p Places) string { return filepath.Join(p.Project, ".vscode", "mcp.json") },
			webTitle: "VS Code, every folder", webNext: "start the server when VS Code asks", webTyped: true,
			web: func(p Places) string { return filepath.Join(p.Config, "Code", "User", "mcp.json") },
		},
	}
}

// Entry is what stands in a configuration: which program to start.
type Entry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// Entry returns the client's entry for the program and its arguments.
func (c Client) Entry(command string, args ...string) Entry {
	e := Entry{Command: command, Args: args}
	if c.Typed {
		e.Type = "stdio"
	}
	return e
}

// HTTPEntry is what stands in a configuration: where the daemon listens, and the client's token.
type HTTPEntry struct {
	Type    string            `json:"type,omitempty"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

// HTTPEntry returns the client's entry for the URL and its token.
func (c Client) HTTPEntry(url, token string) HTTPEntry {
	e := HTTPEntry{URL: url, Headers: map[string]string{"Authorization": bearer + token}}
	if c.Typed {
		e.Type = "http"
	}
	return e
}

const bearer = "Bearer "

// Token returns the URL and the token of an entry that was found in a configuration; empty where it has none.
func Token(entry json.RawMessage) (url, token string) {
	var e HTTPEntry
	if json.Unmarshal(entry, &e) != nil {
		return "", ""
	}
	token, _ = strings.CutPrefix(e.Headers["Authorization"], bearer)
	return e.URL, token
}

// maxFile bounds a configuration that is read.
const maxFile = 16 << 20

// Read returns the file's bytes; a missing file has none.
func Read(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("reading configuration: %s is not a regular file of at most %d bytes", file, maxFile)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	return b, nil
}

// Write puts the new content in place in one step, and returns the name under which the earlier content is kept; empty where there was none. A symbolic link stays one. before is
// what the change was made from: if the file has other content by now, nothing is written.
func Write(file string, before, after []byte) (backup string, err error) {
	return write(file, before, after, 0o777)
}

// WritePrivate is Write for a content that holds a token: nobody else can read the file and its earlier version, where the file system knows rights.
func WritePrivate(file string, before, after []byte) (backup string, err error) {
	return write(file, before, after, 0o600)
}

func write(file string, before, after []byte, rights fs.FileMode) (backup string, err error) {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	now, err := Read(file)
	if err != nil {
		return "", err
	}
	if string(now) != string(before) {
		return "", fmt.Errorf("writing configuration: %s was changed meanwhile; run this again", file)
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm() & rights
		backup = file + ".before-singlepass"
		if err := replace(backup, now, mode); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("writing configuration: %w", err)
	}
	return backup, replace(file, after, mode)
}

func replace(file string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".singlepass-*")
	if err != nil {
		return fmt.Errorf("writing configuration: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("writing configuration: %w", err)
	}
	return nil
}
