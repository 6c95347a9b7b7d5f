package fingerprint_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"testing"

	"singlepass.dev/daemon/fingerprint"
)

var twoHundred = []byte(`{"service": "billing-api", "version": "2026.11.30-rc1", "region": "eu-central-1", "replicas": 12, "canary": true, "labels": ["a", "b"], "note": "released by the nightly pipeline after approval"}`)

func mac(b []byte) (sum [32]byte) {
	h := hmac.New(sha256.New, []byte("canary-not-a-secret-fingerprint-key"))
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}

func BenchmarkStrict(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(twoHundred)))
	for b.Loop() {
		if err := fingerprint.Strict(twoHundred); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCanonical(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(twoHundred)))
	for b.Loop() {
		if _, err := fingerprint.Canonical(twoHundred); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompute(b *testing.B) {
	b.ReportAllocs()
	arguments, err := fingerprint.Canonical(twoHundred)
	if err != nil {
		b.Fatal(err)
	}
	in := fingerprint.Input{
		Actor: "deb:agent", Tool: "deploy_release", Channel: "http", Target: "https://deploy.example/v1/releases", CredentialRef: "deploy",
		Method: "POST", Arguments: arguments, IntentScope: "run:01JAAAAAAAAAAAAAAAAAAAAAAA",
	}
	for b.Loop() {
		fingerprint.Compute(mac, in)
	}
}
