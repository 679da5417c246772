#!/usr/bin/env node
// node drive.mjs <base-url> <scenario|a,b,c|all|list> [--out DIR] [--check DIR] [--mock URL --upstream DIR]
// Drives a CopilotKit v1 runtime with the real CopilotRuntimeClient, sending what react-core's chat
// hook sends, and prints a normalised JSON of what the client ends up with. With --mock and --upstream
// it also stores what the runtime asked the mock LLM for, once all those requests have ended.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { createRequire } from "node:module";
import { scenarios } from "./scenarios.mjs";
// The CommonJS build on purpose: under Node ESM the ESM build mis-imports untruncate-json and every
// action argument silently becomes {} (bundlers used by real frontends do not have that problem).
const C = createRequire(import.meta.url)("@copilotkit/runtime-client-gql");
const { CopilotRuntimeClient, TextMessage, ResultMessage, ImageMessage, Role, convertMessagesToGqlInput, convertGqlOutputToMessages, filterAdjacentAgentStateMessages, filterAgentStateMessages } = C;

const args = process.argv.slice(2);
const opt = (n) => { const i = args.indexOf(n); return i < 0 ? null : args.splice(i, 2)[1]; };
const out = opt("--out"), check = opt("--check"), mock = opt("--mock"), upstream = opt("--upstream");
const [base, which] = args;
const here = path.dirname(fileURLToPath(import.meta.url));

const normId = () => {
  const map = new Map();
  const one = (s) => s.replace(/(result-)?(ck-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, (m) => { if (!map.has(m)) map.set(m, `<random-${map.size + 1}>`); return map.get(m); })
    .replace(/https?:\/\/(localhost|127\.0\.0\.1):\d+/g, "http://localhost:PORT");
  const walk = (v) => typeof v === "string" ? one(v) : Array.isArray(v) ? v.map(walk) : v && typeof v === "object" ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, k === "stack" ? "<stack>" : k === "createdAt" && typeof x === "string" ? "<date>" : walk(x)])) : v;
  return walk;
};
const describeError = (e) => ({
  message: e?.message,
  network: e?.networkError ? { name: e.networkError.name ?? typeof e.networkError, message: e.networkError.message ?? String(e.networkError), ...(e.networkError.extensions ? { code: e.networkError.extensions.code } : {}) } : undefined,
  graphQLErrors: e?.graphQLErrors?.map((g) => { const { originalError, stack, ...ext } = g.extensions ?? {}; return { message: g.message, path: g.path, extensions: ext, hasOriginalError: originalError !== undefined }; }),
});
const view = (m) => { const { createdAt, ...r } = m; return { ...r, createdAt: createdAt instanceof Date && !isNaN(createdAt) ? "<date>" : createdAt }; };

async function turn(client, s, ctx, messages, extra) {
  const ac = new AbortController();
  const t = { errors: ctx.errors = [], warnings: ctx.warnings };
  const source = client.generateCopilotResponse({
    data: {
      frontend: { actions: s.actions ?? [], url: "http://localhost:3000/" },
      threadId: "thread-1", runId: ctx.runId, extensions: ctx.extensions, metaEvents: [],
      messages: convertMessagesToGqlInput(filterAgentStateMessages(messages)),
      ...(s.guardrails ? { cloud: { guardrails: { inputValidationRules: { allowList: ["fine"], denyList: ["forbidden"] } } } } : {}),
      metadata: { requestType: "Chat" },
      ...(ctx.agentSession ? { agentSession: ctx.agentSession } : {}),
      agentStates: Object.entries(ctx.agentStates).map(([agentName, state]) => ({ agentName, state: JSON.stringify(state) })),
      forwardedParameters: {}, context: s.context ?? [{ description: "Where", value: "in a test" }],
      ...s.data, ...extra,
    },
    properties: s.properties ?? {}, signal: ac.signal,
  });
  const reader = client.asStream(source).getReader();
  let last = null, outcome = "done", snapshots = new Set(), timer;
  const hung = new Promise((r) => { timer = setTimeout(() => r({ hung: true }), s.timeout ?? 120000); });
  while (true) {
    let r;
    try { r = await Promise.race([reader.read(), hung]); } catch (e) { outcome = "stream error"; break; }
    if (r.hung) { outcome = "never closed"; ac.abort("Stop was called"); break; }
    if (r.done) break;
    const g = r.value?.generateCopilotResponse;
    if (!g) { outcome = "value without generateCopilotResponse"; continue; }
    last = g; ctx.runId = g.runId || null; ctx.extensions = CopilotRuntimeClient.removeGraphQLTypename(g.extensions || {});
    snapshots.add(JSON.stringify(g.messages.map((m) => m.content ?? m.arguments ?? m.result ?? m.state)));
    if (s.abortAfterText && (g.messages[0]?.content?.length ?? 0) >= s.abortAfterText && !ac.signal.aborted) ac.abort("Stop was called");
  }
  clearTimeout(timer);
  await new Promise((r) => setTimeout(r, 50));
  let raw = last?.messages ?? [], meta = last?.metaEvents ?? [];
  const converted = last ? convertGqlOutputToMessages(filterAdjacentAgentStateMessages(raw)) : [];
  for (const ev of meta) if (ev.name === "CopilotKitLangGraphInterruptEvent") converted.push(...convertGqlOutputToMessages(ev.data.messages));
  ctx.lastMeta = meta;
  return [converted, {
    outcome,
    threadId: last ? (last.threadId === "thread-1" ? "echoed" : last.threadId ? "generated" : "missing") : null,
    runId: last?.runId, extensions: last?.extensions, status: last?.status,
    messages: converted.map(view), rawMessageTypes: s.abortAfterText ? undefined : raw.map((m) => m.__typename),
    metaEvents: meta, progressive: snapshots.size > 3, errors: t.errors.map(describeError), warnings: [...ctx.warnings],
  }];
}

export async function drive(baseUrl, name) {
  const s = scenarios[name]; if (!s) throw new Error(`unknown scenario ${name}`);
  const ctx = { errors: [], warnings: [], runId: null, extensions: {}, agentSession: s.agent ? { agentName: s.agent, threadId: "thread-1" } : null, agentStates: { ...s.agentStates } };
  const client = new CopilotRuntimeClient({
    url: `${baseUrl.replace(/\/$/, "")}${s.endpoint ?? ""}`, ...(s.publicApiKey ? { publicApiKey: s.publicApiKey } : {}),
    headers: s.publicApiKey ? { "X-CopilotCloud-Public-Api-Key": s.publicApiKey } : {},
    handleGQLErrors: (e) => ctx.errors.push(e), handleGQLWarning: (w) => ctx.warnings.push(w),
  });
  const norm = normId();
  if (s.op === "availableAgents" || s.op === "loadAgentState") {
    const r = await (s.op === "availableAgents" ? client.availableAgents() : client.loadAgentState(s.vars)).toPromise();
    return norm({ scenario: name, data: r.data ?? null, error: r.error ? describeError(r.error) : null, warnings: ctx.warnings });
  }
  const messages = [new TextMessage({ id: "sys-1", role: Role.System, content: "You are a test." }), new TextMessage({ id: "user-1", role: Role.User, content: s.user })];
  if (s.image) messages.push(new ImageMessage({ id: "img-1", role: Role.User, format: "png", bytes: "iVBORw0KGgo=" }));
  const turns = []; let extra = {};
  for (let i = 0; i < 4; i++) {
    if (s.agents) { if (i >= s.agents.length) break; ctx.agentSession = { agentName: s.agents[i], threadId: "thread-1" }; }
    const [got, t] = await turn(client, s, ctx, messages, extra); turns.push(t); extra = {};
    const interrupt = ctx.lastMeta.find((e) => e.name === "LangGraphInterruptEvent");
    if (s.interruptResponse && interrupt && i === 0) {
      messages.push(...got);
      extra = { metaEvents: [{ name: "LangGraphInterruptEvent", value: interrupt.value, response: s.interruptResponse }] };
      continue;
    }
    if (s.agents) continue;
    if (!s.followUp) break;
    const final = [...messages, ...got]; let executed = false;
    for (const m of got) if (m.isActionExecutionMessage()) {
      const action = (s.actions ?? []).find((a) => a.name === m.name);
      // react-core "runs" a render-only action as well, and the server's result stands behind its empty one
      const renderOnly = action?.available === "disabled";
      if (!action || (!renderOnly && got.some((r) => r.isResultMessage() && r.actionExecutionId === m.id))) continue;
      const r = new ResultMessage({ id: "result-" + m.id, result: ResultMessage.encodeResult(renderOnly ? undefined : `done ${m.name}`), actionExecutionId: m.id, actionName: m.name });
      final.splice(final.findIndex((x) => x.id === m.id) + 1, 0, r); executed = true;
    }
    messages.splice(0, messages.length, ...final);
    if (!executed && !messages.at(-1).isResultMessage()) break;
  }
  return norm({ scenario: name, turns });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (!base) { console.error("usage: drive.mjs <base-url ending in /copilotkit> <scenario|all|list> [--out DIR] [--check DIR]"); process.exit(2); }
  if (which === "list") { console.log(Object.keys(scenarios).join("\n")); process.exit(0); }
  const warn = console.warn; console.warn = () => {}; let bad = 0;
  process.on("unhandledRejection", () => {});
  const sort = (v) => Array.isArray(v) ? v.map(sort) : v && typeof v === "object" ? Object.fromEntries(Object.keys(v).sort().filter((k) => v[k] !== undefined).map((k) => [k, sort(v[k])])) : v;
  for (const n of which === "all" ? Object.keys(scenarios) : which.split(",")) {
    if (mock) await fetch(`${mock}/__requests`, { method: "DELETE" });
    const result = JSON.stringify(sort(JSON.parse(JSON.stringify(await drive(base, n)))), null, 2);
    if (upstream) {
      const seen = await (await fetch(`${mock}/__idle`)).json();
      fs.mkdirSync(upstream, { recursive: true });
      fs.writeFileSync(path.join(upstream, n + ".json"), JSON.stringify(sort(seen), null, 1) + "\n");
    }
    if (out) { fs.mkdirSync(out, { recursive: true }); fs.writeFileSync(path.join(out, n + ".json"), result + "\n"); }
    if (check) {
      const want = fs.readFileSync(path.join(check, n + ".json"), "utf8").trim();
      const ok = want === result; if (!ok) bad++;
      console.log(`${ok ? "same" : "DIFFERENT"} ${n}`);
    } else if (!out) console.log(result); else console.log(`wrote ${n}`);
  }
  process.exit(bad ? 1 : 0);
}
