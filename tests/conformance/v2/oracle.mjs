// Asks AG-UI's own client code about event sequences: which it accepts, and what they amount to.
//
//   node oracle.mjs        one JSON question a line on stdin, one JSON answer a line on stdout, in order
//
//   {"op": "verify", "events": […]}                            → {"error": null | "why not"}
//   {"op": "schema", "event": {…}}                             → {"error": null | "why not"}
//   {"op": "apply",  "events": […], "messages": […], "state"}  → {"error", "messages", "state"}
//
// Each question may name a "version" of @ag-ui/client; 0.0.59 is meant without one.
import { createInterface } from "node:readline";
import { finalize, from, lastValueFrom, toArray } from "rxjs";

const NEWEST = "0.0.59";
const CLIENTS = {
  "0.0.42": await import("ag-ui-client-0.0.42"), // React 1.50
  "0.0.52": await import("ag-ui-client-0.0.52"),
  "0.0.53": await import("ag-ui-client-0.0.53"), // React 1.57
  [NEWEST]: await import("@ag-ui/client"), // React 1.74
  "1.0.0": await import("ag-ui-client-1.0.0"),
};

/** Return the event as the client's parser passes it on, or throw with the first complaint. */
function parsed(client, event) {
  const result = client.EventSchemas.safeParse(event);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const complaint = issue.code === "invalid_union_discriminator" ? "unknown" : issue.message;
  throw new Error(`schema: ${event?.type}: ${[issue.path.join("."), complaint].join(": ")}`);
}

/** Since 1.0 the client strips what it does not know, and warns; here that is a complaint. */
const enforced = (client, events) => {
  const warn = console.warn;
  console.warn = (complaint) => {
    throw new Error(complaint);
  };
  return from(events).pipe(
    client.enforceEvents(false),
    finalize(() => (console.warn = warn)),
  );
};

/** What HttpAgent does with a stream before it looks at the order: parse, then expand chunks. */
const received = (client, events) =>
  (client.enforceEvents ? enforced(client, events) : from(events.map((event) => parsed(client, event)))).pipe(
    client.transformChunks(false),
  );

const ask = {
  async verify(client, { events }) {
    await lastValueFrom(received(client, events).pipe(client.verifyEvents(false), toArray()));
    return {};
  },

  async schema(client, { event }) {
    if (client.enforceEvents) await lastValueFrom(enforced(client, [event]));
    else parsed(client, event);
    return {};
  },

  async apply(client, { events, messages = [], state = {} }) {
    const input = { threadId: "t", runId: "r", messages, state, tools: [], context: [], forwardedProps: {} };
    const agent = { agentId: "oracle", threadId: "t", messages, state };
    const applied = client.defaultApplyEvents(input, received(client, events), agent, []);
    const changes = await lastValueFrom(applied.pipe(toArray()));
    return Object.assign({ messages, state }, ...changes);
  },
};

async function answer(question) {
  const client = CLIENTS[question.version ?? NEWEST];
  if (!client) return { error: `no version ${question.version}; there are ${Object.keys(CLIENTS)}` };
  try {
    return { error: null, ...(await ask[question.op](client, question)) };
  } catch (error) {
    return { error: String(error.message ?? error) || "refused" };
  }
}

for (const level of ["log", "info", "debug", "warn", "error"]) console[level] = () => {};
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + "\n");
}
