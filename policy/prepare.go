package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"singlepass.dev/daemon/fingerprint"
)

// MaxIntentKey is the longest intent key, in characters.
const MaxIntentKey = 255

// ArgumentError says which argument was refused, why, and what to send instead. The agent reads it, so it never shows the value of a secret argument.
type ArgumentError struct {
	Pointer string // RFC 6901, within the arguments
	Problem string
	Remedy  string
}

func (e *ArgumentError) Error() string {
	where := e.Pointer
	if where == "" {
		where = "arguments"
	}
	return where + ": " + e.Problem + "; " + e.Remedy
}

// Prepared is one call's arguments, checked and in canonical form. It is immutable and may be shared.
type Prepared struct {
	Raw       json.RawMessage // exactly what the agent sent
	Arguments json.RawMessage // canonical, defaults materialized, without intent_key; secret arguments are in it
	IntentKey string          // empty when none was sent

	values map[string]any
}

// Prepare checks a call's arguments: strict JSON, then intent_key aside, then defaults, then the schema, then the canonical form. Its error is *ArgumentError.
func (a *Action) Prepare(raw json.RawMessage) (Prepared, error) {
	values := map[string]any{}
	if len(raw) > 0 {
		v, err := fingerprint.Decode(raw)
		if err != nil {
			var input *fingerprint.InputError
			if errors.As(err, &input) {
				return Prepared{}, &ArgumentError{input.Pointer, input.Problem, input.Remedy}
			}
			return Prepared{}, &ArgumentError{"", "not valid JSON", "send one JSON object"}
		}
		switch v := v.(type) {
		case map[string]any:
			values = v
		case nil: // as some clients write "no arguments"
		default:
			return Prepared{}, &ArgumentError{"", "found " + jsonType(v) + " where an object is needed", "send the arguments as one JSON object"}
		}
	}
	p := Prepared{Raw: raw, values: values}
	if key, ok := values[intentKey]; ok && key == nil {
		delete(values, intentKey) // as clients send "none" that must send every argument
	} else if ok {
		s, isText := key.(string)
		if n := utf8.RuneCountInString(s); !isText || n < 1 || n > MaxIntentKey {
			return Prepared{}, &ArgumentError{"/" + intentKey, fmt.Sprintf("it must be text of 1 to %d characters", MaxIntentKey), "send a shorter key, or leave it out"}
		}
		p.IntentKey = s
		delete(values, intentKey)
	}
	in := a.contract.input
	in.defaults.fill(values)
	if err := in.validate(values); err != nil {
		return Prepared{}, err
	}
	if a.contract.Asks {
		if _, wrong := question(values); wrong != nil {
			return Prepared{}, wrong
		}
	}
	if a.contract.Generic {
		if _, wrong := a.contract.genericEffect(values); wrong != nil {
			return Prepared{}, wrong
		}
	}
	p.Arguments = fingerprint.Append(make([]byte, 0, len(raw)+32), values)
	return p, nil
}

// FingerprintArguments is the canonical form of the arguments that make the intent, secret ones as keyed references.
func (a *Action) FingerprintArguments(mac func([]byte) [32]byte, p Prepared) json.RawMessage {
	c := a.contract
	if a.countsAll {
		return p.Arguments
	}
	counted := make(map[string]any, len(c.Replay.Fingerprint))
	for _, name := range c.Replay.Fingerprint {
		v, ok := p.values[name]
		switch {
		case !ok:
		case c.input.byName[name].secret:
			counted[name] = fingerprint.SecretReference(mac, name, v)
		default:
			counted[name] = v
		}
	}
	return fingerprint.Append(nil, counted)
}

// Fingerprint computes the fingerprint of a prepared call. mac is HMAC-SHA-256 under the vault's fingerprint key.
//
// The target in it is the URL as the contract writes it: host and path are fixed by it, and the arguments that fill it are counted as arguments, so that a contract which
// leaves one of them out of replay.fingerprint is taken at its word.
func (a *Action) Fingerprint(mac func([]byte) [32]byte, p Prepared, actor, intentScope string) string {
	c := a.contract
	in := fingerprint.Input{
		Actor: actor, Tool: c.Action, Channel: string(c.Channel), CredentialRef: c.Credential, Arguments: a.FingerprintArguments(mac, p), IntentScope: intentScope,
	}
	if c.Asks {
		ask, wrong := question(p.values)
		if wrong != nil {
			return "" // cannot happen: Prepare has checked it
		}
		// Not the purpose: the same question in other words is the same question.
		in.Target, in.Method, in.Arguments = ask.Target, "ask", nil
	} else if c.Generic {
		e, wrong := c.genericEffect(p.values)
		if wrong != nil {
			return "" // cannot happen: Prepare has checked it
		}
		in.Target, in.Method, in.Arguments = genericIdentity(e)
	} else if c.SSH != nil {
		in.Target, in.Method = c.SSH.identity()
	} else if c.MCP != nil {
		// Not the upstream's identity: a command that was changed since does not hide what was already sent. Nor its credential, for the same reason.
		in.Target, in.Method, in.CredentialRef = "mcp:"+c.MCP.Upstream+"/"+c.MCP.Tool, "tools/call", ""
		if c.MCP.Method != "" {
			in.Method = c.MCP.Method
		}
	} else {
		in.Target, in.Method = c.HTTP.URL, c.HTTP.Method
	}
	return fingerprint.Compute(mac, in)
}

// validate holds the arguments against the schema.
func (in *input) validate(values map[string]any) error {
	if in.check != nil {
		if wrong := in.check.validate(values, ""); wrong != nil {
			return in.redact(wrong)
		}
		return nil
	}
	if in.resolved == nil {
		return nil
	}
	if err := in.resolved.Validate(values); err != nil {
		pointer := instancePointer(err.Error())
		return in.redact(&ArgumentError{pointer, lastReason(err.Error()), "send what the tool's input schema asks for"})
	}
	return nil
}

// redact keeps what was sent for a secret argument, or for anything when it is not known which argument is meant, out of the message.
func (in *input) redact(e *ArgumentError) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(e.Pointer, "/"), "/")
	name = unescapePointer.Replace(name)
	a := in.byName[name]
	hide := a != nil && a.secret
	if a == nil && in.check == nil {
		for _, other := range in.properties {
			hide = hide || other.secret
		}
	}
	if hide {
		return &ArgumentError{e.Pointer, "it does not fit the schema", "send what the tool's input schema asks for"}
	}
	e.Problem = clip(e.Problem, 400)
	return e
}

var schemaPath = lazily(`validating (/[^:\s]*)`)

// schemaPointer finds the innermost schema that the library's error names.
func schemaPointer(message string) string {
	all := schemaPath().FindAllStringSubmatch(message, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// instancePointer makes of it the place in the arguments, as far as it is known.
func instancePointer(message string) string {
	pointer := ""
	rest := schemaPointer(message)
	for strings.HasPrefix(rest, "/properties/") {
		name, more, _ := strings.Cut(strings.TrimPrefix(rest, "/properties/"), "/")
		pointer += "/" + name
		rest = "/" + more
	}
	return pointer
}

// lastReason drops the library's chain of "validating …".
func lastReason(message string) string {
	first, _, _ := strings.Cut(message, "\n")
	for strings.HasPrefix(first, "validating ") || strings.HasPrefix(first, "jsonschema: ") {
		_, rest, ok := strings.Cut(first, ": ")
		if !ok {
			break
		}
		first = rest
	}
	return first
}
