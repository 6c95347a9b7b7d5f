package vault

import "singlepass.dev/vault/internal/floor"

// The floor of production, and a setter, so that most tests need not pay for it.
var ProductionKDF = leastKDF()

func SetLeastKDF(k KDF) { floor.Least = floor.Cost(k) }

// SecretViews returns the memory of every secret that an unlocked vault holds.
func SecretViews(v *Vault) [][]byte {
	s := v.session
	var views [][]byte
	for _, k := range []interface {
		Use(func([]byte) error) error
	}{
		s.root, s.records, s.names, s.manifest, s.keys.fingerprint, s.keys.index, s.keys.signing, s.keys.sealing,
	} {
		_ = k.Use(func(b []byte) error { views = append(views, b); return nil })
	}
	return views
}

// HoldDerivation makes derivations wait until the returned function is called.
func HoldDerivation(v *Vault) (release func()) {
	v.deriving <- struct{}{}
	return func() { <-v.deriving }
}

// HoldWrite keeps a write pending until the returned function is called.
func HoldWrite(v *Vault) (finish func()) {
	v.mu.Lock()
	return v.mu.Unlock
}

// BoxIdentity returns what a record's box is bound to.
func BoxIdentity(v *Vault, id, kind string, version byte) []byte {
	return v.session.associated(id, recordKind(kind), version)
}

// BoxOpens seals a box bound to one identity and reports whether it opens under another.
func BoxOpens(v *Vault, sealedAs, openedAs []byte) bool {
	box, err := seal(v.session.records, []byte("x"), sealedAs, v.random)
	if err != nil {
		return false
	}
	_, err = open(v.session.records, box, openedAs)
	return err == nil
}
