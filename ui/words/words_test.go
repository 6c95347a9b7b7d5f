package words_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"singlepass.dev/ui/words"
)

// languages are the ones that the app speaks, as their files are named.
var languages = []string{"en", "pt_BR", "zh_Hant"}

// texts are the texts of a language by key; of one with plural forms all of them, by "key.form".
func texts(t *testing.T, language string) (keys []string, all map[string]string) {
	t.Helper()
	files, err := filepath.Glob("translations/*." + language + ".json")
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no file for %s: %v", language, err)
	}
	raw := map[string]any{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var one map[string]any
		if err := json.Unmarshal(b, &one); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for key, v := range one {
			if _, there := raw[key]; there {
				t.Errorf("%s: %s is in another file too", file, key)
			}
			raw[key] = v
		}
	}
	all = map[string]string{}
	for key, v := range raw {
		keys = append(keys, key)
		switch v := v.(type) {
		case string:
			all[key] = v
		case map[string]any:
			for form, text := range v {
				all[key+"."+form] = text.(string)
			}
			if v["other"] == nil {
				t.Errorf("%s: %s has no form for any number", language, key)
			}
		}
	}
	slices.Sort(keys)
	return keys, all
}

// used are the keys that the app asks for. Each is written out where it is used, so that it can be found.
func used(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for _, root := range []string{"..", "../../cmd/sp-tray"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				fun, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || fun.Sel.Name != "Say" && fun.Sel.Name != "Count" || len(call.Args) == 0 {
					return true
				}
				key, ok := call.Args[0].(*ast.BasicLit)
				if !ok {
					// A package that draws nothing is given the words as an interface, and passes the key on.
					if arg, ok := call.Args[0].(*ast.Ident); ok && arg.Name == "key" {
						return true
					}
					if pkg, ok := fun.X.(*ast.Ident); ok && pkg.Name == "words" {
						t.Errorf("%s: the key of a text is not written out", set.Position(call.Pos()))
					}
					return true
				}
				if key.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(key.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[text] = true
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func TestNoTextIsMissingInAnyLanguageAndNoneIsUnused(t *testing.T) {
	need := used(t)
	if len(need) < 100 {
		t.Fatalf("found only %d keys", len(need))
	}
	for _, file := range languages {
		have, _ := texts(t, file)
		for _, key := range need {
			if !slices.Contains(have, key) {
				t.Errorf("%s has no %q", file, key)
			}
		}
		for _, key := range have {
			if !slices.Contains(need, key) {
				t.Errorf("%s has %q, which nothing uses", file, key)
			}
		}
	}
}

var place = regexp.MustCompile(`\{\{\.\w+\}\}`)

func TestEveryTranslationLeavesTheSamePlacesOpen(t *testing.T) {
	_, english := texts(t, "en")
	places := func(s string) []string {
		list := place.FindAllString(s, -1)
		slices.Sort(list)
		return slices.Compact(list)
	}
	for _, file := range languages {
		_, all := texts(t, file)
		for key, text := range all {
			want, ok := english[key]
			if !ok {
				want = english[strings.TrimSuffix(key, ".many")+".other"]
			}
			if strings.TrimSpace(text) == "" || strings.Contains(text, "TODO") {
				t.Errorf("%s: %s is empty", file, key)
			}
			if !slices.Equal(places(text), places(want)) && !strings.HasSuffix(key, ".one") {
				t.Errorf("%s: %s leaves %v open, and English %v", file, key, places(text), places(want))
			}
			if left := place.ReplaceAllString(text, ""); strings.Contains(left, "{{") || strings.Contains(left, "}}") {
				t.Errorf("%s: %s has a place that is not one: %q", file, key, text)
			}
		}
	}
}

func TestTheLocaleChoosesTheLanguage(t *testing.T) {
	for _, name := range []string{"LANGUAGE", "LC_ALL", "LC_MESSAGES"} {
		t.Setenv(name, "")
	}
	for locale, want := range map[string]string{
		"en_US.UTF-8": "Deny", "pt_BR.UTF-8": "Negar", "zh_TW.UTF-8": "拒絕", "zh_HK.UTF-8": "拒絕", "de_DE.UTF-8": "Deny", "fr_FR.UTF-8": "Deny", "pl_PL.UTF-8": "Deny", "ja_JP.UTF-8": "Deny",
		"pt_PT.UTF-8": "Negar", "zh_CN.UTF-8": "拒絕", "C.UTF-8": "Deny", "": "Deny",
	} {
		t.Setenv("LANG", locale)
		if err := words.Reload(); err != nil {
			t.Fatal(err)
		}
		if got := words.Say("card.deny"); got != want {
			t.Errorf("%q: %q, want %q", locale, got, want)
		}
	}
}

func TestALanguageThatOnlyFyneSpeaksNeverShowsAKey(t *testing.T) {
	for _, name := range []string{"LANGUAGE", "LC_ALL", "LC_MESSAGES"} {
		t.Setenv(name, "")
	}
	keys, all := texts(t, "en")
	for _, locale := range []string{"cs_CZ", "de_DE", "el_GR", "es_ES", "fr_FR", "pl_PL", "ru_RU", "sv_SE", "ta_IN", "uk_UA", "pt_PT", "zh_CN", "zh_TW", "pt_BR"} {
		t.Setenv("LANG", locale+".UTF-8")
		if err := words.Reload(); err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			for _, n := range []int{0, 1, 2, 5, 21, 1000000} {
				got := words.Say(key)
				if all[key] == "" {
					got = words.Count(key, n)
				}
				if got == key || got == "" {
					t.Fatalf("%s: %s for %d is %q", locale, key, n, got)
				}
			}
		}
	}
}

func TestNumbersTakeTheirForm(t *testing.T) {
	t.Setenv("LC_ALL", "")
	t.Setenv("LANG", "en_US.UTF-8")
	if err := words.Reload(); err != nil {
		t.Fatal(err)
	}
	if a, b := words.Count("card.calls_before", 1), words.Count("card.calls_before", 0); a != "1 call before" || b != "0 calls before" {
		t.Errorf("%q and %q", a, b)
	}
}

func TestWhatComesFromOutsideIsNoTemplate(t *testing.T) {
	t.Setenv("LC_ALL", "")
	t.Setenv("LANG", "en_US.UTF-8")
	if err := words.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := words.Say("card.with", "Credential", "{{.Secret}}<b>&"); got != "With the credential {{.Secret}}<b>&" {
		t.Errorf("got %q", got)
	}
}
