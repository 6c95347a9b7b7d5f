//go:build unix

package vault

const filesHaveModes = true
