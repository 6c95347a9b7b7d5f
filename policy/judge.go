package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"github.com/go-json-experiment/json/jsontext"

	"singlepass.dev/daemon/execution"
)

// What one look at an answer may cost: CEL's own units for a condition, values and depth for a body.
const (
	judgeCostLimit = 100_000
	maxBodyValues  = 100_000
	maxBodyDepth   = 64
)

// judgement is a compiled condition over the answer to a status request.
type judgement struct {
	source   string
	program  cel.Program
	id, args bool // it looks at the execution's id, at arguments
}

const judgementUsage = `write a CEL condition over status, headers and body, such as status == 200 && body.state == "finished"`

// judgement reads a condition over the answer.
func (p *parser) judgement(n *node, path string, in *input) (string, *judgement) {
	source, ok := p.text(n, path, 2000, judgementUsage)
	if !ok || in == nil {
		return "", nil
	}
	env, err := conditionEnv(in, cel.Variable("status", cel.IntType), cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("body", cel.DynType), cel.Variable("execution_id", cel.StringType))
	if err != nil {
		p.problem(n, path, judgementUsage, "the condition cannot be compiled: %v", err)
		return "", nil
	}
	checked, problem, remedy := checkCondition(env, source, judgementUsage, in)
	if problem != "" {
		p.problem(n, path, remedy, "%s", problem)
		return "", nil
	}
	j := &judgement{source: source}
	answer := false
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.IdentKind {
			return
		}
		switch e.AsIdent() {
		case "status", "headers", "body":
			answer = true
		case "execution_id":
			j.id = true
		case "args":
			j.args = true
		}
	}))
	if !answer {
		p.problem(n, path, judgementUsage, "the condition looks at nothing of the answer")
		return "", nil
	}
	if j.program, err = env.Program(checked, cel.CostLimit(judgeCostLimit), cel.EvalOptions(cel.OptOptimize)); err != nil {
		p.problem(n, path, judgementUsage, "the condition cannot be compiled: %v", err)
		return "", nil
	}
	return source, j
}

// Reading is an answer to a status request.
type Reading struct {
	Status int
	Header map[string][]string
	Body   []byte
	Whole  bool // all of the body came and none was cut; else nothing is read from it
}

// JudgeStatus says what an answer to the contract's status request means for one execution, and why. Every doubt is "cannot tell": a status by which the target says nothing
// of the execution (401, 403, a redirect, an overload, a fault of its own), a condition that cannot be evaluated, two conditions that hold at once, none that holds.
func (a *Action) JudgeStatus(p Prepared, id string, r Reading) (execution.Finding, string) {
	s := a.contract.Replay.Status
	if s == nil {
		return execution.FoundCannotTell, "the action's contract has no status request"
	}
	if why := saysNothing(r.Status); why != "" {
		return execution.FoundCannotTell, fmt.Sprintf("the target answered %d: %s", r.Status, why)
	}
	values, unread := r.values(p, id)
	found, why := execution.FoundCannotTell, ""
	for _, c := range []struct {
		name    string
		j       *judgement
		finding execution.Finding
	}{
		{"done", s.done, execution.FoundDone},
		{"failed", s.failed, execution.FoundFailed},
		{"not_done", s.notDone, execution.FoundNotDone},
		{"running", s.running, execution.FoundRunning},
	} {
		if c.j == nil {
			continue
		}
		holds, ok := c.j.holds(values)
		switch {
		case !ok:
			// CEL's own error can carry what the target wrote; ours names the condition only.
			text := fmt.Sprintf("the target answered %d, and whether %q holds could not be told: %s", r.Status, c.name, c.j.source)
			if unread != "" {
				text += "; its body could not be used: " + unread
			}
			return execution.FoundCannotTell, text
		case holds && why != "":
			return execution.FoundCannotTell, fmt.Sprintf("the target answered %d, and both %q and %q hold", r.Status, found, c.name)
		case holds:
			found, why = c.finding, fmt.Sprintf("the target answered %d, and %q holds: %s", r.Status, c.name, c.j.source)
		}
	}
	if why == "" {
		why = fmt.Sprintf("the target answered %d, and none of the contract's conditions holds", r.Status)
	}
	return found, why
}

// values is what a condition sees of an answer, and why its body could not be read, or "".
func (r Reading) values(p Prepared, id string) (values map[string]any, unread string) {
	headers := make(map[string]string, len(r.Header))
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	body, unread := any(nil), "it is not whole"
	if r.Whole {
		var err error
		if body, err = decodeBody(r.Body); err != nil {
			body, unread = nil, err.Error()
		} else {
			unread = ""
		}
	}
	return map[string]any{"status": int64(r.Status), "headers": headers, "body": body, "args": p.values, "execution_id": id}, unread
}

// holds reports false for ok where the condition could not be evaluated.
func (j *judgement) holds(values map[string]any) (holds, ok bool) {
	out, _, err := j.program.Eval(values)
	if err != nil || types.IsUnknownOrError(out) {
		return false, false
	}
	holds, ok = out.Value().(bool)
	return holds, ok
}

// saysNothing says why an answer with a status tells nothing of an execution, whatever a contract makes of it, or "".
func saysNothing(status int) string {
	switch {
	case status == 401 || status == 403 || status == 407:
		return "the status request itself was not allowed, so it says nothing of the execution"
	case status == 408 || status == 425 || status == 429 || status >= 500:
		return "it cannot say now"
	case status >= 300 && status < 400:
		return "it points elsewhere, and a redirect is not followed"
	case status < 200:
		return "that is no final answer"
	}
	return ""
}

var (
	errNotJSON   = errors.New("it is not JSON that can be read in one way only")
	errBodyLarge = errors.New("it holds too many values, or is nested too deeply")
)

// decodeBody reads a JSON body for CEL. A body in which a name stands twice could be read in two ways, so it is not read at all.
func decodeBody(b []byte) (any, error) {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	left := maxBodyValues
	v, err := decodeValue(d, &left, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, errNotJSON
	}
	return v, nil
}

func decodeValue(d *jsontext.Decoder, left *int, depth int) (any, error) {
	if *left--; *left < 0 || depth > maxBodyDepth {
		return nil, errBodyLarge
	}
	token, err := d.ReadToken()
	if err != nil {
		return nil, errNotJSON
	}
	switch token.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return token.Bool(), nil
	case '"':
		return token.String(), nil
	case '0':
		return number64(token.String())
	case '{':
		object := map[string]any{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, errNotJSON
			}
			text := name.String() // the token is gone with the next one
			if object[text], err = decodeValue(d, left, depth+1); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return object, err
	}
	list := []any{}
	for d.PeekKind() != ']' {
		v, err := decodeValue(d, left, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err = d.ReadToken()
	return list, err
}

// number64 keeps integers exact where 64 bits can.
func number64(s string) (any, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(s, 10, 64); err == nil {
		return u, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, errNotJSON
	}
	return f, nil
}
