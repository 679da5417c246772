// Scenarios without a client: what the runtime says to requests that no client sends, or only by hooks of React.

const JSON_TYPE = { "content-type": "application/json" };
const INPUT = { threadId: "t", runId: "r", messages: [], state: {}, tools: [], context: [], forwardedProps: {} };
const BROKEN = "{";

const posted = (body, headers = JSON_TYPE, method = "POST") => ({
  method,
  headers,
  body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
});

export const raw = {
  "raw-errors": (stage) => (stage.transport === "single" ? singleErrors(stage) : restErrors(stage)),
  transcribe: (stage) => (stage.transport === "single" ? transcribeEnvelope(stage) : transcribeForm(stage)),
  threads,
  "thread-life": threadLife,
};

async function singleErrors(stage) {
  const post = (body, headers) => stage.raw("", posted(body, headers));
  const run = (rest) => post({ method: "agent/run", ...rest });
  return {
    get: await stage.raw(""),
    notJsonType: await post("x", { "content-type": "text/plain" }),
    badJson: await post(BROKEN),
    noMethod: await post({}),
    badMethod: await post({ method: "threads/list" }),
    noAgent: await run({ body: INPUT }),
    noBody: await run({ params: { agentId: "default" } }),
    unknownAgent: await run({ params: { agentId: "nope" }, body: INPUT }),
    badBody: await run({ params: { agentId: "default" }, body: { threadId: 1 } }),
    stopUnknown: await post({ method: "agent/stop", params: { agentId: "default", threadId: "zz" } }),
    stopNoThread: await post({ method: "agent/stop", params: { agentId: "default" } }),
  };
}

async function restErrors(stage) {
  const post = (path, body) => stage.raw(path, posted(body));
  const noState = { ...INPUT, threadId: "zz2", state: null, forwardedProps: null };
  return {
    unknownAgent: await post("/agent/nope/run", INPUT),
    connectUnknown: await post("/agent/nope/connect", INPUT),
    stopUnknownAgent: await post("/agent/nope/stop/t"),
    stopIdle: await post("/agent/default/stop/zz"),
    badJson: await post("/agent/default/run", BROKEN),
    badBody: await post("/agent/default/run", { threadId: 1 }),
    missingArrays: await post("/agent/default/connect", { threadId: "zz", runId: "r" }),
    nullState: (await post("/agent/default/connect", noState)).status,
    getRun: await stage.raw("/agent/default/run"),
    postInfo: await post("/info", {}),
    notFound: await stage.raw("/nonsense"),
    base: await stage.raw(""),
    envelopeOnMulti: await post("", { method: "info" }),
    memories: await stage.raw("/memories"),
    annotate: await post("/annotate", {}),
    inspector: await stage.raw("/inspector-metadata"),
    suggestUnknown: await post("/agent/nope/suggest", INPUT),
    clear: await post("/threads/clear", {}),
    debug: "skipped (stream)",
  };
}

async function transcribeEnvelope(stage) {
  const audio = "AQIDBA==";
  const post = (body) => stage.raw("", posted({ method: "transcribe", body }));
  return {
    ok: await post({ audio, mimeType: "audio/webm", filename: "recording.webm" }),
    codec: await post({ audio, mimeType: "audio/webm;codecs=opus" }),
    dataUrl: await post({ audio: `data:audio/wav;base64,${audio}`, mimeType: "audio/wav" }),
    badType: await post({ audio, mimeType: "text/plain" }),
    noAudio: await post({ mimeType: "audio/wav" }),
    noMime: await post({ audio }),
  };
}

async function transcribeForm(stage) {
  const post = (type, name = "recording.webm", field = "audio") => {
    const body = new FormData();
    body.append(field, new Blob([new Uint8Array([1, 2, 3, 4])], { type }), name);
    return stage.raw("/transcribe", { method: "POST", body });
  };
  return {
    ok: await post("audio/webm;codecs=opus"),
    noType: await post(""),
    badType: await post("text/plain"),
    badField: await post("audio/wav", "a.wav", "file"),
    text: await stage.raw("/transcribe", posted("x", { "content-type": "text/plain" })),
  };
}

/** A run whose thread the scenarios below look at: the same exchange as in `tool`, by hand. */
async function conversation(stage, threadId) {
  const call = { id: "tc-1", type: "function", function: { name: "getWeather", arguments: '{"city":"Oslo"}' } };
  const user = { id: "u-1", role: "user", content: "scenario:tool" };
  const answer = { id: "m-1", role: "assistant", content: "Let me check.", toolCalls: [call] };
  const result = { id: crypto.randomUUID(), role: "tool", toolCallId: "tc-1", content: '{"city":"Oslo","t":21}' };
  for (const messages of [[user], [user, answer, result]]) {
    const input = { ...INPUT, threadId, runId: crypto.randomUUID(), messages };
    if (stage.transport !== "single") await stage.raw("/agent/default/run", posted(input));
    else await stage.raw("", posted({ method: "agent/run", params: { agentId: "default" }, body: input }));
  }
}

async function threads(stage) {
  if (stage.transport === "single") return "skipped: REST only";
  const threadId = `t-thr-${Date.now()}`;
  await stage.raw("/info");
  await conversation(stage, threadId);
  const own = posted({ agentId: "default" });
  const list = await stage.raw("/threads?agentId=default");
  const mine = list.body.threads?.find((thread) => thread.id === threadId);
  const shown = mine && { name: mine.name, agentId: mine.agentId, archived: mine.archived };
  // other scenarios may have left more threads than fit on a page
  const nextCursor = typeof list.body.nextCursor === "string" ? null : list.body.nextCursor;
  const at = (rest = "", init) => stage.raw(`/threads/${threadId}${rest}`, init);
  return {
    list: { status: list.status, nextCursor, keys: mine && Object.keys(mine), mine: shown },
    other: (await stage.raw("/threads?agentId=zzz")).body,
    messages: await at("/messages"),
    events: (await at("/events")).body.events?.map((event) => event.type),
    state: await at("/state"),
    missingMessages: await stage.raw("/threads/none/messages"),
    missingEvents: await stage.raw("/threads/none/events"),
    missingState: await stage.raw("/threads/none/state"),
    patch: await at("", posted({ agentId: "default", name: "x" }, JSON_TYPE, "PATCH")),
    archive: await at("/archive", own),
    del: await at("", { ...own, method: "DELETE" }),
    subscribe: await stage.raw("/threads/subscribe", posted({})),
  };
}

/** What useThreads does with a thread, from the first list to its deletion; by envelopes in single mode. */
async function threadLife(stage) {
  const threadId = stage.thread();
  const ask = (httpMethod, path, body) => {
    const params = { path, httpMethod };
    if (stage.transport === "single") return stage.raw("", posted({ method: "resource/request", params, body }));
    return stage.raw(path, httpMethod === "GET" ? undefined : posted(body, JSON_TYPE, httpMethod));
  };
  const listed = async (query = "") => {
    const { status, body } = await ask("GET", `/threads?agentId=default${query}`);
    const mine = body.threads?.find((thread) => thread.id === threadId);
    return { status, mine: mine && { name: mine.name, archived: mine.archived } };
  };
  const at = `/threads/${threadId}`;
  const agentId = "default";
  await conversation(stage, threadId);
  return {
    first: await listed(),
    rename: (await ask("PATCH", at, { agentId, name: "Weather" })).status,
    renamed: await listed(),
    archive: (await ask("POST", `${at}/archive`, { agentId })).status,
    hidden: await listed(),
    archived: await listed("&includeArchived=true"),
    unarchive: (await ask("PATCH", at, { agentId, archived: false })).status,
    back: await listed(),
    messages: (await ask("GET", `${at}/messages`)).body.messages?.map((message) => message.role),
    delete: (await ask("DELETE", at, { agentId })).status,
    gone: await listed("&includeArchived=true"),
    left: (await ask("GET", `${at}/messages`)).body.messages,
  };
}
