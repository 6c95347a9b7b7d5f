package server

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"singlepass.dev/daemon/audit"
	"singlepass.dev/daemon/chain"
	"singlepass.dev/vault"
)

// checkpointEvery is how often a new checkpoint is signed while the vault is open and the journal grows.
const checkpointEvery = 10 * time.Minute

// settleAfter is how long after a start, an unlock or a checkpoint the daemon counts as settled.
const settleAfter = 5 * time.Second

// lastCheckpoint bounds the signing at the end of the daemon.
const lastCheckpoint = 2 * time.Second

// keySigner signs with the vault's key, for as long as the vault is open.
type keySigner struct{ keys *vault.Keys }

func (k keySigner) Public() crypto.PublicKey { return ed25519.PublicKey(k.keys.SigningKey()) }

func (k keySigner) Sign(_ io.Reader, msg []byte, _ crypto.SignerOpts) ([]byte, error) {
	return k.keys.Sign(msg)
}

// signerName names this journal in its checkpoints.
func (s *Server) signerName() string {
	id := s.vault.Info().VaultID
	return "singlepass/" + id[:min(16, len(id))]
}

// verifierKey is what checkpoints are verified with; empty while the vault is locked.
func (s *Server) verifierKey() string {
	keys, err := s.vault.Keys()
	if err != nil {
		return ""
	}
	key, err := audit.VerifierKey(s.signerName(), keys.SigningKey())
	if err != nil {
		s.log.Error("making the verifier key", "error", err)
	}
	return key
}

// checkpoints signs one after every unlock and then as the journal grows. Each one is also a verification of the whole journal.
func (s *Server) checkpoints(ctx context.Context) {
	t := time.NewTicker(checkpointEvery)
	defer t.Stop()
	for {
		// What whoever has just started or unlocked it asks for next belongs to the work of that.
		select {
		case <-ctx.Done():
			return
		case <-time.After(settleAfter):
			if s.cfg.Settled != nil {
				s.cfg.Settled()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.opens:
		case <-t.C:
		}
		if err := s.checkpoint(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("signing a checkpoint", "error", err)
		}
	}
}

// checkpoint verifies the journal and signs its head, if there is a key and something new.
func (s *Server) checkpoint(ctx context.Context) error {
	keys, err := s.vault.Keys()
	if err != nil || s.records.Journal().Head().Seq == s.signed.Load() {
		return nil
	}
	dir := s.cfg.Home.Journal()
	head, root, err := audit.TreeHead(ctx, dir)
	if errors.Is(err, audit.ErrNotVerified) {
		return s.verify(ctx)
	} else if err != nil {
		return err
	}
	signer, err := audit.NewSigner(s.signerName(), keySigner{keys})
	if err != nil {
		return err
	}
	note, err := audit.Checkpoint{Origin: s.signerName(), Size: head.Seq, Root: root}.Sign(signer)
	if errors.Is(err, vault.ErrLocked) {
		return nil
	} else if err != nil {
		return err
	}
	temp := filepath.Join(dir, audit.CheckpointFile+".tmp")
	if err := os.WriteFile(temp, note, 0o600); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, audit.CheckpointFile)); err != nil {
		return err
	}
	s.signed.Store(head.Seq)
	return nil
}

// verify checks the whole journal, which opening it does not: start must not depend on its length. What does not verify puts the daemon into quarantine.
func (s *Server) verify(ctx context.Context) error {
	r, err := audit.Verify(ctx, s.cfg.Home.Journal(), audit.Options{Workers: 1})
	if err != nil {
		return fmt.Errorf("verifying the journal: %w", err)
	}
	if r.OK() || s.records.Journal().Quarantine() != nil {
		return nil
	}
	breaks := make([]chain.Break, 0, len(r.Findings))
	for _, f := range r.Findings {
		s.log.Error("the journal does not verify", "found", f.String())
		b := f.Break
		if b.Digest == "" {
			// An acceptance holds for exactly the bytes that were found.
			if b.Digest, err = s.digestOf(b); err != nil {
				return err
			}
		}
		breaks = append(breaks, b)
	}
	if err := s.records.Journal().EnterQuarantine(breaks...); err != nil {
		return err
	}
	s.engine.SetQuarantine(true)
	return nil
}

// digestOf reads the bytes of a break.
func (s *Server) digestOf(b chain.Break) (string, error) {
	f, err := os.Open(filepath.Join(s.cfg.Home.Journal(), filepath.Base(b.Segment)))
	if errors.Is(err, os.ErrNotExist) {
		return chain.Digest(nil), nil
	} else if err != nil {
		return "", err
	}
	defer f.Close()
	found := make([]byte, b.Length)
	n, err := f.ReadAt(found, b.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("reading what does not verify: %w", err)
	}
	return chain.Digest(found[:n]), nil
}
