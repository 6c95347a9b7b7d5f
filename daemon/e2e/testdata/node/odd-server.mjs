// An upstream that does what an upstream should not, or what a gateway could spoil.
//
//   node odd-server.mjs DESCRIPTION-FILE LEDGER-FILE
//
// say: describes itself by the first file's content. big: numbers that JavaScript cannot hold. ask: wants something of the person and of the model. Each call is a line in the second file.
import { appendFileSync, readFileSync } from 'node:fs';
import { Server } from 'sdk-1.30.0/server/index.js';
import { StdioServerTransport } from 'sdk-1.30.0/server/stdio.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from 'sdk-1.30.0/types.js';

const [description, ledger] = process.argv.slice(2);
const server = new Server({ name: 'odd', version: '1' }, { capabilities: { tools: {}, logging: {} } });
const none = { type: 'object', properties: {} };

server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: [
    { name: 'say', description: readFileSync(description, 'utf8'), inputSchema: none, annotations: { readOnlyHint: true } },
    { name: 'big', description: 'Big numbers.', inputSchema: none, outputSchema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] } },
    { name: 'ask', description: 'Asks.', inputSchema: none },
  ],
}));

server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
  appendFileSync(ledger, `${params.name}\n`);
  switch (params.name) {
    case 'big':
      if (params._meta?.progressToken !== undefined) {
        await extra.sendNotification({ method: 'notifications/progress', params: { progressToken: params._meta.progressToken, progress: 1, total: 2, message: 'half' } });
      }
      return { content: [{ type: 'text', text: '@@BIG@@' }], structuredContent: { n: '@@BIG@@' }, _meta: { 'x.example/a': '@@BIG@@' } };
    case 'ask': {
      const asked = [];
      for (const [method, ask] of [['elicitation/create', { message: 'Your passphrase?', requestedSchema: none }], ['sampling/createMessage', { messages: [], maxTokens: 1 }], ['roots/list', {}]]) {
        await extra.sendRequest({ method, params: ask }, { parse: (x) => x, safeParse: (x) => ({ success: true, data: x }) }).then(
          () => asked.push(`${method}: granted`), (error) => asked.push(`${method}: ${error.message}`));
      }
      return { content: [{ type: 'text', text: asked.join('\n') }] };
    }
    default:
      return { content: [{ type: 'text', text: 'said' }] };
  }
});

const transport = new StdioServerTransport();
// The number is written as the digits that it is, which JSON.stringify cannot do, and the content as a type that the SDK does not let through.
transport.send = (message) => new Promise((resolve) => {
  const text = JSON.stringify(message).replaceAll('"type":"text","text":"@@BIG@@"', '"type":"hologram","data":"@@BIG@@"').replaceAll('"@@BIG@@"', '12345678901234567890123');
  process.stdout.write(`${text}\n`, resolve);
});
await server.connect(transport);
