// Drives a runtime with one client, and writes what the page ends up with.
//
//   node drive.mjs <base> <client> <transport> <out.json> [--agent <url>] [--mcp <url>] [--only <names>] [--every]
//                  [--before <file>]
//
// client: 1.57, 1.68, 1.74; transport: rest, single. Each scenario is played in a thread of its own, and opened again by
// a second client. Those that are not for every client are left out without --every. With the file of an earlier drive,
// its threads are only opened again. The agent and the MCP server are asked what they got, where a scenario says so.
import fs from "node:fs";
import { parseArgs } from "node:util";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    agent: { type: "string" },
    mcp: { type: "string" },
    only: { type: "string" },
    every: { type: "boolean" },
    before: { type: "string" },
  },
});
const [base, client, transport, out] = positionals;
globalThis.window ??= { location: { origin: "http://app.example", href: "http://app.example/" } };
for (const level of ["log", "info", "warn", "error", "debug"]) console[level] = () => {};
const { z } = await import("zod");
const { CopilotKitCore } = await import(process.env.CORE ?? `core-${client}`);
const scenarios = JSON.parse(fs.readFileSync(new URL("scenarios.json", import.meta.url)));

/** What a page brings along that draws in a sandbox. */
const sandbox = {
  name: "generateSandboxedUi",
  description: "Draw a page.",
  parameters: z.object({
    initialHeight: z.number().optional(),
    placeholderMessages: z.array(z.string()).optional(),
    css: z.string().optional(),
    html: z.string().optional(),
    jsFunctions: z.string().optional(),
    jsExpressions: z.array(z.string()).optional(),
  }),
  handler: async () => "UI generated",
  followUp: true,
};

/** Return a tool that answers with a number. */
const weather = (name) => ({
  name,
  description: "Weather.",
  parameters: z.object({ city: z.string() }),
  handler: async () => "21",
});

/** Return a client that has read what the runtime offers. */
async function connected({ mount, properties, hasSandbox, tools = [] }) {
  const runtime = { runtimeUrl: `${base}/${mount}`, runtimeTransport: transport, properties };
  const core = new CopilotKitCore({ ...runtime, tools: [...(hasSandbox ? [sandbox] : []), ...tools.map(weather)] });
  while (!["connected", "error"].includes(core.runtimeConnectionStatus)) await new Promise(setImmediate);
  return core;
}

/** Return the messages of a thread as a page that opens it gets them. */
async function reload(scenario, thread) {
  const core = await connected(scenario);
  const agent = core.getAgent(scenario.agent ?? "default");
  agent.threadId = thread;
  await core.connectAgent({ agent });
  return agent.messages;
}

/** Return what a server has got since the last time, and let it forget that. */
async function readLog(url) {
  return await (await fetch(`${url}/__log`, { method: "DELETE" })).json();
}

/** Do one thing that a person or an app does; return the result if it is an app. */
async function step(core, agent, { question, props, properties, proxy }, number) {
  if (properties) core.setProperties(properties);
  if (question) agent.addMessage({ id: `u-${number + 1}`, role: "user", content: `scenario:${question}` });
  if (proxy === undefined) {
    await core.runAgent({ agent, forwardedProps: props });
    return [];
  }
  const app = agent.messages.findLast(({ activityType }) => activityType === "mcp-apps");
  const text = JSON.stringify(proxy).replaceAll("$hash", app?.content.serverHash);
  const { result } = await agent.runAgent({ forwardedProps: { __proxiedMCPRequest: JSON.parse(text) } });
  return [result ?? null];
}

async function play(scenario, name) {
  const core = await connected(scenario);
  for (const entry of scenario.context ?? []) core.addContext(entry);
  const agent = core.getAgent(scenario.agent ?? "default");
  const thread = (agent.threadId = `t-${name}-${client}-${transport}`);
  const events = [];
  const errors = [];
  agent.subscribe({ onEvent: ({ event: { rawEvent, timestamp, input, ...event } }) => void events.push(event) });
  core.subscribe({ onError: ({ code }) => void errors.push(code) });
  const urls = options.agent ? [options.agent, options.mcp] : [];
  await Promise.all(urls.map(readLog));
  const results = [];
  for (const [number, it] of (scenario.steps ?? [{ question: name }]).entries())
    results.push(...(await step(core, agent, it, number)));
  const [inputs, requests] = await Promise.all(urls.map(readLog));
  const live = structuredClone(agent.messages);
  const page = { thread, live, events, errors, results, reload: await reload(scenario, thread) };
  return { ...page, ...(scenario.hasInputs && { inputs }), ...(scenario.hasRequests && { requests }) };
}

const results = {};
const earlier = options.before && JSON.parse(fs.readFileSync(options.before));
const names = options.only?.split(",");
for (const [name, scenario] of Object.entries(scenarios)) {
  if (names && !names.includes(name)) continue;
  if (!options.every && !scenario.isForAll) continue;
  try {
    if (earlier) results[name] = { reload: await reload(scenario, earlier[name].thread) };
    else results[name] = await play(scenario, name);
  } catch (error) {
    throw new Error(`${name}: ${error.stack}`);
  }
}
fs.writeFileSync(out, JSON.stringify(results));
process.exit(0);
