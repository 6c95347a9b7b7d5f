package sshkey

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" // #nosec G505 -- how known_hosts hides names; nothing rests on it
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// maxHostKeys bounds what is pinned for one host: one key for each algorithm, and a new one for each while keys are exchanged.
const maxHostKeys = 16

// HostKey reads one pinned host key: type and base64, as in authorized_keys.
func HostKey(text string) (ssh.PublicKey, error) {
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil || len(bytes.TrimSpace(rest)) > 0 || len(options) > 0 {
		return nil, errors.New("reading host key: write its type and its base64, as in a .pub file")
	}
	if _, ok := key.(*ssh.Certificate); ok {
		return nil, errors.New("reading host key: it is a certificate: pin the host's own key")
	}
	if comment != "" || line(key) != text {
		return nil, errors.New("reading host key: it is not in its shortest form")
	}
	if !hostKeyType(key) {
		return nil, fmt.Errorf("reading host key: keys of type %s are not accepted: use Ed25519, ECDSA or RSA", key.Type())
	}
	return key, nil
}

func hostKeyType(key ssh.PublicKey) bool {
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA:
		return true
	}
	return false
}

// Pin returns host keys in the form in which they are kept: checked, sorted, each once.
func Pin(keys []string) ([]string, error) {
	if len(keys) == 0 || len(keys) > maxHostKeys {
		return nil, fmt.Errorf("pinning host keys: between 1 and %d are needed", maxHostKeys)
	}
	out := slices.Clone(keys)
	for _, k := range out {
		if _, err := HostKey(k); err != nil {
			return nil, err
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Pinned writes a host's key as it is pinned.
func Pinned(key ssh.PublicKey) string { return line(key) }

// Fingerprint is a pinned host key as OpenSSH shows it: SHA256:…, with its type.
func Fingerprint(text string) (string, error) {
	key, err := HostKey(text)
	if err != nil {
		return "", err
	}
	return ssh.FingerprintSHA256(key), nil
}

// Algorithms lists the signature algorithms by which a host can prove that it has one of the keys, so that it is not asked for another and then called a changed host.
func Algorithms(keys []ssh.PublicKey) []string {
	var out []string
	for _, k := range keys {
		if k.Type() == ssh.KeyAlgoRSA {
			out = append(out, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256) // not ssh-rsa, which signs with SHA-1
			continue
		}
		out = append(out, k.Type())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ReadHostKeys reads the keys of one host from a file: lines of known_hosts, of which those of the host count, or .pub files, which name none.
func ReadHostKeys(file []byte, host string, port int) ([]string, error) {
	var keys []string
	others := 0
	for l := range bytes.Lines(file) {
		l = bytes.TrimSpace(l)
		if len(l) == 0 || l[0] == '#' {
			continue
		}
		if key, _, options, _, err := ssh.ParseAuthorizedKey(l); err == nil && len(options) == 0 {
			keys = append(keys, line(key))
			continue
		}
		marker, hosts, key, _, _, err := ssh.ParseKnownHosts(l)
		switch {
		case err != nil:
			return nil, errors.New("reading host keys: a line is neither one of known_hosts nor a public key")
		case !slices.ContainsFunc(hosts, func(pattern string) bool { return names(pattern, host, port) }):
			others++
		case marker == "revoked":
			return nil, fmt.Errorf("reading host keys: a key of %s is marked as revoked", host)
		case marker != "":
			return nil, fmt.Errorf("reading host keys: %s is known by a certificate authority, which cannot be pinned: give its own keys", host)
		default:
			keys = append(keys, line(key))
		}
	}
	if len(keys) == 0 {
		if others > 0 {
			return nil, fmt.Errorf("reading host keys: none of the file's lines is for %s", knownName(host, port))
		}
		return nil, errors.New("reading host keys: the file has none")
	}
	return Pin(keys)
}

// names reports whether an entry of known_hosts is for the host. Patterns with * and ? are not: a key is pinned for one host.
func names(entry, host string, port int) bool {
	name := knownName(host, port)
	if !strings.HasPrefix(entry, "|1|") {
		return strings.EqualFold(entry, name)
	}
	salt64, sum64, _ := strings.Cut(strings.TrimPrefix(entry, "|1|"), "|")
	salt, err := base64.StdEncoding.DecodeString(salt64)
	if err != nil {
		return false
	}
	sum, err := base64.StdEncoding.DecodeString(sum64)
	if err != nil {
		return false
	}
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(name))
	return hmac.Equal(mac.Sum(nil), sum)
}

// knownName is how known_hosts writes a host.
func knownName(host string, port int) string {
	if port == 22 {
		return host
	}
	return fmt.Sprintf("[%s]:%d", host, port)
}

// Scan asks a server for its host keys over connections that dial makes, one for each algorithm. What it returns proves nothing: whoever answers can show any key. A person has
// to compare the fingerprints.
func Scan(dial func() (net.Conn, error)) ([]string, error) {
	var keys []string
	var last error
	for _, algorithms := range [][]string{
		{ssh.KeyAlgoED25519}, {ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521}, {ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
	} {
		conn, err := dial()
		if err != nil {
			return nil, err
		}
		seen := errors.New("seen")
		_, _, _, err = ssh.NewClientConn(conn, "", &ssh.ClientConfig{
			User: "singlepass", HostKeyAlgorithms: algorithms,
			HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
				keys = append(keys, line(key))
				return seen
			},
		})
		_ = conn.Close()
		if err != nil && !errors.Is(err, seen) {
			last = err
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("asking for host keys: %w", last)
	}
	return Pin(keys)
}
