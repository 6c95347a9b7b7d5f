package mcpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/mcpserver/envelope"
)

// metaExecution is the key of _meta under which our own word about an execution stands. What a target writes there is dropped.
const metaExecution = "dev.singlepass/execution"

// appendResult appends a's result with our _meta spliced in; every other byte of the result stays as it was stored. serverInfo is set for a revision that wants a complete
// result to say so and to name its server (2026-07-28, SEP-2322 and SEP-2575).
func appendResult(dst []byte, a call.Answer, serverInfo []byte) ([]byte, error) {
	var meta, resultType []byte
	members := 0
	err := envelope.Members(a.Result, func(key, value []byte) error {
		members++
		switch string(key) {
		case "_meta":
			meta = value
		case "resultType":
			resultType = value
		}
		return nil
	})
	if err != nil {
		return dst, fmt.Errorf("reading the engine's result: %w", err)
	}
	from := len(dst)
	dst = append(dst, `{"_meta":{"`+metaExecution+`":`...)
	dst = appendExecution(dst, a)
	if serverInfo != nil {
		dst = append(dst, `,"`+envelope.MetaServerInfo+`":`...)
		dst = append(dst, serverInfo...)
	}
	if meta != nil {
		if dst, err = appendForeignMeta(dst, meta, serverInfo != nil); err != nil {
			return dst[:from], err
		}
		members--
	}
	dst = append(dst, '}')
	if serverInfo != nil && resultType == nil {
		dst = append(dst, `,"resultType":"complete"`...)
	}
	if members > 0 {
		dst = append(dst, ',')
	}
	if meta == nil {
		open := bytes.IndexByte(a.Result, '{')
		dst = append(dst, a.Result[open+1:]...)
	} else {
		dst = appendMembers(dst, a.Result, "_meta")
	}
	// A raw line break can only stand between tokens, and would end the frame: what an upstream put between two of them, in its _meta too, would be read as a message of ours.
	for i := from; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return dst, nil
}

func appendExecution(dst []byte, a call.Answer) []byte {
	dst = append(dst, '{')
	if a.ExecutionID != "" {
		dst = append(dst, `"execution_id":`...)
		dst = appendString(dst, a.ExecutionID)
		dst = append(dst, `,"state":`...)
		dst = appendString(dst, string(a.State))
		dst = append(dst, ',')
	}
	if a.Code != "" {
		dst = append(dst, `"code":`...)
		dst = appendString(dst, string(a.Code))
		dst = append(dst, ',')
	}
	dst = append(dst, `"recorded":`...)
	dst = strconv.AppendBool(dst, a.Recorded)
	return append(dst, '}')
}

// appendForeignMeta keeps what an upstream said in its _meta, except under names that are ours.
func appendForeignMeta(dst, meta []byte, ownServerInfo bool) ([]byte, error) {
	err := envelope.Members(meta, func(key, value []byte) error {
		if bytes.HasPrefix(key, []byte("dev.singlepass/")) || ownServerInfo && string(key) == envelope.MetaServerInfo {
			return nil
		}
		dst = append(dst, ',')
		dst = appendString(dst, string(key))
		dst = append(dst, ':')
		dst = append(dst, value...)
		return nil
	})
	if err != nil {
		return dst, fmt.Errorf("reading the _meta of the engine's result: %w", err)
	}
	return dst, nil
}

// appendMembers appends the members of a valid object but one, and the closing brace.
func appendMembers(dst, object []byte, without string) []byte {
	first := true
	_ = envelope.Members(object, func(key, value []byte) error {
		if string(key) == without {
			return nil
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendString(dst, string(key))
		dst = append(dst, ':')
		dst = append(dst, value...)
		return nil
	})
	return append(dst, '}')
}

// appendString appends s as JSON; what needs no escape, which is nearly everything here, is copied.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f || s[i] == '"' || s[i] == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(dst, `""`...)
			}
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// appendError appends a JSON-RPC error response. A nil id is null: the request's own could not be told.
func appendError(dst, id []byte, code int, message string, data []byte) []byte {
	if id == nil {
		id = []byte("null")
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, message)
	if data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, data...)
	}
	return append(dst, `}}`...)
}

// wireError puts an error of ours into the terms of JSON-RPC.
func wireError(err error) (code int, message string, data []byte) {
	var e *envelope.Error
	var u *unsupported
	switch {
	case errors.As(err, &e):
		return e.Code, e.Message, nil
	case errors.As(err, &u):
		return mcp.CodeUnsupportedProtocolVersion, u.Error(), u.data
	}
	return envelope.InternalError, err.Error(), nil
}

// refusal makes the result of a call that the engine never saw.
func refusal(code, message, next string, more ...[2]string) json.RawMessage {
	content := map[string]string{"code": code, "message": message, "next": next}
	for _, kv := range more {
		content[kv[0]] = kv[1]
	}
	text, _ := json.Marshal(content) // a map of strings always encodes
	result, _ := json.Marshal(map[string]any{
		"isError":           true,
		"content":           []map[string]string{{"type": "text", "text": string(text)}},
		"structuredContent": json.RawMessage(text),
	})
	return result
}
