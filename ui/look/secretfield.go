package look

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/driver/desktop"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/ui/words"
	"singlepass.dev/vault/secret"
)

// Secret is a field for a passphrase or a credential's value. It shows that something was typed and never what: there is no button that shows it, nothing can be copied out of it, and it
// keeps bytes that are wiped instead of a text that cannot be. What the toolkit and the clipboard keep on the way here is out of its reach.
type Secret struct {
	widget.BaseWidget
	OnSubmitted func() // optional: Enter
	OnChanged   func() // optional
	OnCaps      func() // optional: whether Caps Lock is on became known, or changed
	hint        string
	multi       bool // lines may be pasted, as a key has them
	bytes       []byte
	focused     bool
	disabled    bool
	shift       bool
	caps        bool
}

var (
	_ fyne.Focusable    = (*Secret)(nil)
	_ fyne.Tappable     = (*Secret)(nil)
	_ fyne.Shortcutable = (*Secret)(nil)
	_ desktop.Keyable   = (*Secret)(nil)
)

// mostSecret is what the daemon takes in one request, with room for the rest.
const mostSecret = 512 << 10

// NewSecret returns an empty field that says what belongs into it.
func NewSecret(hint string) *Secret {
	s := &Secret{hint: hint}
	s.ExtendBaseWidget(s)
	return s
}

// NewSecretLines is a field that takes several lines from the clipboard, as a key has them.
func NewSecretLines(hint string) *Secret {
	s := NewSecret(hint)
	s.multi = true
	return s
}

// Take returns what was typed and empties the field. The caller wipes it. Nil: nothing was typed.
func (s *Secret) Take() *secret.Bytes {
	if len(s.bytes) == 0 {
		return nil
	}
	b := secret.New(s.bytes) // it takes the bytes over
	s.bytes = nil
	s.changed()
	return b
}

// Equal says whether another field holds the same.
func (s *Secret) Equal(other *Secret) bool { return bytes.Equal(s.bytes, other.bytes) }

// Len is how many characters were typed.
func (s *Secret) Len() int { return utf8.RuneCount(s.bytes) }

// Clear wipes what was typed.
func (s *Secret) Clear() {
	clear(s.bytes)
	s.bytes = nil
	s.changed()
}

// Set puts a secret into the field, which takes the bytes over; for a file that was chosen.
func (s *Secret) Set(b []byte) {
	clear(s.bytes)
	s.bytes = b
	s.changed()
}

// CapsLock says whether Caps Lock is known to be on: by a letter that came otherwise than Shift says.
func (s *Secret) CapsLock() bool { return s.caps }

func (s *Secret) changed() {
	s.Refresh()
	if s.OnChanged != nil {
		s.OnChanged()
	}
}

// room makes sure that n more bytes fit without a copy of the old ones staying behind.
func (s *Secret) room(n int) {
	if len(s.bytes)+n <= cap(s.bytes) {
		return
	}
	grown := make([]byte, len(s.bytes), max(128, 2*(len(s.bytes)+n)))
	copy(grown, s.bytes)
	clear(s.bytes)
	s.bytes = grown
}

// TypedRune implements fyne.Focusable.
func (s *Secret) TypedRune(r rune) {
	if s.disabled || len(s.bytes)+utf8.UTFMax > mostSecret {
		return
	}
	s.room(utf8.UTFMax)
	s.bytes = utf8.AppendRune(s.bytes, r)
	if unicode.IsUpper(r) != unicode.IsLower(r) {
		s.setCaps(unicode.IsUpper(r) != s.shift)
	}
	s.changed()
}

func (s *Secret) setCaps(on bool) {
	if s.caps != on {
		s.caps = on
		s.Refresh()
		if s.OnCaps != nil {
			s.OnCaps()
		}
	}
}

// TypedKey implements fyne.Focusable.
func (s *Secret) TypedKey(e *fyne.KeyEvent) {
	switch e.Name {
	case fyne.KeyReturn, fyne.KeyEnter:
		if s.OnSubmitted != nil && !s.disabled {
			s.OnSubmitted()
		}
	case fyne.KeyBackspace:
		if _, n := utf8.DecodeLastRune(s.bytes); n > 0 && !s.disabled {
			clear(s.bytes[len(s.bytes)-n:])
			s.bytes = s.bytes[:len(s.bytes)-n]
			s.changed()
		}
	case fyne.KeyDelete, fyne.KeyEscape:
		s.Clear()
	}
}

// TypedShortcut implements fyne.Shortcutable: only pasting goes in, and nothing comes out.
func (s *Secret) TypedShortcut(c fyne.Shortcut) {
	p, ok := c.(*fyne.ShortcutPaste)
	if !ok || s.disabled {
		return
	}
	text := p.Clipboard.Content()
	if !s.multi {
		text = strings.TrimRight(text, "\r\n")
	}
	if len(s.bytes)+len(text) > mostSecret {
		return
	}
	s.room(len(text))
	s.bytes = append(s.bytes, text...)
	s.changed()
}

// KeyDown implements desktop.Keyable.
func (s *Secret) KeyDown(e *fyne.KeyEvent) {
	switch e.Name {
	case desktop.KeyShiftLeft, desktop.KeyShiftRight:
		s.shift = true
	case desktop.KeyCapsLock:
		s.setCaps(!s.caps)
	}
}

// KeyUp implements desktop.Keyable.
func (s *Secret) KeyUp(e *fyne.KeyEvent) {
	switch e.Name {
	case desktop.KeyShiftLeft, desktop.KeyShiftRight:
		s.shift = false
	}
}

// FocusGained implements fyne.Focusable.
func (s *Secret) FocusGained() {
	s.focused, s.shift = true, false
	s.Refresh()
}

// FocusLost implements fyne.Focusable.
func (s *Secret) FocusLost() {
	s.focused, s.shift = false, false
	s.Refresh()
}

// Tapped implements fyne.Tappable.
func (s *Secret) Tapped(*fyne.PointEvent) {
	if c := fyne.CurrentApp().Driver().CanvasForObject(s); c != nil && !s.disabled {
		c.Focus(s)
	}
}

// Enable lets the field be typed into.
func (s *Secret) Enable() {
	s.disabled = false
	s.Refresh()
}

// Disable stops it.
func (s *Secret) Disable() {
	s.disabled = true
	s.Refresh()
}

// Disabled implements fyne.Disableable.
func (s *Secret) Disabled() bool { return s.disabled }

// CreateRenderer implements fyne.Widget.
func (s *Secret) CreateRenderer() fyne.WidgetRenderer {
	r := &secretRenderer{s: s, back: canvas.NewRectangle(theme.Color(theme.ColorNameInputBackground)), text: canvas.NewText("", theme.Color(theme.ColorNameForeground)), bar: canvas.NewRectangle(theme.Color(theme.ColorNamePrimary))}
	r.back.CornerRadius = theme.InputRadiusSize()
	r.paint()
	return r
}

type secretRenderer struct {
	s    *Secret
	back *canvas.Rectangle
	text *canvas.Text
	bar  *canvas.Rectangle
}

// paint says that something was typed, and not how much.
func (r *secretRenderer) paint() {
	s := r.s
	r.back.FillColor, r.back.StrokeWidth, r.back.StrokeColor = theme.Color(theme.ColorNameInputBackground), 1, theme.Color(theme.ColorNameInputBorder)
	if s.focused {
		r.back.StrokeWidth, r.back.StrokeColor = 2, theme.Color(theme.ColorNamePrimary)
	}
	if s.disabled {
		r.back.FillColor = theme.Color(theme.ColorNameDisabledButton)
	}
	r.text.TextSize = theme.TextSize()
	r.text.Text, r.text.Color = s.hint, theme.Color(theme.ColorNamePlaceHolder)
	if n := s.Len(); n > 0 {
		// Each key moves the dot, so that a person sees that it was taken, and nobody how many there were.
		r.text.Text, r.text.Color = []string{"•  ·  ·", "·  •  ·", "·  ·  •"}[n%3], theme.Color(theme.ColorNameForeground)
		if lines := bytes.Count(s.bytes, []byte("\n")); lines > 0 {
			r.text.Text = words.Count("secret.lines", lines)
		}
	}
	r.bar.FillColor = theme.Color(theme.ColorNamePrimary)
	r.bar.Hidden = !s.focused
}

func (r *secretRenderer) Layout(size fyne.Size) {
	r.back.Resize(size)
	m := r.text.MinSize()
	r.text.Move(fyne.NewPos(10, (size.Height-m.Height)/2))
	r.text.Resize(m)
	r.bar.Resize(fyne.NewSize(2, m.Height))
	x := float32(9)
	if r.s.Len() > 0 {
		x = 10 + m.Width + 3
	}
	r.bar.Move(fyne.NewPos(x, (size.Height-m.Height)/2))
}

func (r *secretRenderer) MinSize() fyne.Size { return fyne.NewSize(180, theme.TextSize()+20) }

func (r *secretRenderer) Refresh() {
	r.paint()
	r.Layout(r.s.Size())
	canvas.Refresh(r.s)
}

func (r *secretRenderer) Objects() []fyne.CanvasObject {
	return []fyne.CanvasObject{r.back, r.text, r.bar}
}
func (r *secretRenderer) Destroy() {}
