package vault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"singlepass.dev/vault/secret"
)

// Errors that callers tell apart. Failures of the keyring keep the errors of package keychain.
var (
	// ErrLocked means that the operation needs an unlocked vault.
	ErrLocked = errors.New("the vault is locked: unlock it with `spctl unlock`")
	// ErrUninitialized means that the file holds no vault yet.
	ErrUninitialized = errors.New("there is no vault yet: make one with `spctl init`")
	// ErrInitialized means that Init found a vault.
	ErrInitialized = errors.New("the vault is already initialized")
	// ErrWrongPassphrase covers a wrong passphrase, a wrong device secret or kit, and a changed wrap alike, so that no
	// answer tells a guesser which of them was right.
	ErrWrongPassphrase = errors.New("the passphrase does not open this vault")
	// ErrPassphraseUnfit is wrapped by the refusal of a new passphrase, which says what is wrong with it.
	ErrPassphraseUnfit = errors.New("the passphrase cannot be used")
	// ErrTooManyTries is what a *TooManyTriesError unwraps to.
	ErrTooManyTries = errors.New("too many wrong passphrases")
	// ErrTampered means that the file was changed by something other than this package.
	ErrTampered = errors.New("vault.db was changed by another program or is damaged: restore it from a backup")
	// ErrSealingKeyChanged means that the public sealing key in the clear header is not the vault's: what was sealed to it
	// meanwhile can be read by whoever put it there.
	ErrSealingKeyChanged = errors.New("the public sealing key in vault.db was replaced: treat what was recorded since the last unlock as read by others, and restore vault.db from a backup")
	// ErrInUse means that another process holds the file.
	ErrInUse = errors.New("vault.db is held by another process: another spd runs on this home; stop it or use its socket")
	// ErrNotFound means that there is no record of that name.
	ErrNotFound = errors.New("not found")
	// ErrSuperseded means that the operator has changed what was to be renewed.
	ErrSuperseded = errors.New("the credential was changed meanwhile")
	// ErrExists means that a record of that name exists.
	ErrExists = errors.New("exists already")
)

// TooManyTriesError says when the next try is taken.
type TooManyTriesError struct{ RetryAfter time.Duration }

func (e *TooManyTriesError) Error() string {
	return fmt.Sprintf("%v: wait %v", ErrTooManyTries, e.RetryAfter.Round(time.Second))
}

// Unwrap returns ErrTooManyTries.
func (e *TooManyTriesError) Unwrap() error { return ErrTooManyTries }

// Keychain keeps one device secret per account. Implementations are safe for concurrent use, durable when Set returns,
// and return an error that wraps keychain.ErrNotFound for an absent account. Package keychain has the real one.
type Keychain interface {
	Get(ctx context.Context, account string) (*secret.Bytes, error)
	Set(ctx context.Context, account string, value *secret.Bytes) error
	Delete(ctx context.Context, account string) error
}

// State is what the vault can do now.
type State string

// The states of a vault.
const (
	Uninitialized State = "uninitialized"
	Locked        State = "locked"
	Unlocked      State = "unlocked"
)

// Config says where the vault lies and what it uses.
type Config struct {
	Path     string           // required: the file; its directory exists and is private (the caller checks)
	Keychain Keychain         // required, also for a vault without a device secret
	Now      func() time.Time // required: wall clock, for records and for the delay after wrong tries
	Rand     io.Reader        // required: crypto/rand.Reader, except for frozen vectors
}

// openTimeout bounds the wait for a file that another process holds. A restarting daemon may overlap with its
// predecessor for a moment.
const openTimeout = 2 * time.Second

// Vault is one open vault file. It is safe for concurrent use.
//
// Lock order: deriving, then mu, then a bbolt transaction.
type Vault struct {
	path     string
	keychain Keychain
	now      func() time.Time
	random   io.Reader
	db       *bolt.DB

	// deriving has capacity 1. Whoever holds its token may run Argon2id, write the try counter and replace the header:
	// a guesser can neither run derivations in parallel nor exhaust the memory.
	deriving chan struct{}
	derived  bool // owned by the token: its holder ran a derivation

	mu      sync.RWMutex
	header  *header  // nil while uninitialized
	session *session // nil while locked
	locks   uint64   // counts Lock calls, so that an unlock under way does not undo one
	onLock  []func()
	closed  bool
}

// Open opens the file, or creates an empty one for Init. The vault is then locked or uninitialized.
func Open(c Config) (*Vault, error) {
	if c.Path == "" || c.Keychain == nil || c.Now == nil || c.Rand == nil {
		return nil, errors.New("opening vault: Path, Keychain, Now and Rand are required")
	}
	if err := checkFile(c.Path); err != nil {
		return nil, fmt.Errorf("opening vault: %w", err)
	}
	db, err := openFile(c.Path)
	if err != nil {
		return nil, fmt.Errorf("opening vault: %w", err)
	}
	v := &Vault{
		path: c.Path, keychain: c.Keychain, now: c.Now, random: c.Rand, db: db,
		deriving: make(chan struct{}, 1),
	}
	if v.header, err = v.readHeader(); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("opening vault: %w", err)
	}
	return v, nil
}

func openFile(path string) (*bolt.DB, error) {
	var db *bolt.DB
	var file *os.File
	err := guard(func() (err error) {
		db, err = bolt.Open(path, 0o600, &bolt.Options{
			Timeout: openTimeout, FreelistType: bolt.FreelistMapType, NoStatistics: true,
			OpenFile: func(name string, flag int, mode fs.FileMode) (_ *os.File, err error) {
				file, err = os.OpenFile(name, flag, mode)
				return file, err
			},
		})
		return err
	})
	if err == nil {
		return db, nil
	}
	if file != nil {
		abandon(file) // without effect if bbolt closed it
	}
	var system syscall.Errno
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, ErrInUse
	case errors.As(err, &system), errors.Is(err, ErrTampered):
		return nil, err
	default: // bbolt does not like what it reads
		return nil, fmt.Errorf("%w (%w)", ErrTampered, err)
	}
}

// checkFile refuses a file that others could read, or that is not a plain file.
func checkFile(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: move it away", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && filesHaveModes {
		return fmt.Errorf("%s can be accessed by other users (mode %04o): run `chmod 600 %s`", path, mode, path)
	}
	return nil
}

func (v *Vault) readHeader() (*header, error) {
	var raw []byte
	err := v.view(func(tx *bolt.Tx) error {
		if b := tx.Bucket(bucketHeader); b != nil {
			raw = append(raw, b.Get(keyHeader)...)
		}
		return nil
	})
	if err != nil || raw == nil {
		return nil, err
	}
	return parseHeader(raw)
}

// Status returns the state at this moment.
func (v *Vault) Status() State {
	v.mu.RLock()
	defer v.mu.RUnlock()
	switch {
	case v.header == nil:
		return Uninitialized
	case v.session == nil:
		return Locked
	default:
		return Unlocked
	}
}

// Info describes the vault; all of it is readable while locked.
type Info struct {
	State        State  `json:"state"`
	VaultID      string `json:"vault_id,omitempty"`
	DeviceSecret bool   `json:"device_secret"` // false: the operator chose --no-keyring
	Protection   string `json:"protection,omitempty"`
	KDF          KDF    `json:"kdf"`
}

// Info returns a description for status and doctor.
func (v *Vault) Info() Info {
	state := v.Status()
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.header == nil {
		return Info{State: state}
	}
	info := Info{State: state, VaultID: v.header.VaultID, DeviceSecret: v.header.DeviceSecret, KDF: v.header.KDF.KDF, Protection: "passphrase and device secret"}
	if !info.DeviceSecret {
		info.Protection = "passphrase only: weaker"
	}
	return info
}

// PublicSealingKey returns the 32-byte X25519 public key for HPKE (DHKEM(X25519, HKDF-SHA256)), also while locked, and
// nil while uninitialized. While locked it is what the file says; the next unlock fails with ErrSealingKeyChanged
// if that was not the truth.
func (v *Vault) PublicSealingKey() []byte {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.header == nil {
		return nil
	}
	return append([]byte(nil), v.header.SealingKey...)
}

// Keys returns the vault's keys. They stop working when the vault is locked.
func (v *Vault) Keys() (*Keys, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if err := v.unlockedLocked(); err != nil {
		return nil, err
	}
	return v.session.keys, nil
}

func (v *Vault) unlockedLocked() error {
	switch {
	case v.header == nil:
		return ErrUninitialized
	case v.session == nil:
		return ErrLocked
	}
	return nil
}

// OnLock registers f to be called after each lock, when the keys are gone. It runs on the goroutine that locked and may use
// the vault.
func (v *Vault) OnLock(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.onLock = append(v.onLock, f)
}

// Lock waits for pending writes, wipes the keys and calls the OnLock hooks. Locking a locked vault does nothing but
// stop an unlock that is under way.
func (v *Vault) Lock() {
	v.mu.Lock()
	v.locks++
	hooks := v.wipeLocked()
	v.mu.Unlock()
	for _, f := range hooks {
		f()
	}
}

// wipeLocked wipes the keys and returns the hooks to call once mu is released.
func (v *Vault) wipeLocked() []func() {
	if v.session == nil {
		return nil
	}
	v.session.wipe()
	v.session = nil
	return v.onLock[:len(v.onLock):len(v.onLock)]
}

// Close locks the vault, waits for a derivation that runs and closes the file. A closed vault stays closed.
func (v *Vault) Close() error {
	v.Lock()
	v.deriving <- struct{}{}
	defer v.release()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	v.closed = true
	if err := v.db.Close(); err != nil {
		return fmt.Errorf("closing vault: %w", err)
	}
	return nil
}
