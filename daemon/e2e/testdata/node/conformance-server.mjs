// What the official conformance suite asks a server for, as a stdio server that knows nothing of Singlepass. Behind the gateway they show what the gateway does to content, errors, schemas, lists, progress and logs.
import { Server } from 'sdk-newest/server/index.js';
import { StdioServerTransport } from 'sdk-newest/server/stdio.js';
import {
  CallToolRequestSchema, CreateMessageResultSchema, ElicitResultSchema, ListPromptsRequestSchema, ListResourcesRequestSchema, ListResourceTemplatesRequestSchema, ListToolsRequestSchema,
} from 'sdk-newest/types.js';

const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const wav = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA==';
const text = (words) => ({ type: 'text', text: words });
const said = (words) => ({ content: [text(words)] });
const pause = () => new Promise((resolve) => setTimeout(resolve, 20));
const none = { type: 'object', properties: {} };
const one = (name) => ({ type: 'object', properties: { [name]: { type: 'string' } }, required: [name] });

const elicit = (extra, message, properties) =>
  extra.sendRequest({ method: 'elicitation/create', params: { message, requestedSchema: { type: 'object', properties } } }, ElicitResultSchema);

const tools = {
  test_simple_text: [none, () => said('This is a simple text response for testing.')],
  test_image_content: [none, () => ({ content: [{ type: 'image', data: png, mimeType: 'image/png' }] })],
  test_audio_content: [none, () => ({ content: [{ type: 'audio', data: wav, mimeType: 'audio/wav' }] })],
  test_embedded_resource: [none, () => ({
    content: [{ type: 'resource', resource: { uri: 'test://embedded-resource', mimeType: 'text/plain', text: 'This is an embedded resource content.' } }],
  })],
  test_multiple_content_types: [none, () => ({
    content: [
      text('Multiple content types test:'),
      { type: 'image', data: png, mimeType: 'image/png' },
      { type: 'resource', resource: { uri: 'test://mixed-content-resource', mimeType: 'application/json', text: '{"test":"data","value":123}' } },
    ],
  })],
  test_error_handling: [none, () => ({ isError: true, ...said('This tool intentionally returns an error for testing') })],
  test_tool_with_logging: [none, async (_, extra) => {
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      await extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
      await pause();
    }
    return said('logged');
  }],
  test_tool_with_progress: [none, async (_, extra) => {
    const progressToken = extra._meta?.progressToken;
    for (const progress of progressToken === undefined ? [] : [0, 50, 100]) {
      await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
      await pause();
    }
    return said('progressed');
  }],
  json_schema_2020_12_tool: [{
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: { address: { type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } } },
    properties: { name: { type: 'string' }, address: { $ref: '#/$defs/address' } },
    additionalProperties: false,
  }, () => said('valid')],
  test_sampling: [one('prompt'), async ({ prompt }, extra) => {
    const params = { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 };
    const { content } = await extra.sendRequest({ method: 'sampling/createMessage', params }, CreateMessageResultSchema);
    return said(`LLM response: ${content.text}`);
  }],
  test_elicitation: [one('message'), async ({ message }, extra) => {
    const answer = await elicit(extra, message, { username: { type: 'string' }, email: { type: 'string' } });
    return said(`User response: ${JSON.stringify(answer)}`);
  }],
  test_elicitation_sep1034_defaults: [none, async (_, extra) => {
    const answer = await elicit(extra, 'Defaults', { name: { type: 'string', default: 'John Doe' } });
    return said(`Elicitation completed: ${JSON.stringify(answer)}`);
  }],
  test_elicitation_sep1330_enums: [none, async (_, extra) => {
    const answer = await elicit(extra, 'Enums', { untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] } });
    return said(`Elicitation completed: ${JSON.stringify(answer)}`);
  }],
  test_reconnection: [none, async () => { await pause(); return said('Reconnection test completed successfully'); }],
};

const server = new Server({ name: 'conformance', version: '1' }, { capabilities: { tools: {}, logging: {}, resources: {}, prompts: {} } });
server.setRequestHandler(ListResourcesRequestSchema, () => ({
  resources: [
    { uri: 'test://static-text', name: 'Static text', description: 'A static text.', mimeType: 'text/plain' },
    { uri: 'test://static-binary', name: 'Static binary', description: 'A static image.', mimeType: 'image/png' },
  ],
}));
server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({
  resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'Template', mimeType: 'application/json' }],
}));
server.setRequestHandler(ListPromptsRequestSchema, () => ({
  prompts: [{ name: 'test_simple_prompt', description: 'A simple prompt.' }, { name: 'test_prompt_with_arguments', description: 'With arguments.', arguments: [{ name: 'arg1', required: true }, { name: 'arg2', required: true }] }],
}));
server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: Object.entries(tools).map(([name, [inputSchema]]) => ({ name, description: `The suite's ${name}.`, inputSchema })),
}));
server.setRequestHandler(CallToolRequestSchema, ({ params }, extra) => tools[params.name][1](params.arguments ?? {}, extra));
await server.connect(new StdioServerTransport());
