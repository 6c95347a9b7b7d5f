//go:build !linux && !darwin

package vault

import "os"

// filesHaveModes is false where access is a matter of the folder's access control list.
const filesHaveModes = false

func abandon(f *os.File) { _ = f.Close() }
