// Preloaded (node --import) into programs that are given a URL and cannot be given a token: every request of theirs carries MCP_TOKEN. The requests stay their own, from their own process.
// The conformance suite asks for fs.globSync, which Node.js 20 does not have, for a command that is not used here.
import fs from 'node:fs';
import { register } from 'node:module';
import { Agent, setGlobalDispatcher } from 'undici';

const authorization = `Bearer ${process.env.MCP_TOKEN}`;
const send = globalThis.fetch;
globalThis.fetch = (url, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set('authorization', authorization);
  return send(url, { ...init, headers });
};
// For undici.request, which takes headers that fetch forbids: Host, for one.
setGlobalDispatcher(new Agent().compose((dispatch) => (options, handler) => {
  const has = options.headers && !Array.isArray(options.headers) && !(Symbol.iterator in options.headers);
  return dispatch(has ? { ...options, headers: { ...options.headers, authorization } } : options, handler);
}));

if (!fs.globSync) {
  const shim = "export * from 'node:fs'; export function globSync() { throw new Error('fs.globSync is not in this version of Node.js'); }";
  const hook = `export async function resolve(specifier, context, next) {
    return specifier === 'fs' && context.parentURL?.includes('/@modelcontextprotocol/conformance/')
      ? { url: ${JSON.stringify(`data:text/javascript,${encodeURIComponent(shim)}`)}, shortCircuit: true } : next(specifier, context);
  }`;
  register(`data:text/javascript,${encodeURIComponent(hook)}`, import.meta.url);
}
