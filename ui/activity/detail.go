package activity

import (
	"encoding/json"
	"errors"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/record"
	"singlepass.dev/ui/words"
)

// detail is the record that is looked at, with what can be taken of it.
type detail struct {
	widget.BaseWidget
	cfg    Config
	view   *record.View
	record api.Record
	bar    fyne.CanvasObject
	root   *fyne.Container
}

func newDetail(cfg Config) (*detail, error) {
	d := &detail{cfg: cfg}
	var err error
	if d.view, err = record.New(record.Config{Daemon: cfg.Records, Now: cfg.Now, Context: cfg.Context, Go: cfg.Go, After: cfg.After}); err != nil {
		return nil, err
	}
	var left []fyne.CanvasObject
	add := func(text string, f func()) {
		b := widget.NewButton(text, f)
		b.Importance = widget.LowImportance
		left = append(left, b)
	}
	if cfg.Copy != nil {
		add(words.Say("detail.copy"), func() { cfg.Copy(d.record.ExecutionID) })
	}
	if cfg.Save != nil {
		add(words.Say("detail.export"), d.export)
	}
	d.bar = look.Inset(14, 4, look.Line(left, nil))
	d.root = container.NewStack(container.NewCenter(look.Wide(280, 0, look.Middle(look.Quiet(words.Say("detail.none"))))))
	d.ExtendBaseWidget(d)
	return d, nil
}

// CreateRenderer implements fyne.Widget.
func (d *detail) CreateRenderer() fyne.WidgetRenderer { return widget.NewSimpleRenderer(d.root) }

func (d *detail) show(r api.Record) {
	first := d.record.ExecutionID == ""
	d.record = r
	d.view.Update(r, nil)
	if first {
		d.root.Objects = []fyne.CanvasObject{container.NewBorder(look.Ground(d.bar), nil, nil, nil, d.view)}
		d.root.Refresh()
	}
}

func (d *detail) update(r api.Record) { d.show(r) }

// export saves the record, and request and result too if the vault lets them be read.
func (d *detail) export() {
	r := d.record
	d.cfg.Go(func() {
		p, err := d.cfg.Records.Payload(d.cfg.Context, r.ExecutionID)
		whole := struct {
			api.Record
			Payload *api.Payload `json:"payload,omitempty"`
		}{Record: r}
		var e *api.Error
		if err == nil {
			whole.Payload = &p
		} else if !errors.As(err, &e) || e.Code != api.CodeVaultLocked {
			look.Do(func() { d.view.Say(look.Trouble(err)) })
			return
		}
		b, err := json.MarshalIndent(whole, "", "  ")
		look.Do(func() {
			if err != nil {
				d.view.Say(look.Trouble(err))
				return
			}
			d.cfg.Save(r.ExecutionID+".json", append(b, '\n'))
		})
	})
}
