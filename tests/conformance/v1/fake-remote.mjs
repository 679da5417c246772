// Fake upstreams for agent scenarios, all on one port:
//  /ck/...        CopilotKit remote endpoint (python-SDK protocol): /info /actions/execute /agents/execute /agents/state
//  /ck404, /ck500 endpoints that fail
//  /agui/<name>   AG-UI HTTP agents (SSE): state | interrupt | error | tool
//  /lgp/...       a minimal LangGraph Platform
//  /cloud/guardrails/validate  Copilot Cloud guardrails (denies input containing "forbidden")
// GET/DELETE /__requests and PORT as in mock-llm.
import http from "node:http";
const seen = [];
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
async function readBody(req) { const b = []; for await (const c of req) b.push(c); return Buffer.concat(b).toString(); }
const INFO = {
  sdkVersion: "0.1.99",
  actions: [
    { name: "remoteAdd", description: "Add two numbers remotely.", parameters: [{ name: "a", type: "number", required: true, description: "first" }, { name: "b", type: "number", required: true, description: "second" }] },
    { name: "remoteFail", description: "Always fails.", parameters: [] },
  ],
  agents: [
    { name: "research_agent", description: "Fake LangGraph agent.", type: "langgraph" },
    { name: "crew_agent", description: "Fake CrewAI agent.", type: "crewai" },
  ],
};
// LangGraph astream_events-shaped JSON lines, as the python SDK emits them
const lgEvents = ({ threadId, interrupt, error }) => {
  const meta = { langgraph_node: "answer", "copilotkit:emit-messages": true, "copilotkit:emit-tool-calls": true };
  const sync = (node, state, running, active) => ({ event: "on_copilotkit_state_sync", thread_id: threadId, agent_name: "research_agent", node_name: node, run_id: "run-fake-1", active, role: "assistant", state, running });
  const stream = (id, content, extra = {}) => ({ event: "on_chat_model_stream", name: "ChatOpenAI", run_id: "r1", metadata: meta, data: { chunk: { lc: 1, type: "constructor", id: ["langchain", "schema", "messages", "AIMessageChunk"], kwargs: { id, content, tool_call_chunks: [], response_metadata: {}, ...extra } } } });
  const out = [sync("answer", { topic: "cats", messages: [] }, true, true)];
  if (error) { out.push({ event: "error", data: { message: "Agent exploded", type: "ValueError", agent: "research_agent" } }); return out; }
  out.push(stream("lg-msg-1", "Agent"), stream("lg-msg-1", " says"), stream("lg-msg-1", " hi"));
  out.push(stream("lg-msg-1", "", { response_metadata: { finish_reason: "stop" } }));
  out.push(sync("answer", { topic: "cats", count: 1, messages: [{ id: "u1", role: "user", content: "hi" }, { id: "lg-msg-1", role: "assistant", content: "Agent says hi" }] }, true, false));
  if (interrupt) out.push({ event: "on_interrupt", value: JSON.stringify("What is your name?") });
  out.push(sync("__end__", { topic: "cats", count: 2, messages: [{ id: "u1", role: "user", content: "hi" }, { id: "lg-msg-1", role: "assistant", content: "Agent says hi" }] }, false, false));
  return out;
};
const crewEvents = ({ threadId }) => [
  { type: "TextMessageStart", messageId: "crew-1" },
  { type: "TextMessageContent", messageId: "crew-1", content: "Crew" },
  { type: "TextMessageContent", messageId: "crew-1", content: " reporting." },
  { type: "TextMessageEnd", messageId: "crew-1" },
  { type: "ActionExecutionStart", actionExecutionId: "crew-call-1", actionName: "setColor", parentMessageId: "crew-1" },
  { type: "ActionExecutionArgs", actionExecutionId: "crew-call-1", args: '{"color":"gold"}' },
  { type: "ActionExecutionEnd", actionExecutionId: "crew-call-1" },
  { type: "AgentStateMessage", threadId, agentName: "crew_agent", nodeName: "n1", runId: "crew-run", active: true, role: "assistant", state: JSON.stringify({ step: 1 }), running: true },
  { type: "AgentStateMessage", threadId, agentName: "crew_agent", nodeName: "n1", runId: "crew-run", active: false, role: "assistant", state: JSON.stringify({ step: 2 }), running: false },
];
const agui = (name, input) => {
  const { threadId, runId } = input, S = { type: "RUN_STARTED", threadId, runId }, F = { type: "RUN_FINISHED", threadId, runId };
  const text = [{ type: "TEXT_MESSAGE_START", messageId: "ag-m1", role: "assistant" }, { type: "TEXT_MESSAGE_CONTENT", messageId: "ag-m1", delta: "AG-UI" }, { type: "TEXT_MESSAGE_CONTENT", messageId: "ag-m1", delta: " speaking" }, { type: "TEXT_MESSAGE_END", messageId: "ag-m1" }];
  switch (name) {
    case "state": return [S, { type: "STEP_STARTED", stepName: "think" }, { type: "STATE_SNAPSHOT", snapshot: { count: 1 } }, ...text, { type: "STATE_DELTA", delta: [{ op: "replace", path: "/count", value: 2 }] }, { type: "STEP_FINISHED", stepName: "think" }, F];
    case "tool": return [S, { type: "TOOL_CALL_START", toolCallId: "ag-tc1", toolCallName: "setColor", parentMessageId: "ag-m0" }, { type: "TOOL_CALL_ARGS", toolCallId: "ag-tc1", delta: '{"color":' }, { type: "TOOL_CALL_ARGS", toolCallId: "ag-tc1", delta: '"lime"}' }, { type: "TOOL_CALL_END", toolCallId: "ag-tc1" }, F];
    case "interrupt": return input.forwardedProps?.command?.resume !== undefined
      ? [S, { type: "TEXT_MESSAGE_START", messageId: "ag-r1", role: "assistant" }, { type: "TEXT_MESSAGE_CONTENT", messageId: "ag-r1", delta: `Resumed with ${JSON.stringify(input.forwardedProps.command.resume)}` }, { type: "TEXT_MESSAGE_END", messageId: "ag-r1" }, F]
      : [S, ...text, { type: "CUSTOM", name: "on_interrupt", value: JSON.stringify({ question: "ok?" }) }, F];
    case "ckinterrupt": return [S, { type: "CUSTOM", name: "CopilotKitLangGraphInterruptEvent", value: { value: "pick", messages: [{ id: "cki-1", role: "assistant", content: "Choose" }] } }, F];
    case "error": return [S, text[0], text[1], { type: "RUN_ERROR", message: "agent failed on purpose", code: "X" }];
    default: return [S, ...text, F];
  }
};
const LGP_MESSAGES = [{ id: "h1", type: "human", content: "hi" }, { id: "a1", type: "ai", content: "LGP says hi", tool_calls: [] }];
const lgpState = (o = {}) => ({ values: { messages: LGP_MESSAGES, topic: "lgp" }, next: [], tasks: [], metadata: { writes: null }, checkpoint: { thread_id: "t", checkpoint_ns: "", checkpoint_id: "c1" }, created_at: "2025-01-01T00:00:00Z", parent_checkpoint: null, ...o });
const server = http.createServer(async (req, res) => {
  const json = (o, s = 200) => { res.writeHead(s, { "content-type": "application/json" }); res.end(JSON.stringify(o)); };
  if (req.url === "/__requests") { if (req.method === "DELETE") seen.length = 0; return json(seen); }
  const raw = await readBody(req); let body = {}; try { body = JSON.parse(raw); } catch {}
  const keep = Object.fromEntries(Object.entries(req.headers).filter(([k]) => ["content-type", "accept", "authorization", "x-api-key", "x-copilotcloud-public-api-key", "x-from-hook"].includes(k)));
  const entry = { url: req.url, method: req.method, headers: keep, body, aborted: false }; seen.push(entry);
  res.on("close", () => { if (!res.writableFinished) entry.aborted = true; });
  const u = req.url.split("?")[0];
  if (u.startsWith("/ck404")) return json({ detail: "Not Found" }, 404);
  if (u.startsWith("/ck500")) return json({ error: "boom" }, 500);
  if (u === "/ck/info") return json(INFO);
  if (u === "/ck/actions/execute") return body.name === "remoteAdd" ? json({ result: body.arguments.a + body.arguments.b }) : json({ error: "remote action failed" }, 500);
  if (u === "/ck/agents/state") return body.threadId === "known-thread" ? json({ threadId: body.threadId, threadExists: true, state: { topic: "cats" }, messages: [{ id: "m1", role: "user", content: "hi" }] }) : json({ threadId: body.threadId, threadExists: false, state: {}, messages: [] });
  if (u === "/ck/agents/execute") {
    const last = body.messages?.at(-1)?.content ?? "";
    if (last.includes("[[agent500]]")) return json({ error: "agent crashed" }, 500);
    res.writeHead(200, { "content-type": "application/json" });
    const evs = body.name === "crew_agent" ? crewEvents(body) : lgEvents({ threadId: body.threadId, interrupt: last.includes("[[interrupt]]"), error: last.includes("[[agenterror]]") });
    for (const e of evs) { res.write(JSON.stringify(e) + "\n"); await sleep(8); }
    return res.end();
  }
  if (u.startsWith("/agui/")) {
    res.writeHead(200, { "content-type": "text/event-stream" });
    for (const e of agui(u.slice(6), body)) { res.write(`data: ${JSON.stringify(e)}\n\n`); await sleep(8); }
    return res.end();
  }
  if (u === "/cloud/guardrails/validate") return json(String(body.input).includes("forbidden") ? { status: "denied", reason: "That topic is not allowed." } : { status: "allowed" });
  if (u.startsWith("/lgp/")) {
    const p = u.slice(4);
    if (p === "/assistants/search") return json([{ assistant_id: "asst-1", graph_id: "lgp_agent", config: {}, created_at: "2025-01-01T00:00:00Z", updated_at: "2025-01-01T00:00:00Z", metadata: {}, version: 1, name: "lgp_agent" }]);
    if (/\/assistants\/[^/]+\/graph/.test(p)) return json({ nodes: [{ id: "__start__", type: "schema" }, { id: "answer", type: "runnable" }, { id: "__end__", type: "schema" }], edges: [{ source: "__start__", target: "answer" }, { source: "answer", target: "__end__" }] });
    if (/\/assistants\/[^/]+\/schemas/.test(p)) return json({ graph_id: "lgp_agent", input_schema: { properties: { messages: {}, topic: {} } }, output_schema: { properties: { messages: {}, topic: {} } }, state_schema: {}, config_schema: { properties: {} }, context_schema: { properties: {} } });
    if (/\/threads\/[^/]+\/state/.test(p)) return p.includes("missing") ? json({ detail: "not found" }, 404) : json(req.method === "GET" ? lgpState({ values: {} , ...(p.includes("known") ? lgpState() : {}) }) : { checkpoint: {} });
    if (/\/threads\/[^/]+\/history/.test(p)) return json([]);
    if (/\/runs\/stream/.test(p)) {
      res.writeHead(200, { "content-type": "text/event-stream" });
      const ev = async (event, data) => { res.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`); await sleep(8); };
      const md = { langgraph_node: "answer", run_id: "lgp-run", langgraph_step: 1 };
      await ev("metadata", { run_id: "lgp-run" });
      await ev("events", { event: "on_chain_start", name: "answer", run_id: "lgp-run", metadata: md, data: {} });
      for (const c of ["LGP", " says", " hi"]) await ev("events", { event: "on_chat_model_stream", name: "ChatOpenAI", run_id: "x", metadata: md, data: { chunk: { id: "a1", content: c, tool_call_chunks: [], response_metadata: {} } } });
      await ev("events", { event: "on_chat_model_end", name: "ChatOpenAI", run_id: "x", metadata: md, data: { output: { id: "a1", content: "LGP says hi", tool_calls: [] } } });
      await ev("values", { messages: LGP_MESSAGES, topic: "lgp" });
      await ev("events", { event: "on_chain_end", name: "answer", run_id: "lgp-run", metadata: md, data: { output: { messages: LGP_MESSAGES, topic: "lgp" } } });
      return res.end();
    }
    if (/\/threads(\/[^/]+)?$/.test(p)) return json({ thread_id: body.thread_id ?? p.split("/")[2] ?? "t", created_at: "2025-01-01T00:00:00Z", updated_at: "2025-01-01T00:00:00Z", metadata: {}, status: "idle", values: {} });
    return json({}, 200);
  }
  return json({ detail: "no such route" }, 404);
});
const port = Number(process.env.PORT ?? 4102);
server.listen(port, "127.0.0.1", () => console.log(`fake-remote on http://localhost:${server.address().port}`));
