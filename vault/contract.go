package vault

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// AcceptedContract is an action contract as the operator accepted it. The vault keeps the source, because a file can
// be edited by an agent; what Digest covers is the business of package policy.
type AcceptedContract struct {
	Action     string    `json:"action"`
	File       string    `json:"file"`
	Source     []byte    `json:"source"`
	Digest     string    `json:"digest"`
	AcceptedAt time.Time `json:"accepted_at"` // set by AcceptContract
}

const (
	maxContractBytes = 1 << 20
	maxNameBytes     = 256
	maxSettingBytes  = 1 << 20
)

// Contracts returns the accepted contracts, sorted by action.
func (v *Vault) Contracts() ([]AcceptedContract, error) {
	all, err := listRecords[AcceptedContract](v, kindContract)
	if err != nil {
		return nil, fmt.Errorf("listing contracts: %w", err)
	}
	slices.SortFunc(all, func(a, b AcceptedContract) int { return cmp.Compare(a.Action, b.Action) })
	return all, nil
}

// AcceptContract stores c in place of an earlier acceptance of the same action.
func (v *Vault) AcceptContract(c AcceptedContract) error {
	if err := checkName(c.Action); err != nil {
		return fmt.Errorf("accepting contract: action %w", err)
	}
	if c.Digest == "" || len(c.Source) == 0 || len(c.Source) > maxContractBytes {
		return fmt.Errorf("accepting contract %q: digest and a source of at most %d bytes are required", c.Action, maxContractBytes)
	}
	c.AcceptedAt = v.now().UTC()
	if err := v.putRecord(kindContract, c.Action, c); err != nil {
		return fmt.Errorf("accepting contract %q: %w", c.Action, err)
	}
	return nil
}

// RemoveContract withdraws an acceptance; without one it returns ErrNotFound.
func (v *Vault) RemoveContract(action string) error {
	if err := v.removeRecord(kindContract, action); err != nil {
		return fmt.Errorf("removing contract %q: %w", action, err)
	}
	return nil
}

// Setting is a security setting: JSON that an agent must not be able to edit. Whoever needs many records of a kind of
// its own, such as accepted upstreams, gives their keys a common prefix.
type Setting struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// Settings returns all settings, sorted by key.
func (v *Vault) Settings() ([]Setting, error) {
	all, err := listRecords[Setting](v, kindSetting)
	if err != nil {
		return nil, fmt.Errorf("listing settings: %w", err)
	}
	slices.SortFunc(all, func(a, b Setting) int { return cmp.Compare(a.Key, b.Key) })
	return all, nil
}

// Setting returns the JSON that SetSetting stored under key, or ErrNotFound.
func (v *Vault) Setting(key string) (json.RawMessage, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	setting, err := getRecord[Setting](v, kindSetting, key)
	if err != nil {
		return nil, fmt.Errorf("reading setting %q: %w", key, err)
	}
	return setting.Value, nil
}

// SetSetting stores a setting in place of an earlier one.
func (v *Vault) SetSetting(key string, value json.RawMessage) error {
	if err := checkName(key); err != nil {
		return fmt.Errorf("storing setting: key %w", err)
	}
	if !json.Valid(value) || len(value) > maxSettingBytes {
		return fmt.Errorf("storing setting %q: the value needs to be JSON of at most %d bytes", key, maxSettingBytes)
	}
	if err := v.putRecord(kindSetting, key, Setting{key, value}); err != nil {
		return fmt.Errorf("storing setting %q: %w", key, err)
	}
	return nil
}

// RemoveSetting removes a setting; without one it returns ErrNotFound.
func (v *Vault) RemoveSetting(key string) error {
	if err := v.removeRecord(kindSetting, key); err != nil {
		return fmt.Errorf("removing setting %q: %w", key, err)
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("needs 1 to %d bytes", maxNameBytes)
	}
	return nil
}

func (v *Vault) putRecord(kind recordKind, name string, record any) error {
	plaintext, err := json.Marshal(record)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.unlockedLocked(); err != nil {
		return err
	}
	return v.commitLocked(v.session, v.header, change{kind, name, plaintext})
}

func (v *Vault) removeRecord(kind recordKind, name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := getRecord[json.RawMessage](v, kind, name); err != nil {
		return err
	}
	return v.commitLocked(v.session, v.header, change{kind: kind, name: name})
}

// getRecord reads one JSON record. The caller holds mu.
func getRecord[T any](v *Vault, kind recordKind, name string) (T, error) {
	var record T
	if err := v.unlockedLocked(); err != nil {
		return record, err
	}
	plaintext, err := v.session.get(v, kind, name)
	if err != nil {
		return record, err
	}
	return record, decodeRecord(plaintext, &record)
}

func listRecords[T any](v *Vault, kind recordKind) ([]T, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if err := v.unlockedLocked(); err != nil {
		return nil, err
	}
	plaintexts, err := v.session.list(v, kind)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(plaintexts))
	for i, plaintext := range plaintexts {
		if err := decodeRecord(plaintext, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// decodeRecord takes fields that it does not know for a newer version's and refuses nothing else than broken JSON: the box
// is authentic.
func decodeRecord(plaintext []byte, record any) error {
	if err := json.Unmarshal(plaintext, record); err != nil {
		return errors.New("a record of vault.db has a form that this program does not know: use a newer singlepass")
	}
	return nil
}
