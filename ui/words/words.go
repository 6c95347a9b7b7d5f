// Package words holds every string that the tray app shows, in English, Brazilian Portuguese and Traditional Chinese, chosen by the system's locale through Fyne's lang.
//
// Promises: every key has a text in every language, and every key is used; a test holds both. What comes from outside (names, targets, reasons) goes in as data and is never read as a
// template.
//
// Non-promises: what the daemon says in free words (the reasons of a card, error messages and their hints) is shown in the daemon's own English.
package words

import (
	"embed"

	"fyne.io/fyne/v2/lang"
)

//go:embed translations/*.json
var files embed.FS

func init() {
	if err := Reload(); err != nil {
		panic("ui/words: " + err.Error()) // the files are part of the program
	}
}

// Reload chooses the language again, by the locale of the environment as it is now.
func Reload() error { return lang.AddTranslationsFS(files, "translations") }

// Say returns the text of a key. Pairs are names and values for the places that the text leaves open.
func Say(key string, pairs ...any) string { return lang.LocalizeKey(key, key, data(pairs)) }

// Count returns the text of a key in the form that n of a thing takes; the text has n as N.
func Count(key string, n int, pairs ...any) string {
	d := data(pairs)
	d["N"] = n
	return lang.LocalizePluralKey(key, key, n, d)
}

func data(pairs []any) map[string]any {
	d := make(map[string]any, len(pairs)/2+1)
	for i := 0; i+1 < len(pairs); i += 2 {
		d[pairs[i].(string)] = pairs[i+1]
	}
	return d
}
