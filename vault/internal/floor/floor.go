// Package floor holds the least cost of Argon2id that a new vault may have. It stands apart so that tests of other packages can lower it, through package vaulttest, and nothing else can.
package floor

// Cost has the fields of vault.KDF.
type Cost struct {
	MemoryKiB   uint32
	Time        uint32
	Parallelism uint8
}

// Least is the second recommended option of RFC 9106, section 4.
var Least = Cost{MemoryKiB: 64 * 1024, Time: 3, Parallelism: 4}
