// Package sshkey reads SSH keys: private ones as they are imported and used, certificates, and the public keys by which hosts are known.
//
// Promises: a private key is kept in exactly one form, OpenSSH's own without a passphrase (the vault seals it), whatever form it came in. No error shows a part of a private key. Keys
// that no longer protect anything are refused: DSA, RSA below 2048 bits. Nothing here opens a file or a connection.
//
// Non-promises: parsing a private key makes copies on the heap that Go's cryptography does not wipe.
package sshkey

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

var (
	// ErrPassphraseNeeded is returned by Import for a key that is encrypted when no passphrase was given.
	ErrPassphraseNeeded = errors.New("the key is encrypted: its passphrase is needed")
	// ErrPassphraseWrong is returned by Import for a passphrase that does not open the key.
	ErrPassphraseWrong = errors.New("the passphrase does not open the key")
)

const minRSABits = 2048

// Import reads a private key in any form that ssh-keygen writes (OpenSSH, PEM, PKCS #8) and returns the form that is kept. A passphrase is used only for a key that is encrypted.
func Import(key, passphrase []byte) ([]byte, error) {
	raw, err := parse(key, passphrase)
	if err != nil {
		return nil, fmt.Errorf("importing SSH key: %w", err)
	}
	if err := strongEnough(raw); err != nil {
		return nil, fmt.Errorf("importing SSH key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(raw, "")
	if err != nil {
		return nil, errors.New("importing SSH key: a key of this kind cannot be kept: use Ed25519, ECDSA or RSA")
	}
	defer clear(block.Bytes)
	return pem.EncodeToMemory(block), nil
}

func parse(key, passphrase []byte) (any, error) {
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(key), []byte("PuTTY-User-Key-File")):
		return nil, errors.New("this is PuTTY's form: convert it with puttygen FILE -O private-openssh -o NEW")
	case bytes.Contains(key, []byte("BEGIN ENCRYPTED PRIVATE KEY")):
		return nil, errors.New("this is encrypted PKCS #8: convert a copy with ssh-keygen -p -f COPY")
	case bytes.HasPrefix(bytes.TrimSpace(key), []byte("ssh-")), bytes.HasPrefix(bytes.TrimSpace(key), []byte("ecdsa-")):
		return nil, errors.New("this is a public key: give the private one, the file without .pub")
	}
	raw, err := ssh.ParseRawPrivateKey(key)
	var missing *ssh.PassphraseMissingError
	if errors.As(err, &missing) {
		if len(passphrase) == 0 {
			return nil, ErrPassphraseNeeded
		}
		raw, err = ssh.ParseRawPrivateKeyWithPassphrase(key, passphrase)
		if errors.Is(err, x509.IncorrectPasswordError) {
			return nil, ErrPassphraseWrong
		}
	}
	if err != nil {
		return nil, errors.New("this is no private key that can be read: give the file that ssh-keygen wrote")
	}
	return raw, nil
}

func strongEnough(raw any) error {
	if k, ok := raw.(*rsa.PrivateKey); ok && k.N.BitLen() < minRSABits {
		return fmt.Errorf("an RSA key of %d bits is too short: make an Ed25519 key with ssh-keygen -t ed25519", k.N.BitLen())
	}
	s, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		return errors.New("it cannot sign: use Ed25519, ECDSA or RSA")
	}
	if s.PublicKey().Type() == "ssh-dss" {
		return errors.New("DSA keys protect nothing any more: make an Ed25519 key with ssh-keygen -t ed25519")
	}
	return nil
}

// Open makes the signer of a kept private key, with the certificate where there is one. At is the time at which the certificate has to be valid. Wipe overwrites the parsed key as far
// as Go lets us; the signer cannot be used afterwards.
func Open(key []byte, certificate string, at time.Time) (signer ssh.Signer, wipe func(), err error) {
	raw, err := parse(key, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("using SSH key: %w", err)
	}
	signer, err = signerOf(raw, certificate, at)
	if err != nil {
		overwrite(raw)
		return nil, nil, err
	}
	return signer, func() { overwrite(raw) }, nil
}

func overwrite(raw any) {
	switch k := raw.(type) {
	case *ed25519.PrivateKey:
		clear(*k)
	case *rsa.PrivateKey:
		clear(k.D.Bits())
		for _, p := range k.Primes {
			clear(p.Bits())
		}
	}
	// The number of an ECDSA key is not ours to reach since Go 1.25.
}

func signerOf(raw any, certificate string, at time.Time) (ssh.Signer, error) {
	signer, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		return nil, errors.New("using SSH key: it cannot sign")
	}
	if certificate == "" {
		return signer, nil
	}
	cert, err := parseCertificate(certificate)
	if err != nil {
		return nil, err
	}
	if now := uint64(at.Unix()); now < cert.ValidAfter || now >= cert.ValidBefore {
		return nil, fmt.Errorf("using SSH certificate: it is valid from %s to %s: store a new one", moment(cert.ValidAfter), moment(cert.ValidBefore))
	}
	s, err := ssh.NewCertSigner(cert, signer)
	if err != nil {
		return nil, errors.New("using SSH certificate: it belongs to another key")
	}
	return s, nil
}

func moment(seconds uint64) string {
	if seconds > 1<<40 { // "forever"
		return "any time"
	}
	return time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339)
}

// PublicKey returns the public half of a kept private key, as in authorized_keys.
func PublicKey(key []byte) (string, error) {
	s, wipe, err := Open(key, "", time.Time{})
	if err != nil {
		return "", err
	}
	defer wipe()
	return line(s.PublicKey()), nil
}

// Certificate reads a certificate as in a -cert.pub file, and returns it without its comment.
func Certificate(text string) (string, error) {
	cert, err := parseCertificate(text)
	if err != nil {
		return "", err
	}
	return line(cert), nil
}

func parseCertificate(text string) (*ssh.Certificate, error) {
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	cert, ok := key.(*ssh.Certificate)
	switch {
	case err != nil || !ok || len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("reading SSH certificate: give the one line of the file that ends with -cert.pub")
	case cert.CertType != ssh.UserCert:
		return nil, errors.New("reading SSH certificate: it is a host's certificate, not a user's")
	}
	return cert, nil
}

// CertifiesKey reports whether a certificate belongs to a kept private key.
func CertifiesKey(certificate string, key []byte) error {
	cert, err := parseCertificate(certificate)
	if err != nil {
		return err
	}
	s, wipe, err := Open(key, "", time.Time{})
	if err != nil {
		return err
	}
	defer wipe()
	if !bytes.Equal(cert.Key.Marshal(), s.PublicKey().Marshal()) {
		return errors.New("the SSH certificate belongs to another key")
	}
	return nil
}

func line(k ssh.PublicKey) string {
	return strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(k)), "\n")
}
