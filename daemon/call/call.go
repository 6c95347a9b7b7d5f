// Package call holds what the MCP face hands to the engine and what it gets back, so that neither imports the other.
package call

import (
	"context"
	"encoding/json"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/daemon/upstream"
)

// Call is one tools/call, or one reading of a resource or prompt, not yet judged.
type Call struct {
	Peer *peer.Identity // required
	// Method is resources/read or prompts/get, and empty for tools/call. Tool is then the resource's URI or the prompt's name, and Arguments are the prompt's.
	Method    string
	Tool      string
	Arguments json.RawMessage // exactly the bytes that the client sent; nil when it sent none
	// Key is the client's idempotency key from _meta or from the sibling of arguments; the argument intent_key is read by the engine. Empty when there is none.
	Key         string
	KeySource   string           // meta, sibling
	Correlation execution.Caller // protocol evidence; Run, Call and At are filled in by the engine
	Progress    func(Progress)   // optional, must not block
}

// Progress is forwarded to a client that gave a token.
type Progress struct {
	Message  string
	Progress float64
	Total    float64 // 0 when unknown
}

// Answer is what the agent gets. Result is the JSON of a CallToolResult without _meta; for a recorded result they are the bytes that were stored. What was read of an upstream is
// structuredContent.result in it, and the upstream's error structuredContent.error; everything else in it is our own word.
type Answer struct {
	ExecutionID string          // empty when nothing was accepted
	State       execution.State // empty when nothing was accepted
	Recorded    bool            // the result comes from the journal
	Code        api.Code        // set when the call was refused
	Result      json.RawMessage
	// Delivered is called at most once, when the answer was written to a caller that had not cancelled and the transport saw it drained. Disputed is called if a
	// cancellation of this request arrives after that. Both are nil where the answer holds no outcome.
	Delivered func(evidence string)
	Disputed  func()
}

// Prompt is one entry of prompts/list.
type Prompt struct {
	Name        string                    `json:"name"`
	Title       string                    `json:"title,omitempty"`
	Description string                    `json:"description,omitempty"`
	Arguments   []upstream.PromptArgument `json:"arguments,omitempty"`
}

// Resources is what a process may read, with the URIs by which it does.
type Resources struct {
	Resources []upstream.Resource
	Templates []upstream.Resource
	LeftOut   map[string]string // what is not in it or not whole, and why, by the upstream's name
}

// Tool is one entry of tools/list.
type Tool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
}

// Engine is what the MCP face needs of the engine. All methods are safe for concurrent use.
type Engine interface {
	// Call judges the call and carries it out, or attaches it to the execution that it belongs to. It returns when there is an answer, which after answer_within may be
	// "pending". Cancelling ctx detaches the caller and never the effect: the answer is then nobody's.
	Call(ctx context.Context, c Call) Answer
	// Tools lists what this peer may call now, our own tools included. The version changes whenever the list does.
	Tools(p *peer.Identity) (tools []Tool, version uint64)
	// ToolsChanged returns a channel that is closed at the next change of the list.
	ToolsChanged() <-chan struct{}
	// Resources lists what this peer may read, or says why it is told nothing. It asks upstreams, and bounds how long it waits for them.
	Resources(ctx context.Context, p *peer.Identity) (Resources, *Answer)
	// Prompts lists the prompts of upstreams that the operator accepted.
	Prompts(p *peer.Identity) []Prompt
	// Shared says whether there are resources and prompts at all.
	Shared() (resources, prompts bool)
	// SharedChanged returns a channel that is closed when either list may be another.
	SharedChanged() <-chan struct{}
	// Connected says that a peer has a connection open, until the returned function is called.
	Connected(p *peer.Identity) (release func())
}
