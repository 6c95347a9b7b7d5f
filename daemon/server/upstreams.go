package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/mcpchan"
	"singlepass.dev/daemon/upstream"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
	"singlepass.dev/vault/material"
)

// upstreamSetting is the beginning of the keys under which accepted upstreams lie in the vault.
const upstreamSetting = "upstream:"

// storedUpstream is an upstream as the operator accepted it.
type storedUpstream struct {
	Definition upstream.Definition `json:"definition"`
	Added      time.Time           `json:"added"`
	Files      []storedFile        `json:"files,omitempty"`
	Shared     storedShared        `json:"shared,omitzero"`
}

type storedFile struct {
	Path   string `json:"path"`
	Digest string `json:"digest"`
}

// upstreams is what the daemon knows of upstreams while the vault is open.
type upstreams struct {
	channel *mcpchan.Channel
	news    chan struct{} // told of a newer listing; capacity 1
	differ  chan struct{} // told that resources may be others; capacity 1

	mu       sync.Mutex
	byName   map[string]storedUpstream // replaced as a whole
	withheld map[string]string         // why, by the action's name
}

// openUpstreams makes the channel.
func (s *Server) openUpstreams(channels mcpchan.Config) error {
	s.upstreams.news = make(chan struct{}, 1)
	channels.Upstream = func(name string) (upstream.Definition, error) {
		u, ok := s.upstreams.find(name)
		if !ok {
			return upstream.Definition{}, fmt.Errorf("there is no upstream %q", name)
		}
		return u.Definition, nil
	}
	channels.Environment = s.environment
	channels.Ready = func(d upstream.Definition) (channel.Request, func(), error) {
		if d.Credential == "" {
			return channel.Request{}, func() {}, nil
		}
		return s.engine.Lend(d.Credential)
	}
	channels.Listed = func(string) {
		select {
		case s.upstreams.news <- struct{}{}:
		default:
		}
	}
	s.upstreams.differ = make(chan struct{}, 1)
	channels.Readable = func(string) {
		select {
		case s.upstreams.differ <- struct{}{}:
		default:
		}
	}
	channels.Logger, channels.Version, channels.Now = s.log, s.cfg.Version, time.Now
	var err error
	if s.upstreams.channel, err = mcpchan.New(channels); err != nil {
		return err
	}
	// Whatever locked it. What is under way finishes first.
	s.vault.OnLock(func() { s.upstreams.channel.Suspend("the vault is locked") })
	return nil
}

func (u *upstreams) find(name string) (storedUpstream, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	found, ok := u.byName[name]
	return found, ok
}

func (u *upstreams) all() map[string]storedUpstream {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.byName
}

// environment lends the secrets of a command.
func (s *Server) environment(d upstream.Definition) (out []mcpchan.Variable, release func(), err error) {
	var wipe []func()
	release = func() {
		for _, f := range wipe {
			f()
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	for _, name := range d.Secrets {
		c, held, err := s.vault.UseCredential(name)
		if err != nil {
			return nil, nil, fmt.Errorf("the credential %q cannot be used: %w", name, err)
		}
		wipe = append(wipe, held.Wipe)
		if err := mayUse(c, d); err != nil {
			return nil, nil, err
		}
		if err := held.Use(func(b []byte) error {
			fields, err := material.Decode(b)
			for _, f := range fields {
				value := slices.Clone(f.Value)
				wipe = append(wipe, func() { clear(value) })
				out = append(out, mcpchan.Variable{Name: f.Name, Value: value})
			}
			return err
		}); err != nil {
			return nil, nil, fmt.Errorf("the credential %q cannot be used: %w", name, err)
		}
	}
	return out, release, nil
}

// mayUse checks that a credential may go to an upstream at all. Where a URL leads is checked at every request again.
func mayUse(c vault.Credential, d upstream.Definition) error {
	switch {
	case d.HTTP() && c.Kind == vault.Env:
		return fmt.Errorf("the credential %q is for the environment of a command, and %s is a URL", c.Name, d.Name)
	case d.HTTP():
		return nil
	case c.Kind != vault.Env:
		return fmt.Errorf("the credential %q is of kind %s, and a command finds only those of kind env in its environment", c.Name, c.Kind)
	case !c.AllowsUpstream(d.Name):
		return fmt.Errorf("the credential %q may not be used for the upstream %s: give it the target upstream:%s", c.Name, d.Name, d.Name)
	}
	return nil
}

// loadUpstreams reads what is accepted. The caller holds unlocking.
func (s *Server) loadUpstreams() error {
	settings, err := s.vault.Settings()
	if err != nil {
		return err
	}
	found := map[string]storedUpstream{}
	for _, one := range settings {
		name, ok := strings.CutPrefix(one.Key, upstreamSetting)
		if !ok {
			continue
		}
		var u storedUpstream
		if err := json.Unmarshal(one.Value, &u); err != nil || u.Definition.Name != name || u.Definition.Validate() != nil {
			s.log.Error("an accepted upstream cannot be used", "upstream", name)
			continue
		}
		found[name] = u
	}
	s.upstreams.mu.Lock()
	s.upstreams.byName, s.upstreams.withheld = found, map[string]string{}
	s.upstreams.mu.Unlock()
	return nil
}

// onUpstream gives an accepted action its upstream. It reports false, with a reason, for one that is withheld: it is matched, but no new call begins under it.
func (s *Server) onUpstream(a *policy.Action) (*policy.Action, string) {
	c := a.Contract()
	if c.MCP == nil {
		return a, ""
	}
	u, ok := s.upstreams.find(c.MCP.Upstream)
	if !ok {
		return a, fmt.Sprintf("the upstream %q is not there", c.MCP.Upstream)
	}
	listing, _ := s.upstreams.channel.Listing(c.MCP.Upstream)
	if why := withheld(listing, c.MCP.Tool, c.MCP.Pin); why != "" {
		return a, why
	}
	return a.On(u.Definition, s.secretAsks(u.Definition)), ""
}

// withheld says why a tool is not what was accepted, or "". An upstream that was not asked yet is asked before anything is sent to it.
func withheld(l *mcpchan.Listing, tool, pin string) string {
	if l == nil {
		return ""
	}
	for _, t := range l.Tools {
		if t.Tool.Name == tool {
			if t.Pin != pin {
				return "the upstream describes it otherwise than when it was accepted"
			}
			return ""
		}
	}
	return "the upstream no longer has it"
}

// askUpstreams asks every upstream that has tools in force what it has now, at the vault's opening.
func (s *Server) askUpstreams() {
	accepted, err := s.vault.Contracts()
	if err != nil {
		return
	}
	names := map[string]bool{}
	for name, u := range s.upstreams.all() {
		names[name] = u.Shared.any() // started now, it can be listed when an agent asks
	}
	for _, c := range accepted {
		if a, err := compile(c); err == nil && a.Contract().MCP != nil {
			names[a.Contract().MCP.Upstream] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, ok := s.upstreams.find(name); !ok || !names[name] {
			continue
		}
		s.work.Go(func() {
			if _, err := s.upstreams.channel.List(s.base, name); err != nil && s.base.Err() == nil {
				s.log.Warn("an upstream cannot be asked for its tools", "upstream", name, "error", err)
			}
		})
	}
}

// watchUpstreams withholds tools that changed, and gives them back.
func (s *Server) watchUpstreams(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.upstreams.news:
		}
		s.unlocking.Lock()
		if s.vault.Status() == vault.Unlocked && s.withheldChanged() {
			if err := s.loadActions(); err != nil && !errors.Is(err, vault.ErrLocked) {
				s.log.Error("withholding an upstream's tools", "error", err)
			}
		}
		s.unlocking.Unlock()
	}
}

// watchReadable passes on that resources may be others, as often as agents are told of it: an upstream can say so without end.
func (s *Server) watchReadable(ctx context.Context) {
	pause := time.NewTicker(time.Second)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.upstreams.differ:
		}
		s.engine.ResourcesMayDiffer()
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// withheldChanged says whether the accepted tools of upstreams stand otherwise than when the actions were loaded.
func (s *Server) withheldChanged() bool {
	accepted, err := s.vault.Contracts()
	if err != nil {
		return false
	}
	now := map[string]string{}
	for _, c := range accepted {
		if a, err := compile(c); err == nil {
			if _, why := s.onUpstream(a); why != "" {
				now[c.Action] = why
			}
		}
	}
	s.upstreams.mu.Lock()
	defer s.upstreams.mu.Unlock()
	return !maps.Equal(now, s.upstreams.withheld)
}

// setWithheld notes what is withheld, and says so in the log where it is new.
func (s *Server) setWithheld(now map[string]string) {
	s.upstreams.mu.Lock()
	before := s.upstreams.withheld
	s.upstreams.withheld = now
	s.upstreams.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if before[name] != now[name] {
			s.log.Warn("a tool of an upstream is withheld", "action", name, "why", now[name])
		}
	}
}

// describesFiles returns the regular files that a command names, with their digests: the program, and arguments that are files.
func describeFiles(d upstream.Definition) []storedFile {
	var out []storedFile
	for _, word := range d.Command {
		path := word
		if !filepath.IsAbs(path) {
			path = filepath.Join(d.Dir, path)
		}
		if digest, err := digestFile(path); err == nil && !slices.ContainsFunc(out, func(f storedFile) bool { return f.Path == path }) {
			out = append(out, storedFile{path, digest})
		}
	}
	return out
}

// maxProgram bounds what is read of a program.
const maxProgram = 1 << 30

func digestFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	h := sha256.New()
	if n, err := io.Copy(h, io.LimitReader(f, maxProgram+1)); err != nil {
		return "", err
	} else if n > maxProgram {
		return "", fmt.Errorf("%s is larger than 1 GiB", path)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
