package vaultview

import (
	"context"
	"errors"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// door is where a passphrase is asked for: to open the vault, or to prove presence where it is open already.
type door struct {
	v       *View
	proof   bool
	pass    *look.Secret
	kit     *look.Secret
	open    *widget.Button
	trouble *fyne.Container
	caps    fyne.CanvasObject
	tries   int
	cancel  func()
	root    fyne.CanvasObject
}

func newDoor(v *View, proof bool) *door {
	d := &door{v: v, proof: proof, pass: look.NewSecret(words.Say("door.passphrase")), trouble: look.Rows(6), cancel: func() {}}
	title, means, action, shape := words.Say("door.locked"), words.Say("door.locked_means"), words.Say("door.unlock"), look.ShapeLock
	if proof {
		title, means, action, shape = words.Say("door.proof"), words.Say("door.proof_means"), words.Say("door.prove"), look.ShapeKey
	}
	d.open = widget.NewButton(action, d.try)
	d.pass.OnSubmitted = d.try
	d.caps = look.NewNotice(look.Careful, look.ShapeWarning, look.Body(words.Say("door.caps")))
	d.caps.Hide()
	rows := []fyne.CanvasObject{
		look.Centered(shape, look.Muted), look.Middle(look.Subheading(title)), look.Middle(look.Quiet(means)),
	}
	if v.status.Keyring == "unavailable" && !proof {
		rows = append(rows, look.NewNotice(look.Careful, look.ShapeWarning, look.Body(words.Say("door.keyring", "Reason", v.status.Reason))))
		d.kit = look.NewSecret(words.Say("door.kit"))
		d.kit.OnSubmitted = d.try
	} else if v.status.Reason != "" && !proof {
		rows = append(rows, look.Middle(look.Quiet(v.status.Reason)))
	}
	rows = append(rows, d.pass)
	if d.kit != nil {
		rows = append(rows, d.kit)
	}
	rows = append(rows, d.caps, d.trouble, look.Wide(0, 38, d.open))
	d.root = page(rows...)
	d.pass.OnCaps = func() {
		if d.pass.CapsLock() {
			d.caps.Show()
		} else {
			d.caps.Hide()
		}
		d.root.Refresh()
	}
	return d
}

func (d *door) wipe() {
	d.cancel()
	d.pass.Clear()
	if d.kit != nil {
		d.kit.Clear()
	}
}

func (d *door) enable(on bool) {
	if on {
		d.open.Enable()
		d.pass.Enable()
	} else {
		d.open.Disable()
		d.pass.Disable()
	}
}

func (d *door) try() {
	if d.open.Disabled() || d.pass.Len() == 0 {
		return
	}
	pass := d.pass.Take()
	kit := []byte(nil)
	if d.kit != nil {
		if s := d.kit.Take(); s != nil {
			_ = s.Use(func(b []byte) error { kit = append(kit, b...); return nil })
			s.Wipe()
		}
	}
	d.enable(false)
	var status api.Status
	d.v.work.Do(func(ctx context.Context) error {
		defer clear(kit)
		if d.proof {
			defer pass.Wipe()
			return d.v.cfg.Vault.EarnTicket(ctx, pass)
		}
		return opened(pass, func(b []byte) (err error) {
			status, err = d.v.cfg.Vault.Unlock(ctx, api.UnlockRequest{Passphrase: b, RecoveryKit: kit})
			return err
		})
	}, func(err error) {
		d.enable(true)
		if err == nil {
			if d.proof {
				status = d.v.status
			}
			d.v.changed(status)
			return
		}
		d.failed(err)
	})
}

// failed says what was wrong, how often that was so, and when the next try is taken.
func (d *door) failed(err error) {
	d.tries++
	list := []fyne.CanvasObject{}
	var e *api.Error
	switch {
	case errors.As(err, &e) && e.Code == api.CodeProofWrong:
		list = append(list, look.NewNotice(look.Wrong, look.ShapeRefused, look.Body(words.Count("door.wrong", d.tries))))
	case errors.As(err, &e) && e.Code == api.CodeTooManyTries:
		wait := time.Duration(max(1, e.RetryAfter)) * time.Second
		list = append(list, look.NewNotice(look.Careful, look.ShapeOver, look.Body(words.Say("door.wait", "Span", look.Span(wait)))))
		d.enable(false)
		d.cancel = d.v.cfg.After(wait, func() {
			d.enable(true)
			d.trouble.Objects = nil
			d.root.Refresh()
		})
	default:
		list = append(list, look.Trouble(err))
	}
	d.trouble.Objects = list
	d.root.Refresh()
}
