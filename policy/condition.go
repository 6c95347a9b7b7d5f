package policy

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
)

// costLimit bounds what one evaluation may do, in CEL's own units; a condition over a few arguments takes some tens.
const costLimit = 10_000

// condition is a compiled CEL condition over args.
type condition struct {
	source  string
	program cel.Program
	args    []string // the arguments that it names, in order
}

// argsType names the type of the one variable, args. Its fields are the arguments.
const argsType = "args"

// compileCondition returns what is wrong as a message and a remedy.
func compileCondition(source string, in *input) (c *condition, problem, remedy string) {
	const usage = "write a CEL condition over args, such as args.amount > 100"
	env, err := conditionEnv(in)
	if err != nil {
		return nil, "the condition cannot be compiled: " + err.Error(), usage
	}
	checked, problem, remedy := checkCondition(env, source, usage, in)
	if problem != "" {
		return nil, problem, remedy
	}
	c = &condition{source: source}
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.SelectKind {
			return
		}
		s := e.AsSelect()
		if o := s.Operand(); o.Kind() == ast.IdentKind && o.AsIdent() == "args" && !slices.Contains(c.args, s.FieldName()) {
			c.args = append(c.args, s.FieldName())
		}
	}))
	if len(c.args) == 0 {
		return nil, "the condition looks at no argument", "write per_use or session where it never changes, else " + usage
	}
	c.program, err = env.Program(checked, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, "the condition cannot be compiled: " + err.Error(), usage
	}
	return c, "", ""
}

// checkCondition parses a condition and checks its types; it returns what is wrong as a message and a remedy.
func checkCondition(env *cel.Env, source, usage string, in *input) (checked *cel.Ast, problem, remedy string) {
	checked, issues := env.Compile(source)
	if issues.Err() != nil {
		e := issues.Errors()[0]
		remedy := usage
		switch {
		case strings.Contains(e.Message, "no matching overload"):
			remedy = "compare like with like: a number argument with 100.0, an integer argument with 100, text with \"…\""
		case strings.Contains(e.Message, "undefined field"):
			remedy = "use one of: args." + strings.Join(in.names(), ", args.")
		}
		return nil, fmt.Sprintf("the condition is wrong at character %d: %s", e.Location.Column()+1, strings.ReplaceAll(e.Message, "\n", " ")), remedy
	}
	if checked.OutputType().Kind() != types.BoolKind {
		return nil, fmt.Sprintf("the condition gives %s, not true or false", cel.FormatCELType(checked.OutputType())), usage
	}
	return checked, "", ""
}

// base holds everything that does not depend on the schema; making it takes far longer than extending it.
var base = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.CrossTypeNumericComparisons(true), cel.ExtendedValidations(), cel.ParserExpressionSizeLimit(2000), cel.ParserRecursionLimit(64), cel.EnableIdentifierEscapeSyntax())
})

func conditionEnv(in *input, more ...cel.EnvOption) (*cel.Env, error) {
	env, err := base()
	if err != nil {
		return nil, err
	}
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	return env.Extend(append(more, cel.CustomTypeProvider(&argumentTypes{registry, in}), cel.Variable("args", cel.ObjectType(argsType)))...)
}

// argumentTypes makes the arguments known to CEL's type checker as the fields of args.
type argumentTypes struct {
	*types.Registry
	in *input
}

func (a *argumentTypes) FindStructType(name string) (*types.Type, bool) {
	if name == argsType {
		return types.NewTypeTypeWithParam(types.NewObjectType(argsType)), true
	}
	return a.Registry.FindStructType(name)
}

func (a *argumentTypes) FindStructFieldNames(name string) ([]string, bool) {
	if name == argsType {
		return a.in.names(), true
	}
	return a.Registry.FindStructFieldNames(name)
}

func (a *argumentTypes) FindStructFieldType(structType, field string) (*types.FieldType, bool) {
	if structType != argsType {
		return a.Registry.FindStructFieldType(structType, field)
	}
	p := a.in.byName[field]
	if p == nil {
		return nil, false
	}
	return &types.FieldType{
		Type:  celType(p.node),
		IsSet: func(target any) bool { _, ok := target.(map[string]any)[field]; return ok },
		GetFrom: func(target any) (any, error) {
			v, ok := target.(map[string]any)[field]
			if !ok {
				return nil, fmt.Errorf("args.%s is absent", field)
			}
			return celValue(p.node, v), nil
		},
	}, true
}

// celType is what the schema says of a value, as far as CEL has a type for it.
func celType(n *node) *types.Type {
	t := n.get("type")
	if t == nil || t.kind != text {
		return types.DynType
	}
	switch t.text {
	case "string":
		return types.StringType
	case "integer":
		return types.IntType
	case "number":
		return types.DoubleType
	case "boolean":
		return types.BoolType
	case "array":
		if items := n.get("items"); items != nil && items.kind == object {
			return types.NewListType(celType(items))
		}
		return types.NewListType(types.DynType)
	case "object":
		return types.NewMapType(types.StringType, types.DynType)
	}
	return types.DynType
}

// celValue gives integers their own type, which JSON does not tell from other numbers.
func celValue(n *node, v any) any {
	t := n.get("type")
	switch v := v.(type) {
	case float64:
		if t != nil && t.text == "integer" {
			return int64(v)
		}
	case []any:
		if items := n.get("items"); items != nil && items.kind == object {
			converted := make([]any, len(v))
			for i, item := range v {
				converted[i] = celValue(items, item)
			}
			return converted
		}
	}
	return v
}

// Reason says why an action asks for a call. The zero value is none.
type Reason struct {
	Text string // in words
	// Where a condition decided: how it is written, and the values that it read, without secret ones. Untold is set where it could not be told.
	Condition, Values string
	Untold            bool
}

// PerUse says whether the person is asked for this very call, and why. On an error it says yes: a condition that cannot be told is not a licence.
func (a *Action) PerUse(p Prepared) (ask bool, why Reason, err error) {
	c := a.contract
	if c.Approval.PerUse {
		return true, Reason{Text: "the action asks each time"}, nil
	}
	if c.condition == nil {
		return false, Reason{}, nil
	}
	why = Reason{Condition: c.condition.source, Values: c.condition.describe(c.input, p.values)}
	out, _, err := c.condition.program.Eval(map[string]any{"args": p.values})
	if err == nil {
		if holds, ok := out.Value().(bool); ok && !holds {
			return false, Reason{}, nil
		} else if ok {
			why.Text = fmt.Sprintf("the action asks when %s, and it is so: %s", why.Condition, why.Values)
			return true, why, nil
		}
	}
	// CEL's own error can carry values; ours names the condition only.
	why.Text, why.Untold = fmt.Sprintf("the action asks when %s, which could not be told: %s", why.Condition, why.Values), true
	return true, why,
		fmt.Errorf("evaluating the approval condition of %s: it could not be told, so the person is asked; guard optional arguments with has(args.name)", c.Action)
}

func (c *condition) describe(in *input, values map[string]any) string {
	var parts []string
	for _, name := range c.args {
		v, ok := values[name]
		switch {
		case in.byName[name].secret:
			parts = append(parts, name+" is secret")
		case !ok:
			parts = append(parts, name+" is absent")
		default:
			parts = append(parts, name+" = "+shown(v))
		}
	}
	return strings.Join(parts, ", ")
}
