package control_test

import (
	"os"
	"testing"

	"singlepass.dev/vault/vaulttest"
)

func TestMain(m *testing.M) {
	vaulttest.CheapKDF()
	os.Exit(m.Run())
}
