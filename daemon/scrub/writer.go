package scrub

import "io"

// Writer scrubs a stream. It holds back what may be the beginning of the secret, which is bounded by the longest way to write it, until more is written or it is closed.
// It is for one goroutine.
type Writer struct {
	s    *Scrubber
	to   io.Writer
	held []byte
	out  []byte // never nil, so that scan copies
	hit  bool
}

// NewWriter returns a Writer that writes to w what may be shown.
func (s *Scrubber) NewWriter(w io.Writer) *Writer { return &Writer{s: s, to: w, out: []byte{}} }

// Write accepts all of p, or returns the error of the writer beneath.
func (w *Writer) Write(p []byte) (int, error) {
	if w.s == nil || len(w.s.forms) == 0 {
		return w.to.Write(p)
	}
	if err := w.settle(p, atMore); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what is still held back. It does not close the writer beneath.
func (w *Writer) Close() error { return w.settle(nil, atEnd) }

// Cut closes a stream that ended before its end: a begun secret is taken out.
func (w *Writer) Cut() error { return w.settle(nil, atCut) }

// Scrubbed reports whether a secret was found so far.
func (w *Writer) Scrubbed() bool { return w.hit }

func (w *Writer) settle(p []byte, e ending) error {
	if w.s == nil {
		return nil
	}
	b := p
	if len(w.held) > 0 {
		w.held = append(w.held, p...)
		b = w.held
	}
	out, settled, hit := w.s.scan(w.out[:0], b, e)
	w.out, w.hit = out, w.hit || hit
	w.held = append(w.held[:0], b[settled:]...)
	if len(out) == 0 {
		return nil
	}
	_, err := w.to.Write(out)
	return err
}
