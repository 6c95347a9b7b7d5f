// An upstream that has something to read, written with the official SDK and knowing nothing of Singlepass.
//
//   node shelf-server.mjs DESCRIPTION-FILE LEDGER-FILE
//
// Its resources show the secret in SHELF_TOKEN; its prompt describes itself by the first file's content, and otherwise each time if that begins with "@". Each reading is a line in the second file.
import { appendFileSync, readFileSync } from 'node:fs';
import { McpServer, ResourceTemplate } from 'sdk-1.30.0/server/mcp.js';
import { StdioServerTransport } from 'sdk-1.30.0/server/stdio.js';
import { GetPromptRequestSchema, ListPromptsRequestSchema } from 'sdk-1.30.0/types.js';

const [description, ledger] = process.argv.slice(2);
const shelf = new McpServer({ name: 'shelf', version: '1' }, { capabilities: { prompts: {} } });
let times = 0;
const says = () => {
  const text = readFileSync(description, 'utf8');
  return text.startsWith('@') ? `${text}${++times}` : text;
};
const read = (uri) => {
  appendFileSync(ledger, `${uri.href}\n`);
  return { contents: [{ uri: uri.href, mimeType: 'text/plain', text: `of ${uri.href} by ${process.env.SHELF_TOKEN}` }] };
};

shelf.registerResource('manual', 'docs://manual', { title: 'The manual', description: 'How it is done.', mimeType: 'text/plain' }, read);
shelf.registerResource('page', new ResourceTemplate('docs://page/{number}', { list: undefined }), { description: 'One page.' }, read);
shelf.server.setRequestHandler(ListPromptsRequestSchema, () => ({
  prompts: [{ name: 'summarize', description: says(), arguments: [{ name: 'page', required: true }] }],
}));
shelf.server.setRequestHandler(GetPromptRequestSchema, ({ params }) => {
  appendFileSync(ledger, `${params.name}\n`);
  return { messages: [{ role: 'user', content: { type: 'text', text: `Summarize page ${params.arguments.page}.` } }] };
});
await shelf.connect(new StdioServerTransport());
