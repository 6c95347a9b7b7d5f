package audit

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"singlepass.dev/daemon/chain"
)

// Checkpoint says which entries a journal had when it was signed: a C2SP tlog-checkpoint.
type Checkpoint struct {
	Origin string     `json:"origin"` // the journal's name; no line breaks
	Size   uint64     `json:"size"`   // entries
	Root   chain.Hash `json:"root"`   // RFC 6962 tree head
}

// Sign makes the signed note.
func (c Checkpoint) Sign(signer note.Signer) ([]byte, error) {
	if c.Origin == "" || strings.ContainsAny(c.Origin, "\n") {
		return nil, errors.New("signing checkpoint: the origin must be one line")
	}
	signed, err := note.Sign(&note.Note{Text: c.body()}, signer)
	if err != nil {
		return nil, fmt.Errorf("signing checkpoint: %w", err)
	}
	return signed, nil
}

func (c Checkpoint) body() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// OpenCheckpoint returns a signed checkpoint if it was signed with the key, a note verifier key.
func OpenCheckpoint(signed []byte, key string) (Checkpoint, error) {
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("reading key %.80q: %w: spctl audit key prints it", key, err)
	}
	n, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("opening checkpoint: %w", err)
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) < 4 { // Lines behind the third are extensions.
		return Checkpoint{}, errors.New("opening checkpoint: it has fewer than three lines")
	}
	c := Checkpoint{Origin: lines[0]}
	if c.Size, err = strconv.ParseUint(lines[1], 10, 63); err != nil || strconv.FormatUint(c.Size, 10) != lines[1] {
		return Checkpoint{}, fmt.Errorf("opening checkpoint: size %.80q is not a number", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != len(c.Root) || c.Origin == "" {
		return Checkpoint{}, errors.New("opening checkpoint: it is not in the tlog-checkpoint format")
	}
	copy(c.Root[:], root)
	return c, nil
}

// NewSigner returns a note signer that signs with key, which must be an Ed25519 key, under a name without
// spaces and plus signs.
func NewSigner(name string, key crypto.Signer) (note.Signer, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("making signer: the key is not an Ed25519 key")
	}
	if name == "" || strings.ContainsAny(name, "+ \t\r\n") {
		return nil, fmt.Errorf("making signer: the name %.80q must not be empty nor have spaces or plus signs", name)
	}
	// The key hash of the signed-note format: SHA-256(name, line break, algorithm 1, key)[:4].
	sum := sha256.Sum256(append([]byte(name+"\n\x01"), public...))
	return &signer{name: name, hash: binary.BigEndian.Uint32(sum[:]), key: key}, nil
}

// VerifierKey is the key that checkpoints of a signer with this name and public key are verified with.
func VerifierKey(name string, public ed25519.PublicKey) (string, error) {
	key, err := note.NewEd25519VerifierKey(name, public)
	if err != nil {
		return "", fmt.Errorf("making verifier key: %w", err)
	}
	return key, nil
}

type signer struct {
	name string
	hash uint32
	key  crypto.Signer
}

func (s *signer) Name() string    { return s.name }
func (s *signer) KeyHash() uint32 { return s.hash }
func (s *signer) Sign(msg []byte) ([]byte, error) {
	return s.key.Sign(nil, msg, crypto.Hash(0))
}
