package server_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault/secret"
)

// guess proves a wrong passphrase.
func (s *stage) guess() error {
	wrong := secret.New([]byte("canary-not-a-secret-but-wrong"))
	defer wrong.Wipe()
	return s.operator.EarnTicket(s.t.Context(), wrong)
}

func TestWhoeverTriesToBeTheOperatorIsShownAndRecorded(t *testing.T) {
	s := begin(t)
	if r := s.status().Refused; r != nil {
		t.Errorf("before anybody tried: %+v", r)
	}
	wantCode(t, s.guess(), api.CodeProofWrong)
	wantCode(t, s.guess(), api.CodeProofWrong)
	if r := s.status().Refused; r == nil || r.WrongProofs != 2 || r.LastPID != os.Getpid() || r.LastCode != api.CodeProofWrong {
		t.Errorf("the person is shown %+v", r)
	}
	segments, err := filepath.Glob(filepath.Join(s.home.Journal(), "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	for _, path := range segments {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		said += bytes.Count(b, []byte(`"operator_refused"`))
	}
	if said != 1 { // the second one stands in the next entry
		t.Errorf("the journal says it %d times", said)
	}
}
