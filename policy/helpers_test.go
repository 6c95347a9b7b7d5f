package policy_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"singlepass.dev/policy"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got; -update writes it anew):\n%s", path, d)
	}
}

// plain is a correct contract that the tests change.
const plain = `action: send_parcel
title: Send a parcel
description: Sends a parcel.
channel: http
input:
  type: object
  properties:
    to: {type: string, maxLength: 40}
    weight: {type: number, minimum: 0}
    count: {type: integer, default: 1}
    express: {type: boolean}
    labels: {type: array, items: {type: string}}
    pin: {type: string, secret: true}
  required: [to]
  additionalProperties: false
credential: parcels
approval: session
http:
  method: POST
  url: https://parcels.example/v1/{to}/parcels
  headers: {X-Trace: "{execution_id}"}
  query: {count: "{count}"}
  json: {to: "{to}", weight: "{weight}", note: "for {to}", labels: "{labels}", pin: "{pin}"}
  timeout: {connect: 5s, total: 1m}
replay:
  class: irreversible
  attach_window: 1h
retention: {result: 30d}
`

// edit replaces pairs of texts in a contract, each of which must be there once.
func edit(t testing.TB, src string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(src, pairs[i]) != 1 {
			t.Fatalf("%q is not in the contract once", pairs[i])
		}
		src = strings.Replace(src, pairs[i], pairs[i+1], 1)
	}
	return src
}

func compile(t testing.TB, src string) *policy.Action {
	t.Helper()
	c, err := policy.Parse("test.yaml", []byte(src))
	if err != nil {
		t.Fatalf("parsing the contract: %v", err)
	}
	a, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func prepare(t testing.TB, a *policy.Action, arguments string) policy.Prepared {
	t.Helper()
	p, err := a.Prepare([]byte(arguments))
	if err != nil {
		t.Fatalf("preparing %s: %v", arguments, err)
	}
	return p
}

func argumentError(t testing.TB, err error) *policy.ArgumentError {
	t.Helper()
	var e *policy.ArgumentError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an ArgumentError", err)
	}
	if e.Problem == "" || e.Remedy == "" {
		t.Fatalf("an error without problem or remedy: %+v", e)
	}
	return e
}

func mac(b []byte) (sum [32]byte) {
	h := hmac.New(sha256.New, []byte("canary-not-a-secret-fingerprint-key"))
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}
