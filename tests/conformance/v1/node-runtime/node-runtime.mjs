// The reference: @copilotkit/runtime 1.10.6 on one port, several differently configured endpoints.
process.env.COPILOTKIT_TELEMETRY_DISABLED = "true"; process.env.DO_NOT_TRACK = "1"; process.env.SCARF_ANALYTICS = "false";
import http from "node:http";
const { CopilotRuntime, OpenAIAdapter, AnthropicAdapter, EmptyAdapter, LangGraphAgent, copilotRuntimeNodeHttpEndpoint } = await import("@copilotkit/runtime");
const { default: OpenAI } = await import("openai");
const { default: Anthropic } = await import("@anthropic-ai/sdk");
const { HttpAgent } = await import("@ag-ui/client");
const MOCK = process.env.MOCK_URL ?? "http://localhost:4101", REMOTE = process.env.REMOTE_URL ?? "http://localhost:4102";
const openai = new OpenAI({ apiKey: "sk-mock", baseURL: `${MOCK}/v1` });
const adapter = () => new OpenAIAdapter({ openai, model: "gpt-4o" });
const actions = [
  { name: "getTime", description: "Get the time in a city.", parameters: [{ name: "city", type: "string", description: "City name", required: true }], handler: async ({ city }) => `12:00 in ${city}` },
  { name: "getObject", description: "Return an object.", parameters: [], handler: async () => ({ a: 1, nested: { b: [true, null] } }) },
  { name: "getNumber", description: "Return a number.", parameters: [], handler: async () => 5 },
  { name: "doNothing", description: "Return nothing.", parameters: [], handler: async () => {} },
  { name: "explode", description: "Always throws.", parameters: [{ name: "why", type: "string", required: false }], handler: async () => { throw new Error("kaboom"); } },
];
const log = []; // middleware trace, GET /__log
const endpoints = {
  "/copilotkit": [new CopilotRuntime({ actions, middleware: {
      onBeforeRequest: (o) => { log.push({ hook: "before", threadId: o.threadId, runId: o.runId, n: o.inputMessages.length, properties: o.properties, url: o.url }); },
      onAfterRequest: (o) => { log.push({ hook: "after", threadId: o.threadId, n: o.inputMessages.length, out: o.outputMessages.map((m) => ({ ...m, createdAt: undefined })) , properties: o.properties, url: o.url }); } },
      onStopGeneration: (o) => { log.push({ hook: "stop", threadId: o.threadId, url: o.url, agentName: o.agentName }); },
      onError: (e) => { log.push({ hook: "onError", type: e.type, code: e.error?.code, message: e.error?.message, context: e.context }); },
    }), adapter()],
  "/copilotkit-plain": [new CopilotRuntime(), adapter()],
  "/copilotkit-anthropic": [new CopilotRuntime({ actions }), new AnthropicAdapter({ anthropic: new Anthropic({ apiKey: "mock", baseURL: MOCK }) })],
  "/copilotkit-remote": [new CopilotRuntime({ remoteEndpoints: [{ url: `${REMOTE}/ck`, onBeforeRequest: ({ ctx }) => ({ headers: { "x-from-hook": "1" } }) }] }), adapter()],
  "/copilotkit-remote404": [new CopilotRuntime({ remoteEndpoints: [{ url: `${REMOTE}/ck404` }] }), adapter()],
  "/copilotkit-remote500": [new CopilotRuntime({ remoteEndpoints: [{ url: `${REMOTE}/ck500` }] }), adapter()],
  "/copilotkit-remotedown": [new CopilotRuntime({ remoteEndpoints: [{ url: "http://localhost:9" }] }), adapter()],
  "/copilotkit-agents": [() => new CopilotRuntime({ actions, agents: Object.fromEntries(["state", "tool", "interrupt", "ckinterrupt", "error", "plain"].map((n) => [n, new HttpAgent({ url: `${REMOTE}/agui/${n}`, description: `agent ${n}` })])) }), adapter()],
  "/copilotkit-lgp": [() => new CopilotRuntime({ agents: { lgp_agent: new LangGraphAgent({ deploymentUrl: `${REMOTE}/lgp`, graphId: "lgp_agent", langsmithApiKey: "lsv2_mock" }) } }), adapter()],
  "/copilotkit-lgp-legacy": [() => new CopilotRuntime({ remoteEndpoints: [{ deploymentUrl: `${REMOTE}/lgp`, langsmithApiKey: "lsv2_mock", agents: [{ name: "lgp_agent", description: "legacy lgp" }] }] }), adapter()],
  "/copilotkit-empty": [new CopilotRuntime(), new EmptyAdapter()],
  "/copilotkit-cloud": [new CopilotRuntime({ actions }), adapter(), { cloud: { baseUrl: `${REMOTE}/cloud` } }],
};
const cache = new Map();
const handlerFor = (path) => {
  const [rt, ad, extra] = endpoints[path];
  // runtimes given as functions are rebuilt per request: an agent run mutates runtime.agents (see pain point 1 in DIVERGENCES.md)
  if (typeof rt === "function") return copilotRuntimeNodeHttpEndpoint({ runtime: rt(), serviceAdapter: ad, endpoint: path, ...extra });
  if (!cache.has(path)) cache.set(path, copilotRuntimeNodeHttpEndpoint({ runtime: rt, serviceAdapter: ad, endpoint: path, ...extra }));
  return cache.get(path);
};
endpoints["/copilotkit-mcp"] = [new CopilotRuntime({ mcpServers: [{ endpoint: "http://mcp.test/sse" }], createMCPClient: async () => ({ tools: async () => ({ mcpEcho: { description: "Echo.", schema: { parameters: { properties: { text: { type: "string", description: "what" } }, required: ["text"] } }, execute: async ({ text }) => `echo ${text}` } }) }) }), adapter()];
// one shared (not rebuilt) agents runtime to show the mutation
const sticky = endpoints["/copilotkit-agents"][0]();
endpoints["/copilotkit-agents-sticky"] = [sticky, adapter()];
const server = http.createServer((req, res) => {
  const path = req.url.split("?")[0].replace(/\/$/, "");
  if (path === "/__log") { if (req.method === "DELETE") log.length = 0; res.setHeader("content-type", "application/json"); return res.end(JSON.stringify(log)); }
  const key = Object.keys(endpoints).sort((a, b) => b.length - a.length).find((k) => path === k || path.startsWith(k + "/"));
  if (!key) { res.writeHead(404); return res.end("not found"); }
  return handlerFor(key)(req, res);
});
const port = Number(process.env.PORT ?? 4100);
server.listen(port, "127.0.0.1", () => console.log(`node runtime on http://localhost:${server.address().port}`));
process.on("unhandledRejection", (e) => { console.error("UNHANDLED REJECTION", e?.message); });
process.on("uncaughtException", (e) => { console.error("UNCAUGHT", e?.message); });
