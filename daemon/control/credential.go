package control

import (
	"maps"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault"
	"singlepass.dev/vault/material"
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
		PerUse: c.PerUse, AllowPrivate: c.AllowPrivate, Generic: c.Generic, GenericReads: c.GenericReads, Version: c.Version, Created: c.Created, Rotated: c.Rotated,
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
	if err == nil {
		p.Authorities, err = authorities(p.Authorities)
	}
	if err != nil {
		return usage(err)
	}
	c := vault.Credential{Name: in.Name, Kind: vault.CredentialKind(in.Kind), PerUse: in.PerUse, AllowPrivate: in.AllowPrivate, Generic: in.Generic, GenericReads: in.GenericReads, Params: p}
	if c.Targets, err = targets(in.Targets, plaintext); err != nil {
		return usage(err)
	}
	if err := c.Validate(); err != nil {
		return usage(err)
	}
	return c, nil
}

func targets(texts []string, plaintext bool) ([]vault.Target, error) {
	parse := vault.ParseTarget
	if plaintext {
		parse = vault.ParsePlaintextTarget
	}
	var all []vault.Target
	for _, text := range texts {
		t, err := parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// authorities brings certificate authorities as they were handed in into the kept form. Empty ones stay so.
func authorities(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	kept, err := material.Authorities([]byte(text))
	return string(kept), err
}

// ChangeCredential makes a change as it travels in the vault.
func ChangeCredential(v *vault.Vault, name string, in api.CredentialChange) error {
	named, err := targets(in.Targets, in.Plaintext)
	if err != nil {
		return api.Errorf(api.CodeUsage, "%v", err)
	}
	var trusted string
	if in.Authorities != nil {
		if trusted, err = authorities(*in.Authorities); err != nil {
			return api.Errorf(api.CodeUsage, "%v", err)
		}
	}
	_, err = v.ChangeCredential(name, func(c *vault.Credential) {
		if in.Authorities != nil {
			c.Params.Authorities = trusted
		}
		if len(named) > 0 {
			c.Targets = named
		}
		for to, from := range map[*bool]*bool{&c.PerUse: in.PerUse, &c.AllowPrivate: in.AllowPrivate, &c.Generic: in.Generic, &c.GenericReads: in.GenericReads} {
			if from != nil {
				*to = *from
			}
		}
		if !c.Generic && in.GenericReads == nil {
			c.GenericReads = false
		}
	})
	return refused(err)
}
