// Package channel says what it means to carry an action out: one Request in, one Outcome out, whatever the wire is.
//
// A channel makes exactly one try per call of Do. It never retries, never follows a redirect, and never lets a library beneath it do so (read_only apart: its connections
// may be pooled, and a library may send again when a pooled one turns out to be dead). It sees one credential for one
// request and nothing else of the vault. It runs on the context that it is given, which is the daemon's and not the caller's.
package channel

import (
	"context"
	"encoding/json"
	"time"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/vault/secret"
)

// Channel carries one attempt out.
//
// Do returns when the outcome is observed, or when it can no longer be. It is safe for concurrent use. It does not retain the Request, and it does not wipe the secret: the
// caller that cloned it does.
type Channel interface {
	Do(ctx context.Context, r Request) Outcome
}

// Request is one attempt of one execution.
type Request struct {
	ExecutionID string         // required
	Attempt     int            // required, from 1
	SideEffect  bool           // false only for read_only: then pooled connections are allowed
	Effect      effect.Effect  // required
	Secret      *secret.Bytes  // nil when Effect.Auth is nil
	Limits      Limits         // zero fields take the channel's defaults
	Progress    func(Progress) // optional; called from the channel's goroutine, must not block
	Private     bool           // the operator's leave for a name that leads into a private network or to this machine
	// Permitted is asked with the final URL, credential placed aside, right before the first byte; an error means that nothing is sent. Optional.
	Permitted func(rawURL string) error
	// JudgeAnswer says by the contract's own condition whether a final answer is the outcome (Done), or only says that the target took it and goes on with it (Running): then kept is what will be
	// needed of it to ask how that ends. CannotTell makes the outcome unknown. Optional: without it every answer is the outcome.
	JudgeAnswer func(Reading) (word Word, kept json.RawMessage, why string)
}

// Limits bound an attempt. A zero field means the channel's documented default.
type Limits struct {
	Connect time.Duration // dial and handshake
	Total   time.Duration // the whole attempt
	Answer  int64         // bytes of the answer that are read; more is cut, and said so
}

// Progress is what a target says while it works.
type Progress struct {
	Message string
	Done    float64
	Total   float64 // 0 when unknown
}

// Verdict is what is known of an attempt.
type Verdict string

// The verdicts. There is no "failed": either the target answered, or it is proven that nothing was sent, or it is unknown.
const (
	Success     Verdict = "success"      // the target answered that it did it
	TargetError Verdict = "target_error" // the target answered that it did not, or that it failed: a known outcome
	NotSent     Verdict = "not_sent"     // proof that no application byte left this machine
	Taken       Verdict = "taken"        // the target answered that it took it and is not done: it is asked how that ends, and nothing is sent again
	Unknown     Verdict = "unknown"      // anything else
)

// Outcome is what one attempt came to.
type Outcome struct {
	Verdict Verdict
	Status  int    // the target's own status: HTTP status code, exit status; 0 when there is none
	Reason  string // for people, without secrets: why it is not_sent or unknown, or what was odd about an answer
	// Result is the answer as the agent gets it, scrubbed of the secret: the JSON of an MCP CallToolResult without _meta. It is what the journal seals and what a
	// retry is handed, byte for byte. Nil for NotSent, Taken and Unknown.
	Result json.RawMessage
	// Answer describes the answer for the operator (status line, header fields, sizes, "cut", "scrubbed"), as a JSON object without secrets. May be nil.
	Answer json.RawMessage
	// Kept is what Request.JudgeAnswer keeps of an answer that says Taken, and After how long the target then asks to be left alone; 0 where it says nothing.
	Kept  json.RawMessage
	After time.Duration
}
