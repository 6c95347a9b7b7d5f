package vault

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	bolt "go.etcd.io/bbolt"

	"singlepass.dev/vault/secret"
)

var (
	bucketHeader  = []byte("header")
	bucketRecords = []byte("records")
	bucketState   = []byte("state")
	keyHeader     = []byte("header")
	keyManifest   = []byte("manifest")
	keyTries      = []byte("tries")
)

// recordKind is part of a record's id and associated data, so a record cannot pose as one of another kind.
type recordKind string

const (
	kindKeys             recordKind = "keys"
	kindKit              recordKind = "recovery-kit"
	kindCredential       recordKind = "credential"
	kindCredentialSecret recordKind = "credential-secret" // #nosec G101 -- the name of a kind
	kindContract         recordKind = "contract"
	kindSetting          recordKind = "setting"
	kindHost             recordKind = "ssh-host"
)

const (
	recordVersion = 1
	tagSize       = 16
	idSize        = tagSize + sha256.Size
)

// session is an unlocked vault: the keys and what the records are known to be. Its owner holds Vault.mu.
type session struct {
	vaultID  string
	root     *secret.Bytes
	records  *secret.Bytes // seals records
	names    *secret.Bytes // makes record ids
	manifest *secret.Bytes // authenticates header and set of records
	keys     *Keys
	digests  map[string][32]byte // record id to SHA-256 of its stored bytes

	// described holds the descriptions of credentials that were read, by name, until the next commit: every call asks for one, and opening a record costs more than the
	// rest of a call's decision. Values are never kept.
	described sync.Map
}

// newSession takes root over, also when it fails.
func newSession(vaultID string, root *secret.Bytes) (*session, error) {
	s := &session{vaultID: vaultID, root: root, digests: map[string][32]byte{}}
	err := root.Use(func(b []byte) error {
		for info, key := range map[string]**secret.Bytes{"records": &s.records, "names": &s.names, "manifest": &s.manifest} {
			derived, err := hkdf.Key(sha256.New, b, []byte(vaultID), "singlepass.dev/vault/v1 "+info, keySize)
			if err != nil {
				return err
			}
			*key = secret.New(derived)
		}
		return nil
	})
	if err != nil {
		s.wipe()
		return nil, err
	}
	return s, nil
}

func (s *session) wipe() {
	for _, k := range []*secret.Bytes{s.root, s.records, s.names, s.manifest} {
		k.Wipe()
	}
	if s.keys != nil {
		s.keys.wipe()
	}
	clear(s.digests)
}

// load reads the records' digests and keys and checks them and h against the manifest.
func (s *session) load(v *Vault, h *header) error {
	var manifest []byte
	err := v.view(func(tx *bolt.Tx) error {
		head, records := tx.Bucket(bucketHeader), tx.Bucket(bucketRecords)
		if head == nil || records == nil {
			return ErrTampered
		}
		manifest = bytes.Clone(head.Get(keyManifest))
		return records.ForEach(func(id, stored []byte) error {
			if len(id) != idSize || stored == nil {
				return ErrTampered
			}
			s.digests[string(id)] = sha256.Sum256(stored)
			return nil
		})
	})
	if err != nil {
		return err
	}
	material, err := s.get(v, kindKeys, "keys")
	if err != nil {
		return ErrTampered // a vault without its keys was not made by Init
	}
	if s.keys, err = newKeys(material); err != nil {
		return err
	}
	if !bytes.Equal(s.keys.publicHPKE, h.SealingKey) {
		return ErrSealingKeyChanged
	}
	expected, err := s.mac(h, s.digests)
	if err != nil {
		return err
	}
	if !hmac.Equal(expected, manifest) {
		return ErrTampered
	}
	return nil
}

// mac returns the manifest: HMAC-SHA-256 of the header's stored bytes and of every record's id and digest, in order of
// id. It makes the removal of a record, or the return of an older version of one, as visible as a change.
func (s *session) mac(h *header, digests map[string][32]byte) ([]byte, error) {
	var sum []byte
	err := s.manifest.Use(func(key []byte) error {
		mac := hmac.New(sha256.New, key)
		mac.Write(appendField(nil, h.raw))
		for _, id := range slices.Sorted(maps.Keys(digests)) {
			digest := digests[id]
			mac.Write([]byte(id))
			mac.Write(digest[:])
		}
		sum = mac.Sum(nil)
		return nil
	})
	return sum, err
}

// tag returns the first part of the ids of a kind: opaque in the file, the same for all records of the kind.
func (s *session) tag(kind recordKind) (string, error) {
	sum, err := s.name([]byte("kind"), []byte(kind))
	return string(sum[:tagSize]), err
}

// id returns the database key of a record: the kind's tag and an HMAC of kind and name. It needs no index, keeps
// names unique by itself and shows only how many records of how many kinds there are.
func (s *session) id(kind recordKind, name string) (string, error) {
	tag, err := s.tag(kind)
	if err != nil {
		return "", err
	}
	sum, err := s.name([]byte("name"), []byte(kind), []byte(name))
	return tag + string(sum[:]), err
}

func (s *session) name(fields ...[]byte) (sum [32]byte, err error) {
	err = s.names.Use(func(key []byte) error {
		mac := hmac.New(sha256.New, key)
		for _, f := range fields {
			mac.Write(appendField(nil, f))
		}
		mac.Sum(sum[:0])
		return nil
	})
	return sum, err
}

// associated binds a sealed record to its vault, its id, its kind and its version.
func (s *session) associated(id string, kind recordKind, version byte) []byte {
	b := []byte("singlepass.dev/vault/v1 record")
	b = appendField(b, []byte(s.vaultID))
	b = appendField(b, []byte(id))
	b = appendField(b, []byte(kind))
	return binary.BigEndian.AppendUint32(b, uint32(version))
}

// get returns the plaintext of a record, which the caller wipes if it is secret, or ErrNotFound.
func (s *session) get(v *Vault, kind recordKind, name string) ([]byte, error) {
	id, err := s.id(kind, name)
	if err != nil {
		return nil, err
	}
	return s.open(v, kind, id)
}

// list returns the plaintexts of all records of a kind, in no useful order.
func (s *session) list(v *Vault, kind recordKind) ([][]byte, error) {
	tag, err := s.tag(kind)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for id := range s.digests {
		if strings.HasPrefix(id, tag) {
			plaintext, err := s.open(v, kind, id)
			if err != nil {
				return nil, err
			}
			all = append(all, plaintext)
		}
	}
	return all, nil
}

func (s *session) open(v *Vault, kind recordKind, id string) ([]byte, error) {
	digest, ok := s.digests[id]
	if !ok {
		return nil, ErrNotFound
	}
	var stored []byte
	err := v.view(func(tx *bolt.Tx) error {
		if b := tx.Bucket(bucketRecords); b != nil {
			stored = bytes.Clone(b.Get([]byte(id)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// The file can change under a running daemon: what is not what was verified at unlock or written since is not used.
	if len(stored) == 0 || sha256.Sum256(stored) != digest || stored[0] != recordVersion {
		return nil, ErrTampered
	}
	plaintext, err := open(s.records, stored[1:], s.associated(id, kind, stored[0]))
	if err != nil {
		return nil, fmt.Errorf("%w (record)", ErrTampered)
	}
	return plaintext, nil
}

// change is one record to write, or to remove if plaintext is nil.
type change struct {
	kind      recordKind
	name      string
	plaintext []byte
}

// commitLocked writes changes, and the header if it is another, in one durable transaction.
//
// If the commit itself fails, nobody knows which of the two states the file holds. The vault is then locked; the next
// unlock verifies and takes whichever is there.
func (v *Vault) commitLocked(s *session, h *header, changes ...change) error {
	s.described.Clear()
	digests := maps.Clone(s.digests)
	sealed := map[string][]byte{}
	for _, c := range changes {
		id, err := s.id(c.kind, c.name)
		if err != nil {
			return err
		}
		if c.plaintext == nil {
			delete(digests, id)
			sealed[id] = nil
			continue
		}
		box, err := seal(s.records, c.plaintext, s.associated(id, c.kind, recordVersion), v.random)
		if err != nil {
			return err
		}
		sealed[id] = append([]byte{recordVersion}, box...)
		digests[id] = sha256.Sum256(sealed[id])
	}
	manifest, err := s.mac(h, digests)
	if err != nil {
		return err
	}
	committing, err := v.transact(func(tx *bolt.Tx) error {
		head, err := tx.CreateBucketIfNotExists(bucketHeader)
		if err != nil {
			return err
		}
		records, err := tx.CreateBucketIfNotExists(bucketRecords)
		if err != nil {
			return err
		}
		for id, stored := range sealed {
			if stored == nil {
				err = records.Delete([]byte(id))
			} else {
				err = records.Put([]byte(id), stored)
			}
			if err != nil {
				return err
			}
		}
		if h != v.header {
			if err := head.Put(keyHeader, h.raw); err != nil {
				return err
			}
		}
		return head.Put(keyManifest, manifest)
	})
	switch {
	case err != nil && committing:
		v.takeWhatIsThereLocked()
		return fmt.Errorf("%w: %w", errUnknownOutcome, err)
	case err != nil:
		return fmt.Errorf("writing vault.db: %w", err)
	}
	s.digests, v.header = digests, h
	return nil
}

var errUnknownOutcome = errors.New("writing vault.db failed at its end, so the change may or may not be stored; the vault is locked")

func (v *Vault) takeWhatIsThereLocked() {
	if h, err := v.readHeader(); err == nil {
		v.header = h
	}
	hooks := v.wipeLocked()
	go func() { // mu is held here, and hooks may use the vault
		for _, f := range hooks {
			f()
		}
	}()
}

// transact runs f in a transaction and reports whether a failure came from the commit.
func (v *Vault) transact(f func(*bolt.Tx) error) (committing bool, err error) {
	err = guard(func() error {
		tx, err := v.db.Begin(true)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after a commit
		if err := f(tx); err != nil {
			return err
		}
		committing = true
		return tx.Commit()
	})
	return committing, err
}

func (v *Vault) view(f func(*bolt.Tx) error) error {
	return guard(func() error { return v.db.View(f) })
}

// guard turns what bbolt does on a damaged page (a panic, or a fault beyond the mapped file) into ErrTampered.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w (%v)", ErrTampered, r)
		}
	}()
	return f()
}
