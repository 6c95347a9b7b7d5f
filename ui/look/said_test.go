package look_test

import (
	"slices"
	"strings"
	"testing"

	"fyne.io/fyne/v2/theme"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/looktest"
)

// everyValue has each name that a sentence of the daemon's leaves open.
var everyValue = map[string]string{
	"condition": "args.a > 1", "values": "a = 2", "credential": "deploy-service", "execution": "act_1", "state": "expired", "reason": "because it is", "variable": "LD_PRELOAD", "process": "99",
	"name": "org.example", "is": "/new", "was": "/old", "since": "2026-03-14T12:00:00Z", "tool": "pay", "number": "3", "request": "7", "transport": "stdio", "by": "operator", "target": "https://a.example",
	"outcome": "success", "finding": "done", "times": "4", "status": "201", "source": "marker",
}

// inEachLanguage calls f in every language, with what the same key said in English.
func inEachLanguage(t *testing.T, f func(t *testing.T, say func(name, text string))) {
	english := map[string]string{}
	for _, locale := range []string{"en_US.UTF-8", "pt_BR.UTF-8", "zh_TW.UTF-8"} {
		t.Run(locale, func(t *testing.T) {
			looktest.Start(t, theme.VariantLight, locale)
			f(t, func(name, text string) {
				switch {
				case text == "" || text == "in the daemon's words" || strings.Contains(text, "<no value>") || strings.Contains(text, "{{") || strings.Contains(text, "said.") || strings.Contains(text, "trouble."):
					t.Errorf("%s is said as %q", name, text)
				case locale == "en_US.UTF-8":
					english[name] = text
				case text == english[name]:
					t.Errorf("%s is said in English: %q", name, text)
				}
			})
		})
	}
}

func TestEverySentenceOfTheDaemonsHasWordsInEveryLanguage(t *testing.T) {
	inEachLanguage(t, func(_ *testing.T, say func(name, text string)) {
		for _, code := range api.Sentences() {
			say(string(code), look.Said(api.Said{Code: code, Values: everyValue}, "in the daemon's words"))
		}
	})
}

func TestEveryCodeOfARefusalHasWordsInEveryLanguage(t *testing.T) {
	inEachLanguage(t, func(_ *testing.T, say func(name, text string)) {
		for _, code := range api.Codes() {
			text, _ := look.Refusal(&api.Error{Code: code, Message: "in the daemon's words", RetryAfter: 60})
			say(string(code), text)
		}
	})
}

func TestEveryLevelOfAssuranceHasWordsInEveryLanguage(t *testing.T) {
	inEachLanguage(t, func(_ *testing.T, say func(name, text string)) {
		for _, level := range api.Assurances() {
			_, _, text := look.Assured(level, "in the daemon's words")
			say(string(level), text)
		}
	})
}

func TestWhatASentenceLeavesOpenIsSaidInIt(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "pt_BR.UTF-8")
	for code, values := range map[api.Sentence][]string{
		api.WhyCondition: {"args.a > 1", "a = 2"}, api.WhyWaitedBefore: {"act_1", "Expirada", "because it is"}, api.ChangedScript: {"/new", "/old", "2026-03-14 12:00"},
		api.StepAttached: {"3", "7", "stdio"}, api.StepAsked: {"operator", "4", "O alvo", "because it is"}, api.StepCompleted: {"201", "Do marcador no servidor"}, api.StepLost: {"3", "because it is"},
	} {
		text := look.Said(api.Said{Code: code, Values: everyValue}, "")
		for _, v := range values {
			if !strings.Contains(text, v) {
				t.Errorf("%s: %q does not have %q", code, text, v)
			}
		}
	}
}

func TestASentenceThatIsNotKnownIsSaidInTheDaemonsWords(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "pt_BR.UTF-8")
	for _, code := range []api.Sentence{"", "why_of_a_later_version"} {
		if got := look.Said(api.Said{Code: code}, "in the daemon's words"); got != "in the daemon's words" {
			t.Errorf("%q is said as %q", code, got)
		}
	}
	if _, _, got := look.Assured("", "known by its smell"); got != "known by its smell" {
		t.Errorf("a level without a code is said as %q", got)
	}
	if _, _, got := look.Assured("", ""); got == "" {
		t.Error("nothing is said of a program of which nothing is known")
	}
}

func TestTroubleSaysTheDaemonsOwnWordsWhereTheSentenceDoesNotSayAll(t *testing.T) {
	looktest.Start(t, theme.VariantLight, "pt_BR.UTF-8")
	shown := func(err error) string {
		o := look.Trouble(err)
		looktest.Window(t, o, 800, 200)
		return strings.Join(looktest.Texts(o), "\n")
	}
	if got := shown(api.Errorf(api.CodeExists, "there is a credential %q", "bank")); !strings.Contains(got, "Já existe") || !strings.Contains(got, `"bank"`) {
		t.Errorf("it says %q", got)
	}
	if got := shown(api.Errorf(api.CodeVaultLocked, "the vault is locked").WithHint("spctl unlock")); strings.Contains(got, "the vault is locked") || !strings.Contains(got, "frase secreta") {
		t.Errorf("it says %q", got)
	}
}

func TestEverySentenceIsListedOnce(t *testing.T) {
	list := slices.Sorted(slices.Values(api.Sentences()))
	if n := len(slices.Compact(slices.Clone(list))); n != len(list) {
		t.Errorf("%d sentences are %d", len(list), n)
	}
}
