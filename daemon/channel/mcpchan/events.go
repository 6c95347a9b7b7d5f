package mcpchan

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

const (
	streamLimit  = 256 << 20        // bounds what one stream may send in all
	longestPause = 30 * time.Second // that an upstream can ask for before its stream is resumed
	maxResumes   = 8                // requests to go on with one stream
	maxUnheard   = 3                // of them that came to nothing at all
	firstPause   = 100 * time.Millisecond
	longestEvent = 1 << 10 // bytes of an event's id
)

var (
	errStream = errors.New("the stream is longer than any answer needs to be")
	errEvent  = errors.New("an event is longer than any message may be")
)

// events reads server-sent events (HTML Living Standard, 9.2), of which the data, the id and the time to wait matter here. One that is resumed goes on with what is known of it.
type events struct {
	lines *bufio.Reader
	read  int
	asked int           // requests of the upstream in it
	last  string        // the id of the last whole event that had one
	pause time.Duration // before it is resumed, as the upstream said
	broke string        // why it ended; "" while it did not
}

func newEvents() *events { return &events{} }

// from reads on from another connection.
func (e *events) from(r io.Reader) {
	e.lines, e.broke = bufio.NewReaderSize(r, 32<<10), ""
}

// next returns the data of the next event that has some. An event that the end of the stream cuts off is none, and its id is not one that was reached.
func (e *events) next() ([]byte, error) {
	var data []byte
	has, id := false, e.last
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
			e.last = id // also of an event without data, by which a server says from where it can be resumed
			if has {
				return data, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
		case "id":
			id = string(value)
			continue
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.pause = min(time.Duration(ms)*time.Millisecond, longestPause)
			}
			continue
		default:
			continue
		}
		if has {
			data = append(data, '\n')
		}
		has = true
		if data = append(data, value...); len(data) > messageLimit {
			return nil, errEvent
		}
	}
}
