package material

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

const (
	maxAuthorities     = 16
	maxAuthoritiesSize = 32 << 10
)

// Authorities turns a file of certificate authorities into the kept form: PEM of the certificates, in their order, and nothing between them. They are not secret.
func Authorities(b []byte) ([]byte, error) {
	if len(b) > 2*maxAuthoritiesSize {
		return nil, fmt.Errorf("the authorities have more than %d bytes: give those of the targets alone, not the system's", maxAuthoritiesSize)
	}
	var kept []byte
	n := 0
	for rest := b; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if bytes.Contains(rest, []byte("-----BEGIN ")) {
				return nil, errors.New("a block of the authorities cannot be read as PEM")
			}
			break
		}
		if strings.Contains(block.Type, "PRIVATE KEY") {
			clear(block.Bytes)
			return nil, errors.New("there is a private key among the authorities: give their certificates alone")
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("there is a block of type %.40q among the authorities: give certificates", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, errors.New("a certificate of the authorities cannot be read")
		}
		if n++; n > maxAuthorities {
			return nil, fmt.Errorf("there are more than %d authorities: give those of the targets alone", maxAuthorities)
		}
		kept = append(kept, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	switch {
	case n == 0:
		return nil, errors.New("there is no certificate among the authorities: give PEM, which begins with -----BEGIN CERTIFICATE-----")
	case len(kept) > maxAuthoritiesSize:
		return nil, fmt.Errorf("the authorities have more than %d bytes: give those of the targets alone", maxAuthoritiesSize)
	}
	return kept, nil
}

// Roots is whom TLS trusts where a credential names authorities.
func Roots(kept string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(kept)) {
		return nil, errors.New("the credential's certificate authorities cannot be read")
	}
	return pool, nil
}
