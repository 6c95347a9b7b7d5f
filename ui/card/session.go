package card

import (
	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// Scopes are what a session can cover, as the daemon names it and in words. The first is what it covers where nothing was chosen.
func Scopes() (values, names []string) {
	return []string{"run", "action", "arguments"}, []string{words.Say("card.scope_run"), words.Say("card.scope_action"), words.Say("card.scope_arguments")}
}

// spans are how long a session can last, in minutes; 0 is as long as its process lives.
func spans() (minutes []int, names []string) {
	minutes = []int{0, 5, 15, 30, 60, 120, 240, 480}
	for _, m := range minutes {
		switch {
		case m == 0:
			names = append(names, words.Say("card.lasts_process"))
		case m < 60:
			names = append(names, words.Count("card.minutes", m))
		default:
			names = append(names, words.Count("card.hours", m/60))
		}
	}
	return minutes, names
}

// narrowing lets the person say what a session covers and for how long. It stands before the buttons, and nothing of it is kept for the next card.
func (v *View) narrowing() fyne.CanvasObject {
	_, scopes := Scopes()
	_, lengths := spans()
	v.scope, v.lasts = widget.NewSelect(scopes, nil), widget.NewSelect(lengths, nil)
	for _, s := range []*widget.Select{v.scope, v.lasts} {
		s.SetSelectedIndex(0)
		// The menu lies over the buttons: the second half of a double click on it must not answer.
		s.OnChanged = func(string) {
			v.explain()
			v.arming.Disarm()
			v.Set(nil, nil, nil) // the words may need another line
		}
	}
	mute := look.Style{Color: look.Muted, Size: theme.SizeNameCaptionText}
	return look.Wrap(look.Label(words.Say("card.session_covers"), mute), look.Wide(290, 0, v.scope), look.Label(words.Say("card.session_lasts"), mute), look.Wide(200, 0, v.lasts))
}

// chosen is what a session would cover and for how long, as the daemon takes it. The scope of the whole run is left to the daemon, which has it where none is named.
func (v *View) chosen() (scope string, minutes int) {
	values, _ := Scopes()
	lengths, _ := spans()
	if i := v.scope.SelectedIndex(); i > 0 {
		scope = values[i]
	}
	return scope, lengths[max(0, v.lasts.SelectedIndex())]
}

// explain says what the buttons mean for this card, as it is chosen.
func (v *View) explain() {
	v.means.Set(look.Run{Text: v.meaning(v.card), Style: look.Style{Color: look.Muted, Size: theme.SizeNameCaptionText}})
}

func (v *View) meaning(c api.Card) string {
	if v.session == nil {
		return words.Say("card.means_once")
	}
	scope, minutes := v.chosen()
	text := words.Say("card.means_only")
	switch scope {
	case "action":
		text += " " + words.Say("card.means_action")
	case "arguments":
		text += " " + words.Say("card.means_arguments")
	default:
		text += " " + words.Say("card.means_run")
	}
	switch {
	case minutes == 0:
		text += " " + words.Say("card.until_end")
	case minutes < 60:
		text += " " + words.Count("card.until_minutes", minutes)
	default:
		text += " " + words.Count("card.until_hours", minutes/60)
	}
	if c.Question == "session_and_use" {
		text += " " + words.Say("card.still_asks")
	}
	return text
}
