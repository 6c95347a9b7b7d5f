package policy

import (
	"encoding/json"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
)

// AskTool is the tool by which an agent asks the person to add a credential. It learns yes or no.
const AskTool = "request_credential"

const askSchema = `{"type":"object","properties":{` +
	`"target":{"type":"string","maxLength":500,"description":"What the credential is wanted for: https://HOST/PATH, or ssh://USER@HOST."},` +
	`"purpose":{"type":"string","maxLength":300,"description":"Why, in one sentence. The person reads it; nothing of it is kept as a credential. Never put a secret here."}` +
	`},"required":["target","purpose"],"additionalProperties":false}`

// askSource stands in place of a contract's file; the digest is made of it.
const askSource = `{"singlepass_ask":1,"tool":"` + AskTool + `"}`

// AskForCredential makes the action that asks the person for a credential. Nothing is sent anywhere for it, so it is read_only, and the person is asked each time. The same question within
// the window gets the same answer, however it is worded.
func AskForCredential() (*Action, error) {
	c := &Contract{
		Action: AskTool, Title: "Ask for a credential", Channel: effect.Person, Digest: Digest([]byte(askSource)), Asks: true,
		Description: "Asks the person to add a credential for a target that none covers yet. The answer is yes or no; you never see the credential. Calls that need it work after a yes. " +
			"Do not ask the person for a secret in any other way.",
		Approval:  Approval{PerUse: true},
		Replay:    Replay{Class: execution.ReadOnly, AttachWindow: DefaultAttachWindow, AfterDelivery: execution.Return, IntentScope: ScopeRun, Attempts: DefaultAttempts},
		Retention: Retention{Result: DefaultRetention},
	}
	var err error
	if c.input, err = foreignInput(json.RawMessage(askSchema)); err != nil {
		return nil, err
	}
	c.Input, c.Replay.Fingerprint = c.input.schema, c.input.names()
	return Compile(c)
}

// question makes the question of checked arguments.
func question(values map[string]any) (effect.Ask, *ArgumentError) {
	target, _ := values["target"].(string)
	purpose, _ := values["purpose"].(string)
	refuse := func(pointer, problem, remedy string) (effect.Ask, *ArgumentError) {
		return effect.Ask{}, &ArgumentError{pointer, problem, remedy}
	}
	if u, err := url.Parse(target); err == nil && u.Scheme == "ssh" {
		if _, password := u.User.Password(); password || !hostname(u.Hostname()) || !port(u.Port()) || u.Path != "" || u.RawQuery != "" || strings.Contains(target, "#") {
			return refuse("/target", "it is not a host that SSH reaches", "send ssh://USER@HOST or ssh://USER@HOST:PORT")
		}
	} else if problem, remedy := sendableURL(target); problem != "" {
		return refuse("/target", problem, remedy)
	} else if strings.Contains(target, "?") {
		return refuse("/target", "it has a query", "send https://HOST/PATH alone")
	}
	if purpose = strings.TrimSpace(purpose); purpose == "" || utf8.RuneCountInString(purpose) > effect.MaxPurpose || strings.ContainsFunc(purpose, unicode.IsControl) {
		return refuse("/purpose", "it is empty, long or has a control character", "say why in one sentence")
	}
	return effect.Ask{Target: target, Purpose: purpose}, nil
}
