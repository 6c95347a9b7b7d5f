package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

// retiredSetting is where contracts are kept that are no longer in force but have something open, so that a call is still matched under the contract that it was
// accepted with.
const retiredSetting = "retired_contracts"

// loadActions makes the accepted contracts the engine's.
func (s *Server) loadActions() error {
	accepted, err := s.vault.Contracts()
	if err != nil {
		return err
	}
	var current, retired []*policy.Action
	var proposed []string
	withheld := map[string]string{}
	for _, c := range accepted {
		a, err := compile(c)
		if err != nil {
			// A contract that this version no longer understands is no tool. It is not lost: the operator sees it, and can accept a newer one.
			s.log.Error("an accepted contract cannot be used", "action", c.Action, "error", err)
			continue
		}
		a, why := s.onUpstream(a)
		if why != "" {
			withheld[c.Action] = why
			retired, proposed = append(retired, a), append(proposed, c.Action)
			continue
		}
		current = append(current, a)
	}
	s.setWithheld(withheld)
	old, err := s.retired()
	if err != nil {
		return err
	}
	open, err := s.engine.OpenContracts()
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(old), func(c vault.AcceptedContract) bool { return !open[c.Digest] })
	for _, c := range kept {
		if a, err := compile(c); err == nil {
			retired = append(retired, a)
		}
	}
	if len(kept) != len(old) {
		if err := s.setRetired(kept); err != nil {
			return err
		}
	}
	if files, err := s.files.proposals(); err == nil {
		for _, f := range files {
			proposed = append(proposed, f.name)
		}
	}
	for _, c := range kept {
		proposed = append(proposed, c.Action)
	}
	s.engine.SetActions(current, retired, proposed...)
	s.engine.SetShared(s.sharedActions())
	return s.tellCredentials()
}

func compile(c vault.AcceptedContract) (*policy.Action, error) {
	parsed, err := parseAccepted(c)
	if err != nil {
		return nil, err
	}
	return policy.Compile(parsed)
}

func parseAccepted(c vault.AcceptedContract) (*policy.Contract, error) {
	if policy.IsUpstreamTool(c.Source) {
		return policy.ParseUpstreamTool(c.Source)
	}
	return policy.Parse(filepath.Base(c.File), c.Source)
}

func (s *Server) retired() ([]vault.AcceptedContract, error) {
	raw, err := s.vault.Setting(retiredSetting)
	if errors.Is(err, vault.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var list []vault.AcceptedContract
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("reading the retired contracts: %w", err)
	}
	return list, nil
}

func (s *Server) setRetired(list []vault.AcceptedContract) error {
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return s.vault.SetSetting(retiredSetting, b)
}

// retire keeps a contract that is about to be replaced or removed, if it has something open.
func (s *Server) retire(action string) error {
	accepted, err := s.vault.Contracts()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(accepted, func(c vault.AcceptedContract) bool { return c.Action == action })
	if i < 0 {
		return nil
	}
	open, err := s.engine.OpenContracts()
	if err != nil || !open[accepted[i].Digest] {
		return err
	}
	list, err := s.retired()
	if err != nil {
		return err
	}
	return s.setRetired(append(list, accepted[i]))
}

// actionFiles reads the folder of contracts. What lies there is only a proposal: an agent can edit it.
type actionFiles struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	known map[string]proposal // what was parsed before, by digest; guarded by mu
}

// proposal is what is kept of a file that was parsed: parsing hundreds of them at every status would cost more than all the rest.
type proposal struct {
	name  string // the action's; the file's where it cannot be read
	valid bool
}

// maxActionFiles bounds the work that the folder's content can make: each question for the status looks at all of them.
const maxActionFiles = 1000

type actionFile struct {
	path     string
	source   []byte
	contract *policy.Contract // nil when it has problems
	problems []string
	name     string
}

func (f *actionFiles) read() ([]actionFile, error) {
	var out []actionFile
	err := f.each(func(a actionFile) {
		if len(a.problems) == 0 {
			var err error
			if a.contract, err = policy.Parse(filepath.Base(a.path), a.source); err != nil {
				a.problems = problemsOf(err)
			} else {
				a.name = a.contract.Action
			}
		}
		out = append(out, a)
	})
	return out, err
}

// proposals returns what the files propose, by digest.
func (f *actionFiles) proposals() (map[string]proposal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := map[string]proposal{}
	err := f.each(func(a actionFile) {
		digest := policy.Digest(a.source)
		p, ok := f.known[digest]
		if !ok {
			p.name = a.name
			if c, err := policy.Parse(filepath.Base(a.path), a.source); err == nil && len(a.problems) == 0 {
				p = proposal{c.Action, true}
			}
		}
		now[digest] = p
	})
	f.known = now
	return maps.Clone(now), err
}

// each reads every file of the folder.
func (f *actionFiles) each(do func(actionFile)) error {
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading the contracts: %w", err)
	}
	n := 0
	for _, e := range entries {
		if n == maxActionFiles {
			f.log.Warn("there are more contracts than are looked at", "folder", f.dir, "looked_at", maxActionFiles)
			break
		}
		if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		a := actionFile{path: filepath.Join(f.dir, e.Name()), name: strings.TrimSuffix(e.Name(), filepath.Ext(e.Name()))}
		if a.source, err = readLimited(a.path, policy.MaxContractBytes); err != nil {
			a.problems = []string{err.Error()}
		}
		n++
		do(a)
	}
	return nil
}

// readLimited reads a file that anybody of the same user may have put there: a pipe must not make the daemon wait for its other end.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes; a contract is a short text", path, limit)
	}
	return b, err
}

func problemsOf(err error) []string {
	var p *policy.Problems
	if !errors.As(err, &p) {
		return []string{err.Error()}
	}
	out := make([]string, 0, len(p.List))
	for _, one := range p.List {
		out = append(out, one.String())
	}
	return out
}

// Actions lists the accepted contracts beside what lies in the folder.
func (o *operatorSide) Actions(context.Context) ([]api.Action, error) {
	accepted, err := o.s.vault.Contracts()
	if err != nil {
		return nil, err
	}
	files, err := o.s.files.read()
	if err != nil {
		return nil, err
	}
	var out []api.Action
	seen := map[string]bool{}
	for _, c := range accepted {
		a := api.Action{Name: c.Action, State: "missing", File: c.File, Accepted: c.Digest, Source: string(c.Source)}
		if policy.IsUpstreamTool(c.Source) {
			a.State = "accepted" // it has no file
		}
		if parsed, err := parseAccepted(c); err == nil {
			describe(&a, parsed)
		} else {
			a.Problems = problemsOf(err)
		}
		if i := slices.IndexFunc(files, func(f actionFile) bool { return f.name == c.Action }); i >= 0 {
			f := files[i]
			a.File, a.Digest = f.path, policy.Digest(f.source)
			switch {
			case a.Digest == c.Digest:
				a.State = "accepted"
			case f.contract == nil:
				a.State, a.Problems = "invalid", f.problems
			default:
				a.State = "changed"
				a.Diff = policy.Diff("accepted", c.Source, "file", f.source)
			}
		}
		seen[c.Action] = true
		out = append(out, a)
	}
	for _, f := range files {
		if seen[f.name] {
			continue
		}
		a := api.Action{Name: f.name, State: "new", File: f.path, Digest: policy.Digest(f.source), Source: string(f.source)}
		if f.contract == nil {
			a.State, a.Problems = "invalid", f.problems
		} else {
			describe(&a, f.contract)
		}
		out = append(out, a)
	}
	return out, nil
}

func describe(a *api.Action, c *policy.Contract) {
	a.Title, a.Channel, a.Class, a.Credential = c.Title, string(c.Channel), string(c.Replay.Class), c.Credential
	a.LostAnswer = control.LostAnswer(c.Replay.Class)
	if c.HTTP != nil {
		a.Target = c.HTTP.Method + " " + c.HTTP.URL
	}
	if c.MCP != nil {
		a.Target = effect.MCPCall{Upstream: c.MCP.Upstream, Tool: c.MCP.Tool}.Target()
	}
	if c.SSH != nil {
		a.Target = c.SSH.Target()
	}
}

// AcceptAction makes exactly these bytes the contract in force.
func (o *operatorSide) AcceptAction(_ context.Context, in api.ActionRequest, by string) (api.Action, error) {
	s := o.s
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	s.touch()
	parsed, err := policy.Parse(filepath.Base(in.File), in.Source)
	if err != nil {
		return api.Action{}, api.Errorf(api.CodeUsage, "%v", err)
	}
	if parsed.Digest != in.Digest {
		return api.Action{}, api.Errorf(api.CodeConflict, "the contract %s is not the one that was shown: its digest is %s", parsed.Action, parsed.Digest).
			WithHint("look at it again: spctl action show %s", parsed.Action)
	}
	if _, err := policy.Compile(parsed); err != nil {
		return api.Action{}, api.Errorf(api.CodeUsage, "%v", err)
	}
	if err := s.retire(parsed.Action); err != nil {
		return api.Action{}, err
	}
	if err := s.vault.AcceptContract(vault.AcceptedContract{Action: parsed.Action, File: in.File, Source: in.Source, Digest: parsed.Digest}); err != nil {
		return api.Action{}, err
	}
	if err := s.loadActions(); err != nil {
		return api.Action{}, err
	}
	a := api.Action{Name: parsed.Action, State: "accepted", File: in.File, Accepted: parsed.Digest, Digest: parsed.Digest, Source: string(in.Source)}
	describe(&a, parsed)
	return a, s.engine.Note(engineNote{Kind: "contract_accepted", Action: parsed.Action, Digest: parsed.Digest, By: by})
}

// RemoveAction withdraws an acceptance.
func (o *operatorSide) RemoveAction(_ context.Context, name, by string) error {
	s := o.s
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	s.touch()
	if err := s.retire(name); err != nil {
		return err
	}
	if err := s.vault.RemoveContract(name); err != nil {
		return err
	}
	s.engine.EndGrantsOf(name)
	if err := s.loadActions(); err != nil {
		return err
	}
	return s.engine.Note(engineNote{Kind: "contract_removed", Action: name, By: by})
}

// credentialUse says which accepted actions use a credential.
func (s *Server) credentialUse() map[string][]string {
	out := map[string][]string{}
	for name, credential := range s.engine.CredentialsOfActions() {
		out[credential] = append(out[credential], name)
	}
	for _, u := range s.upstreams.all() {
		for _, credential := range u.Definition.Secrets {
			out[credential] = append(out[credential], upstreamSetting+u.Definition.Name)
		}
	}
	for _, list := range out {
		slices.Sort(list)
	}
	return out
}
