package policy

import (
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/execution"
)

// Step is what happens to a call next. The zero value is invalid.
type Step string

// The steps.
const (
	DenyLocked Step = "deny_locked" // recorded, the person notified; the answer lists the run's open executions
	UseEarlier Step = "use_earlier" // do with the earlier execution what its disposition says
	Reject     Step = "reject"      // with Code; nothing is sent
	AskSession Step = "ask_session" // may this run act at all?
	AskUse     Step = "ask_use"     // may this one execution go ahead?
	AskBoth    Step = "ask_both"    // both, settled by one card
	Dispatch   Step = "dispatch"    // append dispatched, wait until it is durable, send
)

// Facts are what is known about a call when it is judged. The zero value of each is the cautious one, but for Earlier, VaultLocked, PerUse and Quarantined.
type Facts struct {
	VaultLocked bool
	// Earlier is what execution.Judge says of the execution that the call matches; empty or StartNew when there is none.
	Earlier execution.Disposition
	// EarlierOfOtherRun says that the earlier execution was made by another run of the same actor (a durable scope, or a client's key).
	EarlierOfOtherRun bool
	ActionKnown       bool
	ContractAccepted  bool
	ArgumentsValid    bool
	CredentialPresent bool // or none is needed
	TargetBound       bool // or no credential is needed
	Quarantined       bool // the journal does not verify
	ReadOnly          bool // the class, of the earlier execution where there is one
	HasSession        bool
	PerUse            bool // the credential or the action asks each time
}

// Decision is what to do, and for Reject and DenyLocked why. With UseEarlier, CodeQuarantine says that the earlier execution can be looked at and its recorded result handed
// out, but that nothing may be sent for it.
type Decision struct {
	Step Step
	Code api.Code
}

// Decide judges a call, always in the order of docs/architecture.md, section 2.
//
// Quarantine stands behind the contract's refusals, since only an accepted contract can say that a call is read_only, and before every card, since nobody should be asked
// for what will not happen. It does not hide an earlier execution: handing out what was recorded sends nothing.
func Decide(f Facts) Decision {
	frozen := f.Quarantined && !f.ReadOnly
	switch {
	case f.VaultLocked:
		return Decision{DenyLocked, api.CodeVaultLocked}

	case f.Earlier == execution.KeyReused:
		return Decision{Reject, api.CodeKeyReused}
	case f.Earlier == execution.SameNo:
		return Decision{Step: UseEarlier}
	case f.Earlier != "" && f.Earlier != execution.StartNew && f.EarlierOfOtherRun && !f.HasSession:
		// A result goes to another run only once that run has a session.
		return Decision{Step: AskSession}
	case frozen && (f.Earlier == execution.Recover || f.Earlier == execution.AskAgain):
		return Decision{UseEarlier, api.CodeQuarantine}
	case f.Earlier != "" && f.Earlier != execution.StartNew:
		return Decision{Step: UseEarlier}

	case !f.ActionKnown:
		return Decision{Reject, api.CodeActionUnknown}
	case !f.ContractAccepted:
		return Decision{Reject, api.CodeNotAccepted}
	case !f.ArgumentsValid:
		return Decision{Reject, api.CodeArguments}
	case !f.CredentialPresent:
		return Decision{Reject, api.CodeCredentialMissing}
	case !f.TargetBound:
		return Decision{Reject, api.CodeTargetNotBound}
	case frozen:
		return Decision{Reject, api.CodeQuarantine}

	case !f.HasSession && f.PerUse:
		return Decision{Step: AskBoth}
	case !f.HasSession:
		return Decision{Step: AskSession}
	case f.PerUse:
		return Decision{Step: AskUse}
	}
	return Decision{Step: Dispatch}
}
