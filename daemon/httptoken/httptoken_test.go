package httptoken_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/httptoken"
)

// counting gives bytes that anybody can write down.
type counting byte

func (c *counting) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(*c)
		*c++
	}
	return len(b), nil
}

func TestATokenIsWhatItWasInTheFirstVersion(t *testing.T) {
	b, err := os.ReadFile("testdata/v1.json")
	if err != nil {
		t.Fatal(err)
	}
	var frozen struct {
		Token    string          `json:"token"`
		Verifier json.RawMessage `json:"verifier"`
	}
	if err := json.Unmarshal(b, &frozen); err != nil {
		t.Fatal(err)
	}
	token, v, err := httptoken.New("claude-code", "/home/me/.claude.json", new(counting), time.Date(2026, 12, 1, 9, 30, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	now, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := json.Compact(&want, frozen.Verifier); err != nil {
		t.Fatal(err)
	}
	if token != frozen.Token || string(now) != want.String() {
		t.Errorf("a token and what is kept of it are now\n%s\n%s\nand were\n%s\n%s", token, now, frozen.Token, want.String())
	}
	var old httptoken.Verifier
	if err := json.Unmarshal(frozen.Verifier, &old); err != nil || old.Valid() != nil || !old.Matches(frozen.Token) {
		t.Errorf("what was stored does not match its token any more: %v, %v", err, old.Valid())
	}
}

func TestOnlyTheTokenItselfMatches(t *testing.T) {
	token, v, err := httptoken.New("cursor", "", new(counting), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	random := counting(7)
	other, _, err := httptoken.New("cursor", "", &random, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	last := token[:len(token)-1]
	for _, wrong := range []string{
		"", other, last, token + "A", " " + token, strings.ToUpper(token), last + "_", strings.Replace(token, "cursor", "vscode", 1), strings.Repeat(token, 1000),
	} {
		if v.Matches(wrong) {
			t.Errorf("%.80q matches", wrong)
		}
	}
	if !v.Matches(token) {
		t.Error("the token does not match")
	}
	kept, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if secret := token[len("spt_cursor_"):]; bytes.Contains(kept, []byte(secret)) {
		t.Errorf("what is kept holds the token: %s", kept)
	}
	if (httptoken.Verifier{}).Matches("") {
		t.Error("nothing matches a verifier that is empty")
	}
}

func TestATokenNamesItsClient(t *testing.T) {
	token, _, err := httptoken.New("my-agent-2", "", new(counting), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if client, ok := httptoken.Client(token); client != "my-agent-2" || !ok {
		t.Errorf("got %q, %v", client, ok)
	}
	for _, no := range []string{"", "spt_", "spt__x", "spt_my-agent-2_", token[1:], token + "A", strings.Replace(token, "my-agent-2", "My", 1)} {
		if client, ok := httptoken.Client(no); ok {
			t.Errorf("%q is a token of %q", no, client)
		}
	}
	for _, no := range []string{"", "-x", "Cursor", "a_b", "ä", strings.Repeat("x", 33), "a\nb", "a\n"} {
		if _, _, err := httptoken.New(no, "", new(counting), time.Now()); !errors.Is(err, httptoken.ErrName) {
			t.Errorf("%q: %v", no, err)
		}
	}
}

func TestATextIsShownWithoutItsTokens(t *testing.T) {
	token, _, err := httptoken.New("cursor", "", new(counting), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text := `{"Authorization": "Bearer ` + token + `"} and ` + token + ` and spt_ alone`
	if got, want := string(httptoken.Redact([]byte(text))), `{"Authorization": "Bearer spt_cursor_…"} and spt_cursor_… and spt_ alone`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
