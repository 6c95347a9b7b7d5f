package mcpchan

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// streamLimit bounds what one stream may send in all.
const streamLimit = 256 << 20

var (
	errStream = errors.New("the stream is longer than any answer needs to be")
	errEvent  = errors.New("an event is longer than any message may be")
)

// events reads server-sent events (HTML Living Standard, 9.2), of which only the data matters here.
type events struct {
	lines *bufio.Reader
	read  int
	asked int // requests of the upstream in it
}

func newEvents(r io.Reader) *events { return &events{lines: bufio.NewReaderSize(r, 32<<10)} }

// next returns the data of the next event that has some. An event that the end of the stream cuts off is none.
func (e *events) next() ([]byte, error) {
	var data []byte
	has := false
	for {
		line, err := readLine(e.lines, messageLimit)
		if errors.Is(err, errTooLong) {
			return nil, errEvent
		}
		if e.read += len(line); e.read > streamLimit {
			return nil, errStream
		}
		if err != nil {
			return nil, err
		}
		line = trimmed(line)
		if len(line) == 0 {
			if has {
				return data, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if has {
			data = append(data, '\n')
		}
		has = true
		if data = append(data, bytes.TrimPrefix(value, []byte(" "))...); len(data) > messageLimit {
			return nil, errEvent
		}
	}
}
