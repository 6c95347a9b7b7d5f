// Package vault keeps credentials, accepted contracts, security settings and the daemon's keys in one sealed file.
//
// # Promises
//
//   - Opening needs the passphrase (Argon2id, at least 64 MiB, 3 passes, 4 lanes) and the device secret of the operating
//     system's keyring, both: a copied file is not enough, nor is the keyring. A vault made with NoKeyring has no device
//     secret and says so in Info.
//   - A wrong passphrase costs a derivation, is counted durably before the derivation runs, and from the fifth on delays
//     the next. Wrong passphrase, wrong device secret and changed wrap cannot be told apart. One derivation runs at a
//     time, and its memory goes back to the system.
//   - Every record is sealed with XChaCha20-Poly1305, bound to vault, id, kind and version. Names, kinds and metadata are
//     sealed too; the file shows how many records there are, in how many groups, and how long each is.
//   - A record that was changed, swapped, removed, added or set back to an older version by something else is found at
//     unlock or when it is read, and so is a changed header, before anything of it is used.
//   - Lock waits for pending writes and wipes the keys. Changing the passphrase, and rotating or removing a credential,
//     overwrite what they replace in the file.
//   - A write that returned nil is durable. If it is not known whether a write happened, the vault locks itself.
//
// # Non-promises
//
//   - The file alone cannot show that all of it was set back to an older copy. Damage to one of bbolt's two meta pages
//     sets it back by one write in the same way.
//   - The count of wrong passphrases holds back who can only ask the daemon. Who can write the file can reset it, and could
//     guess offline anyway if they have the device secret. Who may ask can keep the delay running for everybody: who may
//     ask is the caller's business.
//   - An older copy of the file still opens with the passphrase of its time: changing the passphrase does not change the
//     root key. Snapshots and flash memory keep what was overwritten.
//   - Copies that Go's cryptography makes on the heap while it works are not wiped, only the keys themselves.
//   - While the vault is unlocked, whoever can read the daemon's memory has everything.
//
// # The recovery kit
//
// The kit stands in for the device secret, not for the passphrase: a lost keyring is replaced by passphrase and kit, and a
// found kit alone opens nothing. Using it makes a new device secret, and the old one opens nothing any more. It stays valid
// over changes of the passphrase, because the vault keeps its secret sealed within. A forgotten passphrase cannot be
// recovered by anything.
//
// # Frozen formats
//
// vault.db is a bbolt file with the buckets
//
//	header   "header": JSON, see the header type; "manifest": HMAC-SHA-256 over the header's bytes and all records' ids and digests
//	records  16-byte HMAC tag of the kind ‖ HMAC-SHA-256 of kind and name → version byte 1 ‖ 24-byte nonce ‖ box
//	state    "tries": JSON, count and time of wrong passphrases, not authenticated
//
// The root key is wrapped under HKDF-SHA-256(Argon2id(passphrase in Unicode form C) ‖ device secret or kit), with everything
// the derivation depends on as associated data; the keys for records, ids and manifest are derived from it by HKDF. The
// kit's text is described at RecoveryKit. testdata/vault-v1.db is opened by the tests forever. A file of a newer
// format is refused; fields are added only with a new format in the header, and freely within records, where an
// unknown field is ignored.
package vault
