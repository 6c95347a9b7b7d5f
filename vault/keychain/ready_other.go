//go:build !linux

package keychain

import "context"

// ready has nothing to check: macOS and Windows always have their keyring.
func ready(context.Context) error { return nil }
