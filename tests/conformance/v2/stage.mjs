// What a scenario acts with: clients on the runtime under test, and a record of every request they send.
import { setTimeout as sleep } from "node:timers/promises";
import { squashed } from "./normalise.mjs";

const browserFetch = globalThis.fetch;

/** Wait until the condition holds; give up silently after some seconds, and let the comparison tell. */
export async function until(condition, seconds = 8) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end && !condition(); ) await sleep(20);
}

/** One scenario against one base URL by one transport: "auto", "rest" or "single". */
export class Stage {
  constructor({ Core, base, transport, scenario }) {
    Object.assign(this, { Core, transport, scenario, base: base.replace(/\/$/, "") });
    this.http = [];
    this.users = 0;
    globalThis.fetch = (url, init) => this.#recorded(url, init);
  }

  /** A thread id of its own; `normalise` knows its form. */
  thread(name = this.scenario) {
    return `t-${name}-${this.transport}-${Date.now()}`;
  }

  user(content) {
    return { id: `u-${++this.users}`, role: "user", content };
  }

  /** A client that has read /info, or failed to. */
  async open({ headers = {}, tools = [], properties, suggestionsConfig, credentials } = {}) {
    const core = new this.Core({
      runtimeUrl: this.base,
      runtimeTransport: this.transport,
      headers,
      tools,
      properties,
      suggestionsConfig,
      credentials,
    });
    const errors = [];
    const handled = [];
    core.subscribe({
      onError({ code, error, context }) {
        errors.push({ code, message: error.message, ...(context?.event && { event: context.event }) });
      },
      onToolExecutionStart: ({ toolName, args }) => void handled.push({ start: toolName, args }),
      onToolExecutionEnd: ({ toolName, result, error }) => void handled.push({ end: toolName, result, error }),
    });
    await until(() => !["connecting", "disconnected"].includes(core.runtimeConnectionStatus), 10);
    return { core, errors, handled };
  }

  /** A page that shows one thread of one agent. */
  async enter(threadId, { agentId = "default", ...options } = {}) {
    const client = await this.open(options);
    return new Page(this, client, client.core.getAgent(agentId), threadId);
  }

  /** Ask without a client; return {status, contentType, body}. */
  async raw(path, init) {
    const response = await fetch(this.base + path, init);
    const text = await response.text();
    let body;
    try {
      body = JSON.parse(text);
    } catch {
      body = text;
    }
    return { status: response.status, contentType: response.headers.get("content-type"), body };
  }

  async #recorded(url, init = {}) {
    const headers = new Headers(init.headers);
    headers.set("x-scenario", `${this.scenario}/${this.transport}`);
    const entry = { method: init.method ?? "GET", url: String(url).replace(this.base, "") || "(base)" };
    const envelope = /^\{"method":"([^"]+)"/.exec(init.body)?.[1];
    if (envelope) entry.envelope = envelope;
    this.http.push(entry);
    try {
      const response = await browserFetch(url, { ...init, headers });
      entry.status = response.status;
      return response;
    } catch (error) {
      entry.status = error.name;
      throw error;
    }
  }
}

/** A thread as one page sees it. Without such an agent `agent` is undefined. */
class Page {
  constructor(stage, client, agent, threadId) {
    Object.assign(this, { stage, agent, ...client });
    this.events = [];
    if (!agent) return;
    if (threadId) agent.threadId = threadId;
    agent.subscribe({
      onEvent: ({ event: { rawEvent: _raw, timestamp: _time, input: _input, ...event } }) => void this.events.push(event),
      onRunFailed: ({ error }) => void this.events.push({ $failed: error.message }),
    });
  }

  /** Say something and wait for the run, and the runs that follow from it. */
  async ask(content, options) {
    this.agent.addMessage(this.stage.user(content));
    this.ran = await this.run(options);
    return this;
  }

  /** Old clients throw where new ones report. */
  async run(options) {
    try {
      return await this.core.runAgent({ agent: this.agent, ...options });
    } catch (error) {
      this.threw = String(error.message).slice(0, 60);
    }
  }

  async connect() {
    try {
      await this.core.connectAgent({ agent: this.agent });
    } catch (error) {
      this.threw = String(error.message).slice(0, 60);
    }
    return this;
  }

  /** Resume the interrupted run; `answer` says what to each open interrupt. */
  async resume(answer, options) {
    const open = this.events.findLast((event) => event.outcome)?.outcome.interrupts ?? [];
    const resume = open.map((interrupt) => ({ interruptId: interrupt.id, ...answer(interrupt) }));
    return this.run({ ...options, resume });
  }

  get answer() {
    return this.agent.messages.at(-1)?.content;
  }

  /** Everything the page ended up with. */
  report({ events = true } = {}) {
    const { agent, ran, core, errors, handled, threw } = this;
    if (!agent) return { errors, status: core.runtimeConnectionStatus, agents: Object.keys(core.agents) };
    return {
      result: ran?.result,
      newMessages: ran?.newMessages?.map((message) => message.role),
      messages: agent.messages,
      state: agent.state,
      isRunning: agent.isRunning,
      events: events ? squashed(this.events) : undefined,
      tools: handled.length ? handled : undefined,
      errors,
      threw,
    };
  }

  /** What is there after a connect. */
  replay() {
    const { agent, errors, threw } = this;
    return { messages: agent.messages, events: squashed(this.events), errors, threw };
  }
}
