package material

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"strings"
)

// ClientCertificate turns what was handed in for a credential of kind client-cert into the kept form: PEM of the certificate, of those that link it to its root, and of the private key.
// What stands between the blocks is left out.
func ClientCertificate(b []byte) ([]byte, error) {
	var certificates, key []byte
	for rest := b; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		switch {
		case block.Type == "CERTIFICATE":
			certificates = append(certificates, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			return nil, errors.New("the private key is encrypted: decrypt it with `openssl pkey` on the way in; the vault encrypts it")
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			if key != nil {
				return nil, errors.New("there is more than one private key")
			}
			key = pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		case block.Type == "EC PARAMETERS": // openssl ecparam writes them beside the key, which names its curve itself
		default:
			return nil, errors.New("there is a PEM block that is neither a certificate nor a private key")
		}
		clear(block.Bytes)
	}
	defer clear(key)
	switch {
	case certificates == nil:
		return nil, errors.New("there is no certificate in PEM")
	case key == nil:
		return nil, errors.New("there is no private key in PEM")
	}
	kept := append(bytes.Clone(certificates), key...)
	if _, err := TLSCertificate(kept); err != nil {
		return nil, err
	}
	return kept, nil
}

// TLSCertificate reads the kept form of kind client-cert. The parsed key lies in memory that nobody wipes, as crypto/tls needs it.
func TLSCertificate(b []byte) (tls.Certificate, error) {
	c, err := tls.X509KeyPair(b, b)
	if err != nil {
		return tls.Certificate{}, errors.New("certificate and private key cannot be read, or the key is not the first certificate's")
	}
	return c, nil
}
