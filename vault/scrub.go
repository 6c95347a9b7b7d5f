package vault

import (
	"fmt"
	"os"
)

// scrubLocked overwrites the pages that bbolt has freed with zeros. bbolt never overwrites in place, so without this the old
// wrap of the root key, or a removed credential, would stay in the file until its page is used again. It
// cannot reach what the disk or a snapshot keeps.
func (v *Vault) scrubLocked() error {
	file, err := os.OpenFile(v.path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("the change is stored, but overwriting what it replaced failed: %w", err)
	}
	defer file.Close()
	err = guard(func() error {
		// Nothing is allocated while this transaction is open. No reader is, since mu is held; a free page is not
		// reachable from the last durable meta page either, so a crash here loses nothing.
		tx, err := v.db.Begin(true)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		size := int64(v.db.Info().PageSize)
		zeros := make([]byte, size)
		for id := int64(2); id*size < tx.Size(); id++ { // 0 and 1 are the meta pages
			page, err := tx.Page(int(id))
			if err != nil {
				return err
			}
			if page == nil { // beyond the last page that was ever used
				break
			}
			if page.Type != "free" {
				id += int64(page.OverflowCount)
				continue
			}
			if _, err := file.WriteAt(zeros, id*size); err != nil {
				return err
			}
		}
		return file.Sync()
	})
	if err != nil {
		return fmt.Errorf("the change is stored, but overwriting what it replaced failed: %w", err)
	}
	return nil
}
