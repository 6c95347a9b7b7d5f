package execution

import (
	"encoding/json"
	"fmt"
	"strings"
)

// DecodeEvent reads the frozen JSON of an event, as encoding/json does: what AppendJSON writes is read by hand, which a verification of a million entries needs, and
// anything else (an escape, a time, a field of a later version) by encoding/json itself. At is not part of the JSON and stays zero.
//
// The strings of the event share one copy of b.
func DecodeEvent(b []byte) (Event, error) {
	s := scanner{text: string(b)}
	if ev, ok := s.event(); ok && s.at == len(s.text) {
		return ev, nil
	}
	var ev Event
	if err := json.Unmarshal(b, &ev); err != nil {
		return Event{}, fmt.Errorf("decoding event: %w", err)
	}
	return ev, nil
}

// scanner reads compact JSON of known members. Each method reports false at the first byte that it does not expect, and then nothing that it read counts.
type scanner struct {
	text string
	at   int
}

func (s *scanner) event() (Event, bool) {
	var ev Event
	seen := 0
	ok := s.object(func(name string) bool {
		switch name {
		case "kind":
			return s.once(&seen, 0) && s.word((*string)(&ev.Kind))
		case "execution_id":
			return s.once(&seen, 1) && s.word(&ev.ID)
		case "acceptance":
			ev.Acceptance = &Acceptance{}
			return s.once(&seen, 2) && s.acceptance(ev.Acceptance)
		case "caller":
			ev.Caller = &Caller{}
			return s.once(&seen, 3) && s.caller(ev.Caller)
		case "call":
			return s.once(&seen, 4) && s.word(&ev.Call)
		case "by":
			return s.once(&seen, 5) && s.word(&ev.By)
		case "attempt":
			return s.once(&seen, 6) && number(s, &ev.Attempt)
		case "outcome":
			return s.once(&seen, 7) && s.word((*string)(&ev.Outcome))
		case "target_status":
			return s.once(&seen, 8) && number(s, &ev.Status)
		case "result_reference":
			return s.once(&seen, 9) && s.word(&ev.Result)
		case "source":
			return s.once(&seen, 10) && s.word((*string)(&ev.Source))
		case "evidence":
			return s.once(&seen, 11) && s.word(&ev.Evidence)
		case "code":
			return s.once(&seen, 12) && s.word(&ev.Code)
		case "reason":
			return s.once(&seen, 13) && s.word(&ev.Reason)
		case "caller_waiting":
			return s.once(&seen, 14) && s.flag(&ev.Waiting)
		}
		return false
	})
	return ev, ok
}

func (s *scanner) acceptance(a *Acceptance) bool {
	seen := 0
	return s.object(func(name string) bool {
		switch name {
		case "tool":
			return s.once(&seen, 0) && s.word(&a.Tool)
		case "action":
			return s.once(&seen, 1) && s.word(&a.Action)
		case "contract_digest":
			return s.once(&seen, 2) && s.word(&a.ContractDigest)
		case "channel":
			return s.once(&seen, 3) && s.word(&a.Channel)
		case "target":
			return s.once(&seen, 4) && s.word(&a.Target)
		case "credential":
			return s.once(&seen, 5) && s.word(&a.Credential)
		case "class":
			return s.once(&seen, 6) && s.word((*string)(&a.Class))
		case "actor":
			return s.once(&seen, 7) && s.word(&a.Actor)
		case "actor_digest":
			return s.once(&seen, 8) && s.word(&a.ActorDigest)
		case "run":
			return s.once(&seen, 9) && s.word(&a.Run)
		case "intent_scope":
			return s.once(&seen, 10) && s.word(&a.Scope)
		case "fingerprint":
			return s.once(&seen, 11) && s.word(&a.Fingerprint)
		case "effect_digest":
			return s.once(&seen, 12) && s.word(&a.EffectDigest)
		case "attach_window":
			return s.once(&seen, 13) && number(s, &a.AttachWindow)
		case "after_delivery":
			return s.once(&seen, 14) && s.word((*string)(&a.AfterDelivery))
		case "key_lifetime":
			return s.once(&seen, 15) && number(s, &a.KeyLifetime)
		case "retention":
			return s.once(&seen, 16) && number(s, &a.Retention)
		case "again":
			return s.once(&seen, 17) && s.word(&a.Again)
		}
		return false
	})
}

func (s *scanner) caller(c *Caller) bool {
	seen := 0
	return s.object(func(name string) bool {
		switch name {
		case "call":
			return s.once(&seen, 0) && s.word(&c.Call)
		case "run":
			return s.once(&seen, 1) && s.word(&c.Run)
		case "transport":
			return s.once(&seen, 2) && s.word(&c.Transport)
		case "connection":
			return s.once(&seen, 3) && s.word(&c.Connection)
		case "request_id":
			return s.once(&seen, 4) && s.word(&c.RequestID)
		case "session":
			return s.once(&seen, 5) && s.word(&c.Session)
		case "protocol":
			return s.once(&seen, 6) && s.word(&c.Protocol)
		case "client":
			return s.once(&seen, 7) && s.word(&c.Client)
		case "key":
			return s.once(&seen, 8) && s.word(&c.Key)
		case "delivered":
			return s.once(&seen, 9) && s.word(&c.Delivered)
		case "disputed":
			return s.once(&seen, 10) && s.flag(&c.Disputed)
		}
		return false // "at" among them: its forms are encoding/json's to read
	})
}

// once refuses a member that came before: encoding/json has its own way with those.
func (s *scanner) once(seen *int, member int) bool {
	bit := 1 << member
	before := *seen & bit
	*seen |= bit
	return before == 0
}

// object reads an object and has member read the value of each.
func (s *scanner) object(member func(name string) bool) bool {
	if !s.byte('{') {
		return false
	}
	if s.byte('}') {
		return true
	}
	for {
		var name string
		if !s.word(&name) || !s.byte(':') || !member(name) {
			return false
		}
		if !s.byte(',') {
			return s.byte('}')
		}
	}
}

func (s *scanner) byte(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// word reads a string of visible ASCII without escapes.
func (s *scanner) word(into *string) bool {
	if !s.byte('"') {
		return false
	}
	for i := s.at; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			*into, s.at = s.text[s.at:i], i+1
			return true
		case c < ' ', c > '~', c == '\\':
			return false
		}
	}
	return false
}

// number reads a whole number of at most 18 digits, which no int64 overflows.
func number[T ~int | ~int64](s *scanner, into *T) bool {
	negative := s.byte('-')
	n, from := int64(0), s.at
	for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
		n = n*10 + int64(s.text[s.at]-'0')
		s.at++
	}
	digits := s.at - from
	if digits == 0 || digits > 18 || digits > 1 && s.text[from] == '0' {
		return false
	}
	if negative {
		n = -n
	}
	*into = T(n)
	return int64(*into) == n
}

func (s *scanner) flag(into *bool) bool {
	rest := s.text[s.at:]
	switch {
	case strings.HasPrefix(rest, "true"):
		*into, s.at = true, s.at+4
	case strings.HasPrefix(rest, "false"):
		*into, s.at = false, s.at+5
	default:
		return false
	}
	return true
}
