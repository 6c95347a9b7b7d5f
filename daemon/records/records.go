// Package records is the journal with what is derived from it: one thing that appends events, seals their payloads, folds what is durable into the index, and answers
// from there.
//
// The journal is the truth. The index follows it, never the other way round, and is rebuilt from it whenever it is missing, does not match the chain, or cannot be
// authenticated with the vault's key. Nothing that an unauthenticated index says is believed.
package records

import (
	"bytes"
	"crypto/hmac"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/index"
	"singlepass.dev/daemon/journal"
	"singlepass.dev/daemon/payload"
)

// Config says where the records are.
type Config struct {
	Dir         string           // required: holds journal/ and index.db
	Now         func() time.Time // required
	Random      io.Reader        // required: crypto/rand.Reader outside tests
	SegmentSize int64            // optional
	Logger      *slog.Logger     // optional
	FS          journal.FS       // optional, for tests of faults
	Folded      func(seq uint64) // optional: told how far the index is
	FlushEvery  time.Duration    // optional, 2 s
	Corrupt     func(err error)  // optional: told that the index cannot be made, because the journal's story is impossible
}

// Keys is what the records need of an unlocked vault; *vault.Keys has it. After a lock its methods fail.
type Keys interface {
	PublicSealingKey() []byte
	UseSealingKey(f func(hpke.PrivateKey) error) error
	UseIndexKey(f func(key []byte) error) error
}

// Records is safe for concurrent use.
type Records struct {
	cfg     Config
	journal *journal.Journal
	index   *index.Index
	found   *journal.Recovery
	stamp   atomic.Int64 // the time of the Append under way, in Unix nanoseconds; 0 when there is none

	mu     sync.Mutex // guards what follows; never held while waiting for the disk
	sealer *payload.Sealer
	public []byte
	opener *payload.Opener

	folding sync.Mutex    // held by whoever folds; taken before fold
	remakes atomic.Uint64 // odd while the index is being made anew, and when it could not be; moves under folding
	fold    struct {
		sync.Mutex
		queue []index.Entry
		wake  chan struct{} // capacity 1
		busy  bool
		idle  *sync.Cond
	}
	stop chan struct{}
	done sync.WaitGroup
}

// Open opens the journal and brings the index up to its end.
func Open(cfg Config) (*Records, error) {
	if cfg.Dir == "" || cfg.Now == nil || cfg.Random == nil {
		return nil, errors.New("opening records: Dir, Now and Random are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Folded == nil {
		cfg.Folded = func(uint64) {}
	}
	if cfg.FlushEvery <= 0 {
		cfg.FlushEvery = 2 * time.Second
	}
	r := &Records{cfg: cfg, stop: make(chan struct{})}
	r.fold.wake = make(chan struct{}, 1)
	r.fold.idle = sync.NewCond(&r.fold.Mutex)
	var err error
	if r.index, err = index.Open(index.Config{Path: filepath.Join(cfg.Dir, "index.db")}); err != nil {
		return nil, err
	}
	jc := journal.Config{
		Dir: filepath.Join(cfg.Dir, "journal"), Now: r.now, SegmentSize: cfg.SegmentSize, FS: cfg.FS, Logger: cfg.Logger, OnDurable: r.onDurable,
	}
	if p := r.index.Position(); p.Seq > 0 {
		jp := journalPosition(p)
		jc.Trusted = &jp
	}
	if r.journal, r.found, err = journal.Open(jc); err != nil {
		return nil, errors.Join(err, r.index.Close())
	}
	if err := r.catchUp(); err != nil {
		return nil, errors.Join(err, r.journal.Close(), r.index.Close())
	}
	r.done.Add(2)
	go r.foldLoop()
	go r.flushLoop()
	return r, nil
}

// now is the journal's clock: the time that the engine gave to the events of this Append, so that the live record and the rebuilt one say the same.
func (r *Records) now() time.Time {
	if n := r.stamp.Load(); n != 0 {
		return time.Unix(0, n).UTC()
	}
	return r.cfg.Now()
}

func journalPosition(p index.Position) journal.Position {
	return journal.Position{Segment: p.Segment, Offset: p.Offset, Seq: p.Seq, Hash: chain.Hash(p.Hash)}
}

func indexPosition(p journal.Position) index.Position {
	return index.Position{Seq: p.Seq, Hash: [32]byte(p.Hash), Segment: p.Segment, Offset: p.Offset}
}

func indexEntry(d journal.Durable) (index.Entry, error) {
	l, err := chain.Split(d.Line)
	if err != nil {
		return index.Entry{}, err
	}
	at, err := l.At()
	if err != nil {
		return index.Entry{}, err
	}
	state := l.PayloadState()
	return index.Entry{
		Position: indexPosition(d.Position), Time: at, Event: l.AppendEvent(nil), Sealed: state == chain.PayloadPresent,
	}, nil
}

// catchUp folds what the index does not have yet. An index that stands at an entry which the journal does not have is thrown away.
func (r *Records) catchUp() error {
	for again := range 2 {
		f := folder{r: r}
		err := r.journal.Read(journalPosition(r.index.Position()), f.line)
		var broken *journal.BreakError
		switch {
		case err == nil, errors.As(err, &broken):
			// A break that was not accepted is the quarantine's business; what stands before it is folded.
			return nil
		case again == 0 && (f.odd == nil || errors.Is(err, index.ErrNotAuthentic) || errors.Is(err, execution.ErrIllegal)):
			r.cfg.Logger.Warn("rebuilding the index from the journal", "reason", err)
			if err := r.index.Reset(); err != nil {
				return err
			}
		case errors.Is(err, execution.ErrIllegal):
			// Every line verifies, and still they tell no possible story: somebody wrote lines of his own. What stands before them is folded; the rest is for the operator.
			r.cfg.Logger.Error("the journal tells an impossible story", "reason", err)
			return r.journal.EnterQuarantine(f.at)
		default:
			return fmt.Errorf("folding the journal into the index: %w", err)
		}
	}
	return nil
}

// folder folds the lines of one Read.
type folder struct {
	r    *Records
	lost bool  // an accepted break was passed: the story has a hole
	odd  error // what was wrong with a line
	at   chain.Break
}

func (f *folder) line(d journal.Durable) error {
	at := f.r.index.Position().Seq
	if d.Evidence {
		f.lost = true
		f.odd = f.evidence(d)
		return f.odd
	}
	e, err := indexEntry(d)
	if err == nil {
		// The journal has verified the line, so a number that is left out is one that the operator accepted as lost.
		e.Gap = e.Seq != at+1
		f.lost = f.lost || e.Gap || string(chain.EventKind(e.Event)) == chain.KindQuarantineAccepted
		err = f.r.index.Fold([]index.Entry{e})
	}
	if f.lost && errors.Is(err, execution.ErrIllegal) {
		// What this event follows was lost with the break. Nobody takes it for more than it is: an execution without its beginning is none, and one without its end is
		// settled by recovery.
		f.r.cfg.Logger.Warn("passing over an entry whose beginning was lost", "seq", e.Seq, "reason", err)
		err = f.r.index.Skip(e.Position)
	}
	if f.odd = err; err != nil {
		whole := append(bytes.Clone(d.Line), '\n')
		f.at = chain.Break{
			What: chain.WhatEvent, Segment: chain.SegmentName(d.Segment), Offset: d.Offset, Length: int64(len(whole)), Seq: d.Seq, Digest: chain.Digest(whole),
		}
	}
	return err
}

// evidence folds of a line inside of an accepted break what asks for care: that something may have been sent. A retry of it is then told "unknown" and is no new execution.
// Whoever broke the journal may have written the line, so it permits nothing: no outcome is taken from it, and it is never sent again, whatever class it names.
func (f *folder) evidence(d journal.Durable) error {
	e, err := indexEntry(d)
	if err != nil {
		return nil // not even evidence
	}
	switch kind := execution.Kind(chain.EventKind(e.Event)); kind {
	case execution.KindAccepted, execution.KindAuthorized, execution.KindDispatched:
		e.Decoded = new(execution.Event)
		if json.Unmarshal(e.Event, e.Decoded) != nil || e.Decoded.Kind != kind {
			return nil
		}
		if a := e.Decoded.Acceptance; a != nil {
			a.Class = execution.Irreversible
		}
		e.Evidence = true
		if err := f.r.index.Fold([]index.Entry{e}); errors.Is(err, index.ErrNotAuthentic) {
			return err
		}
	}
	return nil
}

// onDurable is called by the journal's writer; it only queues.
func (r *Records) onDurable(batch []journal.Durable) {
	r.fold.Lock()
	defer r.fold.Unlock()
	for _, d := range batch {
		if own, ok := d.Note.(*note); ok {
			r.fold.queue = append(r.fold.queue, index.Entry{Position: indexPosition(d.Position), Time: d.Time, Decoded: own.decoded, Sealed: own.sealed})
			continue
		}
		e, err := indexEntry(d)
		if err != nil {
			r.cfg.Logger.Error("reading an entry of our own", "seq", d.Seq, "error", err)
			continue
		}
		r.fold.queue = append(r.fold.queue, e)
	}
	select {
	case r.fold.wake <- struct{}{}:
	default:
	}
}

func (r *Records) foldLoop() {
	defer r.done.Done()
	for {
		select {
		case <-r.fold.wake:
		case <-r.stop:
			r.foldQueue()
			return
		}
		r.foldQueue()
	}
}

func (r *Records) foldQueue() {
	r.folding.Lock()
	defer r.folding.Unlock()
	r.fold.Lock()
	batch := r.fold.queue
	r.fold.queue, r.fold.busy = nil, true
	r.fold.Unlock()
	if len(batch) > 0 {
		if err := r.index.Fold(batch); err != nil {
			// Numbers that an accepted break left out, or a file that somebody has damaged: the journal has it all.
			r.cfg.Logger.Warn("rebuilding the index from the journal", "reason", err)
			if err := r.remake(); err != nil {
				r.cfg.Logger.Error("folding into the index", "error", err)
				if r.cfg.Corrupt != nil {
					r.cfg.Corrupt(err)
				}
			}
		}
		r.cfg.Folded(r.index.Position().Seq)
	}
	r.fold.Lock()
	r.fold.busy = false
	r.fold.idle.Broadcast()
	r.fold.Unlock()
}

// Settle waits until everything that is durable now is folded.
func (r *Records) Settle() {
	r.fold.Lock()
	defer r.fold.Unlock()
	for len(r.fold.queue) > 0 || r.fold.busy {
		r.fold.idle.Wait()
	}
}

func (r *Records) flushLoop() {
	defer r.done.Done()
	t := time.NewTicker(r.cfg.FlushEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-r.stop:
			return
		}
		if err := r.index.Flush(); err != nil {
			r.cfg.Logger.Error("writing the index", "error", err)
		}
	}
}

// Found is what opening the journal found.
func (r *Records) Found() *journal.Recovery { return r.found }

// Journal is the journal itself, for the operator's side: heads, quarantine, erasure.
func (r *Records) Journal() *journal.Journal { return r.journal }

// Index is the index itself, for the operator's lists.
func (r *Records) Index() *index.Index { return r.index }

// Close writes what is pending and closes.
func (r *Records) Close() error {
	err := r.journal.Close()
	close(r.stop)
	r.done.Wait()
	r.dropOpener()
	r.dropSealer()
	return errors.Join(err, r.index.Close())
}

// SealTo begins a sealing epoch to the vault's public key, so that a vault that is locked can be written about.
func (r *Records) SealTo(public []byte) error {
	s, err := payload.NewSealer(payload.Config{PublicKey: public, Random: r.cfg.Random})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealer != nil {
		r.sealer.Wipe()
	}
	r.sealer, r.public = s, public
	return nil
}

// Unlocked gives the records the vault's keys: the index is authenticated, or rebuilt, and payloads can be opened. It reports whether the index had to be rebuilt.
func (r *Records) Unlocked(keys Keys) (rebuilt bool, err error) {
	if err := r.SealTo(keys.PublicSealingKey()); err != nil {
		return false, err
	}
	opener, err := payload.NewOpener(func(_ payload.Recipient, enc []byte) ([]byte, error) {
		var key []byte
		err := keys.UseSealingKey(func(p hpke.PrivateKey) (err error) {
			key, err = payload.DeriveKey(p, enc)
			return err
		})
		return key, err
	})
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	r.opener = opener
	r.mu.Unlock()
	mac := func(domain string, msg []byte) (sum [32]byte, err error) {
		err = keys.UseIndexKey(func(key []byte) error {
			m := hmac.New(sha256.New, key)
			m.Write([]byte(domain))
			m.Write([]byte{0})
			m.Write(msg)
			m.Sum(sum[:0])
			return nil
		})
		return sum, err
	}
	r.Settle()
	err = r.index.Authenticate(mac)
	if errors.Is(err, index.ErrNotAuthentic) {
		r.cfg.Logger.Warn("rebuilding the index from the journal", "reason", err)
		if err := r.Rebuild(); err != nil {
			return true, err
		}
		return true, r.index.Authenticate(mac)
	}
	return false, err
}

// Rebuild makes the index anew from what verifies of the journal. What becomes durable meanwhile waits.
func (r *Records) Rebuild() error {
	r.folding.Lock()
	defer r.folding.Unlock()
	err := r.remake()
	if err == nil {
		r.cfg.Folded(r.index.Position().Seq)
	}
	return err
}

// remake is Rebuild for whoever holds folding. Until it is done the index knows less than happened, and answers nothing: a call that matched a half-made index would be taken for a new one.
func (r *Records) remake() error {
	if r.remakes.Load()%2 == 0 {
		r.remakes.Add(1)
	}
	err := r.index.Reset()
	if err == nil {
		err = r.catchUp()
	}
	if err == nil {
		r.remakes.Add(1)
	}
	// What was queued and is folded by now is dropped.
	at := r.index.Position().Seq
	r.fold.Lock()
	defer r.fold.Unlock()
	n := 0
	for n < len(r.fold.queue) && r.fold.queue[n].Seq <= at {
		n++
	}
	r.fold.queue = r.fold.queue[n:]
	return err
}

// Locked drops the vault's keys and begins a new sealing epoch, so that the memory of a locked daemon opens nothing. It is called before the vault wipes its keys.
func (r *Records) Locked() {
	r.Settle()
	if err := r.index.Flush(); err != nil {
		r.cfg.Logger.Error("writing the index", "error", err)
	}
	r.dropOpener()
	r.mu.Lock()
	public := r.public
	r.mu.Unlock()
	if public != nil {
		// The new sealer takes the old one's place in one step: an outcome that comes in at this moment is sealed by one of them.
		if err := r.SealTo(public); err != nil {
			r.cfg.Logger.Error("beginning a sealing epoch", "error", err)
			r.dropSealer()
		}
	}
}

func (r *Records) dropOpener() {
	r.index.Lock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opener != nil {
		r.opener.Wipe()
		r.opener = nil
	}
}

func (r *Records) dropSealer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealer != nil {
		r.sealer.Wipe()
		r.sealer = nil
	}
}

var (
	_ engine.Journal = (*Records)(nil)
	_ engine.Records = (*Records)(nil)
)
