package ui

import (
	"context"
	"fmt"
	"io"
	"os"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/dialog"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/actions"
	"singlepass.dev/ui/activity"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/pending"
	"singlepass.dev/ui/sessions"
	"singlepass.dev/ui/vaultview"
)

// makePages makes every page, empty.
func (f *Frame) makePages() (err error) {
	c := f.cfg
	if f.pending, err = pending.New(pending.Config{
		Daemon: answering{f}, Now: c.Now, Context: c.Context, Go: c.Go, After: c.After, Seen: func(execution string) { c.Go(func() { c.Watch.Seen(c.Context, execution) }) },
	}); err != nil {
		return err
	}
	if f.activity, err = activity.New(activity.Config{Daemon: c.Operator, Records: answering{f}, Now: c.Now, Context: c.Context, Go: c.Go, After: c.After, Copy: f.copy, Save: f.save}); err != nil {
		return err
	}
	if f.sessions, err = sessions.New(sessions.Config{Daemon: c.Operator, Now: c.Now, Context: c.Context, Go: c.Go}); err != nil {
		return err
	}
	if f.vault, err = vaultview.New(vaultview.Config{
		Vault: c.Operator, Credentials: c.Operator, Keeper: c.Operator, Now: c.Now, Context: c.Context, Go: c.Go, Copy: f.copy, Open: f.open,
		Changed: func(api.Status) { c.Watch.Nudge() },
	}); err != nil {
		return err
	}
	f.actions, err = actions.New(actions.Config{Daemon: c.Operator, Upstreams: c.Operator, Read: readContract, Context: c.Context, Go: c.Go})
	return err
}

// pageView is the page in sight.
func (f *Frame) pageView() fyne.CanvasObject {
	switch f.page {
	case Activity:
		return f.activity
	case Sessions:
		return f.sessions
	case Vault:
		return f.vault
	case Actions:
		return f.actions
	}
	return f.pending
}

// load reads the page in sight, if it was not read since it was chosen or since what it shows changed.
func (f *Frame) load() {
	if f.loaded[f.page] {
		return
	}
	f.loaded[f.page] = true
	switch f.page {
	case Activity:
		f.activity.Load()
	case Sessions:
		f.sessions.Load()
	case Actions:
		f.actions.Load()
	}
}

func (f *Frame) copy(text string) { fyne.CurrentApp().Clipboard().SetContent(text) }

// save asks where to, and writes.
func (f *Frame) save(name string, content []byte) {
	d := dialog.NewFileSave(func(w fyne.URIWriteCloser, err error) {
		if w == nil && err == nil {
			return // the person changed their mind
		}
		if err == nil {
			_, err = w.Write(content)
			if e := w.Close(); err == nil {
				err = e
			}
		}
		f.complain(err)
	}, f.cfg.Window)
	d.SetFileName(name)
	d.Show()
}

// maxFile bounds a file that the person chooses for a credential's value, and a contract.
const maxFile = 1 << 20

// open asks for a file and reads it.
func (f *Frame) open(taken func(content []byte)) {
	dialog.NewFileOpen(func(r fyne.URIReadCloser, err error) {
		if r == nil && err == nil {
			return
		}
		var b []byte
		if err == nil {
			b, err = readAll(r)
			_ = r.Close()
		}
		if err != nil {
			f.complain(err)
			return
		}
		taken(b)
	}, f.cfg.Window).Show()
}

func readContract(path string) ([]byte, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a contract: %w", err)
	}
	defer r.Close()
	return readAll(r)
}

func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading a file: %w", err)
	}
	if len(b) > maxFile {
		clear(b)
		return nil, fmt.Errorf("reading a file: it has more than %d bytes", maxFile)
	}
	return b, nil
}

func (f *Frame) complain(err error) {
	if err != nil {
		dialog.ShowCustom("Singlepass", "OK", look.Trouble(err), f.cfg.Window)
	}
}

// answering is the operator for the pages: what is answered here is not shown as somebody else's doing.
type answering struct{ f *Frame }

func (a answering) Answer(ctx context.Context, card string, in api.CardAnswer) error {
	undo := a.f.cfg.Watch.Answering(card)
	err := a.f.cfg.Operator.Answer(ctx, card, in)
	if err != nil {
		undo()
	}
	return err
}

func (a answering) Check(ctx context.Context, id string) (api.Checked, error) {
	return a.f.cfg.Operator.Check(ctx, id)
}

func (a answering) Settle(ctx context.Context, id string, in api.Verdict) (api.Record, error) {
	return a.f.cfg.Operator.Settle(ctx, id, in)
}

func (a answering) Payload(ctx context.Context, id string) (api.Payload, error) {
	return a.f.cfg.Operator.Payload(ctx, id)
}
