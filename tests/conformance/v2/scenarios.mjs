// What is played: name → (stage) => what the client ended up with. The names on the agent's side are in scripts.mjs.
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { partial, squashed } from "./normalise.mjs";
import { raw } from "./raw.mjs";
import { until } from "./stage.mjs";

const weather = (extra) => ({
  name: "getWeather",
  description: "weather",
  parameters: z.object({ city: z.string() }),
  handler: async ({ city }) => ({ city, t: 21 }),
  ...extra,
});

/** One page asks once on a new thread; `then` may go on with it before the report. */
const asks = (content, { state, then, events, ...options } = {}) => async (stage) => {
  const page = await stage.enter(stage.thread(), options);
  if (!page.agent) return page.report();
  if (state !== undefined) page.agent.setState(state);
  await page.ask(content);
  await then?.(page);
  await sleep(20); // the last callbacks of the client come after its promise
  return page.report({ events });
};

/** The same as the script of that name says. */
const plays = (script, options) => asks(`scenario:${script}`, options);

const approved = () => ({ status: "resolved", payload: { approved: true } });
const cancelled = () => ({ status: "cancelled" });
const interruptedRun = (page) => page.events.findLast((event) => event.outcome).runId;

const runs = {
  text: plays("text"),
  unicode: plays("unicode"),
  empty: plays("empty"),
  emptydelta: plays("emptydelta"),
  nullfield: plays("nullfield"),
  chunks: plays("chunks"),
  custom: plays("custom"),
  snapshot: plays("snapshot"),
  reasoning: plays("reasoning"),
  thinking: plays("thinking"),
  activity: plays("activity"),
  subagent: plays("subagent"),
  state: plays("state", { state: { n: 5 } }),
  "state-baddelta": plays("state-baddelta"),
  multimodal: asks([
    { type: "text", text: "scenario:multimodal" },
    { type: "image", source: { type: "data", value: "iVBORw0KGgo=", mimeType: "image/png" } },
    { type: "document", source: { type: "url", value: "https://files.example/a.pdf", mimeType: "application/pdf" } },
  ]),
  "echo-input": plays("echo-input", { tools: [weather()], properties: { tenant: "acme" }, events: false }),
  "echo-headers": plays("echo-headers", {
    headers: {
      Authorization: "Bearer tok",
      "X-Custom": "yes",
      "X-Forwarded-For": "1.2.3.4",
      "X-CopilotCloud-Public-Api-Key": "ck_pub",
      Cookie: "a=b",
    },
    events: false,
  }),
};

const tools = {
  tool: plays("tool", { tools: [weather()] }),
  "tool-nofollowup": plays("tool", { tools: [weather({ followUp: false })] }),
  "tool-throws": plays("tool", {
    tools: [
      weather({
        async handler() {
          throw new Error("handler broke");
        },
      }),
    ],
  }),
  "tool-badargs": plays("tool-badargs", { tools: [weather()] }),
  "tool-unregistered": plays("tool"),
  "tool-noparent": plays("tool-noparent", { tools: [weather()] }),
  "tool-two": plays("tool-two", { tools: [weather()] }),
  "backend-tool": plays("backend-tool"),
};

const failures = {
  "error-event": plays("error-event"),
  "error-http500": plays("http500"),
  "error-http401": plays("http401"),
  abrupt: plays("abrupt"),
  "abrupt-tool": plays("abrupt-tool"),
  drop: plays("drop"),
  nostart: plays("nostart"),
  badtype: plays("badtype"),
  badorder: plays("badorder"),
  async "unknown-agent"(stage) {
    const { core, errors } = await stage.open();
    const { agent } = core.registerProxiedAgent({ agentId: "ghost", runtimeAgentId: "nope" });
    agent.addMessage(stage.user("hi"));
    await core.runAgent({ agent });
    return { messages: agent.messages, errors };
  },
  async deny(stage) {
    const { core, errors } = await stage.open({ headers: { "x-deny": "1" } });
    return { status: core.runtimeConnectionStatus, errors };
  },
};

const interrupts = {
  interrupt: plays("interrupt", { then: (page) => page.resume(approved) }),
  "interrupt-norespond": plays("interrupt", {
    async then(page) {
      page.agent.addMessage(page.stage.user("scenario:text"));
      await page.run();
    },
  }),
  "interrupt-legacy": plays("interrupt-legacy", {
    then: (page) => page.run({ forwardedProps: { command: { resume: "yes", interruptEvent: { ask: "Approve?" } } } }),
  }),
  "interrupt-cancelled": plays("interrupt", { then: (page) => page.resume(cancelled) }),
  "interrupt-two": plays("interrupt-two", { then: (page) => page.resume(approved) }),
  "interrupt-two-half": plays("interrupt-two", {
    then: (page) => page.run({ resume: [{ interruptId: "int-1a", status: "resolved" }] }),
  }),
  // as useInterrupt does it: the resumed run has the id of the interrupted one
  async "interrupt-same-run"(stage) {
    const page = await stage.enter(stage.thread());
    await page.ask("scenario:interrupt");
    await page.resume(approved, { runId: interruptedRun(page) });
    const reload = await stage.enter(page.agent.threadId);
    await reload.connect();
    return { page: page.report(), reload: reload.replay() };
  },
  async "interrupt-reopened"(stage) {
    const first = await stage.enter(stage.thread());
    await first.ask("scenario:interrupt");
    const page = await stage.enter(first.agent.threadId);
    await page.connect();
    const pending = page.agent.pendingInterrupts?.map((interrupt) => interrupt.id);
    await page.resume(approved);
    return { pending, page: page.report(), stillPending: page.agent.pendingInterrupts };
  },
};

const threads = {
  async "connect-empty"(stage) {
    const page = await stage.enter(`t-none-${Date.now()}`);
    await page.connect();
    return page.replay();
  },
  async connect(stage) {
    const threadId = stage.thread("conn");
    await (await stage.enter(threadId, { tools: [weather()] })).ask("scenario:tool");
    await (await (await stage.enter(threadId)).connect()).ask("scenario:state");
    const page = await (await stage.enter(threadId, { tools: [weather()] })).connect();
    const { messages, events, errors, threw } = page.replay();
    return { messages, state: page.agent.state, events, tools: page.handled, errors, threw };
  },
  async "connect-live"(stage) {
    const runner = await stage.enter(stage.thread("live"));
    const running = runner.ask("scenario:slow");
    await until(() => runner.agent.messages.length > 1 && runner.answer);
    const reader = await (await stage.enter(runner.agent.threadId)).connect();
    await running;
    const [one, other] = [runner.agent.messages, reader.agent.messages];
    return { runner: one, connected: other, same: JSON.stringify(one) === JSON.stringify(other), errors: reader.errors };
  },
  async "connect-after-error"(stage) {
    const page = await stage.enter(stage.thread());
    await page.ask("scenario:error-event");
    await page.ask("scenario:text");
    const reload = await (await stage.enter(page.agent.threadId)).connect();
    return { live: page.agent.messages, reload: reload.replay() };
  },
  async stop(stage) {
    const page = await stage.enter(stage.thread());
    const started = await stopped(page);
    const quick = Date.now() - started < 2500;
    const messages = page.agent.messages.map((message) =>
      ({ ...message, content: message.role === "assistant" ? "<partial>" : message.content }));
    const last = squashed(page.events).at(-1);
    const reload = await (await stage.enter(page.agent.threadId)).connect();
    return {
      quick,
      isRunning: page.agent.isRunning,
      messages,
      types: [...new Set(page.events.map((event) => event.type ?? JSON.stringify(event)))],
      lastEvent: last?.type ?? last,
      errors: page.errors,
      replayRoles: reload.agent.messages.map((message) => message.role),
      replayErrors: reload.errors,
    };
  },
  async "stop-reconnect"(stage) {
    const page = await stage.enter(stage.thread());
    await stopped(page);
    const second = await (await stage.enter(page.agent.threadId)).connect();
    const shown = (one) => one.agent.messages.map(({ role, content }) => ({ role, content: partial(content) }));
    const afterStop = shown(second);
    await second.ask("scenario:text");
    const third = await (await stage.enter(page.agent.threadId)).connect();
    const types = squashed(third.events).map((event) => event.type);
    return { afterStop, afterRun: shown(second), reload: shown(third), types, errors: third.errors, threw: third.threw };
  },
  async "stop-idle"(stage) {
    const page = await stage.enter("t-idle");
    page.core.stopAgent({ agent: page.agent });
    await until(() => stage.http.at(-1).status && stage.http.length > 1);
    return { errors: page.errors };
  },
  async concurrent(stage) {
    const first = await stage.enter(stage.thread("cc"));
    const running = first.ask("scenario:slow");
    await until(() => first.agent.messages.length > 1);
    const second = await stage.enter(first.agent.threadId);
    await second.ask("scenario:text");
    await sleep(20);
    const late = second.report();
    await running;
    return { first: { roles: first.agent.messages.map((message) => message.role), errors: first.errors }, second: late };
  },
  async "disconnect-survives"(stage) {
    const page = await stage.enter(stage.thread("dis"));
    void page.ask("scenario:slow");
    await until(() => page.agent.messages.length > 1);
    await page.agent.detachActiveRun();
    await sleep(4800); // the script takes four seconds, and nobody is there to tell when it has ended
    const reload = await (await stage.enter(page.agent.threadId)).connect();
    return { replayed: reload.agent.messages, errors: reload.errors };
  },
};

/** Start the script "slow", stop it in the middle; return when the stop was asked for. */
async function stopped(page) {
  const running = page.ask("scenario:slow");
  await until(() => page.agent.messages.length > 1 && /\d \d /.test(page.answer));
  const started = Date.now();
  page.core.stopAgent({ agent: page.agent });
  await Promise.race([running, sleep(8000)]);
  await sleep(100);
  return started;
}

/** What the client proposes on a page, once nothing of it is loading any more. */
async function suggested({ core }) {
  let shown;
  core.subscribe({ onSuggestionsChanged: ({ suggestions }) => void (shown = suggestions) });
  core.addSuggestionsConfig({ instructions: "suggest", available: "always", minSuggestions: 1, maxSuggestions: 3 });
  core.reloadSuggestions("default");
  await until(() => shown?.length && shown.every((one) => !one.isLoading));
  await sleep(100);
  return shown;
}

const builtin = {
  "builtin-text": asks("hello there", { agentId: "builtin" }),
  "builtin-error": asks("boom", { agentId: "builtin" }),
  "builtin-state": asks("set state", { agentId: "builtin" }),
  async "builtin-context"(stage) {
    const page = await stage.enter(undefined, { agentId: "builtin", tools: [weather()] });
    page.core.addContext({ description: "user name", value: "Ada" });
    await page.ask("hi");
    return { messages: page.agent.messages, errors: page.errors };
  },
  async suggestions(stage) {
    const client = await stage.open({ suggestionsConfig: [] });
    return { suggestions: await suggested(client), errors: client.errors };
  },
  async "suggestions-apart"(stage) {
    const page = await stage.enter(stage.thread(), { suggestionsConfig: [] });
    await page.ask("scenario:text");
    const suggestions = await suggested(page);
    const reload = await (await stage.enter(page.agent.threadId)).connect();
    return { suggestions, messages: page.agent.messages, reload: reload.replay(), errors: page.errors };
  },
};

const info = {
  async info(stage) {
    const { core, errors } = await stage.open();
    const described = Object.entries(core.agents).map(([name, { description }]) => [name, { description }]);
    return {
      status: core.runtimeConnectionStatus,
      version: typeof core.runtimeVersion,
      transport: core.runtimeTransport,
      mode: core.runtimeMode,
      agents: Object.fromEntries(described),
      audio: core.audioFileTranscriptionEnabled,
      threadEndpoints: core.threadEndpoints,
      suggestions: core.suggestions,
      a2ui: core.a2uiEnabled,
      ogui: core.openGenerativeUIEnabled,
      errors,
    };
  },
};

export const scenarios = { ...info, ...runs, ...tools, ...failures, ...interrupts, ...threads, ...builtin, ...raw };
