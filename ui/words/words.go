// Package words holds every string that the tray app shows, in English, Brazilian Portuguese and Traditional Chinese, chosen by the system's locale through Fyne's lang.
//
// Promises: every key has a text in every language, and every key is used; a test holds both. What comes from outside (names, targets, reasons) goes in as data and is never read as a
// template.
//
// Where the system speaks another language, everything is said in English, but for European Portuguese, which gets the Brazilian texts, and Simplified Chinese, which gets the Traditional
// ones.
//
// Non-promises: what the daemon says in free words (the reason of a failure, the details of an error) is shown in the daemon's own English. What it says with a code has a text here; ui/look
// says it.
package words

import (
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/lang"
)

//go:embed translations/*.json
var files embed.FS

func init() {
	if err := Reload(); err != nil {
		panic("ui/words: " + err.Error()) // the files are part of the program
	}
}

// as says under which names of Fyne's a language of ours is known. Fyne picks the language for the whole app, its own texts included, and shows the key of a text that this one lacks; so
// those that Fyne speaks and we do not get the texts that serve best. It reads no script, so that Traditional Chinese goes by the place.
var as = map[string][]string{
	"en":      {"en", "cs", "de", "el", "es", "fr", "pl", "ru", "sv", "ta", "uk"},
	"pt_BR":   {"pt_BR", "pt"},
	"zh_Hant": {"zh_TW", "zh_Hans"},
}

// Reload chooses the language again, by the locale of the environment as it is now.
func Reload() error {
	list, err := files.ReadDir("translations")
	if err != nil {
		return err
	}
	for _, f := range list {
		b, err := files.ReadFile("translations/" + f.Name())
		if err != nil {
			return err
		}
		prefix, language, _ := strings.Cut(strings.TrimSuffix(f.Name(), ".json"), ".")
		for _, name := range as[language] {
			content, err := everyForm(b)
			if err != nil {
				return fmt.Errorf("reading %s: %w", f.Name(), err)
			}
			if err := lang.AddTranslations(fyne.NewStaticResource(prefix+"."+name+".json", content)); err != nil {
				return fmt.Errorf("reading %s: %w", f.Name(), err)
			}
		}
	}
	return nil
}

// everyForm fills in the plural forms that a language asks for and a text does not tell apart, as Portuguese has one for millions.
func everyForm(b []byte) ([]byte, error) {
	var texts map[string]any
	if err := json.Unmarshal(b, &texts); err != nil {
		return nil, err
	}
	for _, v := range texts {
		if forms, ok := v.(map[string]any); ok {
			for _, form := range []string{"zero", "one", "two", "few", "many"} {
				if forms[form] == nil {
					forms[form] = forms["other"]
				}
			}
		}
	}
	return json.Marshal(texts)
}

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
