// What the scripted AG-UI agent does, by name: each script yields events of a run, or an order in braces
// like {sleep: ms}, {http: status} or {drop: true} that agent.mjs carries out instead of sending.

/** The text of a message's content, whatever its form. */
export const textOf = (content) =>
  typeof content === "string"
    ? content
    : (content ?? []).map((part) => (part.type === "text" ? part.text : `<${part.type}>`)).join("");

const lastUser = (messages) => messages.findLast((message) => message.role === "user");

function* say(messageId, ...deltas) {
  yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
  for (const delta of deltas) yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta };
  yield { type: "TEXT_MESSAGE_END", messageId };
}

function* call(toolCallId, toolCallName, args, parentMessageId) {
  yield { type: "TOOL_CALL_START", toolCallId, toolCallName, ...(parentMessageId ? { parentMessageId } : {}) };
  const text = JSON.stringify(args);
  const half = Math.ceil(text.length / 2);
  for (const delta of [text.slice(0, half), text.slice(half)])
    if (delta) yield { type: "TOOL_CALL_ARGS", toolCallId, delta };
  yield { type: "TOOL_CALL_END", toolCallId };
}

const shown = (value) => JSON.stringify(value ?? null);

/** Scripts that run between RUN_STARTED and RUN_FINISHED. `m`, `t` … are ids that differ by turn. */
const TURNS = {
  *text({ id }) {
    yield* say(id("m"), "Hello", " ", "world");
  },
  *unicode({ id }) {
    yield* say(id("m"), "Grüße, ", "世界 ", "👩🏽‍💻", "\n\ndata: not-an-event\n", "\u2028end");
  },
  *empty() {},
  *emptydelta({ id }) {
    yield* say(id("m"), "", "x");
  },
  *nullfield({ id }) {
    yield { type: "TEXT_MESSAGE_START", messageId: id("m"), role: "assistant", name: null, timestamp: null };
    yield { type: "TEXT_MESSAGE_CONTENT", messageId: id("m"), delta: "x" };
    yield { type: "TEXT_MESSAGE_END", messageId: id("m") };
  },
  *slow({ id }) {
    yield { type: "TEXT_MESSAGE_START", messageId: id("m"), role: "assistant" };
    for (let i = 0; i < 40; i++) {
      yield { sleep: 100 };
      yield { type: "TEXT_MESSAGE_CONTENT", messageId: id("m"), delta: `${i} ` };
    }
    yield { type: "TEXT_MESSAGE_END", messageId: id("m") };
  },
  *multimodal({ id, last }) {
    yield* say(id("m"), `got: ${JSON.stringify(last.content)}`);
  },

  *tool({ id }) {
    yield* say(id("m"), "Let me check.");
    yield* call(id("tc"), "getWeather", { city: "Oslo" }, id("m"));
  },
  *"tool-noparent"({ id }) {
    yield* call(id("tc"), "getWeather", { city: "Oslo" });
  },
  *"tool-two"({ id }) {
    yield* call(`${id("tc")}a`, "getWeather", { city: "Oslo" }, id("m"));
    yield* call(`${id("tc")}b`, "getWeather", { city: "Rome" }, id("m"));
  },
  *"tool-badargs"({ id }) {
    yield { type: "TOOL_CALL_START", toolCallId: id("tc"), toolCallName: "getWeather" };
    yield { type: "TOOL_CALL_ARGS", toolCallId: id("tc"), delta: "{not json" };
    yield { type: "TOOL_CALL_END", toolCallId: id("tc") };
  },
  *"backend-tool"({ id }) {
    yield* call(id("tc"), "lookup", { q: "x" });
    const content = JSON.stringify({ hits: 3 });
    yield { type: "TOOL_CALL_RESULT", messageId: id("tr"), toolCallId: id("tc"), content, role: "tool" };
    yield* say(id("m"), "3 hits");
  },
  *chunks({ id }) {
    yield { type: "TEXT_MESSAGE_CHUNK", messageId: id("m"), role: "assistant", delta: "chunk one " };
    yield { type: "TEXT_MESSAGE_CHUNK", delta: "chunk two" };
    const first = { toolCallId: id("tc"), toolCallName: "lookup", parentMessageId: id("m") };
    yield { type: "TOOL_CALL_CHUNK", ...first, delta: '{"a":' };
    yield { type: "TOOL_CALL_CHUNK", delta: "1}" };
  },

  *state({ id, input }) {
    yield { type: "STATE_SNAPSHOT", snapshot: { items: ["a"], n: (input.state?.n ?? 0) + 1 } };
    const push = { op: "add", path: "/items/-", value: "b" };
    yield { type: "STATE_DELTA", delta: [push, { op: "replace", path: "/n", value: 42 }] };
    yield* say(id("m"), `state in: ${shown(input.state)}`);
  },
  *"state-baddelta"({ id }) {
    yield { type: "STATE_DELTA", delta: [{ op: "replace", path: "/missing/deep", value: 1 }] };
    yield* say(id("m"), "after bad delta");
  },
  *custom({ id }) {
    yield { type: "STEP_STARTED", stepName: "plan" };
    yield { type: "CUSTOM", name: "progress", value: { pct: 50 } };
    yield { type: "RAW", event: { any: "thing" }, source: "test" };
    yield { type: "STEP_FINISHED", stepName: "plan" };
    yield* say(id("m"), "done");
  },
  *snapshot({ id, messages }) {
    const more = { id: id("snap"), role: "assistant", content: "from snapshot" };
    yield { type: "MESSAGES_SNAPSHOT", messages: [...messages, more] };
  },
  *reasoning({ id }) {
    const messageId = id("r");
    yield { type: "REASONING_START", messageId };
    yield { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" };
    yield { type: "REASONING_MESSAGE_CONTENT", messageId, delta: "thinking hard" };
    yield { type: "REASONING_MESSAGE_END", messageId };
    yield { type: "REASONING_ENCRYPTED_VALUE", subtype: "message", entityId: messageId, encryptedValue: "ENC" };
    yield { type: "REASONING_END", messageId };
    yield* say(id("m"), "answer");
  },
  *thinking({ id }) {
    yield { type: "THINKING_START", title: "hmm" };
    yield { type: "THINKING_TEXT_MESSAGE_START" };
    yield { type: "THINKING_TEXT_MESSAGE_CONTENT", delta: "old-style thinking" };
    yield { type: "THINKING_TEXT_MESSAGE_END" };
    yield { type: "THINKING_END" };
    yield* say(id("m"), "answer");
  },
  *activity({ id }) {
    const which = { messageId: id("a"), activityType: "PLAN" };
    yield { type: "ACTIVITY_SNAPSHOT", ...which, content: { steps: ["one"] }, replace: true };
    yield { type: "ACTIVITY_DELTA", ...which, patch: [{ op: "add", path: "/steps/-", value: "two" }] };
    yield* say(id("m"), "planned");
  },
  *subagent({ id }) {
    yield { type: "SUBAGENT_STARTED", subagentRunId: id("s"), name: "researcher" };
    yield { type: "SUBAGENT_FINISHED", subagentRunId: id("s"), result: { ok: true } };
    yield* say(id("m"), "subagent done");
  },

  *interrupt({ id, input, finish }) {
    if (input.resume) return yield* say(id("m"), `resumed: ${JSON.stringify(input.resume)}`);
    yield* say(id("m"), "need approval");
    finish.outcome = {
      type: "interrupt",
      interrupts: [{ id: id("int"), reason: "approval", message: "Approve?" }],
    };
  },
  *"interrupt-two"({ id, input, finish }) {
    if (input.resume) return yield* say(id("m"), `resumed: ${JSON.stringify(input.resume)}`);
    const ask = (letter) => ({ id: `${id("int")}${letter}`, reason: "approval", message: `Approve ${letter}?` });
    finish.outcome = { type: "interrupt", interrupts: [ask("a"), ask("b")] };
  },
  *"interrupt-legacy"({ id, input }) {
    const command = input.forwardedProps?.command;
    if (command) yield* say(id("m"), `resumed: ${JSON.stringify(command)}`);
    else yield { type: "CUSTOM", name: "on_interrupt", value: { ask: "Approve?" } };
  },

  *"echo-input"({ id, input }) {
    const { tools, context, forwardedProps } = input;
    yield* say(id("m"), JSON.stringify({ tools, context, forwardedProps, keys: Object.keys(input).sort() }));
  },
  *"echo-headers"({ id, headers }) {
    const telling = ([name]) => name === "authorization" || name.startsWith("x-");
    yield* say(id("m"), JSON.stringify(Object.fromEntries(Object.entries(headers).filter(telling))));
  },

  *badtype({ id }) {
    yield* say(id("m"), "before");
    yield { type: "NO_SUCH_EVENT", x: 1 };
    yield* say(id("m2"), "after");
  },
  *badorder() {
    yield { type: "TEXT_MESSAGE_CONTENT", messageId: "never", delta: "x" };
  },
};

/** Scripts that end without RUN_FINISHED. */
const BROKEN = {
  *"error-event"({ id }) {
    yield { type: "TEXT_MESSAGE_START", messageId: id("m"), role: "assistant" };
    yield { type: "TEXT_MESSAGE_CONTENT", messageId: id("m"), delta: "partial" };
    yield { type: "RUN_ERROR", message: "agent says no", code: "E_AGENT" };
  },
  *abrupt({ id }) {
    yield { type: "TEXT_MESSAGE_START", messageId: id("m"), role: "assistant" };
    yield { type: "TEXT_MESSAGE_CONTENT", messageId: id("m"), delta: "cut of" };
  },
  *"abrupt-tool"({ id }) {
    yield { type: "TOOL_CALL_START", toolCallId: id("tc"), toolCallName: "lookup" };
    yield { type: "TOOL_CALL_ARGS", toolCallId: id("tc"), delta: '{"a"' };
  },
  *drop({ id }) {
    yield { type: "TEXT_MESSAGE_START", messageId: id("m"), role: "assistant" };
    yield { drop: true };
  },
};

/** Yield what the agent does with one run input; the last user message names the script. */
export function* play(input, headers) {
  const messages = input.messages ?? [];
  const last = messages.at(-1) ?? {};
  const name = /scenario:([\w-]+)/.exec(textOf(lastUser(messages)?.content))?.[1] ?? "text";
  const ids = { threadId: input.threadId, runId: input.runId };
  const finish = { type: "RUN_FINISHED", ...ids };
  const id = (prefix) => `${prefix}-${messages.length}`;
  const turn = { input, headers, messages, last, id, finish };

  const http = /^http(\d+)$/.exec(name);
  const suggesting = input.tools?.some((tool) => tool.name === "copilotkitSuggest");
  if (http && !suggesting) return yield { http: Number(http[1]) };
  if (name !== "nostart" || suggesting) yield { type: "RUN_STARTED", ...ids };
  if (suggesting) {
    const ideas = ["A", "B"].map((letter) => ({ title: letter, message: `do ${letter}` }));
    yield* call(id("sug"), "copilotkitSuggest", { suggestions: ideas });
  } else if (last.role === "tool") yield* say(id("m"), "Tool returned: ", textOf(last.content));
  else if (BROKEN[name]) return yield* BROKEN[name](turn);
  else if (name === "nostart") yield* TURNS.text(turn);
  else if (TURNS[name]) yield* TURNS[name](turn);
  else yield* say(id("m"), `unknown scenario ${name}`);
  yield finish;
}
