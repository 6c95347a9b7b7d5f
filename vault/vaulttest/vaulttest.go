// Package vaulttest is for tests whose subject is not the vault: under the race detector one derivation at the real cost takes seconds. No program links it (layering_test.go).
package vaulttest

import "singlepass.dev/vault/internal/floor"

// CheapKDF makes the derivations of vaults that this process makes from now on cost next to nothing. It is called before any vault is made, as in TestMain.
func CheapKDF() { floor.Least = floor.Cost{MemoryKiB: 64, Time: 1, Parallelism: 1} }
