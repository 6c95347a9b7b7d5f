// Package fingerprint turns what an agent asked for into one keyed digest, by which an earlier execution of the same intent is found.
//
// It promises that two spellings of one intent share a fingerprint (order of members, white space, 1 and 1.0, \u escapes), and that two different intents never share
// the bytes that are digested. JSON that could break the second promise is refused at the boundary, with a JSON Pointer to the place: duplicate names, lone surrogates,
// invalid UTF-8, integers beyond ±2^53, numbers that a double cannot hold. It does not normalize Unicode: "é" in one and in two code points are two intents.
//
// A fingerprint finds; it never authorizes, and it never leaves the machine. The key comes from the vault, as a function, so that this package never sees it.
//
// Frozen format, version 1 (testdata/vectors.json): the canonical form is RFC 8785, and a fingerprint is HMAC-SHA-256 over the domain, a zero byte and the canonical form
// of the record. A change of either is a new version with a domain of its own.
package fingerprint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what is read. Arguments beyond them are refused.
const (
	MaxBytes = 1 << 20 // of one JSON text
	MaxDepth = 64      // of nested objects and arrays
)

// An InputError says where JSON was refused, why, and what to send instead.
type InputError struct {
	Pointer string // RFC 6901; "" is the whole text
	Problem string
	Remedy  string
}

func (e *InputError) Error() string {
	where := e.Pointer
	if where == "" {
		where = "the JSON text"
	}
	return where + ": " + e.Problem + "; " + e.Remedy
}

// Strict refuses JSON in which two readers could see two different things.
func Strict(raw []byte) error {
	_, err := Decode(raw)
	return err
}

// Canonical returns the RFC 8785 form of a JSON text that Strict accepts.
func Canonical(raw []byte) ([]byte, error) {
	v, err := Decode(raw)
	if err != nil {
		return nil, err
	}
	return Append(make([]byte, 0, len(raw)), v), nil
}

// Decode reads a JSON text that Strict accepts into map[string]any, []any, string, float64, bool and nil. No number loses its integer value: Strict sees to that.
func Decode(raw []byte) (any, error) {
	if len(raw) > MaxBytes {
		return nil, &InputError{"", fmt.Sprintf("%d bytes are more than the limit of %d", len(raw), MaxBytes), "send less, or a reference to it"}
	}
	r := readers.Get().(*reader)
	r.buffer = *bytes.NewBuffer(raw)
	r.decoder.Reset(&r.buffer)
	v, err := r.document()
	r.buffer = bytes.Buffer{} // the pool must not keep an agent's bytes
	r.decoder.Reset(&r.buffer)
	readers.Put(r)
	return v, err
}

// reader is a jsontext decoder, which refuses duplicate names, lone surrogates and invalid UTF-8 by itself, with the checks of numbers, depth and size around it.
type reader struct {
	buffer  bytes.Buffer
	decoder *jsontext.Decoder
}

var readers = sync.Pool{New: func() any { return &reader{decoder: jsontext.NewDecoder(new(bytes.Buffer))} }}

func (r *reader) document() (any, error) {
	v, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := r.decoder.ReadToken(); err != io.EOF {
		return nil, &InputError{"", "there is something after the end of the value", "send one JSON value"}
	}
	return v, nil
}

func (r *reader) value(depth int) (any, error) {
	t, err := r.decoder.ReadToken()
	if err != nil {
		return nil, r.refuse(err)
	}
	switch t.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return t.Bool(), nil
	case '"':
		return t.String(), nil
	case '0':
		f, problem, remedy := number(t.String())
		if problem != "" {
			return nil, &InputError{string(r.decoder.StackPointer()), problem, remedy}
		}
		return f, nil
	}
	if depth >= MaxDepth {
		return nil, &InputError{string(r.decoder.StackPointer()), fmt.Sprintf("nested deeper than %d levels", MaxDepth), "send a flatter value"}
	}
	if t.Kind() == '[' {
		list := []any{}
		for r.decoder.PeekKind() != ']' {
			v, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		if _, err := r.decoder.ReadToken(); err != nil {
			return nil, r.refuse(err)
		}
		return list, nil
	}
	object := map[string]any{}
	for r.decoder.PeekKind() != '}' {
		name, err := r.decoder.ReadToken()
		if err != nil {
			return nil, r.refuse(err)
		}
		key := name.String()
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		object[key] = v
	}
	if _, err := r.decoder.ReadToken(); err != nil {
		return nil, r.refuse(err)
	}
	return object, nil
}

// refuse turns a decoder's error into one that names the place and the remedy. The decoder's own texts may change, so they are not shown.
func (r *reader) refuse(err error) error {
	e := &InputError{Pointer: string(r.decoder.StackPointer()), Problem: "not valid JSON", Remedy: "send one JSON value as RFC 8259 defines it"}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		e.Pointer = string(syntax.JSONPointer)
		e.Problem = fmt.Sprintf("not valid JSON at byte %d", syntax.ByteOffset)
		if strings.Contains(syntax.Error(), "UTF-8") {
			e.Problem, e.Remedy = fmt.Sprintf("invalid UTF-8 at byte %d", syntax.ByteOffset), "encode the text as UTF-8"
		} else if strings.Contains(syntax.Error(), "surrogate") {
			e.Problem, e.Remedy = fmt.Sprintf("a lone surrogate in a \\u escape at byte %d", syntax.ByteOffset), "send the whole character, as UTF-8 or as both halves of its pair"
		}
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		e.Problem, e.Remedy = "this name occurs twice in one object", "send each name once"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.Problem, e.Remedy = "the JSON text ends too early", "send one whole JSON value"
	}
	return e
}

const maxInteger = 1 << 53

// number reads a JSON number. It refuses what is not the same number any more as a double (RFC 7493, section 2.2): then two intents would share bytes.
func number(literal string) (f float64, problem, remedy string) {
	const asString = "send it as a string, if the action takes one"
	f, err := strconv.ParseFloat(literal, 64)
	switch {
	case err != nil || math.IsInf(f, 0):
		return 0, shorten(literal) + " is too large for a number", asString
	case f == 0:
		// 1e-400 is not zero, but a double cannot tell. An exponent changes nothing for a zero mantissa.
		mantissa, _, _ := strings.Cut(strings.ReplaceAll(literal, "E", "e"), "e")
		if strings.Trim(mantissa, "-0.") != "" {
			return 0, shorten(literal) + " is too small for a number", asString
		}
		return 0, "", "" // and not -0, which RFC 8785 writes as 0
	case math.Abs(f) > maxInteger || math.Abs(f) == maxInteger && !exactly(literal, f):
		return 0, shorten(literal) + " is an integer beyond ±2^53, which not every reader keeps apart from its neighbours", asString
	}
	return f, "", ""
}

// exactly says whether the literal, whose nearest double is f = ±2^53, is that number itself and not 2^53+1 rounded to it.
func exactly(literal string, f float64) bool {
	if len(literal) > 64 {
		return false
	}
	// With 64 digits at most, an exponent that leads to 2^53 is small, and so is the work.
	exact, ok := new(big.Rat).SetString(literal)
	return ok && exact.Cmp(new(big.Rat).SetFloat64(f)) == 0
}

func shorten(literal string) string {
	if len(literal) > 40 {
		return literal[:40] + "…"
	}
	return literal
}

// Append appends the RFC 8785 form of a value as Decode makes them. It panics on any other type, on a number that Strict refuses and on invalid UTF-8: such a value
// comes from our own code, and digesting something else in its place would be worse.
func Append(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case string:
		return appendString(dst, v)
	case float64:
		return appendNumber(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = Append(dst, e)
		}
		return append(dst, ']')
	case map[string]any:
		var few [16]string
		names := few[:0]
		for name := range v {
			names = append(names, name)
		}
		slices.SortFunc(names, compareUTF16)
		dst = append(dst, '{')
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, name), ':')
			dst = Append(dst, v[name])
		}
		return append(dst, '}')
	}
	panic(fmt.Sprintf("fingerprint: %T is no JSON value", v))
}

func appendString(dst []byte, s string) []byte {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain {
		dst = append(dst, '"')
		dst = append(dst, s...)
		return append(dst, '"')
	}
	dst, err := jsontext.AppendQuote(dst, s) // the minimal form of RFC 8785, section 3.2.2.2
	if err != nil {
		panic("fingerprint: string is not valid UTF-8")
	}
	return dst
}

// appendNumber writes a number as ECMAScript does (RFC 8785, section 3.2.2.3).
func appendNumber(dst []byte, f float64) []byte {
	size := math.Abs(f)
	switch {
	case math.IsNaN(f) || size > maxInteger:
		panic(fmt.Sprintf("fingerprint: number %v is out of range", f))
	case f == math.Trunc(f):
		return strconv.AppendInt(dst, int64(f), 10)
	case size >= 1e-6:
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); dst[n-4] == 'e' && dst[n-2] == '0' { // e-07 is written e-7
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// compareUTF16 orders names by UTF-16 code units (RFC 8785, section 3.2.3). It differs from the order of bytes only where one side has a character beyond the Basic
// Multilingual Plane, whose surrogates lie below U+E000.
func compareUTF16(a, b string) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i == n {
		return len(a) - len(b)
	}
	x, y := a[i], b[i]
	// In UTF-8 a lead byte of 0xF0 and above starts a character beyond the plane, 0xEE and 0xEF one of U+E000 to U+FFFF. A difference within a character, behind
	// equal lead bytes, orders the same way in both encodings.
	if x >= 0xF0 && (y == 0xEE || y == 0xEF) {
		return -1
	}
	if y >= 0xF0 && (x == 0xEE || x == 0xEF) {
		return 1
	}
	return int(x) - int(y)
}
