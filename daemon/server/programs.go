package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"singlepass.dev/daemon/peer"
	"singlepass.dev/vault"
)

// programs keeps what agents' programs were in the vault, where an agent cannot change it.
type programs struct{ vault *vault.Vault }

// programPrefix begins the settings' keys. An actor's name can be longer than a key.
const programPrefix = "program/"

func programKey(actor string) string {
	sum := sha256.Sum256([]byte(actor))
	return programPrefix + hex.EncodeToString(sum[:])
}

func (p programs) Known(actor string) (peer.Known, error) {
	b, err := p.vault.Setting(programKey(actor))
	if errors.Is(err, vault.ErrNotFound) {
		return peer.Known{}, nil
	}
	var known peer.Known
	if err == nil {
		err = json.Unmarshal(b, &known)
	}
	if err != nil {
		return peer.Known{}, fmt.Errorf("reading what is known of %s: %w", actor, err)
	}
	return known, nil
}

func (p programs) Remember(known peer.Known) error {
	b, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("remembering %s: %w", known.Actor, err)
	}
	return p.vault.SetSetting(programKey(known.Actor), b)
}
