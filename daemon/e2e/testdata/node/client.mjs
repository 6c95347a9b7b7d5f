// An MCP client that does what a test orders, one JSON line per order (see lines.mjs), and tells every message that it
// sends or receives.
//
//   node client.mjs SDK [PROTOCOL]     SDK: sdk-1.30.0, sdk-newest or @modelcontextprotocol/client
//
// {"op":"connect","kind":"stdio","command":…,"args":[…],"env":{…}}  or  {"op":"connect","kind":"http","url":…,"token":…}
// {"op":"call","name":…,"arguments":{…},"timeout_ms":…,"meta":{…}}, {"op":"tools"}, {"op":"resources"}, {"op":"templates"},
// {"op":"read","uri":…}, {"op":"prompts"}, {"op":"prompt","name":…,"arguments":{…}}, {"op":"tear"}, {"op":"close"}
import { emit, orders } from './lines.mjs';

const [sdk, protocol] = process.argv.slice(2);
const v2 = sdk === '@modelcontextprotocol/client';
const { Client } = await import(v2 ? sdk : `${sdk}/client/index.js`);
const { StdioClientTransport } = await import(v2 ? `${sdk}/stdio` : `${sdk}/client/stdio.js`);
const { StreamableHTTPClientTransport } = await import(v2 ? sdk : `${sdk}/client/streamableHttp.js`);

let client;
let transport;

// tap tells each message. The transport stays the SDK's own: only its send and onmessage are listened to.
function tap(t) {
  const send = t.send.bind(t);
  t.send = (message, options) => {
    emit({ event: 'sent', message });
    return send(message, options);
  };
  let onmessage;
  Object.defineProperty(t, 'onmessage', {
    get: () => onmessage,
    set: (handler) => {
      onmessage = handler && ((message, extra) => {
        emit({ event: 'received', message });
        return handler(message, extra);
      });
    },
  });
  return t;
}

async function connect(order) {
  const options = v2 && protocol ? { versionNegotiation: { mode: { pin: protocol } } } : {};
  client = new Client({ name: `e2e ${sdk}`, version: '1' }, options);
  client.onclose = () => emit({ event: 'closed' });
  transport = tap(
    order.kind === 'http'
      ? new StreamableHTTPClientTransport(new URL(order.url), order.token ? { requestInit: { headers: { Authorization: `Bearer ${order.token}` } } } : undefined)
      : new StdioClientTransport({ command: order.command, args: order.args, env: { PATH: process.env.PATH, ...order.env }, stderr: 'inherit' }),
  );
  await client.connect(transport);
  return { pid: transport.pid ?? 0, server: client.getServerVersion()?.name, protocol: transport.protocolVersion ?? client.getNegotiatedProtocolVersion?.() };
}

async function call(order) {
  const params = { name: order.name, arguments: order.arguments };
  if (order.meta) params._meta = order.meta;
  const options = { timeout: order.timeout_ms ?? 60_000 };
  const result = v2 ? await client.callTool(params, options) : await client.callTool(params, undefined, options);
  return { result };
}

orders(async (order) => {
  switch (order.op) {
    case 'connect': return connect(order);
    case 'call': return call(order);
    case 'tools': return client.listTools();
    case 'resources': return { result: await client.listResources() };
    case 'templates': return { result: await client.listResourceTemplates() };
    case 'read': return { result: await client.readResource({ uri: order.uri }) };
    case 'prompts': return { result: await client.listPrompts() };
    case 'prompt': return { result: await client.getPrompt({ name: order.name, arguments: order.arguments }) };
    // The connection goes away under whatever is in flight: pipes and sockets are closed, nothing is said first.
    case 'tear': transport._process?.stdin?.destroy(); transport._process?.stdout?.destroy(); await transport.close(); return {};
    case 'close': await client.close(); return {};
    default: throw new Error(`unknown op ${order.op}`);
  }
});
