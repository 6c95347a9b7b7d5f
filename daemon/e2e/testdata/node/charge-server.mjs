// An MCP server that knows nothing of Singlepass: the control without it, and an upstream behind it. Its tools have their effect durable in the target's ledger before they wait for the
// answer: charge does so each time, and charge_keyed once for each key.
//
//   node charge-server.mjs TARGET-URL          over standard input and output
//   node charge-server.mjs TARGET-URL http     over Streamable HTTP; prints {"event":"ready","url":…}
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from 'sdk-1.30.0/server/mcp.js';
import { StdioServerTransport } from 'sdk-1.30.0/server/stdio.js';
import { StreamableHTTPServerTransport } from 'sdk-1.30.0/server/streamableHttp.js';
import { z } from 'zod';
import { emit } from './lines.mjs';

const [target, kind] = process.argv.slice(2);

function server() {
  const s = new McpServer({ name: 'charge', version: '1' });
  s.registerTool('charge', {
    description: 'Charges an account.',
    inputSchema: { order: z.string(), amount: z.number() },
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
  }, async ({ order, amount }) => {
    const response = await fetch(`${target}/ignores/charge`, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ order, amount }),
    });
    return { content: [{ type: 'text', text: await response.text() }] };
  });
  s.registerTool('charge_keyed', {
    description: 'Charges an account once for each key.',
    inputSchema: { order: z.string(), amount: z.number(), key: z.string() },
  }, async ({ order, amount, key }) => {
    const response = await fetch(`${target}/honours/charge`, {
      method: 'POST', headers: { 'content-type': 'application/json', 'idempotency-key': key }, body: JSON.stringify({ order, amount }),
    });
    return { content: [{ type: 'text', text: await response.text() }], isError: !response.ok };
  });
  return s;
}

if (kind === 'http') {
  const sessions = new Map();
  const listener = createServer(async (req, res) => {
    let transport = sessions.get(req.headers['mcp-session-id']);
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await server().connect(transport);
    }
    await transport.handleRequest(req, res);
  });
  listener.listen(0, '127.0.0.1', () => emit({ event: 'ready', url: `http://127.0.0.1:${listener.address().port}/mcp` }));
  process.stdin.resume();
  process.stdin.on('end', () => process.exit(0));
} else {
  await server().connect(new StdioServerTransport());
}
