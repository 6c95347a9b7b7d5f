package policy

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/fingerprint"
	"singlepass.dev/daemon/upstream"
)

// Action is a contract made ready for calls. It is immutable and safe for concurrent use.
type Action struct {
	contract       *Contract
	tool           Tool
	countsAll      bool // every argument counts in the fingerprint, and none is secret
	ownContentType bool
	success        []int // what the contract lists; nil for 200 to 299
	upstream       *upstream.Definition
}

// Tool is the action as an agent sees it in tools/list.
type Tool struct {
	Name        string
	Title       string
	Description string
	InputSchema json.RawMessage
	Annotations json.RawMessage
}

// Compile makes an action of a contract that Parse returned.
func Compile(c *Contract) (*Action, error) {
	if c == nil || c.input == nil || !c.input.usable || (c.HTTP == nil) != (c.Channel != effect.HTTP) || (c.SSH == nil) != (c.Channel != effect.SSH) || (c.MCP == nil) != (c.Channel != effect.MCP) {
		return nil, errors.New("compiling action: the contract does not come from Parse; parse its file")
	}
	a := &Action{contract: c, tool: Tool{Name: c.Action, Title: c.Title, Description: describe(c), InputSchema: publish(c.input), Annotations: annotate(c)}}
	a.countsAll = len(c.Replay.Fingerprint) == len(c.input.properties) && !slices.ContainsFunc(c.input.properties, func(p *property) bool { return p.secret })
	if c.HTTP == nil {
		return a, nil
	}
	a.ownContentType = c.HTTP.namesContentType()
	if !slices.Equal(c.HTTP.Success, []StatusRange{{200, 299}}) {
		for status := 200; status < 600; status++ { // an answer below 200 is never the last one
			if c.HTTP.Succeeded(status) {
				a.success = append(a.success, status)
			}
		}
		if len(a.success) == 0 {
			return nil, errors.New("compiling action: http.success lists no status of 200 or above, and an answer below 200 is never the last one; write a list such as [200, 201] or [2xx, 404]")
		}
	}
	return a, nil
}

// Contract returns the contract that the action was made of.
func (a *Action) Contract() *Contract { return a.contract }

// Tool returns the action's entry of tools/list.
func (a *Action) Tool() Tool { return a.tool }

// intentKeySchema says "every try" and not "unique": models take "unique for every request" literally and make a new key for each retry.
const intentKeySchema = `{"type":"string","minLength":1,"maxLength":255,"description":"Optional. Names what you intend: send the same key for every try of the same intent, ` +
	`also after a lost answer or a restart. A different key says that you want it done once more, on purpose."}`

// publish adds intent_key to the schema.
func publish(in *input) json.RawMessage {
	if in.foreign {
		return publishForeign(in)
	}
	n := *withoutSecretMarks(in.root)
	b := []byte{'{'}
	wrote := false
	for i, m := range n.members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(fingerprint.Append(b, m.name), ':')
		if m.name != "properties" {
			b = m.value.appendJSON(b)
			continue
		}
		wrote = true
		b = append(b, '{')
		for _, p := range m.value.members {
			b = append(fingerprint.Append(b, p.name), ':')
			b = append(p.value.appendJSON(b), ',')
		}
		b = append(b, `"`+intentKey+`":`+intentKeySchema+`}`...)
	}
	if !wrote {
		b = append(b, `,"properties":{"`+intentKey+`":`+intentKeySchema+`}`...)
	}
	return append(b, '}')
}

// describe puts the contract's answer to a lost answer into the tool's description, so that the model reads it.
func describe(c *Contract) string {
	r := c.Replay
	window := plainDuration(r.AttachWindow)
	s := []string{c.Description, ""}
	class := r.Class
	if r.Status != nil && len(r.Status.Fields) > 0 {
		class = execution.Irreversible // without its answer the target cannot be asked
	}
	switch class {
	case execution.ReadOnly:
		s = append(s, "If the answer is lost, call again: this only reads.")
	case execution.Idempotent:
		s = append(s, "If the answer is lost, make the same call again: it joins the first one and is not carried out twice. The target recognizes a repeat for "+plainDuration(r.KeyLifetime)+
			"; past that, a lost answer waits for the person to say what happened.")
	case execution.StatusQuery:
		s = append(s, "If the answer is lost, make the same call again: it joins the first one, and the target is asked what became of that. You get its result if it was done; it is sent once more "+
			"only if the target did nothing. If that cannot be told, you are told so; it is then asked again later, or waits for the person to say what happened. Do not try to do the same in another way.")
	default:
		s = append(s, "If the answer is lost, make the same call again: it joins the first one and is never sent a second time. If nobody knows whether it was done, you are told so; "+
			"it then waits for the person to say what happened. Do not try to do the same in another way.")
	}
	if r.Accepted != nil {
		s = append(s, "It can take long: while the target is at work the answer has the state \"dispatched\"; wait for the result with execution_wait.")
	}
	if r.Class != execution.ReadOnly {
		same := "The same call means the same arguments"
		if len(r.Fingerprint) < len(c.input.properties) {
			same = "The same call means the same " + oneOfAnd(r.Fingerprint)
		}
		s = append(s, same+" within "+window+", or the same intent_key.")
	}
	switch r.AfterDelivery {
	case execution.Ask:
		s = append(s, "Once its result was delivered, the same call asks the person before it is done again.")
	case execution.Return:
		s = append(s, "Once its result was delivered, the same call returns the recorded result; a new intent_key does it again, on purpose.")
	case execution.New:
		if r.Class != execution.ReadOnly {
			s = append(s, "Once its result was delivered, the same call is done anew.")
		}
	}
	if r.IntentScope == ScopeDurable {
		s = append(s, "This holds across restarts of yours.")
	}
	return strings.TrimSpace(strings.Join(s[:2], "\n") + "\n" + strings.Join(s[2:], " "))
}

func oneOfAnd(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// annotate makes the MCP annotations follow from the class. They are hints: what is not known to be harmless is called destructive.
func annotate(c *Contract) json.RawMessage {
	readOnly := c.Replay.Class == execution.ReadOnly
	b, err := json.Marshal(struct {
		Title       string `json:"title,omitempty"`
		ReadOnly    bool   `json:"readOnlyHint"`
		Destructive bool   `json:"destructiveHint"`
		Idempotent  bool   `json:"idempotentHint"`
		OpenWorld   bool   `json:"openWorldHint"`
	}{c.Title, readOnly, !readOnly, readOnly || c.Replay.Class == execution.Idempotent, true})
	if err != nil {
		panic(err) // a string and four booleans
	}
	return b
}
