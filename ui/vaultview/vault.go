// Package vaultview shows the vault: how it is made, opened and shut, the credentials in it, and how the journal is.
//
// Promises: a passphrase or a credential's value is typed into a field that shows nothing of it, is kept as bytes, and is wiped once it was sent, also where that failed. No view shows a
// secret that is in the vault; there is no request for that. The recovery kit is shown once, after the vault was made, and what is typed to confirm it is compared and not kept. What
// removes something is asked about once more, beside what it will cause.
package vaultview

import (
	"context"
	"errors"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/vault/secret"
)

// Vault makes, opens and shuts the vault, and takes the proof of a person where it is open already. It is called in goroutines of the view's.
type Vault interface {
	Init(ctx context.Context, in api.InitRequest) (api.InitAnswer, error)
	Unlock(ctx context.Context, in api.UnlockRequest) (api.Status, error)
	Lock(ctx context.Context) (api.Status, error)
	EarnTicket(ctx context.Context, passphrase *secret.Bytes) error
}

// Credentials are kept in the vault. It is called in goroutines of the view's.
type Credentials interface {
	Credentials(ctx context.Context) ([]api.Credential, error)
	AddCredential(ctx context.Context, in api.CredentialRequest) error
	ChangeCredential(ctx context.Context, name string, in api.CredentialChange) error
	RemoveCredential(ctx context.Context, name string) error
}

// Keeper does what is rare: another value for a credential, the end of a quarantine, and the security settings. It is called in goroutines of the view's.
type Keeper interface {
	RotateCredential(ctx context.Context, name string, value []byte) error
	AcceptQuarantine(ctx context.Context, reason string) error
	Settings(ctx context.Context) ([]api.Setting, error)
	ChangeSetting(ctx context.Context, key string, value *string) (api.Setting, error)
}

// Config is what a View is made of.
type Config struct {
	Vault       Vault                                           // required
	Credentials Credentials                                     // required
	Keeper      Keeper                                          // required
	Now         func() time.Time                                // required
	Context     context.Context                                 // optional: ends with the window
	Go          func(func())                                    // optional: how work is started; a goroutine
	After       func(d time.Duration, f func()) (cancel func()) // optional: time.AfterFunc
	Copy        func(text string)                               // optional: puts the recovery kit into the clipboard
	Open        func(taken func(content []byte))                // optional: asks for a file and reads it; taken owns the content
	Changed     func(api.Status)                                // optional: the vault was opened, shut or made here, or the person proved presence
}

// View is the vault as it is.
type View struct {
	widget.BaseWidget
	cfg    Config
	work   look.Work
	status api.Status
	proven bool
	face   string // what is shown: first, kit, locked, proof or open
	root   *fyne.Container
	door   *door
	first  *first
	inside *inside
}

// New returns a view that shows nothing yet.
func New(cfg Config) (*View, error) {
	if cfg.Vault == nil || cfg.Credentials == nil || cfg.Keeper == nil || cfg.Now == nil {
		return nil, errors.New("vaultview: Vault, Credentials, Keeper and Now are required")
	}
	if cfg.After == nil {
		cfg.After = func(d time.Duration, f func()) func() {
			t := time.AfterFunc(d, func() { look.Do(f) })
			return func() { t.Stop() }
		}
	}
	v := &View{cfg: cfg, work: look.NewWork(cfg.Context, cfg.Go), root: container.NewStack()}
	v.ExtendBaseWidget(v)
	return v, nil
}

// CreateRenderer implements fyne.Widget.
func (v *View) CreateRenderer() fyne.WidgetRenderer { return widget.NewSimpleRenderer(v.root) }

// Update shows the vault as the daemon says that it is. proven says that the person has proven presence.
func (v *View) Update(s api.Status, proven bool) {
	v.status, v.proven = s, proven
	face := "open"
	switch {
	case v.face == "kit":
		return // the recovery kit is shown once: it stays until the person is done with it
	case s.Vault == "uninitialized":
		face = "first"
	case s.Vault != "unlocked":
		face = "locked"
	case !proven:
		face = "proof"
	}
	if face == v.face {
		if face == "open" {
			v.inside.update(s)
		}
		return
	}
	v.show(face)
}

// show changes what is shown, and wipes what was typed before.
func (v *View) show(face string) {
	if v.door != nil {
		v.door.wipe()
	}
	if v.first != nil && face != "kit" {
		v.first.wipe()
	}
	if v.inside != nil && face != "open" {
		v.inside.wipe()
	}
	v.face = face
	var o fyne.CanvasObject
	switch face {
	case "first":
		v.first = newFirst(v)
		o = v.first.ask()
	case "kit":
		o = v.first.kitPage()
	case "locked", "proof":
		v.door = newDoor(v, face == "proof")
		o = v.door.root
	default:
		if v.inside == nil {
			v.inside = newInside(v)
		}
		v.inside.update(v.status)
		v.inside.load()
		o = v.inside.root
	}
	v.root.Objects = []fyne.CanvasObject{o}
	v.root.Refresh()
}

// Focus puts the keyboard where the person has to type, if that is so.
func (v *View) Focus() {
	c := fyne.CurrentApp().Driver().CanvasForObject(v)
	if c == nil {
		return
	}
	switch v.face {
	case "locked", "proof":
		c.Focus(v.door.pass)
	case "first":
		c.Focus(v.first.pass)
	}
}

func (v *View) changed(s api.Status) {
	v.status = s
	if v.cfg.Changed != nil {
		v.cfg.Changed(s)
	}
}

// page is content in the middle of the window.
func page(rows ...fyne.CanvasObject) fyne.CanvasObject {
	outer, _ := look.Scrolled(look.Inset(18, 40, look.Column(460, look.NewPanel(look.Inset(14, 10, look.Rows(10, rows...))))))
	return outer
}

// opened makes a request of a secret and wipes it whatever comes of it.
func opened(s *secret.Bytes, f func([]byte) error) error {
	if s == nil {
		return errors.New("nothing was typed")
	}
	defer s.Wipe()
	return s.Use(func(b []byte) error {
		mine := append([]byte(nil), b...) // the request wipes what it is given
		defer clear(mine)
		return f(mine)
	})
}
