package journal

import (
	"bytes"
	"errors"
	"io"

	"singlepass.dev/daemon/chain"
)

// scanner reads the lines of one segment from an offset on.
type scanner struct {
	r      File
	offset int64 // of the next line
	end    int64 // where to stop; the file's size or the durable end
	buf    []byte
	have   int // bytes of buf that are filled, from offset on
	skip   int // bytes of buf that were handed out
}

// errTail means that no whole line is left, only zeros or the beginning of one.
var errTail = errors.New("no whole line is left")

// next returns the next line without its line break. It is valid until the next call.
func (s *scanner) next() ([]byte, error) {
	for {
		if n := bytes.IndexByte(s.buf[s.skip:s.have], '\n'); n >= 0 {
			line := s.buf[s.skip : s.skip+n]
			s.skip += n + 1
			s.offset += int64(n) + 1
			return line, nil
		}
		copy(s.buf, s.buf[s.skip:s.have])
		s.have, s.skip = s.have-s.skip, 0
		at := s.offset + int64(s.have)
		// Lines have no zeros in them, so a zero means unused space and saves reading all of it.
		if at >= s.end || s.have > chain.MaxLine || s.have > 0 && s.buf[s.have-1] == 0 {
			return nil, errTail
		}
		if s.have == len(s.buf) {
			s.buf = append(s.buf, make([]byte, max(len(s.buf), 256<<10))...)
		}
		n, err := s.r.ReadAt(s.buf[s.have:min(int64(len(s.buf)), int64(s.have)+s.end-at)], at)
		s.have += n
		if n == 0 {
			if err == nil || err == io.EOF {
				return nil, errTail
			}
			return nil, err
		}
	}
}

// rest reads what is in a file from offset to its end, without the zeros at its end.
func rest(f File, offset int64) ([]byte, error) {
	size, err := f.Size()
	if err != nil || size <= offset {
		return nil, err
	}
	b := make([]byte, size-offset)
	if _, err := f.ReadAt(b, offset); err != nil && err != io.EOF {
		return nil, err
	}
	return bytes.TrimRight(b, "\x00"), nil
}

// follow checks that a line is whole and the next one after an entry, and says what is wrong if not.
func follow(raw []byte, seq uint64, head chain.Hash) (chain.Line, chain.Hash, chain.What) {
	l, err := chain.Split(raw)
	if err != nil {
		return l, chain.Hash{}, chain.WhatGarbage
	}
	hash, ok := l.Verify()
	switch {
	case !ok:
		return l, hash, chain.WhatChanged
	case l.Follows(seq, head):
		return l, hash, ""
	case l.Seq <= seq:
		return l, hash, chain.WhatReordered
	case l.Seq == seq+1:
		return l, hash, chain.WhatForked
	}
	return l, hash, chain.WhatRemoved
}
