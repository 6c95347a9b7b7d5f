// LangGraph's own retry around an MCP tool: a node calls the tool, then loses its connection, as the transport would show
// it. The retry policy is LangGraph's default; no model is asked.
//
// {"op":"run","server":{…as for MultiServerMCPClient…},"tool":…,"arguments":{…},"failures":N}
import { Annotation, END, START, StateGraph } from '@langchain/langgraph';
import { MultiServerMCPClient } from '@langchain/mcp-adapters';
import { emit, orders } from './lines.mjs';

async function run(order) {
  const client = new MultiServerMCPClient({ mcpServers: { server: order.server } });
  const tool = (await client.getTools()).find((t) => t.name === order.tool);
  if (!tool) throw new Error(`no tool ${order.tool}`);
  const answers = [];
  const graph = new StateGraph(Annotation.Root({ answer: Annotation() }))
    .addNode('act', async () => {
      const answer = await tool.invoke(order.arguments);
      answers.push(answer);
      emit({ event: 'attempt', answer });
      if (answers.length <= order.failures) {
        throw Object.assign(new Error('read ECONNRESET'), { name: 'ConnectionError', code: 'ECONNRESET' });
      }
      return { answer };
    }, { retryPolicy: {} })
    .addEdge(START, 'act')
    .addEdge('act', END)
    .compile();
  const state = await graph.invoke({});
  await client.close();
  return { answers: answers.map(String), answer: String(state.answer) };
}

orders((order) => {
  if (order.op !== 'run') throw new Error(`unknown op ${order.op}`);
  return run(order);
});
