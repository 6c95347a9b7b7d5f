package control

import (
	"maps"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault"
)

// Credential is how a credential is shown.
func Credential(c vault.Credential) api.Credential {
	params := c.Params.Map()
	for _, own := range []string{"header", "query", "username"} { // they travel in fields of their own
		delete(params, own)
	}
	if len(params) == 0 {
		params = nil
	}
	out := api.Credential{
		Name: c.Name, Kind: string(c.Kind), Targets: make([]string, 0, len(c.Targets)), Place: c.Params.Header + c.Params.Query, Username: c.Params.Username, Params: params,
		PerUse: c.PerUse, Version: c.Version, Created: c.Created, Rotated: c.Rotated,
	}
	for _, t := range c.Targets {
		out.Targets = append(out.Targets, t.String())
	}
	return out
}

// CredentialOf reads a credential as it travels. What is wrong with it is the operator's to mend.
func CredentialOf(in api.Credential, plaintext bool) (vault.Credential, error) {
	usage := func(err error) (vault.Credential, error) {
		return vault.Credential{}, api.Errorf(api.CodeUsage, "%v", err)
	}
	params := maps.Clone(in.Params)
	if params == nil {
		params = map[string]string{}
	}
	set := func(name, value string) {
		if value != "" {
			params[name] = value
		}
	}
	set("username", in.Username)
	switch kind := vault.CredentialKind(in.Kind); kind {
	case vault.Header, vault.Query:
		set(in.Kind, in.Place)
	case vault.Env:
		set("variable", in.Place)
	default:
		if in.Place != "" {
			return vault.Credential{}, api.Errorf(api.CodeUsage, "a credential of kind %s has its own place; only header, query and env take a name", in.Kind)
		}
	}
	p, err := vault.ParseParams(params)
	if err != nil {
		return usage(err)
	}
	c := vault.Credential{Name: in.Name, Kind: vault.CredentialKind(in.Kind), PerUse: in.PerUse, Params: p}
	parse := vault.ParseTarget
	if plaintext {
		parse = vault.ParsePlaintextTarget
	}
	for _, text := range in.Targets {
		t, err := parse(text)
		if err != nil {
			return usage(err)
		}
		c.Targets = append(c.Targets, t)
	}
	if err := c.Validate(); err != nil {
		return usage(err)
	}
	return c, nil
}
