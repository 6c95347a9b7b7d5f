package execution

import (
	"encoding/json"
	"strconv"
	"time"
)

// AppendJSON appends the frozen JSON of the event, byte for byte what encoding/json writes (a test holds it to that, field by field). It is written by hand because the
// engine encodes five events a call inside its single writer.
func (ev *Event) AppendJSON(b []byte) []byte {
	o := object{b: append(b, '{')}
	o.text("kind", string(ev.Kind))
	o.text("execution_id", ev.ID)
	if ev.Acceptance != nil {
		o.name("acceptance")
		o.b = ev.Acceptance.appendJSON(o.b)
	}
	if ev.Caller != nil {
		o.name("caller")
		o.b = ev.Caller.appendJSON(o.b)
	}
	o.optional("call", ev.Call)
	o.optional("by", ev.By)
	o.number("attempt", int64(ev.Attempt))
	o.optional("outcome", string(ev.Outcome))
	o.number("target_status", int64(ev.Status))
	o.optional("result_reference", ev.Result)
	o.optional("source", string(ev.Source))
	o.optional("evidence", ev.Evidence)
	o.optional("code", ev.Code)
	o.optional("reason", ev.Reason)
	o.flag("caller_waiting", ev.Waiting)
	o.optional("finding", string(ev.Finding))
	o.number("times_asked", int64(ev.Times))
	o.number("ask_after", int64(ev.AskAfter))
	return append(o.b, '}')
}

func (a *Acceptance) appendJSON(b []byte) []byte {
	o := object{b: append(b, '{')}
	o.text("tool", a.Tool)
	o.optional("action", a.Action)
	o.optional("contract_digest", a.ContractDigest)
	o.text("channel", a.Channel)
	o.text("target", a.Target)
	o.optional("credential", a.Credential)
	o.text("class", string(a.Class))
	o.text("actor", a.Actor)
	o.optional("actor_digest", a.ActorDigest)
	o.text("run", a.Run)
	o.text("intent_scope", a.Scope)
	o.text("fingerprint", a.Fingerprint)
	o.text("effect_digest", a.EffectDigest)
	o.name("attach_window")
	o.b = strconv.AppendInt(o.b, int64(a.AttachWindow), 10)
	o.text("after_delivery", string(a.AfterDelivery))
	o.number("key_lifetime", int64(a.KeyLifetime))
	o.number("retention", int64(a.Retention))
	o.optional("again", a.Again)
	return append(o.b, '}')
}

func (c *Caller) appendJSON(b []byte) []byte {
	o := object{b: append(b, '{')}
	o.text("call", c.Call)
	o.text("run", c.Run)
	o.optional("transport", c.Transport)
	o.optional("connection", c.Connection)
	o.optional("request_id", c.RequestID)
	o.optional("session", c.Session)
	o.optional("protocol", c.Protocol)
	o.optional("client", c.Client)
	o.optional("key", c.Key)
	if !c.At.IsZero() {
		o.name("at")
		o.b = append(c.At.AppendFormat(append(o.b, '"'), time.RFC3339Nano), '"')
	}
	o.optional("delivered", c.Delivered)
	o.flag("disputed", c.Disputed)
	return append(o.b, '}')
}

// object appends the members of a JSON object.
type object struct {
	b    []byte
	some bool
}

func (o *object) name(name string) {
	if o.some {
		o.b = append(o.b, ',')
	}
	o.some = true
	o.b = append(append(append(o.b, '"'), name...), '"', ':')
}

func (o *object) text(name, value string) {
	o.name(name)
	o.b = appendText(o.b, value)
}

func (o *object) optional(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

func (o *object) number(name string, value int64) {
	if value != 0 {
		o.name(name)
		o.b = strconv.AppendInt(o.b, value, 10)
	}
}

func (o *object) flag(name string, value bool) {
	if value {
		o.name(name)
		o.b = append(o.b, "true"...)
	}
}

func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&':
			quoted, _ := json.Marshal(s) // a string always encodes
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
