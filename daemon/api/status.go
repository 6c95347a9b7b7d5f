package api

import (
	"fmt"
	"time"
)

// Status is `spctl status --json`. It needs no proof, so it holds nothing about what was asked or done.
type Status struct {
	Vault   string   `json:"vault"`             // locked, unlocked, uninitialized
	Keyring string   `json:"keyring"`           // used, not_used, unavailable; empty before init
	Reason  string   `json:"reason,omitempty"`  // why the keyring is unavailable, or why it locked
	Pending int      `json:"pending"`           // cards that wait
	Unknown int      `json:"unknown"`           // executions whose outcome is not known
	Journal string   `json:"journal"`           // ok, quarantine, unavailable
	Problem string   `json:"problem,omitempty"` // of the journal
	Head    *Head    `json:"head,omitempty"`
	Refused *Refused `json:"refused,omitempty"` // nil where nothing was
	Doubts  *Doubts  `json:"doubts,omitempty"`  // nil where there was none

	RefusedClients *RefusedClients `json:"refused_clients,omitempty"` // nil where nothing was

	// LockedCalls counts the calls that agents had refused since the vault was locked, because it is; nil where there were none.
	LockedCalls *LockedCalls `json:"locked_calls,omitempty"`

	Sessions   int       `json:"sessions"`
	Grants     int       `json:"grants"`          // standing grants in force; none are while the vault is locked
	Actions    int       `json:"actions"`         // accepted contracts
	Changed    int       `json:"actions_changed"` // contract files that wait for the operator
	Version    string    `json:"version"`
	GoVersion  string    `json:"go_version,omitempty"`
	PID        int       `json:"pid"`
	Since      time.Time `json:"since"` // when the daemon started
	MCPSocket  string    `json:"agent_socket,omitempty"`
	MCPURL     string    `json:"mcp_url,omitempty"`
	JournalDir string    `json:"journal_dir,omitempty"`
	ActionsDir string    `json:"actions_dir,omitempty"`
}

// Refused counts what was turned away at the operator's socket since the daemon started. Whoever looks at the status should see that somebody tries.
type Refused struct {
	WrongProofs int       `json:"wrong_proofs"`      // wrong passphrases, and tickets of other processes
	Agents      int       `json:"agents"`            // callers that are agents, were started by one or where no person sits, are traced, or cannot be told
	Last        time.Time `json:"last"`              // the newest of both
	LastPID     int       `json:"last_pid,omitzero"` // and the process it came from
	LastCode    Code      `json:"last_code"`
	LastWhy     string    `json:"last_why,omitempty"` // in words
}

// Doubts counts requests with the right passphrase that were taken from where a person could hardly be sitting, since the daemon started.
type Doubts struct {
	Count   int       `json:"count"`
	Last    time.Time `json:"last"`
	LastPID int       `json:"last_pid"`
	LastWhy string    `json:"last_why"` // in words
}

// RefusedClients counts the HTTP requests of agents that came without a token that counts, since the daemon started.
type RefusedClients struct {
	Count     int       `json:"count"`
	Last      time.Time `json:"last"`
	LastPID   int       `json:"last_pid,omitzero"`
	LastActor string    `json:"last_actor,omitempty"`
	LastWhy   string    `json:"last_why"`
}

// LockedCalls says that agents were refused because the vault is locked, and nothing of what they asked for: whoever asks for the status has proven nothing. What they asked for is in the
// list of refused calls.
type LockedCalls struct {
	Calls int       `json:"calls"` // at least; of a run that is refused in a loop a part is counted
	Last  time.Time `json:"last"`
}

// Head is where the journal stands.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`           // leaf hash of the newest entry
	Root string `json:"root,omitempty"` // RFC 6962 tree hash, where it was computed
	Key  string `json:"key,omitempty"`  // the verification key of checkpoints
}

// InitRequest makes the vault. Passphrase travels as base64, as bytes do in JSON.
type InitRequest struct {
	Passphrase []byte `json:"passphrase"`
	NoKeyring  bool   `json:"no_keyring,omitempty"`
}

// InitAnswer holds the recovery kit, which is shown this once.
type InitAnswer struct {
	RecoveryKit string `json:"recovery_kit"`
	Status      Status `json:"status"`
}

// UnlockRequest opens the vault, by the passphrase, and by the recovery kit in place of a lost keyring.
type UnlockRequest struct {
	Passphrase  []byte `json:"passphrase"`
	RecoveryKit []byte `json:"recovery_kit,omitempty"`
}

// Ticket stands for the passphrase in further requests of the process that earned it, and of no other. It travels as base64.
type Ticket struct {
	Ticket  []byte    `json:"ticket"`
	Expires time.Time `json:"expires"`
}

// PassphraseRequest changes the passphrase; the old one proves itself.
type PassphraseRequest struct {
	Old []byte `json:"old"`
	New []byte `json:"new"`
}

// Credential describes a credential; there is no way to read its secret.
type Credential struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	Targets  []string `json:"targets"`
	Place    string   `json:"place,omitempty"`    // the header or query parameter of kinds header and query
	Username string   `json:"username,omitempty"` // of kind basic
	// Params are what a kind needs besides, by name; none of it is secret. A kind's own: env has variable.
	Params map[string]string `json:"params,omitempty"`
	PerUse bool              `json:"per_use"`
	// AllowPrivate: a target's name may lead into a private network or to this machine.
	AllowPrivate bool `json:"allow_private,omitempty"`
	// Generic allows requests and commands that no contract describes; GenericReads says that GET and HEAD change nothing there.
	Generic      bool      `json:"generic,omitempty"`
	GenericReads bool      `json:"generic_reads,omitempty"`
	Version      int       `json:"version,omitempty"`
	Created      time.Time `json:"created,omitzero"`
	Rotated      time.Time `json:"rotated,omitzero"`
	UsedBy       []string  `json:"used_by,omitempty"` // actions, and upstream:NAME
}

// CredentialChange changes what a credential allows; what is nil stays as it is.
type CredentialChange struct {
	Targets      []string `json:"targets,omitempty"`
	Plaintext    bool     `json:"allow_plaintext,omitempty"` // of the new targets
	PerUse       *bool    `json:"per_use,omitempty"`
	AllowPrivate *bool    `json:"allow_private,omitempty"`
	Generic      *bool    `json:"generic,omitempty"`
	GenericReads *bool    `json:"generic_reads,omitempty"`
	Authorities  *string  `json:"authorities,omitempty"` // PEM; "" means the system's again
}

// CredentialRequest adds or rotates; Secret travels as base64.
type CredentialRequest struct {
	Credential
	Plaintext bool   `json:"allow_plaintext,omitempty"` // the operator accepts http to hosts other than this machine
	Secret    []byte `json:"secret"`
	// KeyPassphrase opens an SSH key that is encrypted. It is not kept.
	KeyPassphrase []byte `json:"key_passphrase,omitempty"`
}

// Host is an SSH host, with the keys of which it has to show one.
type Host struct {
	Address string    `json:"host"` // name:port
	Keys    []HostKey `json:"keys"`
	Added   time.Time `json:"added,omitzero"`
}

// HostKey is a host's public key.
type HostKey struct {
	Key         string `json:"key"`         // type and base64, as in a .pub file
	Fingerprint string `json:"fingerprint"` // SHA256:…, as ssh-keygen -lf shows it
}

// HostLook asks for the keys that a host shows, or that a file (known_hosts, or .pub) has for it.
type HostLook struct {
	Address string `json:"host"`
	File    []byte `json:"file,omitempty"`
}

// Action is one contract, accepted or waiting.
type Action struct {
	Name       string   `json:"action"`
	Title      string   `json:"title,omitempty"`
	State      string   `json:"state"` // accepted, new, changed, missing (its file is gone; the accepted version stays in force), invalid
	File       string   `json:"file,omitempty"`
	Accepted   string   `json:"accepted_digest,omitempty"`
	Digest     string   `json:"digest,omitempty"` // of the file
	Channel    string   `json:"channel,omitempty"`
	Class      string   `json:"class,omitempty"`
	Target     string   `json:"target,omitempty"`
	Credential string   `json:"credential,omitempty"`
	LostAnswer string   `json:"lost_answer,omitempty"`
	Diff       string   `json:"diff,omitempty"`   // unified, accepted against file
	Source     string   `json:"source,omitempty"` // the accepted text, or the file's where nothing is accepted
	Problems   []string `json:"problems,omitempty"`
}

// ContractCheck says what is wrong with a contract's file, or what it would mean: one line of `spctl action check --json`, which is what `spd --check-actions` prints.
type ContractCheck struct {
	File        string            `json:"file"`
	Valid       bool              `json:"valid"`
	Action      string            `json:"action,omitempty"`
	Digest      string            `json:"digest"`
	Class       string            `json:"class,omitempty"`
	Description string            `json:"description,omitempty"` // what an agent reads
	Problems    []ContractProblem `json:"problems,omitempty"`
}

// ContractProblem is one thing that is wrong with a contract.
type ContractProblem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // from 1, in characters
	Path    string `json:"path"`   // JSON Pointer of the place within the contract
	Message string `json:"message"`
	Remedy  string `json:"remedy"` // what to write instead
}

func (p ContractProblem) String() string {
	where := ""
	if p.Path != "" {
		where = p.Path + ": "
	}
	return fmt.Sprintf("%s:%d:%d: %s%s; %s", p.File, p.Line, p.Column, where, p.Message, p.Remedy)
}

// ActionRequest accepts a contract: the bytes that the operator was shown, and their digest.
type ActionRequest struct {
	Name   string `json:"action"` // as the operator was shown it
	Digest string `json:"digest"`
	File   string `json:"file"`
	Source []byte `json:"source"`
}

// Setting is one security setting. It lies in the vault.
type Setting struct {
	Key     string `json:"setting"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Meaning string `json:"meaning,omitempty"`
}

// SettingRequest changes one; no value means its default.
type SettingRequest struct {
	Value *string `json:"value"`
}

// HTTPClient is a client that has a token for the MCP listener on loopback.
type HTTPClient struct {
	Client string    `json:"client"`
	Issued time.Time `json:"issued"`
	File   string    `json:"file,omitempty"`    // where its token was written
	Used   time.Time `json:"used,omitzero"`     // last, since the daemon started
	UsedBy string    `json:"used_by,omitempty"` // the actor that had it then
}

// HTTPClientRequest makes a client's token, in place of an earlier one.
type HTTPClientRequest struct {
	Client string `json:"client"`
	File   string `json:"file,omitempty"`
}

// HTTPClientToken is a token on its way to its file. The daemon keeps no more than a keyed digest of it.
type HTTPClientToken struct {
	Token    string `json:"token"`
	URL      string `json:"url"`
	Replaced bool   `json:"replaced,omitempty"` // an earlier one, which counts no more
}

// HTTPTokenCheck asks whether a token counts.
type HTTPTokenCheck struct {
	Token string `json:"token"`
}

// HTTPTokenState answers it: "known", "unknown", or "unchecked" before the vault was opened for the first time.
type HTTPTokenState struct {
	State string `json:"state"`
}

// Quarantine ends a quarantine.
type Quarantine struct {
	Reason string `json:"reason"`
}
