// Drives a runtime with one client, and writes what the page ends up with.
//
//   node drive.mjs <base> <client> <transport> <out.json> [<before.json>]
//
// client: 1.57, 1.68, 1.74; transport: rest, single. Each scenario is asked in a thread of its own, and opened again by
// a second client. With the file of an earlier drive, its threads are only opened again.
import fs from "node:fs";

const [base, client, transport, out, before] = process.argv.slice(2);
globalThis.window ??= { location: { origin: "http://app.example", href: "http://app.example/" } };
for (const level of ["log", "info", "warn", "error", "debug"]) console[level] = () => {};
const { z } = await import("zod");
const { CopilotKitCore } = await import(`core-${client}`);
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

/** Return a client that has read what the runtime offers. */
async function connected({ mount, properties, hasSandbox }) {
  const options = { runtimeUrl: `${base}/${mount}`, runtimeTransport: transport, properties };
  const core = new CopilotKitCore({ ...options, tools: hasSandbox ? [sandbox] : [] });
  while (!["connected", "error"].includes(core.runtimeConnectionStatus)) await new Promise(setImmediate);
  return core;
}

/** Return the messages of a thread as a page that opens it gets them. */
async function reload(scenario, thread) {
  const core = await connected(scenario);
  const agent = core.getAgent("default");
  agent.threadId = thread;
  await core.connectAgent({ agent });
  return agent.messages;
}

async function ask(scenario, name) {
  const core = await connected(scenario);
  for (const entry of scenario.context ?? []) core.addContext(entry);
  const agent = core.getAgent("default");
  const thread = (agent.threadId = `t-${name}-${client}-${transport}`);
  for (const [number, question] of scenario.questions.entries()) {
    agent.addMessage({ id: `u-${number + 1}`, role: "user", content: `scenario:${question}` });
    await core.runAgent({ agent });
  }
  return { thread, live: agent.messages, reload: await reload(scenario, thread) };
}

const results = {};
const earlier = before && JSON.parse(fs.readFileSync(before));
for (const [name, scenario] of Object.entries(scenarios)) {
  if (earlier) results[name] = { reload: await reload(scenario, earlier[name].thread) };
  else results[name] = await ask(scenario, name);
}
fs.writeFileSync(out, JSON.stringify(results));
process.exit(0);
