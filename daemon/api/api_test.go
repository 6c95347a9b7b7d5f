package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
)

func TestEveryDeclaredCodeIsInTheTable(t *testing.T) {
	known := map[api.Code]bool{}
	for _, c := range api.Codes() {
		known[c] = true
	}
	n := 0
	for _, name := range []string{"codes.go", "table.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Code") {
				return true
			}
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			n++
			if !known[api.Code(text)] {
				t.Errorf("%s (%s) is missing in the table", spec.Names[0].Name, text)
			}
			return true
		})
	}
	if n != len(known) {
		t.Errorf("%d codes are declared and %d are in the table", n, len(known))
	}
}

func TestExitCodesAreTheDocumentedOnes(t *testing.T) {
	for code, want := range map[api.Code]api.Exit{
		api.CodeVaultLocked: 3, api.CodeProofNeeded: 4, api.CodeProofWrong: 4, api.CodeTooManyTries: 4, api.CodeAgentCaller: 4, api.CodeMissing: 5, api.CodeNotFound: 5,
		api.CodeTargetNotBound: 6, api.CodeNotAccepted: 6, api.CodeQuarantine: 7, api.CodeUnverified: 7, api.CodeUsage: 2, api.CodeNoDaemon: 69, "something new": 1,
	} {
		if got := code.Exit(); got != want {
			t.Errorf("%s: exit %d, want %d", code, got, want)
		}
	}
}

func TestErrorsMatchByCodeThroughWrapping(t *testing.T) {
	err := fmt.Errorf("asking: %w", api.Errorf(api.CodeTooManyTries, "too many tries").WithRetryAfter(1500*time.Millisecond).WithHint("wait"))
	if !errors.Is(err, &api.Error{Code: api.CodeTooManyTries}) || errors.Is(err, &api.Error{Code: api.CodeProofWrong}) {
		t.Error("errors.Is does not go by the code")
	}
	var e *api.Error
	if !errors.As(err, &e) || e.RetryAfter != 2 || e.Hint != "wait" {
		t.Errorf("got %+v", e)
	}
}

func TestAStreamedCardIsTheCardWithItsEvent(t *testing.T) {
	b, err := json.Marshal(api.CardEvent{Event: "waiting", Card: api.Card{Card: "card_1", Tool: "deploy"}})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if m["event"] != "waiting" || m["card"] != "card_1" || m["tool"] != "deploy" {
		t.Errorf("got %s", b)
	}
}

func TestTheRecordHasTheFieldsThatScriptsReadAndLeavesOutWhatIsNotKnown(t *testing.T) {
	b, err := json.Marshal(api.Record{ExecutionID: "act_1", AcceptedAt: time.Unix(0, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	for _, always := range []string{"execution_id", "fingerprint", "tool", "actor", "run", "intent_scope", "target", "class", "state", "accepted_at", "attempts", "callers"} {
		if _, ok := m[always]; !ok {
			t.Errorf("%s is missing in %s", always, b)
		}
	}
	for _, later := range []string{"outcome", "authorized_at", "dispatched_at", "completed_at", "delivered_at", "target_status", "result_reference", "reason"} {
		if _, ok := m[later]; ok {
			t.Errorf("%s is there although it is not known: %s", later, b)
		}
	}
}

func TestAVerdictIsContradictedByWhatTheTargetSaidLast(t *testing.T) {
	for _, c := range []struct {
		state    string
		findings []string
		done     bool
		against  string
	}{
		{"unknown", []string{"not_done"}, true, "not_done"},
		{"unknown", []string{"not_done"}, false, ""},
		{"unknown", []string{"done"}, false, "done"},
		{"unknown", []string{"failed"}, false, "failed"},
		{"unknown", []string{"running"}, false, "running"},
		{"unknown", []string{"running"}, true, ""},
		{"unknown", []string{"done", "cannot_tell"}, false, ""},
		{"unknown", []string{"cannot_tell", "done"}, false, "done"},
		{"unknown", nil, true, ""},
		{"not_done", []string{"not_done"}, true, ""},
	} {
		r := api.Record{State: c.state}
		for _, f := range c.findings {
			r.Checks = append(r.Checks, api.Check{Finding: f})
		}
		if got := r.Contradicts(c.done); got != c.against {
			t.Errorf("%s %v, done %v: %q speaks against it, want %q", c.state, c.findings, c.done, got, c.against)
		}
	}
}

func TestEveryDeclaredSentenceAndLevelIsListed(t *testing.T) {
	known := map[string]bool{}
	for _, s := range api.Sentences() {
		known[string(s)] = true
	}
	for _, a := range api.Assurances() {
		known[string(a)] = true
	}
	f, err := parser.ParseFile(token.NewFileSet(), "said.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		n++
		if !known[text] {
			t.Errorf("%s (%s) is not listed", spec.Names[0].Name, text)
		}
		return true
	})
	if n != len(known) {
		t.Errorf("%d are declared and %d are listed", n, len(known))
	}
}

func TestTheCodesOfSentencesAreFrozen(t *testing.T) {
	b, err := json.Marshal(api.Card{
		Why: []string{"the credential \"bank\" asks at every use"}, WhySaid: []api.Said{api.Say(api.WhyCredential, "credential", "bank", "reason", "")}, Level: api.AssuranceFirst,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"why_said":[{"code":"why_credential","values":{"credential":"bank"}}]`, `"assurance_level":"first"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not in %s", want, b)
		}
	}
}
