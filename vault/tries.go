package vault

import (
	"encoding/json"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	freeTries  = 5
	firstDelay = time.Second
	longest    = 15 * time.Minute
)

// tries is the durable count of wrong passphrases since the last right one. It is not authenticated: whoever can write
// the file can also copy it and guess elsewhere. It holds back a guesser who has only the daemon to ask.
type tries struct {
	Count int       `json:"count"`
	Last  time.Time `json:"last"`
}

// delay returns how long after the last wrong try the next is taken: nothing for the first five, then a second,
// doubling up to a quarter of an hour.
func (t tries) delay() time.Duration {
	if t.Count < freeTries {
		return 0
	}
	if doublings := t.Count - freeTries; doublings < 10 {
		return min(firstDelay<<doublings, longest)
	}
	return longest
}

// mayTry returns a *TooManyTriesError while the delay runs. The caller holds the deriving token.
func (v *Vault) mayTry() error {
	t, err := v.readTries()
	if err != nil {
		return err
	}
	now := v.now()
	if now.Before(t.Last) {
		// The clock was set back. The delay counts from now, or it could last for years.
		t.Last = now
		if err := v.writeTries(&t); err != nil {
			return err
		}
	}
	if wait := t.delay() - now.Sub(t.Last); wait > 0 {
		return &TooManyTriesError{RetryAfter: wait}
	}
	return nil
}

func (v *Vault) countTry() error {
	t, err := v.readTries()
	if err != nil {
		return err
	}
	t.Count++
	t.Last = v.now().UTC()
	return v.writeTries(&t)
}

func (v *Vault) clearTries() error { return v.writeTries(nil) }

func (v *Vault) readTries() (tries, error) {
	v.mu.RLock() // see scrubLocked
	defer v.mu.RUnlock()
	var t tries
	err := v.view(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketState)
		if b == nil {
			return nil
		}
		stored := b.Get(keyTries)
		if stored == nil {
			return nil
		}
		if json.Unmarshal(stored, &t) != nil || t.Count < 0 || t.Last.IsZero() {
			return fmt.Errorf("%w (count of wrong passphrases)", ErrTampered)
		}
		return nil
	})
	return t, err
}

// writeTries stores t durably, or removes the count.
func (v *Vault) writeTries(t *tries) error {
	_, err := v.transact(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucketState)
		if err != nil {
			return err
		}
		if t == nil {
			return b.Delete(keyTries)
		}
		stored, err := json.Marshal(t)
		if err != nil {
			return err
		}
		return b.Put(keyTries, stored)
	})
	if err != nil {
		return fmt.Errorf("counting tries: %w", err)
	}
	return nil
}
