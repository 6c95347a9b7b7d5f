package envelope

import "errors"

// Keys of _meta and members of params that are read here.
const (
	MetaKey             = "dev.singlepass/idempotency-key"
	MetaProtocolVersion = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo      = "io.modelcontextprotocol/clientInfo"
	MetaCapabilities    = "io.modelcontextprotocol/clientCapabilities"
	MetaServerInfo      = "io.modelcontextprotocol/serverInfo"
)

// Methods that are calls: each is about one thing, which its params name.
const (
	MethodCall   = "tools/call"
	MethodRead   = "resources/read"
	MethodPrompt = "prompts/get"
)

// IsCall says whether a method is one of them.
func IsCall(method string) bool {
	return method == MethodCall || method == MethodRead || method == MethodPrompt
}

// ToolCall is the inside of the params of a tools/call, its arguments apart, or of a resources/read or prompts/get, whose URI or prompt Name then is.
type ToolCall struct {
	Name          []byte
	Arguments     []byte // raw; nil where there are none
	Key           []byte // the client's key
	KeySource     string // meta, sibling
	ProgressToken []byte // raw
	Protocol      []byte // the revision that the request itself names (2026-07-28 and later)
	ClientInfo    []byte // raw
	Capabilities  []byte // raw
}

// ScanToolCall reads the params of a tools/call.
func ScanToolCall(params []byte, c *ToolCall) error { return ScanCall(MethodCall, params, c) }

// ScanCall reads the params of a call.
func ScanCall(method string, params []byte, c *ToolCall) error {
	*c = ToolCall{}
	if params == nil {
		return refuse(InvalidParams, `%s needs "params"`, method)
	}
	what, most := "name", MaxName
	if method == MethodRead {
		what, most = "uri", MaxURI
	}
	var name, meta, sibling []byte
	err := Members(params, func(key, value []byte) error {
		if string(key) == what {
			name = value
			return nil
		}
		switch string(key) {
		case "arguments":
			if method == MethodRead {
				return nil
			}
			c.Arguments = value
		case "_meta":
			meta = value
		case "idempotencyKey":
			sibling = value
		}
		return nil
	})
	if err != nil {
		return refuse(InvalidParams, "params hold %v", err)
	}
	if c.Name, err = Text(orNull(name)); err != nil || len(c.Name) == 0 || len(c.Name) > most {
		return refuse(InvalidParams, `%q must be a string of 1 to %d bytes`, what, most)
	}
	if string(c.Arguments) == "null" {
		c.Arguments = nil
	}
	if c.Arguments != nil && c.Arguments[0] != '{' {
		return refuse(InvalidParams, `"arguments" must be an object`)
	}
	var metaKey []byte
	if meta != nil && string(meta) != "null" {
		err := Members(meta, func(key, value []byte) error {
			switch string(key) {
			case MetaKey:
				metaKey = value
			case "progressToken":
				c.ProgressToken = value
			case MetaProtocolVersion:
				// Anything but a string names no revision; the SDK reads it the same way.
				c.Protocol, _ = Text(value)
			case MetaClientInfo:
				c.ClientInfo = value
			case MetaCapabilities:
				c.Capabilities = value
			}
			return nil
		})
		if err != nil {
			return refuse(InvalidParams, `"_meta" must be an object: %v`, err)
		}
	}
	if c.ProgressToken != nil && checkID(c.ProgressToken) != nil {
		return refuse(InvalidParams, `"progressToken" must be a string or an integer`)
	}
	return c.takeKey(metaKey, sibling)
}

// takeKey refuses a key that it cannot take instead of dropping it: without the key the call would be another intent.
func (c *ToolCall) takeKey(meta, sibling []byte) error {
	for _, from := range []struct {
		raw    []byte
		source string
	}{{meta, "meta"}, {sibling, "sibling"}} {
		if from.raw == nil {
			continue
		}
		key, err := Text(from.raw)
		switch {
		case err != nil || len(key) == 0 || len(key) > MaxKey:
			return refuse(InvalidParams, "the idempotency key must be a string of 1 to %d bytes", MaxKey)
		case c.KeySource != "" && string(key) != string(c.Key):
			return refuse(InvalidParams, `_meta[%q] and "idempotencyKey" carry two different keys: send one`, MetaKey)
		case c.KeySource == "":
			c.Key, c.KeySource = key, from.source
		}
	}
	return nil
}

// RequestID reads the id of the request that a notification is about.
func RequestID(params []byte) ([]byte, error) {
	var id []byte
	if params == nil {
		return nil, errors.New("params are missing")
	}
	err := Members(params, func(key, value []byte) error {
		if string(key) == "requestId" {
			id = value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if id == nil {
		return nil, errors.New("requestId is missing")
	}
	return id, checkID(id)
}

func orNull(raw []byte) []byte {
	if raw == nil {
		return []byte("null")
	}
	return raw
}

// Revision returns the revision that params name in their _meta, or "".
func Revision(params []byte) string {
	var meta, revision []byte
	if params == nil {
		return ""
	}
	_ = Members(params, func(key, value []byte) error {
		if string(key) == "_meta" {
			meta = value
		}
		return nil
	})
	if meta == nil {
		return ""
	}
	_ = Members(meta, func(key, value []byte) error {
		if string(key) == MetaProtocolVersion {
			revision, _ = Text(value)
		}
		return nil
	})
	return string(revision)
}
