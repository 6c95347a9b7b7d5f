package journal

import (
	"encoding/json"
	"errors"
	"fmt"

	"singlepass.dev/daemon/chain"
)

// Quarantine returns why the journal is in quarantine, or nil.
func (j *Journal) Quarantine() *Quarantine {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.quarant
}

// EnterQuarantine stops ordinary writing because of what a full verification found. What is forming and
// not yet written ends with ErrQuarantine.
func (j *Journal) EnterQuarantine(breaks ...chain.Break) error {
	if len(breaks) == 0 {
		return errors.New("entering quarantine: no break given")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.takeLocked()
	defer j.giveLocked()
	if j.closing {
		return ErrClosed
	}
	j.dropLocked(ErrQuarantine)
	j.seq, j.head, j.end = j.durable.Seq, j.durable.Hash, j.synced
	if j.quarant != nil {
		breaks = append(append([]chain.Break(nil), j.quarant.Breaks...), breaks...)
	}
	j.quarant = &Quarantine{Breaks: breaks}
	return nil
}

// AcceptQuarantine ends a quarantine by the operator's decision. It begins a new segment whose first entry
// holds the reason, what was found, and details: a JSON object of the caller's, or nil. The segments
// before stay as they are. Their breaks are reported as accepted from then on, as long as their bytes
// stay the same.
func (j *Journal) AcceptQuarantine(reason string, details []byte) (Position, error) {
	if reason == "" {
		return Position{}, errors.New("accepting quarantine: a reason is needed")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.takeLocked()
	defer j.giveLocked()
	switch {
	case j.closing:
		return Position{}, ErrClosed
	case j.quarant == nil:
		return Position{}, errors.New("accepting quarantine: the journal is not in quarantine")
	case j.stopped != nil:
		return Position{}, j.stopped
	}
	opened := chain.Opened{
		Kind: chain.KindQuarantineAccepted, Reason: reason,
		Breaks: j.quarant.Breaks, Details: json.RawMessage(details),
	}
	j.mu.Unlock()
	err := j.rotateBehind(opened)
	j.mu.Lock()
	if err != nil {
		return Position{}, fmt.Errorf("accepting quarantine: %w", err)
	}
	j.log.Warn("quarantine accepted", "reason", reason, "found", j.quarant.String())
	j.quarant = nil
	return j.durable, nil
}

// maxLost bounds how many numbers an accepted break may leave out: what stands in broken files is not
// to be believed.
const maxLost = 1 << 20

// rotateBehind begins a segment behind every number that may have been acknowledged, so that none is
// given twice.
func (j *Journal) rotateBehind(opened chain.Opened) error {
	highest := j.seq
	if t := j.cfg.Trusted; t != nil {
		highest = max(highest, t.Seq)
	}
	for _, b := range opened.Breaks {
		n, ok := chain.ParseSegmentName(b.Segment)
		if !ok {
			return fmt.Errorf("break names the segment %q", b.Segment)
		}
		err := j.lines(n, b.Offset, -1, func(raw []byte, _ int64) error {
			if l, err := chain.Split(raw); err == nil {
				if _, ok := l.Verify(); ok && l.Seq <= j.seq+maxLost {
					highest = max(highest, l.Seq)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	before := j.seq
	j.seq = highest
	if err := j.rotate(opened, 0); err != nil {
		j.seq = before
		return err
	}
	return nil
}
