package material

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// SSHKey says what the file of an SSH private key is, as far as it says so itself. It is for people who choose among keys, and decides nothing: package sshkey reads the key when it is taken.
type SSHKey struct {
	Type        string // as in authorized_keys: ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, …
	Bits        int    // of RSA; 0 otherwise
	Fingerprint string // SHA256:…, as ssh-keygen shows it; empty for an encrypted PEM file without a .pub file
	Comment     string
	Encrypted   bool
}

// ErrNoSSHKey says that a file is not one of a private key at all.
var ErrNoSSHKey = errors.New("it is no private key")

// IsSSHKey says by the first bytes of a file whether it may hold a private key.
func IsSSHKey(start []byte) bool {
	first, _, _ := bytes.Cut(bytes.TrimLeft(start, " \t\r\n"), []byte("\n"))
	return bytes.HasPrefix(first, []byte("-----BEGIN ")) && bytes.Contains(first, []byte("PRIVATE KEY")) || bytes.HasPrefix(first, []byte("PuTTY-User-Key-File"))
}

// LookAtSSHKey reads what a private key's file says of the key without its passphrase. Public is the text of the .pub file beside it, or nothing; it is believed only where it is of the same key,
// or where the file itself says nothing. An error says why the key could not be taken over, and no error shows a part of it.
func LookAtSSHKey(private, public []byte) (SSHKey, error) {
	if !IsSSHKey(private) {
		return SSHKey{}, ErrNoSSHKey
	}
	if bytes.HasPrefix(bytes.TrimSpace(private), []byte("PuTTY")) {
		return SSHKey{}, errors.New("it has PuTTY's form: convert it with puttygen FILE -O private-openssh -o NEW")
	}
	block, _ := pem.Decode(private)
	if block == nil {
		return SSHKey{}, errors.New("it cannot be read as a private key")
	}
	defer clear(block.Bytes)
	var key SSHKey
	var blob []byte
	var err error
	switch {
	case block.Type == "OPENSSH PRIVATE KEY":
		key, blob, err = fromOpenSSH(block.Bytes)
	case block.Type == "ENCRYPTED PRIVATE KEY":
		return SSHKey{}, errors.New("it is encrypted PKCS #8: convert a copy with ssh-keygen -p -f COPY")
	case block.Headers["DEK-Info"] != "":
		key.Encrypted = true
	default:
		blob, err = fromPEM(block)
	}
	if err != nil {
		return SSHKey{}, err
	}
	if words := strings.Fields(string(public)); len(words) >= 2 {
		told, err := base64.StdEncoding.DecodeString(words[1])
		if err == nil && (blob == nil || bytes.Equal(told, blob)) {
			blob = told
			if key.Comment == "" {
				key.Comment = strings.Join(words[2:], " ")
			}
		}
	}
	if blob == nil {
		key.Type = map[string]string{"RSA PRIVATE KEY": "ssh-rsa", "EC PRIVATE KEY": "ecdsa", "DSA PRIVATE KEY": "ssh-dss"}[block.Type]
		return key, supported(key)
	}
	sum := sha256.Sum256(blob)
	key.Fingerprint = "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
	r := wire{blob}
	kind, _ := r.next()
	if key.Type = string(kind); key.Type == "ssh-rsa" {
		_, _ = r.next() // the exponent
		n, _ := r.next()
		key.Bits = new(big.Int).SetBytes(n).BitLen()
	}
	return key, supported(key)
}

func supported(k SSHKey) error {
	switch {
	case strings.HasPrefix(k.Type, "sk-"):
		return errors.New("its key is in a security token, which lets nothing out")
	case k.Type == "ssh-dss":
		return errors.New("DSA keys protect nothing any more: make an Ed25519 key with ssh-keygen -t ed25519")
	case k.Type == "ssh-rsa" && k.Bits != 0 && k.Bits < 2048:
		return fmt.Errorf("an RSA key of %d bits is too short: make an Ed25519 key with ssh-keygen -t ed25519", k.Bits)
	case k.Type != "ssh-ed25519" && k.Type != "ssh-rsa" && !strings.HasPrefix(k.Type, "ecdsa"):
		return errors.New("it is of a kind that cannot be used: make an Ed25519 key with ssh-keygen -t ed25519")
	}
	return nil
}

// wire reads the strings of RFC 4251, section 5.
type wire struct{ left []byte }

func (w *wire) next() ([]byte, bool) {
	n, ok := w.number()
	if !ok || uint64(len(w.left)) < uint64(n) {
		w.left = nil
		return nil, false
	}
	s := w.left[:n]
	w.left = w.left[n:]
	return s, true
}

func (w *wire) number() (uint32, bool) {
	if len(w.left) < 4 {
		w.left = nil
		return 0, false
	}
	n := binary.BigEndian.Uint32(w.left)
	w.left = w.left[4:]
	return n, true
}

// fromOpenSSH reads OpenSSH's own form (its PROTOCOL.key): the public key stands in the clear.
func fromOpenSSH(b []byte) (key SSHKey, blob []byte, err error) {
	broken := errors.New("it is not whole, or not as ssh-keygen writes it")
	rest, ok := bytes.CutPrefix(b, []byte("openssh-key-v1\x00"))
	if !ok {
		return key, nil, broken
	}
	r := wire{rest}
	cipher, _ := r.next()
	_, _ = r.next() // how the passphrase becomes a key
	_, _ = r.next() // and its salt
	count, _ := r.number()
	blob, _ = r.next()
	private, ok := r.next()
	if !ok || count != 1 || len(blob) == 0 {
		return key, nil, broken
	}
	if key.Encrypted = string(cipher) != "none"; key.Encrypted {
		return key, bytes.Clone(blob), nil
	}
	// Two equal numbers, the kind, its numbers, the comment.
	p := wire{private}
	_, _ = p.number()
	_, _ = p.number()
	kind, _ := p.next()
	fields := map[string]int{"ssh-ed25519": 2, "ssh-rsa": 6}
	n := fields[string(kind)]
	if strings.HasPrefix(string(kind), "ecdsa-") {
		n = 3
	}
	for range n {
		if _, ok := p.next(); !ok {
			return key, nil, broken
		}
	}
	if comment, ok := p.next(); ok && n > 0 {
		key.Comment = string(comment)
	}
	return key, bytes.Clone(blob), nil
}

// fromPEM makes the public key of the older forms, which are not encrypted.
func fromPEM(block *pem.Block) ([]byte, error) {
	broken := errors.New("it cannot be read as a private key")
	var k any
	var err error
	switch block.Type {
	case "RSA PRIVATE KEY":
		k, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		k, err = x509.ParseECPrivateKey(block.Bytes)
	case "PRIVATE KEY":
		k, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "DSA PRIVATE KEY":
		return nil, supported(SSHKey{Type: "ssh-dss"})
	default:
		return nil, broken
	}
	if err != nil {
		return nil, broken
	}
	switch k := k.(type) {
	case *rsa.PrivateKey:
		return join([]byte("ssh-rsa"), mpint(big.NewInt(int64(k.E))), mpint(k.N)), nil
	case ed25519.PrivateKey:
		return join([]byte("ssh-ed25519"), k.Public().(ed25519.PublicKey)), nil
	case *ecdsa.PrivateKey:
		curve, ok := map[string]string{"P-256": "nistp256", "P-384": "nistp384", "P-521": "nistp521"}[k.Curve.Params().Name]
		point, err := k.PublicKey.Bytes()
		if ok && err == nil {
			return join([]byte("ecdsa-sha2-"+curve), []byte(curve), point), nil
		}
	}
	return nil, supported(SSHKey{Type: "other"})
}

func join(fields ...[]byte) (out []byte) {
	for _, f := range fields {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(f))), f...)
	}
	return out
}

// mpint is a positive number of RFC 4251: a leading one bit would make it negative.
func mpint(n *big.Int) []byte {
	b := n.Bytes()
	if len(b) > 0 && b[0]&0x80 != 0 {
		b = append([]byte{0}, b...)
	}
	return b
}
