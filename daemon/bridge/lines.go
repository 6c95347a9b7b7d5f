package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"iter"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/mcpserver/envelope"
)

// lines yields one line after the other, with its line end, valid until the next. A line longer than limit bytes is yielded as nil; 0 is no limit. What follows the last line
// end is no message and is dropped.
func lines(rd *bufio.Reader, limit int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var long []byte
		for {
			part, err := rd.ReadSlice('\n')
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				if limit == 0 || len(long) <= limit {
					long = append(long, part...)
				}
				continue
			case err != nil:
				return
			case long != nil:
				long = append(long, part...)
				part, long = long, nil
			}
			if limit > 0 && len(part) > limit {
				part = nil
			} else if len(bytes.TrimSpace(part)) == 0 {
				continue
			}
			if !yield(part) {
				return
			}
		}
	}
}

// hasLine says that a further whole line is in the buffer already, so that a flush can wait for it.
func hasLine(rd *bufio.Reader) bool {
	buffered, _ := rd.Peek(rd.Buffered())
	return bytes.IndexByte(buffered, '\n') >= 0
}

// unknownAnswer is the truth about a tools/call that was under way when the daemon went away. It is no error: a client that sees one calls it a failure.
func unknownAnswer(r request) []byte {
	return result(r.id, r.modern, false, map[string]string{
		"state":       "unknown",
		"waiting_for": "verification",
		"message":     "the connection to the Singlepass daemon was lost while this call was under way; whether it was carried out is not known here",
		"next":        "call again with the same arguments (and the same intent_key, if there was one): that attaches to the original and is not carried out twice. Or ask executions_recent and execution_status.",
	})
}

// notSentAnswer answers a request that never left the bridge.
func notSentAnswer(m *envelope.Message) []byte {
	if string(m.Method) == "tools/call" {
		return result(m.ID, envelope.Revision(m.Params) != "", true, map[string]string{
			"code":    string(api.CodeNoDaemon),
			"message": "the Singlepass daemon is not running; this call did not reach it and nothing was sent for it",
			"next":    "ask the person to start it (systemctl --user start singlepass), then call again",
		})
	}
	return failure(m.ID, envelope.InternalError, "the Singlepass daemon is not running; start it (systemctl --user start singlepass) and repeat the request")
}

func tooLongAnswer() []byte {
	return failure([]byte("null"), envelope.InvalidRequest, "a message may have at most 4 MiB")
}

func failure(id []byte, code int, message string) []byte {
	return encode(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "error": map[string]any{"code": code, "message": message}})
}

func result(id []byte, modern, failed bool, content map[string]string) []byte {
	text := string(encode(content))
	body := map[string]any{
		"isError":           failed,
		"content":           []map[string]string{{"type": "text", "text": text}},
		"structuredContent": content,
	}
	if modern {
		body["resultType"] = "complete"
	}
	return encode(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "result": body})
}

// encode takes maps of strings and ids that were scanned, which always encode.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("bridge: encoding an answer of its own: " + err.Error())
	}
	return data
}
