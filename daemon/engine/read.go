package engine

import (
	"errors"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

// reading is one understanding of a call: under one contract, its arguments, scope and fingerprint.
type reading struct {
	action      *boundAction
	prepared    policy.Prepared
	err         error // the arguments are not valid under this contract
	key         string
	scope       string
	fingerprint string
	id          string // the execution's, should it become one
	cred        *vault.Credential
	statusCred  *vault.Credential // of the request that asks what became of it
	hosts       pins
	effect      effect.Effect
	missing     string // the credential that is not in the vault; "" when none is missing
	bound       error  // the target is outside of the credential's binding
}

// read understands the call under the contract in force and under those withdrawn ones that still have open executions. It takes no lock.
func (e *Engine) read(q *request) {
	q.set, q.secrets = e.actions.Load(), e.secrets.Load()
	q.readings = q.readings[:0]
	if g := genericTools[q.Tool]; g != nil && q.Method == "" {
		q.readings = e.genericReadings(q, g)
		return
	}
	for _, a := range q.set.forCall(q) {
		rd := reading{action: a}
		rd.err = e.understand(q, &rd)
		q.readings = append(q.readings, rd)
	}
}

func (e *Engine) understand(q *request, rd *reading) (err error) {
	a := rd.action
	if rd.prepared, err = a.Prepare(q.Arguments); err != nil {
		return err
	}
	rd.key = q.Key
	switch in := rd.prepared.IntentKey; {
	case rd.key == "":
		rd.key = in
	case in != "" && in != rd.key:
		return errTwoKeys
	}
	rd.scope = scopeOf(a, q.run.id, rd.key)
	if rd.fingerprint, err = e.fingerprint(a, q.Peer.Actor, *rd); err != nil {
		return err
	}
	if rd.cred, err = e.credential(a.Contract().Credential, rd); err != nil || rd.missing != "" {
		return err
	}
	if s := a.Contract().Replay.Status; s != nil {
		if rd.statusCred, err = e.credential(s.Credential, rd); err != nil || rd.missing != "" {
			return err
		}
	}
	unknown, err := e.pinned(a, rd.prepared, &rd.hosts)
	if err != nil {
		return err
	}
	if a.retired {
		return nil // nothing new begins under it
	}
	rd.id = "act_" + e.cfg.NewID()
	if rd.effect, err = a.render(rd.prepared, rd.id, rd.cred, rd.statusCred, rd.hosts); err != nil {
		return err
	}
	if rd.cred != nil {
		rd.bound = bindingAllows(*rd.cred, addressesOf(rd.effect)...)
	}
	if rd.bound == nil {
		rd.bound = unknown
	}
	if rd.bound == nil && rd.statusCred != nil {
		// What could never be asked is no promise to make.
		where := rd.effect.Status.HTTP.URL
		if rd.effect.Status.Within != "" {
			where = rd.effect.Status.Within // the URL itself is looked at when the target has given it
		}
		rd.bound = bindingAllows(*rd.statusCred, where)
	}
	return nil
}

// credential looks one up, and notes where it is missing.
func (e *Engine) credential(name string, rd *reading) (*vault.Credential, error) {
	if name == "" {
		return nil, nil
	}
	c, err := e.cfg.Vault.Credential(name)
	switch {
	case err == nil:
		return &c, nil
	case errors.Is(err, vault.ErrNotFound):
		rd.missing = name
		return nil, nil
	}
	return nil, err
}

// under returns the reading under the contract with a digest, or the other one where there is none.
func (q *request) under(digest string, other reading) reading {
	for _, rd := range q.readings {
		if rd.err == nil && rd.action.digest == digest {
			return rd
		}
	}
	return other
}

func scopeOf(a *boundAction, run, key string) string {
	switch {
	case key != "":
		return keyScope + key
	case a.durable:
		return "durable"
	}
	return "run:" + run
}

func (e *Engine) fingerprint(a *boundAction, actor string, rd reading) (string, error) {
	var keyed error
	fp := a.Fingerprint(func(msg []byte) [32]byte {
		sum, err := e.cfg.Vault.FingerprintMAC(msg)
		if err != nil {
			keyed = err
		}
		return sum
	}, rd.prepared, actor, rd.scope)
	return fp, keyed
}
