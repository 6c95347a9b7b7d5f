package policy

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/fingerprint"
)

// The tools by which an agent does what no contract describes, with a credential whose owner allowed that.
const (
	GenericHTTPTool = "http_request"
	GenericSSHTool  = "ssh_run"
)

// generic is what stands in place of a contract's file. Its JSON form is frozen: the digest of what was accepted is made of it.
type generic struct {
	Version    int             `json:"singlepass_generic"` // 1
	Tool       string          `json:"tool"`
	Credential string          `json:"credential"`
	Class      execution.Class `json:"class"`
}

// genericSchema leaves placeholders and templates to contracts: here the agent writes the whole request, and the person sees all of it.
const genericSchema = `{"type":"object","properties":{` +
	`"method":{"type":"string","enum":["GET","HEAD","POST","PUT","PATCH","DELETE"]},` +
	`"url":{"type":"string","maxLength":8192,"description":"The whole https URL, query included, percent-encoded as it is sent."},` +
	`"headers":{"type":"object","additionalProperties":{"type":"string","maxLength":8192},"maxProperties":64,"description":"Header fields besides those of the credential and of the connection."},` +
	`"json":{"description":"A JSON value as the body. At most one of json, body and body_base64."},` +
	`"body":{"type":"string","description":"Text as the body."},` +
	`"body_base64":{"type":"string","description":"Bytes as the body, in base64."},` +
	`"credential":{"type":"string","maxLength":64,"description":"The credential's name. Needed only where several cover the URL."}` +
	`},"required":["method","url"],"additionalProperties":false}`

// GenericHTTP makes the action of generic requests with a credential. Where its owner said that GET and HEAD change nothing at its targets, they are read_only and another action than the rest,
// which is irreversible and asked for each time.
func GenericHTTP(credential string, class execution.Class) (*Action, error) {
	c := &Contract{
		Action: GenericHTTPTool, Title: "Make an HTTP request", Channel: effect.HTTP, Credential: credential,
		Description: "Makes one HTTP request with a credential of the person's, which is put in place without your seeing it. The person sees the whole request and is asked before it is sent. " +
			"Prefer another tool where one does what you need.",
		HTTP: &HTTP{Success: []StatusRange{{200, 299}}},
	}
	return c.generic(class, genericSchema)
}

// generic fills in what all generic actions have in common, and makes one of the contract.
func (c *Contract) generic(class execution.Class, schema string) (*Action, error) {
	src, err := json.Marshal(generic{1, c.Action, c.Credential, class})
	if err != nil {
		return nil, fmt.Errorf("making the action %s: %w", c.Action, err)
	}
	c.Digest, c.Generic = Digest(src), true
	c.Approval = Approval{PerUse: class != execution.ReadOnly}
	c.Replay = Replay{Class: class, AttachWindow: DefaultAttachWindow, AfterDelivery: execution.Ask, IntentScope: ScopeRun, Attempts: 1}
	c.Retention = Retention{Result: DefaultRetention}
	switch class {
	case execution.ReadOnly:
		c.Replay.AfterDelivery, c.Replay.Attempts = execution.New, DefaultAttempts
	case execution.Irreversible:
	default:
		return nil, fmt.Errorf("making the action %s: class %q is not read_only or irreversible", c.Action, class)
	}
	if c.input, err = foreignInput(json.RawMessage(schema)); err != nil {
		return nil, err
	}
	c.Input, c.Replay.Fingerprint = c.input.schema, c.input.names()
	return Compile(c)
}

// GenericTarget reads of a generic call what decides under which action it falls: the method, the URL (of a command, that of the account on the host), and the credential where it is named.
// What cannot be read is empty; Prepare says what is wrong with it.
func GenericTarget(tool string, raw json.RawMessage) (method string, target *url.URL, credential string) {
	v, err := fingerprint.Decode(raw)
	if err != nil {
		return "", nil, ""
	}
	values, _ := v.(map[string]any)
	credential, _ = values["credential"].(string)
	var written string
	if tool == GenericSSHTool {
		on, _ := values["host"].(string)
		host, wrong := genericHost(on)
		if wrong != nil {
			return "", nil, credential
		}
		written = host.Address()
	} else {
		method, _ = values["method"].(string)
		written, _ = values["url"].(string)
	}
	if target, err = url.Parse(written); err != nil {
		target = nil
	}
	return method, target, credential
}

// overridesMethod are headers by which frameworks take another method than the request's own: a GET, which the owner may have called a mere read, could delete.
var overridesMethod = map[string]bool{"X-Http-Method-Override": true, "X-Http-Method": true, "X-Method-Override": true}

// genericEffect makes what the checked arguments of a generic call ask for, but for the credential.
func (c *Contract) genericEffect(values map[string]any) (effect.Effect, *ArgumentError) {
	e := effect.Effect{Channel: c.Channel}
	var wrong *ArgumentError
	if c.SSH != nil {
		e.SSH, wrong = genericCommand(values)
	} else {
		e.HTTP, wrong = genericRequest(values)
	}
	return e, wrong
}

// genericRequest makes the request of checked arguments.
func genericRequest(values map[string]any) (*effect.HTTPRequest, *ArgumentError) {
	refuse := func(pointer, problem, remedy string) (*effect.HTTPRequest, *ArgumentError) {
		return nil, &ArgumentError{pointer, problem, remedy}
	}
	r := &effect.HTTPRequest{}
	r.Method, _ = values["method"].(string)
	r.URL, _ = values["url"].(string)
	if problem, remedy := sendableURL(r.URL); problem != "" {
		return refuse("/url", problem, remedy)
	}
	fields, _ := values["headers"].(map[string]any)
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, _ := fields[name].(string)
		at := sub("/headers", name)
		if !headerToken().MatchString(name) {
			return refuse(at, "it is no header name", "send letters, digits and -")
		}
		canonical := canonicalHeader(name)
		switch why := ownHeaders[canonical]; {
		case overridesMethod[canonical]:
			return refuse(at, "the header "+canonical+" would make another request of it than its method says", "leave it out, and send that method")
		case why != "":
			return refuse(at, "the header "+canonical+" cannot be set by a call: "+why, "leave it out")
		case seen[canonical]:
			return refuse(at, "the header "+canonical+" is there twice", "send it once")
		case !headerValue(value) || strings.TrimSpace(value) != value || strings.Contains(value, "\t"):
			return refuse(at, "it has a character that a header field cannot carry", "send visible ASCII characters and spaces between them")
		}
		seen[canonical] = true
		r.Header = append(r.Header, effect.Field{Name: canonical, Value: value})
	}
	var bodies []string
	contentType := ""
	if v, ok := values["json"]; ok {
		bodies, contentType, r.Body = append(bodies, "json"), "application/json", fingerprint.Append(nil, v)
	}
	if v, ok := values["body"].(string); ok {
		bodies, contentType, r.Body = append(bodies, "body"), "text/plain; charset=utf-8", []byte(v)
	}
	if v, ok := values["body_base64"].(string); ok {
		b, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			return refuse("/body_base64", "it is not base64", "send base64 with padding, without line breaks")
		}
		bodies, contentType, r.Body = append(bodies, "body_base64"), "application/octet-stream", b
	}
	switch {
	case len(bodies) > 1:
		return refuse("/"+bodies[1], "a request has one body", "send only one of "+oneOfAnd(bodies))
	case len(bodies) == 1 && (r.Method == "GET" || r.Method == "HEAD"):
		return refuse("/"+bodies[0], "a "+r.Method+" request has no body", "put it into the query of the URL, or use another method")
	case len(bodies) == 1 && !seen["Content-Type"]:
		r.Header = append(r.Header, effect.Field{Name: "Content-Type", Value: contentType})
	}
	return r, nil
}

// sendableURL says why a URL cannot be sent byte for byte as it is written.
func sendableURL(written string) (problem, remedy string) {
	u, err := url.Parse(written)
	if err != nil || u.Host == "" || u.Opaque != "" || u.Scheme != "https" && u.Scheme != "http" {
		return "it is not an absolute https URL", "send https://HOST/PATH"
	}
	switch {
	case u.User != nil:
		return "it has a user or password in it", "leave them out: the credential is put in place for you"
	case strings.Contains(written, "#"):
		return "it has a fragment, which is never sent", "leave it out"
	case strings.ContainsFunc(written, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "it has a character that a URL cannot carry", "percent-encode it"
	case !hostname(u.Hostname()) || strings.HasSuffix(u.Host, ":") || !port(u.Port()):
		return "its host is none", "send https://HOST/PATH"
	}
	_, rest, _ := strings.Cut(written, "://")
	rest, ok := strings.CutPrefix(rest, u.Host)
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	if !ok || rest != u.RequestURI() {
		return "it would be sent as " + clip(u.Scheme+"://"+u.Host+u.RequestURI(), 200), "send it so"
	}
	return "", ""
}

// genericIdentity is the whole of what is asked for, and neither how its arguments were written nor whether the credential was named. The host's keys are not in it, as in that of a contract.
func genericIdentity(e effect.Effect) (target, method string, arguments json.RawMessage) {
	if c := e.SSH; c != nil {
		form := map[string]any{"command": c.Command, "directory": c.Directory, "stdin": base64.StdEncoding.EncodeToString(c.Stdin)}
		return c.Host.Address(), "run", fingerprint.Append(nil, form)
	}
	fields := map[string]any{}
	for _, f := range e.HTTP.Header {
		fields[f.Name] = f.Value
	}
	return e.HTTP.URL, e.HTTP.Method, fingerprint.Append(nil, map[string]any{"header": fields, "body": base64.StdEncoding.EncodeToString(e.HTTP.Body)})
}
