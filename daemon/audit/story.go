package audit

import "singlepass.dev/daemon/chain"

// Story checks what entries mean. Entries with the same key are told in order to the same teller; those
// with different keys may go to different tellers at the same time. So one teller sees whole stories, and
// stories are checked in parallel.
type Story struct {
	// Key returns which story an entry belongs to, cheaply; nil means that it belongs to none. It may
	// return a part of the line. It is called concurrently.
	Key func(l *chain.Line) []byte
	// Teller makes what is told the entries; it is called once for each worker. A teller is called by one
	// goroutine, must not keep the line, and returns an error for an entry that cannot come now.
	Teller func() func(key []byte, l *chain.Line) error
}

// bucket spreads the keys over n workers: FNV-1a.
func bucket(key []byte, n int) int {
	h := uint32(2166136261)
	for _, c := range key {
		h = (h ^ uint32(c)) * 16777619
	}
	return int(h % uint32(n))
}

// told is an entry of a story.
type told struct {
	line   chain.Line
	key    []byte
	offset int64
	bucket int
	broken error // CheckEntry
}

// tell prepares a line for the tellers. That an event is JSON is checked here and not with the bytes: an
// event that is not was written so, and costs as much to check as the hash.
func (v *verification) tell(list []told, l *chain.Line, offset int64) []told {
	t := told{line: *l, offset: offset, broken: l.CheckEntry()}
	if !chain.OwnKind(l.Kind) {
		t.key = v.opts.Story.Key(l)
	}
	if t.key == nil && t.broken == nil {
		return list
	}
	t.bucket = bucket(t.key, v.opts.Workers)
	return append(list, t)
}

// tellers holds a teller for each worker.
type tellers struct {
	v    *verification
	tell []func([]byte, *chain.Line) error
}

func newTellers(v *verification) *tellers {
	t := &tellers{v: v}
	for range v.opts.Workers {
		t.tell = append(t.tell, v.opts.Story.Teller())
	}
	return t
}

// listen lets one worker hear its entries of a list.
func (t *tellers) listen(worker int, segment string, list []told) (findings []Finding) {
	for i := range list {
		e := &list[i]
		if e.bucket != worker {
			continue
		}
		what, err := chain.WhatEvent, e.broken
		if err == nil {
			what, err = WhatStory, t.tell[worker](e.key, &e.line)
		}
		if err != nil {
			findings = append(findings, Finding{Entries: 1, Detail: err.Error(), Break: chain.Break{
				What: what, Segment: segment, Offset: e.offset, Length: int64(e.line.Size()), Seq: e.line.Seq,
			}})
		}
	}
	return findings
}
