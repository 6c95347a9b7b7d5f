package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/rogpeppe/go-internal/diff"

	"singlepass.dev/cmd/spctl/internal/connect"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/daemon/httptoken"
)

// hidden stands for a token where an entry is shown before there is one.
func hidden(name string) string { return "spt_" + name + "_…" }

// connectHTTP gives a client the daemon's URL and a token of its own.
func (a *app) connectHTTP(ctx context.Context, c connect.Client, name string, f connectFlags) error {
	over, ok := c.OverHTTP()
	if !ok {
		return usage("the configuration of %s takes no URL", c.Title).WithHint("spctl connect %s lets it start spctl mcp, which needs no token", c.Name)
	}
	url, err := a.listener(ctx)
	if err != nil {
		return err
	}
	file, err := a.configurationOf(over, f.file)
	if err != nil {
		return err
	}
	before, err := connect.Read(file)
	if err != nil {
		return err
	}
	planned, _, err := connect.Edit(before, over.Path, over.HTTPEntry(url, hidden(name)))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if change := diff.Diff(file, httptoken.Redact(before), file, httptoken.Redact(planned)); len(change) > 0 {
		fmt.Fprintf(a.out, "%s\n", change)
	} else {
		fmt.Fprintf(a.out, "the entry in %s stays, with a new token\n", oneLine(file))
	}
	if f.show {
		return nil
	}
	if !f.yes {
		if err := a.confirm("Write it, with a new token?"); err != nil {
			return err
		}
	}
	o, err := a.ask()
	if err != nil {
		return err
	}
	mode := rightsOf(file)
	issued, err := o.IssueHTTPToken(ctx, api.HTTPClientRequest{Client: name, File: absolute(file)})
	if err != nil {
		return err
	}
	backup, err := func() (string, error) {
		after, _, err := connect.Edit(before, over.Path, over.HTTPEntry(issued.URL, issued.Token))
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		return connect.WritePrivate(file, before, after)
	}()
	if err != nil {
		return errors.Join(err, unwritten(ctx, o, name, issued.Replaced))
	}
	fmt.Fprintf(a.out, "written to %s\n", oneLine(file))
	if backup != "" {
		fmt.Fprintf(a.out, "the earlier file is kept as %s\n", oneLine(backup))
	}
	if issued.Replaced {
		fmt.Fprintf(a.out, "the earlier token of %s counts no more\n", name)
	}
	a.warnOfRights(file, mode)
	fmt.Fprintf(a.out, "next: %s\n", over.Next)
	return nil
}

// tokenFile makes a token for a client whose configuration is not known, in a file of its own.
func (a *app) tokenFile(ctx context.Context, name, file string) error {
	if _, err := a.listener(ctx); err != nil {
		return err
	}
	o, err := a.ask()
	if err != nil {
		return err
	}
	w, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usage("%s is there already", file).WithHint("name a file that is not, or remove it first")
	} else if err != nil {
		return fmt.Errorf("making the file for the token: %w", err)
	}
	issued, err := o.IssueHTTPToken(ctx, api.HTTPClientRequest{Client: name, File: absolute(file)})
	if err != nil {
		return errors.Join(err, w.Close(), os.Remove(file))
	}
	if _, err = w.WriteString(issued.Token + "\n"); err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return errors.Join(fmt.Errorf("writing the token: %w", err), os.Remove(file), unwritten(ctx, o, name, issued.Replaced))
	}
	fmt.Fprintf(a.out, "the token of %s is in %s\n", name, oneLine(file))
	if issued.Replaced {
		fmt.Fprintf(a.out, "its earlier token counts no more\n")
	}
	a.warnOfRights(file, 0)
	fmt.Fprintf(a.out, "next: give the client the URL %s and the header Authorization: Bearer, followed by the token\n", oneLine(issued.URL))
	return nil
}

// unwritten takes back a token that no client got.
func unwritten(ctx context.Context, o *client.Operator, name string, replaced bool) error {
	if err := o.RevokeHTTPToken(ctx, name); err != nil {
		return fmt.Errorf("revoking the token that could not be written: %w", err)
	}
	if replaced {
		return fmt.Errorf("the earlier token of %s counts no more, and no new one was written: run this again", name)
	}
	return nil
}

// listener is the URL of the daemon's listener.
func (a *app) listener(ctx context.Context) (string, error) {
	o, err := a.ask() // the status needs no proof
	if err != nil {
		return "", err
	}
	s, err := o.Status(ctx)
	if err != nil {
		return "", err
	}
	if s.MCPURL == "" {
		return "", api.Errorf(api.CodeConflict, "spd serves no MCP over HTTP").WithHint("write mcp_http: 127.0.0.1:7717 into config.yaml and restart spd; or leave out --http, then the client starts spctl mcp")
	}
	return s.MCPURL, nil
}

func absolute(file string) string {
	if abs, err := filepath.Abs(file); err == nil {
		return abs
	}
	return file
}

func rightsOf(file string) fs.FileMode {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Mode().Perm()
}

// warnOfRights tells who else could read a file with a token, now or before.
func (a *app) warnOfRights(file string, before fs.FileMode) {
	switch now := rightsOf(file); {
	case now&0o077 != 0:
		fmt.Fprintf(a.out, "warning: others can read it, since its rights are %04o: chmod 600 %s\n", now, oneLine(file))
	case before&0o077 != 0:
		fmt.Fprintf(a.out, "its rights were %04o and are %04o now: it holds a token\n", before, now)
	}
	if root := repositoryOf(file); root != "" {
		fmt.Fprintf(a.out, "warning: it lies in the repository %s: do not commit it\n", oneLine(root))
	}
}

// repositoryOf finds the git repository that a file lies in; empty where there is none.
func repositoryOf(file string) string {
	for dir := filepath.Dir(absolute(file)); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

func (a *app) listHTTPClients(ctx context.Context) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	list, err := o.HTTPClients(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return printLines(a, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(a.out, "no client has a token for MCP over HTTP")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLIENT\tTOKEN SINCE\tUSED LAST\tBY\tFILE")
	for _, c := range list {
		used, by := "not since spd started", "-"
		if !c.Used.IsZero() {
			used, by = local(c.Used), oneLine(c.UsedBy)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", oneLine(c.Client), local(c.Issued), used, by, oneLine(c.File))
	}
	return w.Flush()
}

func (a *app) revokeHTTPClient(ctx context.Context, name string) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	if err := o.RevokeHTTPToken(ctx, name); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "the token of %s counts no more; what it has asked for goes on, and its session with it: spctl session revoke RUN\n", oneLine(name))
	return nil
}

// tokenFindings looks at the tokens in the configurations of clients.
func (a *app) tokenFindings(ctx context.Context, o *client.Operator, s *api.Status) []finding {
	places, err := a.clientPlaces()
	if err != nil {
		return nil
	}
	var list []finding
	seen := map[string]bool{}
	for _, c := range connect.Clients() {
		over, ok := c.OverHTTP()
		if !ok {
			continue
		}
		for _, file := range []string{over.File(places), c.File(places)} {
			if seen[file] {
				continue
			}
			seen[file] = true
			src, err := connect.Read(file)
			if err != nil {
				continue
			}
			entry, err := connect.Find(src, c.Path)
			if err != nil || entry == nil {
				continue
			}
			url, token := connect.Token(entry)
			if url == "" {
				continue
			}
			list = append(list, tokenFinding(ctx, o, s, c.Name, file, url, token)...)
		}
	}
	return list
}

func tokenFinding(ctx context.Context, o *client.Operator, s *api.Status, name, file, url, token string) []finding {
	var list []finding
	add := func(state, text, fix string) { list = append(list, finding{"token", state, text, fix}) }
	again := "spctl connect " + name + " --http"
	if client, ok := httptoken.Client(token); ok && client != name {
		again += " --name " + client
	}
	switch {
	case token == "":
		add("missing", file+" has the URL without a token", again)
		return list
	case s == nil:
	case s.MCPURL == "":
		add("missing", file+" has a token, but spd serves no MCP over HTTP", "write mcp_http: 127.0.0.1:7717 into config.yaml, and restart spd")
	case s.MCPURL != url:
		add("missing", file+" has the URL "+url+", and spd listens at "+s.MCPURL, again)
	default:
		switch state, err := o.CheckHTTPToken(ctx, token); {
		case err != nil:
			add("note", "whether spd knows the token in "+file+" cannot be told: "+err.Error(), "")
		case state.State == "known":
			add("ok", file+" has a token that counts", "")
		case state.State == "unchecked":
			add("note", "whether the token in "+file+" counts is known once the vault was opened; until then its client is refused", "spctl unlock")
		default:
			add("missing", file+" has a token that spd does not know: it was revoked, replaced, or is of another home", again)
		}
	}
	if mode := rightsOf(file); mode&0o077 != 0 {
		add("note", fmt.Sprintf("%s holds a token, and others can read it: its rights are %04o", file, mode), "chmod 600 "+file)
	}
	return list
}
