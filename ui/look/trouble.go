package look

import (
	"errors"

	"fyne.io/fyne/v2"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/words"
)

// Trouble shows an error with what to do about it.
func Trouble(err error) fyne.CanvasObject {
	var e *api.Error
	if !errors.As(err, &e) {
		return NewNotice(Wrong, ShapeWarning, Body(err.Error()))
	}
	text := e.Message
	switch e.Code {
	case api.CodeNoDaemon:
		text = words.Say("trouble.no_daemon")
	case api.CodeVaultLocked:
		text = words.Say("trouble.locked")
	case api.CodeMissing:
		text = words.Say("trouble.gone")
	case api.CodeExpired:
		text = words.Say("trouble.expired")
	}
	runs := []Run{{text, Style{}}}
	if e.Hint != "" {
		runs = append(runs, Run{"  " + e.Hint, Style{Color: Muted}})
	}
	return NewNotice(Wrong, ShapeWarning, Paragraph(runs...))
}
