//go:build !unix

package vault

// filesHaveModes is false where access is a matter of the folder's access control list.
const filesHaveModes = false
