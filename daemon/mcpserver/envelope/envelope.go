// Package envelope reads the outside of a JSON-RPC message (JSON-RPC 2.0; MCP basic/index and transports) without decoding its inside: the id, the method, the name of the tool,
// the client's key, and the untouched bytes of the arguments.
//
// It promises that what it accepts is valid JSON in valid UTF-8, that no key comes twice in the objects that it reads (the message, params, _meta), and that slices point
// into the caller's line except where a string held an escape. It says nothing about what is inside the arguments: that is the engine's to judge. It imports nothing of ours,
// so that the bridge can use it without the MCP SDK.
package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Codes of JSON-RPC 2.0, section 5.1.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603
)

// Error is a refusal in the terms of JSON-RPC.
type Error struct {
	Code    int
	Message string
}

func (e *Error) Error() string { return e.Message }

func refuse(code int, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Message is the outside of one message.
type Message struct {
	ID       []byte // raw JSON, echoed as it came; nil for a notification
	Method   []byte // empty for a response
	Params   []byte // raw JSON object, nil where there is none
	Response bool   // the message has a result or an error
}

// Limits of what is copied into records or tables.
const (
	MaxID   = 512  // bytes of raw JSON
	MaxName = 256  // bytes of a method's or a tool's name
	MaxURI  = 8192 // bytes of a resource's
	MaxKey  = 1024 // bytes of a client's key
)

// Scan reads the outside of a line into m. On an error m.ID is set where the id could be told, so that the refusal reaches its request.
func Scan(line []byte, m *Message) error {
	*m = Message{}
	if !utf8.Valid(line) {
		return refuse(ParseError, "the message is not valid UTF-8")
	}
	s := scanner{b: line}
	s.space()
	if s.peek() == '[' {
		return refuse(InvalidRequest, "batches are not supported: send each message on a line of its own")
	}
	var version, paramsRaw, methodRaw, idRaw []byte
	err := s.object(1, func(key, value []byte) error {
		switch string(key) {
		case "jsonrpc":
			version = value
		case "id":
			idRaw = value
		case "method":
			methodRaw = value
		case "params":
			paramsRaw = value
		case "result", "error":
			m.Response = true
		}
		return nil
	})
	if err == nil {
		if s.space(); s.i != len(line) {
			err = errSyntax
		}
	}
	// What could not be read to its end has no id: a cut one could be another request's.
	if idRaw != nil && err == nil && checkID(idRaw) == nil {
		m.ID = idRaw
	}
	switch {
	case errors.Is(err, errSyntax):
		return refuse(ParseError, "the message is not one valid JSON object")
	case err != nil:
		return refuse(InvalidRequest, "the message holds %v", err)
	case string(version) != `"2.0"`:
		return refuse(InvalidRequest, `"jsonrpc" must be "2.0"`)
	}
	if methodRaw != nil {
		m.Response = false
		if m.Method, err = Text(methodRaw); err != nil || len(m.Method) == 0 || len(m.Method) > MaxName {
			return refuse(InvalidRequest, `"method" must be a string of at most %d bytes`, MaxName)
		}
	} else if !m.Response {
		return refuse(InvalidRequest, `"method" is missing`)
	}
	if idRaw != nil && m.ID == nil && !(m.Response && string(idRaw) == "null") {
		return refuse(InvalidRequest, "%v", checkID(idRaw))
	}
	if paramsRaw != nil {
		if paramsRaw[0] != '{' {
			return refuse(InvalidRequest, `"params" must be an object`)
		}
		m.Params = paramsRaw
	}
	return nil
}

// checkID holds ids to what every JSON reader keeps apart: a string, or an integer that a float64 can hold.
func checkID(id []byte) error {
	if len(id) > MaxID {
		return fmt.Errorf("the id is longer than %d bytes", MaxID)
	}
	switch id[0] {
	case '"':
		_, err := Text(id)
		return err
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if n, err := strconv.ParseInt(string(id), 10, 64); err == nil && n > -1<<53 && n < 1<<53 {
			return nil
		}
	}
	return errors.New("the id must be a string or an integer within ±(2^53-1)")
}

// IDKey returns a key under which equal ids meet, however their strings were escaped.
func IDKey(id []byte) string {
	if bytes.IndexByte(id, '\\') >= 0 {
		if text, err := Text(id); err == nil {
			return `"` + string(text) + `"`
		}
	}
	return string(id)
}

// Text returns what a raw JSON string says.
func Text(raw []byte) ([]byte, error) {
	s := scanner{b: raw}
	text, err := s.text()
	if err == nil && s.i != len(raw) {
		err = errSyntax
	}
	return text, err
}

// Members visits the members of a raw JSON object in order, and refuses a key that comes twice.
func Members(raw []byte, visit func(key, value []byte) error) error {
	s := scanner{b: raw}
	s.space()
	if err := s.object(1, visit); err != nil {
		return err
	}
	if s.space(); s.i != len(raw) {
		return errSyntax
	}
	return nil
}
