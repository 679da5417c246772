/* The state of a thread, built from its events, whether live or replayed. */

const PASSING = new Set(["interrupt", "error"]);  // notes that look different once the thread continues
const SENT = new Set(["user", "assistant", "tool", "system", "developer", "reasoning"]);

class Conversation {
  items = [];           // AG-UI messages, and notes between them
  state = undefined;
  interrupts = [];      // the open interrupts of the thread
  isLive = false;       // events arrive as they happen, so that durations can be measured
  run = null;           // the last run: its id, its items, whether and how it ended
  changed = new Set();  // items to redraw
  #byId = new Map();
  #calls = new Map();

  apply(event) {
    EVENTS[event.type]?.(this, event);
  }

  /* The messages for the model, without those that broke off. */
  messages() {
    return this.items.filter((item) => SENT.has(item.role) && !item.broken).map(asMessage);
  }

  message(id) { return this.#byId.get(id); }

  call(id) { return this.#calls.get(id); }

  /* The calls of the last run without a result. */
  unanswered() {
    return (this.run?.items ?? []).flatMap((item) => item.toolCalls ?? []).filter((call) => !call.result);
  }

  add(item) {
    this.items.push(item);
    this.run?.items.push(item);
    if (item.id) this.#byId.set(item.id, item);
    for (const call of item.toolCalls ?? []) this.#calls.set(call.id, Object.assign(call, { item }));
    if (item.role === "tool") this.answer(item);
    this.changed.add(item);
    return item;
  }

  addCall(item, call) {
    item.toolCalls = [...(item.toolCalls ?? []), call];
    this.#calls.set(call.id, Object.assign(call, { item }));
    this.changed.add(item);
  }

  answer(message) {
    const call = this.call(message.toolCallId);
    if (!call) return;
    call.result = message;
    if (call.began && this.isLive) call.took = performance.now() - call.began;
    this.changed.add(call.item);
  }

  /* Forgets the items from an index on. */
  cut(at) {
    for (const item of this.items.splice(at)) {
      if (item.id) this.#byId.delete(item.id);
      for (const call of item.toolCalls ?? []) this.#calls.delete(call.id);
    }
    this.interrupts = [];
  }

  /* Applies a message snapshot; items that only the page has are kept. */
  replace(messages) {
    const named = new Set(messages.map((message) => message.id));
    const spoken = (item) => SENT.has(item.role) && item.role !== "reasoning";
    this.items = this.items.filter((item) => !spoken(item) || named.has(item.id));
    for (const message of messages) this.learn(message);
  }

  learn(message) {
    const known = this.message(message.id);
    if (!known) return this.add(structuredClone(message));
    if (message.role === "assistant" || message.content === undefined) return known;
    known.content = message.content;
    this.changed.add(known);
    return known;
  }

  /* Adds a note; all runs that answer one message share one note of each kind. */
  addNote(kind, values) {
    const asked = this.items.findLastIndex((item) => item.role === "user");
    const before = this.items.findIndex((item, at) => at > asked && item.kind === kind);
    const [same] = before < 0 ? [] : this.items.splice(before, 1);
    for (const item of this.items) if (item.kind === kind) this.changed.add(item);
    this.add({ role: "note", kind, values: [...(same?.values ?? []), ...values] });
  }

  /* Some servers send an interrupt in both the current and the previous format. */
  forgetOldInterrupts(asked) {
    this.interrupts = asked;
    this.items = this.items.filter((item) => !item.interrupt?.event || !this.run.items.includes(item));
  }

  /* An answer that broke off makes way for the next one to the same question. */
  forgetBroken() {
    const asked = this.items.findLastIndex((item) => item.role === "user");
    this.items = this.items.filter((item, at) => at < asked || !item.broken);
  }

  /* Ends the open items of the run. */
  close() {
    for (const item of this.items) {
      if (!item.open && !item.toolCalls?.some((call) => call.open)) continue;
      item.open = false;
      for (const call of item.toolCalls ?? []) call.open = false;
      this.changed.add(item);
    }
    for (const item of this.run?.items ?? []) if (item.toolCalls) this.changed.add(item);
  }
}

const EVENTS = {
  RUN_STARTED(thread, event) {
    thread.interrupts = [];
    for (const item of thread.items) if (PASSING.has(item.kind)) thread.changed.add(item);
    thread.run = { id: event.runId, items: [], ended: false };
    for (const message of event.input?.messages ?? []) thread.learn(message);
    thread.forgetBroken();
  },
  RUN_FINISHED(thread, event) {
    thread.run ??= { id: event.runId, items: [] };
    thread.close();
    thread.run.ended = true;
    const asked = event.outcome?.type === "interrupt" ? event.outcome.interrupts : [];
    if (asked.length) thread.forgetOldInterrupts(asked);
    for (const interrupt of asked) thread.add({ role: "note", kind: "interrupt", interrupt });
    thread.addNote("run", [{ id: thread.run.id, usage: event.usage ?? [] }]);
  },
  RUN_ERROR(thread, event) {
    thread.close();
    if (!thread.run || thread.run.ended) thread.run = { id: "", items: [] };  // a run that could not start
    thread.run.ended = true;
    if (event.code === "abort" || event.code === "STOPPED") thread.add({ role: "note", kind: "stopped" });
    else fail(thread, event);
    if (thread.run.id) thread.addNote("run", [{ id: thread.run.id, usage: [] }]);
  },

  TEXT_MESSAGE_START(thread, { messageId, role = "assistant" }) {
    const known = thread.message(messageId);
    const item = known?.role === role ? known : thread.add({ id: messageId, role });
    item.content ??= "";
    item.open = true;
    thread.changed.add(item);
  },
  TEXT_MESSAGE_CONTENT: append,
  TEXT_MESSAGE_END: end,

  REASONING_MESSAGE_START(thread, { messageId }) {
    thread.add({ id: messageId, role: "reasoning", content: "", open: true });
  },
  REASONING_MESSAGE_CONTENT: append,
  REASONING_MESSAGE_END: end,
  REASONING_ENCRYPTED_VALUE(thread, { subtype, entityId, encryptedValue }) {
    const of = subtype === "message" ? thread.message(entityId) : thread.call(entityId);
    if (of) of.encryptedValue = encryptedValue;
  },

  TOOL_CALL_START(thread, { toolCallId, toolCallName, parentMessageId }) {
    if (thread.call(toolCallId)) return;
    const parent = thread.message(parentMessageId ?? toolCallId);
    const item = parent?.role === "assistant" ? parent : thread.add({ id: parentMessageId ?? toolCallId, role: "assistant" });
    thread.addCall(item, { id: toolCallId, type: "function", function: { name: toolCallName, arguments: "" }, open: true, began: performance.now() });
  },
  TOOL_CALL_ARGS(thread, { toolCallId, delta }) {
    const call = thread.call(toolCallId);
    if (!call) return;
    call.function.arguments += delta;
    thread.changed.add(call.item);
  },
  TOOL_CALL_END(thread, { toolCallId }) {
    const call = thread.call(toolCallId);
    if (!call) return;
    call.open = false;
    thread.changed.add(call.item);
  },
  TOOL_CALL_RESULT(thread, { messageId, toolCallId, content }) {
    if (!thread.message(messageId)) thread.add({ id: messageId, role: "tool", toolCallId, content });
  },

  STATE_SNAPSHOT(thread, { snapshot }) { thread.state = snapshot; },
  STATE_DELTA(thread, { delta }) {
    try {
      thread.state = patched(thread.state ?? {}, delta);
    } catch (error) {
      thread.add({ role: "note", kind: "plain", text: `A change of the state does not fit it: ${error.message}` });
    }
  },
  MESSAGES_SNAPSHOT(thread, { messages }) { thread.replace(messages); },

  ACTIVITY_SNAPSHOT(thread, { messageId, activityType, content, replace = true }) {
    const known = thread.message(messageId);
    if (!known) return thread.add({ id: messageId, role: "activity", activityType, content });
    if (replace) Object.assign(known, { activityType, content });
    thread.changed.add(known);
  },
  ACTIVITY_DELTA(thread, { messageId, patch }) {
    const known = thread.message(messageId);
    if (!known) return;
    try { known.content = patched(known.content, patch); } catch { /* the next snapshot has it */ }
    thread.changed.add(known);
  },

  STEP_STARTED(thread, { stepName }) {
    thread.add({ role: "note", kind: "step", name: stepName, open: true });
  },
  STEP_FINISHED(thread, { stepName }) {
    const step = thread.items.findLast((item) => item.kind === "step" && item.open && item.name === stepName);
    if (!step) return;
    step.open = false;
    thread.changed.add(step);
  },

  /* Changes of the playground, and the format of interrupts before they were part of a run's outcome. */
  CUSTOM(thread, { name, value }) {
    if (name === "playground" && thread.items.findLast(({ role, kind }) => role === "user" || kind === "changes")?.kind !== "changes")
      thread.add({ role: "note", kind: "changes", value });
    if (name !== "on_interrupt") return;
    const message = typeof value === "string" ? value : undefined;
    const interrupt = { id: newId(), reason: "input", message, metadata: message ? undefined : { value }, event: { value } };
    thread.interrupts = [...thread.interrupts, interrupt];
    thread.add({ role: "note", kind: "interrupt", interrupt });
  },
};

function fail(thread, { code, message, retryAt }) {
  thread.run.error = { title: code ? titleOfError(code) : "Error", message, retryAt };
  for (const item of thread.run.items) {
    if (item.role === "assistant") item.broken = !item.toolCalls?.some((call) => call.result);
  }
  thread.add({ role: "note", kind: "error", error: thread.run.error });
}

function append(thread, { messageId, delta }) {
  const item = thread.message(messageId);
  if (!item) return;
  item.content += delta;
  thread.changed.add(item);
}

function end(thread, { messageId }) {
  const item = thread.message(messageId);
  if (!item) return;
  item.open = false;
  thread.changed.add(item);
}

function asMessage({ open, broken, toolCalls, ...message }) {
  if (!toolCalls) return message;
  const calls = toolCalls.map(({ item, result, open, began, took, ...call }) => call);
  return { ...message, toolCalls: calls };
}
