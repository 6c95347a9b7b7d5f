// Package mcpserver is the MCP face of the daemon: it takes messages from agent.sock (newline-delimited JSON) and from Streamable HTTP on loopback, hands each tools/call to the
// engine, and writes the answer. It decides nothing about effects.
//
// The go-sdk speaks the protocol. On agent.sock tools/call does not reach it: the SDK allocates 455 KB per round trip and replaces what it decodes, so a call is taken at the
// connection, with the untouched bytes of its arguments. Over HTTP the same code answers, behind the SDK's transport. Revisions 2024-11-05 to 2026-07-28 are served on both;
// over HTTP the revision that a request names chooses between the SDK's stateful handler (sessions, up to 2025-11-25) and its stateless one (2026-07-28).
// JSON-RPC batches, which only revisions before 2025-06-18 knew, are refused.
//
// resources/read and prompts/get take the same way as tools/call. Resources and prompts are offered only while the engine has some; what it refuses of them, or cannot answer yet, is an error of JSON-RPC with the
// engine's words in its data, where the words of an upstream stand under upstream_error alone. Nothing can be subscribed to.
//
// Delivered is reported for an answer that was written to a caller who had not cancelled, and only as far as the transport proves it:
//
//	bridge    the bridge, whose executable the kernel named, saw the agent take the bytes from its standard output: a pipe without unread bytes, or an empty socket queue
//	socket    the agent's process took the bytes from its socket (SIOCOUTQ)
//	http      the agent's kernel acknowledged the bytes while the connection stood; its process may not have read them
//
// Nothing of this proves that the agent understood the answer. A client that timed out still takes a late answer; if it cancels, before or after, the answer does not count or
// is disputed. On a system without these calls nothing is reported, and every result stays "not delivered".
//
// Frozen: the keys dev.singlepass/execution and dev.singlepass/idempotency-key of _meta, the members of the former, and notifications/dev.singlepass/delivered between the
// bridge and the daemon.
package mcpserver
