// Package api holds the words that the daemon and its clients say to each other: error codes, records, cards, status. It imports nothing of ours, so that every side can
// share it. Names and meanings are frozen; fields may be added.
package api

// Code says stably why something was refused. Agents get it in structuredContent and text, operators in the error body. The zero value means that nothing was refused.
type Code string

// Codes of refused calls.
const (
	CodeVaultLocked       Code = "vault_locked"           // nothing was sent; the person has to unlock
	CodeActionUnknown     Code = "action_unknown"         // no such tool
	CodeNotAccepted       Code = "contract_not_accepted"  // the operator has not accepted the action's contract
	CodeArguments         Code = "arguments_invalid"      // what is wrong and where is in the message
	CodeTargetNotBound    Code = "target_not_bound"       // the credential may not be used for this target
	CodeCredentialMissing Code = "credential_missing"     // #nosec G101 -- a code: the contract names a credential that is not in the vault
	CodeDenied            Code = "denied"                 // the person said no; the message has the reason
	CodeExpired           Code = "approval_expired"       // nobody answered the card in time
	CodeWithdrawn         Code = "withdrawn"              // session revoked, contract or credential changed before it was sent
	CodeKeyReused         Code = "idempotency_key_reused" // the same key for another effect
	CodeNotSent           Code = "not_sent"               // the target could not be reached; proof that nothing was sent
	CodeResultPruned      Code = "result_pruned"          // it was done and delivered; the result is kept no longer
	CodeJournal           Code = "journal_unavailable"    // the journal cannot be written, so nothing is sent
	CodeQuarantine        Code = "journal_quarantine"     // the journal does not verify; only read_only works
	CodeTooManyCalls      Code = "too_many_calls"         // this run has too many calls waiting
	CodeRunEnded          Code = "run_ended"              // the process that asked is gone, or is another program now
	CodeNotFound          Code = "execution_not_found"    // no such execution that this run may see
	CodeSessionNeeded     Code = "session_needed"         // the person has not allowed this process to act, and is not asked by a list
	CodeShuttingDown      Code = "shutting_down"          //
	CodeInternal          Code = "internal"               // a fault of ours; whether something was sent is said beside it
)

// Codes of refused operator requests.
const (
	CodeProofNeeded   Code = "operator_proof_needed"
	CodeProofWrong    Code = "operator_proof_wrong"
	CodeTicketOver    Code = "operator_ticket_over" // earn another one by the passphrase
	CodeTooManyTries  Code = "too_many_tries"
	CodeUsage         Code = "usage"
	CodeMissing       Code = "not_found"
	CodeExists        Code = "exists"
	CodeConflict      Code = "conflict"
	CodeUninitialized Code = "vault_uninitialized"
	CodeKeyring       Code = "keyring_unavailable"
	CodeKeyEncrypted  Code = "key_encrypted" // an SSH key whose passphrase has to be sent with it
	CodeAgentCaller   Code = "agent_may_not"
)
