package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/policy"
)

// migrate is a correct contract that the tests change.
const migrate = `action: migrate
title: Migrate the database
description: Brings the shop's database to a version.
channel: ssh
input:
  type: object
  properties:
    version: {type: string}
    note: {type: string, default: none}
    tag: {type: string}
    count: {type: integer}
    pin: {type: string, secret: true}
    files: {type: array, items: {type: string}}
  required: [version, pin]
  additionalProperties: false
credential: db
ssh:
  host: DB1.internal.example
  user: deploy
  jump: {host: gate.internal.example, port: 2222, user: jump}
  command: [./migrate, "--to={version}", [--tag, "{tag}"], --, "{note}"]
  directory: /srv/shop
  stdin: "{pin}"
  env: {PGDATABASE: shop, NOTE: "{note}", TAG: "{tag}"}
  timeout: {connect: 5s, total: 30m}
  max_output: 65536
  success: [0, 3]
  marker: {folder: /var/lib/deploy/singlepass, keep: 14d}
replay:
  class: status_query
  attach_window: 1h
`

func rendered(t *testing.T, src, arguments string) effect.Effect {
	t.Helper()
	a := compile(t, src)
	p, err := a.Prepare([]byte(arguments))
	if err != nil {
		t.Fatal(err)
	}
	e, err := a.Render(p, "act_01TEST")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestACommandIsRenderedWithEachArgumentAsData(t *testing.T) {
	e := rendered(t, migrate, `{"version":"2; rm -rf /","note":"it's -x","pin":"canary-not-a-secret"}`)
	want := effect.SSHCommand{
		Host:    effect.SSHHost{User: "deploy", Name: "db1.internal.example", Port: 22},
		Jump:    &effect.SSHHost{User: "jump", Name: "gate.internal.example", Port: 2222},
		Command: `'./migrate' '--to=2; rm -rf /' '--' 'it'\''s -x'`, Directory: "/srv/shop",
		Env:   []effect.Field{{Name: "PGDATABASE", Value: "shop"}, {Name: "NOTE", Value: "it's -x"}},
		Stdin: []byte("canary-not-a-secret"), Success: []int{0, 3}, Marker: &effect.SSHMarker{Folder: "/var/lib/deploy/singlepass", Keep: 14},
	}
	if e.SSH.Command != want.Command || !slices.Equal(e.SSH.Env, want.Env) || e.SSH.Directory != want.Directory || string(e.SSH.Stdin) != string(want.Stdin) || *e.SSH.Marker != *want.Marker ||
		e.SSH.Host.Address() != "ssh://deploy@db1.internal.example:22" || e.SSH.Jump.Address() != "ssh://jump@gate.internal.example:2222" || e.Auth.Credential != "db" {
		t.Errorf("got %+v", e.SSH)
	}
	with := rendered(t, migrate, `{"version":"2","tag":"a b","pin":"x"}`)
	if want := `'./migrate' '--to=2' '--tag' 'a b' '--' 'none'`; with.SSH.Command != want {
		t.Errorf("with its group: %s", with.SSH.Command)
	}
	if _, err := with.Encode(); err != nil {
		t.Error(err)
	}
}

func TestAnArgumentThatWouldBeAnOptionIsRefused(t *testing.T) {
	for _, c := range []struct{ command, arguments, want string }{
		{`[./migrate, "{version}"]`, `{"version":"--drop","pin":"x"}`, "/version: it begins with -"},
		{`[./migrate, "{version}", --, "{note}"]`, `{"version":"-1","pin":"x"}`, "/version: it begins with -"},
		{`"./migrate {version}"`, `{"version":"--drop","pin":"x"}`, "/version: it begins with -"},
		{`"./a -- {note}; ./migrate {version}"`, `{"version":"--drop","pin":"x"}`, "/version: it begins with -"},
		{`[./migrate, --, "{version}"]`, `{"version":"--drop","pin":"x"}`, ""},
		{`[./migrate, "--to={version}"]`, `{"version":"--drop","pin":"x"}`, ""},
		{`"./migrate -- {version}"`, `{"version":"--drop","pin":"x"}`, ""},
		{`"./migrate v{version}"`, `{"version":"--drop","pin":"x"}`, ""},
		{`[./migrate, "{version}"]`, `{"version":"a\u0000b","pin":"x"}`, "/version: it has a NUL"},
	} {
		a := compile(t, edit(t, migrate, `[./migrate, "--to={version}", [--tag, "{tag}"], --, "{note}"]`, c.command))
		p, err := a.Prepare([]byte(c.arguments))
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Render(p, "act_01TEST")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s with %s: %v", c.command, c.arguments, err)
		}
	}
}

func TestADirectoryKeepsAnArgumentInItsPart(t *testing.T) {
	src := edit(t, migrate, "directory: /srv/shop", `directory: "/srv/{version}/app"`)
	if e := rendered(t, src, `{"version":"v2","pin":"x"}`); e.SSH.Directory != "/srv/v2/app" {
		t.Error(e.SSH.Directory)
	}
	a := compile(t, src)
	for _, version := range []string{"", ".", "..", "a/b", "../../etc", `a\nb`} {
		p, err := a.Prepare([]byte(`{"version":"` + version + `","pin":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		if e, err := a.Render(p, "act_01TEST"); err == nil {
			t.Errorf("%q became %s", version, e.SSH.Directory)
		}
	}
}

func TestTheFingerprintOfACommandIsItsHostAccountCommandAndDirectory(t *testing.T) {
	of := func(src string) string {
		a := compile(t, src)
		p, err := a.Prepare([]byte(`{"version":"2","pin":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		return a.Fingerprint(mac, p, "exe:/agent", "run:1")
	}
	first := of(migrate)
	for name, c := range map[string]struct {
		old, new string
		same     bool
	}{
		"the host":                    {"DB1.internal", "db2.internal", false},
		"how the host is written":     {"DB1.internal", "db1.internal", true},
		"the account":                 {"  user: deploy", "  user: root", false},
		"the port":                    {"  user: deploy", "  user: deploy\n  port: 2022", false},
		"the command":                 {"./migrate,", "./rollback,", false},
		"the directory":               {"/srv/shop", "/srv/shop2", false},
		"the way to it":               {"gate.internal", "gate2.internal", true},
		"the time that it is given":   {"total: 30m", "total: 31m", true},
		"where its marker is kept":    {"keep: 14d", "keep: 15d", true},
		"the title":                   {"title: Migrate the database", "title: Migrate", true},
		"a word in two words instead": {`[./migrate, "--to={version}"`, `[./migrate, --to, "={version}"`, false},
	} {
		if got := of(edit(t, migrate, c.old, c.new)) == first; got != c.same {
			t.Errorf("%s changed: the same intent is %v", name, got)
		}
	}
}

var wrongSSH = []struct{ name, old, new string }{
	{"an unknown field in ssh", "  user: deploy", "  user: deploy\n  usr: deploy"},
	{"a missing host", "  host: DB1.internal.example\n", ""},
	{"a missing user", "  user: deploy\n", ""},
	{"a missing command", "  command: [./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]\n", ""},
	{"no credential", "credential: db\n", ""},
	{"a placeholder in the host", "DB1.internal.example", "\"{version}.example\""},
	{"a user in the host", "DB1.internal.example", "root@db1"},
	{"a port in the host", "DB1.internal.example", "db1:22"},
	{"an impossible port", "  user: deploy", "  user: deploy\n  port: 0"},
	{"an account with a space", "  user: deploy", "  user: de ploy"},
	{"an account that is an option", "  user: deploy", "  user: -oProxyCommand=x"},
	{"http beside ssh", "ssh:\n", "http: {method: GET, url: https://a.example/}\nssh:\n"},
	{"an empty list", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "[]"},
	{"a program that is an argument", "[./migrate,", "[\"{version}\","},
	{"an optional argument in a word", "[--tag, \"{tag}\"]", "\"{tag}\""},
	{"a list argument in a word", "\"--to={version}\"", "\"{files}\""},
	{"a secret argument in a word", "\"--to={version}\"", "\"{pin}\""},
	{"a secret argument in a variable", "NOTE: \"{note}\"", "NOTE: \"{pin}\""},
	{"an argument as a shell's program", "[./migrate, \"--to={version}\"", "[sh, -c, \"echo {version}\""},
	{"an argument as bash's program", "[./migrate, \"--to={version}\"", "[sudo, /bin/bash, -ec, \"{version}\""},
	{"an argument of eval", "[./migrate, \"--to={version}\"", "[eval, \"{version}\""},
	{"a group in front", "[./migrate,", "[[./migrate],"},
	{"an empty group", "[--tag, \"{tag}\"]", "[]"},
	{"a relative directory", "directory: /srv/shop", "directory: srv"},
	{"a directory that is an argument", "directory: /srv/shop", "directory: \"{version}\""},
	{"a directory with dots", "directory: /srv/shop", "directory: /srv/../etc"},
	{"a variable of no name", "PGDATABASE: shop", "PG-DATABASE: shop"},
	{"an argument in PATH", "PGDATABASE: shop", "PATH: \"{version}\""},
	{"an argument in LD_PRELOAD", "PGDATABASE: shop", "LD_PRELOAD: \"{version}\""},
	{"an impossible exit status", "success: [0, 3]", "success: [0, 256]"},
	{"no exit status", "success: [0, 3]", "success: []"},
	{"a relative marker folder", "folder: /var/lib/deploy/singlepass", "folder: markers"},
	{"a marker folder that is the root", "folder: /var/lib/deploy/singlepass", "folder: /"},
	{"a marker kept for hours", "keep: 14d", "keep: 36h"},
	{"a marker of an irreversible action", "class: status_query", "class: irreversible"},
	{"class idempotent", "class: status_query", "class: idempotent\n  idempotency_header: Key\n  key_lifetime: 1d"},
	{"an empty line", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "\" \""},
	{"an argument in single quotes", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "\"echo '{version}'\""},
	{"an argument in double quotes", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "'echo \"{version}\"'"},
	{"an argument behind a dollar", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "\"echo ${version}\""},
	{"an argument behind a backslash", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "'echo \\{version}'"},
	{"an argument in a comment", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "'true # {version}'"},
	{"an argument beside a here-document", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "\"cat <<EOF\\n{version}\\nEOF\""},
	{"an argument in backquotes", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "'echo `echo {version}`'"},
	{"an argument behind an odd thing", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "'echo {version} $((1+1))'"},
	{"an argument that chooses the program", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "'true && {version}'"},
	{"an argument that a shell reads again", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "'sudo sh -c {version}'"},
	{"an argument that eval reads again", "[./migrate, \"--to={version}\", [--tag, \"{tag}\"], --, \"{note}\"]", "'eval echo {version}'"},
}

func TestEveryWrongSSHContractIsToldWhereWhatAndWhatInstead(t *testing.T) {
	var b strings.Builder
	for _, c := range wrongSSH {
		src := edit(t, migrate, c.old, c.new)
		_, err := policy.Parse("migrate.yaml", []byte(src))
		var problems *policy.Problems
		if !errors.As(err, &problems) {
			t.Errorf("%s: Parse gave %v, want Problems", c.name, err)
			continue
		}
		for _, p := range problems.List {
			if p.Line < 1 || p.Column < 1 || p.Message == "" || p.Remedy == "" {
				t.Errorf("%s: incomplete problem %+v", c.name, p)
			}
		}
		fmt.Fprintf(&b, "# %s\n%v\n\n", c.name, err)
	}
	golden(t, "wrong_ssh.golden", b.String())
}

func TestThePublishedSchemaKnowsTheSSHBlock(t *testing.T) {
	schema := publishedSchema(t)
	if err := schema.Validate(loose(t, migrate)); err != nil {
		t.Errorf("the schema refuses a correct contract: %v", err)
	}
	for _, name := range []string{
		"an unknown field in ssh", "a missing host", "a missing user", "a missing command", "no credential", "a placeholder in the host", "a user in the host", "an impossible port", "an account with a space",
		"http beside ssh", "an empty list", "a group in front", "an empty group", "a relative directory", "a variable of no name", "an impossible exit status", "no exit status", "a relative marker folder",
		"class idempotent",
	} {
		i := slices.IndexFunc(wrongSSH, func(c struct{ name, old, new string }) bool { return c.name == name })
		if i < 0 {
			t.Fatalf("no case %q", name)
		}
		if err := schema.Validate(loose(t, edit(t, migrate, wrongSSH[i].old, wrongSSH[i].new))); err == nil {
			t.Errorf("%s: the published schema takes it", name)
		}
	}
}

// Lines in which an argument is one word, and what the program printf then gets: {} stands for the argument.
var lines = []struct{ line, want string }{
	{`printf '%s\0' {version}`, "{}\x00"},
	{`printf '%s\0' a{version}b`, "a{}b\x00"},
	{`printf '%s\0' "two words" {version} 'x'`, "two words\x00{}\x00x\x00"},
	{`x={version}; printf '%s\0' "$x"`, "{}\x00"},
	{`if true; then printf '%s\0' x{version} | cat; fi`, "x{}\x00"},
	{`printf '%s\0' a\"{version}\"`, "a\"{}\"\x00"},
	{`printf '%s\0' x#{version}`, "x#{}\x00"},
	{`true # it's a comment
printf '%s\0' x{version}`, "x{}\x00"},
	{`case {version} in *) printf '%s\0' x{version};; esac`, "x{}\x00"},
	{`sh -c 'printf "%s\0" "$1"' sh {version}`, "{}\x00"},
	{`printf '%s\0' {version}#{version}`, "{}#{}\x00"},
	{`printf '%s\0' x{version}>&1`, "x{}\x00"},
}

func FuzzAnArgumentIsOneWordToARealShell(f *testing.F) {
	var actions []*policy.Action
	shells := map[string][]string{"sh": {"sh", "-c"}, "dash": {"dash", "-c"}, "bash": {"bash", "-c"}, "bash --posix": {"bash", "--posix", "-c"}, "busybox": {"busybox", "sh", "-c"}}
	all := append([]struct{ line, want string }{{"", "x={}\x00"}}, lines...)
	for _, c := range all {
		command := "[printf, '%s\\0', \"x={version}\"]"
		if c.line != "" {
			command = "|-\n    " + strings.ReplaceAll(c.line, "\n", "\n    ")
		}
		actions = append(actions, compile(f, edit(f, migrate, `[./migrate, "--to={version}", [--tag, "{tag}"], --, "{note}"]`, command)))
	}
	for _, s := range []string{"", "a b", "'", `"`, "$(id)", "`id`", "*", "~", "a\nb", "\\", "!", "#", ";", "&", "-n", "é", "\x00", "\xff", "';id;'", "\x7f", "{a,b}", "$'\\n'"} {
		f.Add(s, byte(0))
		f.Add(s, byte(3))
	}
	f.Fuzz(func(t *testing.T, s string, which byte) {
		if len(s) > 4000 {
			return
		}
		i := int(which) % len(all)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		p, err := actions[i].Prepare([]byte(`{"pin":"x","version":` + string(text) + `}`))
		if err != nil {
			return // not UTF-8, or what the boundary refuses
		}
		e, err := actions[i].Render(p, "act_01TEST")
		if err != nil {
			if !strings.Contains(s, "\x00") && !strings.HasPrefix(s, "-") {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		var sent string // encoding/json has replaced what is not UTF-8
		if err := json.Unmarshal(text, &sent); err != nil {
			t.Fatal(err)
		}
		for name, shell := range shells {
			out, err := exec.Command(shell[0], append(shell[1:], e.SSH.Command)...).Output()
			if want := strings.ReplaceAll(all[i].want, "{}", sent); err != nil || string(out) != want {
				t.Fatalf("%s read\n%s\nas %q, not %q (%v)", name, e.SSH.Command, out, want, err)
			}
		}
	})
}
