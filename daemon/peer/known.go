package peer

import (
	"fmt"
	"time"

	"singlepass.dev/daemon/api"
)

// Known is what is remembered of an actor's program from its last session. The JSON form is frozen as version 1: fields may be added, never renamed.
type Known struct {
	Actor        string    `json:"actor"`
	Exe          string    `json:"exe"`
	Digest       string    `json:"digest"`
	Script       string    `json:"script,omitempty"`
	ScriptDigest string    `json:"script_digest,omitempty"`
	Package      string    `json:"package,omitempty"`
	First        time.Time `json:"first_seen"`
	Last         time.Time `json:"last_session"`
}

// KnownAs returns what is to be remembered of an identity to which the person gave a session at that time. Before is what was remembered until then, or its zero value.
func (i Identity) KnownAs(before Known, at time.Time) Known {
	first := before.First
	if before.Actor != i.Actor || first.IsZero() {
		first = at
	}
	return Known{
		Actor: i.Actor, Exe: i.Agent.Exe, Digest: i.Agent.Digest, Script: i.Agent.Script, ScriptDigest: i.Agent.ScriptDigest, Package: i.Package, First: first.UTC(), Last: at.UTC(),
	}
}

// Judged returns the identity with the level that follows from what is remembered, and with what changed in words. What the system owns stays so after an update, and what cannot
// be told is not told better by being the same; their changes are named all the same.
//
// The zero Known means that the actor never had a session.
func (i Identity) Judged(before Known) Identity {
	i.Changes, i.ChangesSaid = nil, nil
	if before.Actor != i.Actor {
		return i
	}
	since := "since its session of " + before.Last.UTC().Format("2006-01-02 15:04 UTC")
	differ := func(code api.Sentence, what, was, is string) {
		if was != is {
			i.ChangesSaid = append(i.ChangesSaid, api.Say(code, "is", is, "was", was, "since", before.Last.UTC().Format(time.RFC3339)))
			i.Changes = append(i.Changes, fmt.Sprintf("its %s is another %s: %s, and was %s", what, since, orNone(is), orNone(was)))
		}
	}
	differ(api.ChangedExecutable, "executable", before.Exe, i.Agent.Exe)
	differ(api.ChangedContent, "executable's content", before.Digest, i.Agent.Digest)
	differ(api.ChangedScript, "script", before.Script, i.Agent.Script)
	differ(api.ChangedScriptContent, "script's content", before.ScriptDigest, i.Agent.ScriptDigest)
	differ(api.ChangedPackage, "package", before.Package, i.Package)
	if i.Assurance == UserOwned {
		i.Assurance = Unchanged
		if len(i.Changes) > 0 {
			i.Assurance = Changed
		}
	}
	return i
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
