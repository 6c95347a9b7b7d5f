package enginetest

import (
	"context"
	"encoding/json"
	"fmt"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/peer"
)

// read answers a reading as its URI or name says.
func (e *Engine) read(c call.Call, a call.Answer) call.Answer {
	switch c.Tool {
	case "singlepass+up:refused":
		return call.Answer{
			Code: api.CodeVaultLocked, Result: json.RawMessage(`{"content":[{"type":"text","text":"vault_locked: {}"}],"structuredContent":{"code":"vault_locked","next":"unlock"},"isError":true}`),
		}
	case "singlepass+up:error":
		a.Result = json.RawMessage(`{"content":[],"structuredContent":{"error":{"code":-32002,"message":"no such thing","data":{"code":"vault_locked"}}},"isError":true}`)
		return a
	}
	a.Result = json.RawMessage(fmt.Sprintf("{\"content\":[],\"structuredContent\":{\"result\":{\"contents\":[{\"uri\":%q,\"text\":\"é\",\"n\":12345678901234567890123}],\n\"_meta\":{\"dev.singlepass/execution\":1}}}}", c.Tool))
	if c.Method == "prompts/get" {
		a.Result = json.RawMessage(fmt.Sprintf(`{"content":[],"structuredContent":{"result":{"messages":[{"role":"user","content":{"type":"text","text":%q}}]}}}`, c.Arguments))
	}
	return a
}

// Share says what there is to read. With refused, listing is answered by that.
func (e *Engine) Share(resources call.Resources, prompts []call.Prompt, refused *call.Answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resources, e.prompts, e.refused = resources, prompts, refused
	close(e.shared)
	e.shared = make(chan struct{})
}

// Resources implements call.Engine.
func (e *Engine) Resources(context.Context, *peer.Identity) (call.Resources, *call.Answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.resources, e.refused
}

// Prompts implements call.Engine.
func (e *Engine) Prompts(*peer.Identity) []call.Prompt {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.prompts
}

// Shared implements call.Engine.
func (e *Engine) Shared() (resources, prompts bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.resources.Resources) > 0 || e.refused != nil, len(e.prompts) > 0
}

// SharedChanged implements call.Engine.
func (e *Engine) SharedChanged() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.shared
}
