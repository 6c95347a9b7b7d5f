package material_test

import (
	"os"
	"strings"
	"testing"

	"singlepass.dev/vault/material"
)

func show(fields []material.Field) string {
	var s []string
	for _, f := range fields {
		s = append(s, f.Name+"="+string(f.Value))
	}
	return strings.Join(s, "|")
}

// The file was written once, by version 1: it is what lies sealed in vaults.
func TestTheKeptFormIsFrozen(t *testing.T) {
	frozen, err := os.ReadFile("testdata/set-v1")
	if err != nil {
		t.Fatal(err)
	}
	in := []material.Field{{"B", []byte("two\nlines=\"x\"")}, {"A_1", []byte("canary-not-a-secret")}, {"_c", nil}}
	got, err := material.Encode(in)
	if err != nil || string(got) != string(frozen) {
		t.Errorf("%q, %v; frozen is %q", got, err, frozen)
	}
	back, err := material.Decode(frozen)
	if err != nil || show(back) != "A_1=canary-not-a-secret|B=two\nlines=\"x\"|_c=" {
		t.Errorf("%s, %v", show(back), err)
	}
	if string(material.Get(back, "A_1")) != "canary-not-a-secret" || material.Get(back, "absent") != nil {
		t.Error("a name is not found")
	}
}

func TestWhatIsNoSetIsRefusedWithoutBeingQuoted(t *testing.T) {
	field := func(name, value string) []material.Field { return []material.Field{{name, []byte(value)}} }
	for name, fields := range map[string][]material.Field{
		"empty": nil, "no name": field("", "canary"), "digit": field("1canary", "x"), "space": field("canary x", "x"), "equals": field("canary=", "x"),
		"NUL": field("A", "canary\x00x"), "twice": {{"A", []byte("canary")}, {"A", []byte("canary")}}, "many": make([]material.Field, 65), "long": field(strings.Repeat("canary", 40), ""),
	} {
		if _, err := material.Encode(fields); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, kept := range []string{"canary", "A=canary", "canary\x00", "A=b\x00canary", strings.Repeat("A=b\x00", 65)} {
		if _, err := material.Decode([]byte(kept)); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", kept, err)
		}
	}
}

func TestEnvironmentFilesAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\nB=2":                                      "A=1|B=2",
		"# a comment\n\n  A = 1  \r\nexport B=x":        "A=1|B=x",
		"A=a b # said\nB=#1":                            "A=a b|B=#1",
		`A='it is $HOME \n'`:                            `A=it is $HOME \n`,
		`A="x\"y\\z\n\t\$" # end`:                       "A=x\"y\\z\n\t$",
		"A=\"two\nlines\"\nB='three\nmore\nlines'\nC=3": "A=two\nlines|B=three\nmore\nlines|C=3",
		"A=\"\"\nB=''":                                  "A=|B=",
		"A=x=y":                                         "A=x=y",
	} {
		fields, err := material.Lines([]byte(text))
		if err != nil || show(fields) != want {
			t.Errorf("%q: %q, %v", text, show(fields), err)
		}
	}
}

func TestABadLineIsNamedByItsNumberAndNotQuoted(t *testing.T) {
	for text, says := range map[string]string{
		"A=1\ncanary":                    "line 2 is not NAME=value",
		"canary-x=1":                     "line 1 is not NAME=value",
		"A=":                             "line 1 gives A no value",
		"A='canary":                      "line 1: the value of A has no closing quote",
		"A=\"canary\\\"":                 "no closing quote",
		"A='canary' canary":              "line 1: something follows",
		`A="\x41canary"`:                 "an escape other than",
		"A='x\ny'\n\ncanary":             "line 4 is not NAME=value",
		strings.Repeat("A=canary\n", 65): "more than 64",
	} {
		_, err := material.Lines([]byte(text))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAnEnvironmentDoesNotChooseWhatRuns(t *testing.T) {
	for _, name := range []string{"PATH", "path", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "NODE_OPTIONS", "BASH_ENV", "A-B", "1A", ""} {
		if err := material.CheckVariable(name); err == nil {
			t.Errorf("%q may be set", name)
		}
		if name == "" {
			continue
		}
		if _, err := material.Environment(name, []byte("canary")); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", name, err)
		}
	}
	got, err := material.Environment("TOKEN", []byte("line 1\nA=B"))
	if err != nil || string(got) != "TOKEN=line 1\nA=B\x00" {
		t.Errorf("%q, %v", got, err)
	}
	got, err = material.Environment("", []byte("B=2\nA=1"))
	if err != nil || string(got) != "A=1\x00B=2\x00" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"", "# nothing", "A=1\nA=2", "PATH=/tmp"} {
		if got, err := material.Environment("", []byte(bad)); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("A=1\nB='2'\nC=\"3\\n\""))
	f.Add([]byte("A=\"\\"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, err := material.Lines(b)
		if err != nil {
			return
		}
		kept, err := material.Encode(fields)
		if err != nil {
			return
		}
		back, err := material.Decode(kept)
		if err != nil || len(back) != len(fields) {
			t.Errorf("%q: %v", kept, err)
		}
	})
}
