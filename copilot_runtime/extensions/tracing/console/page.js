/* The page Traces: live and stored traces of runs. */

const PAGE = 50;
const MOST = 1000;  // per response of the server
const MOST_LIVE = 200;
const MEMORY = "upsert_memory";  // what the analyst does after each answer: found by its name, but no row of the newest
const state = { id: "", spans: new Map(), compared: null, following: null, isRedrawing: false, wanted: PAGE, asked: 0 };
const live = new Map(); // live spans by id, by trace id

/* ---- the list ---- */

function query() {
  const words = new URLSearchParams();
  for (const name of CHOICES) if ($(name).value) words.set(name, $(name).value);
  if ($("text").value.trim()) words.set("text", $("text").value.trim());
  if ($("failed").checked) words.set("has_error", "true");
  return String(words);
}

/* Shows the newest traces; a reload shows as many as before. */
async function list() {
  const mine = ++state.asked;
  const filters = query();
  const { traces, next } = await get(`?limit=${state.wanted}&${filters}`).catch((error) => {
    document.querySelector("main").classList.toggle("refused", [401, 403].includes(error.status));
    throw error;
  });
  document.querySelector("main").classList.remove("refused");
  if (mine !== state.asked) return;  // a later request is pending
  countSoon(filters);
  const running = filters ? [] : listRunning(traces), named = new Set(running.map((trace) => trace.trace_id));
  const rows = [...running, ...traces.filter((trace) => !named.has(trace.trace_id))];
  const focused = document.activeElement?.closest("#list li")?.dataset.trace;
  const listed = rows.filter((trace) => filters || trace.errors || trace.name !== MEMORY), leftOut = rows.length - listed.length;
  $("list").replaceChildren(...listed.map(drawTrace));
  $("left-out").textContent = leftOut ? `Not listed, but counted: ${formatCount(leftOut)} of the analyst's memory. Search for ${MEMORY}.` : "";
  if (focused) document.querySelector(`[data-trace="${CSS.escape(focused)}"] button`)?.focus();
  $("more").hidden = !next || state.wanted >= MOST;
  $("nothing").hidden = $("list").childElementCount > 0;
  $("nothing").textContent = filters ? "Nothing was found." : "No trace yet. Ask something in the chat, and it is here.";
}

/* Returns the traces that have started, but whose first span is not stored yet: it is when it ends, after its children. */
function listRunning(traces) {
  const kept = new Set(traces.map((trace) => trace.trace_id));
  const running = [];
  for (const [id, spans] of live) {
    const root = [...spans.values()].find((span) => !span.parent_span_id || !kept.has(id));
    if (!root || !isOpen(root)) continue;
    running.unshift({ trace_id: id, name: root.name, start_time_unix_nano: root.start_time_unix_nano, spans: spans.size, is_open: true });
  }
  return running;
}

function drawTrace(trace) {
  const item = element("li");
  item.dataset.trace = trace.trace_id;
  const choice = button("", () => {
    if (location.hash.slice(1) === trace.trace_id) choose(trace.trace_id);
    else location.hash = trace.trace_id;
  }, [trace.errors ? "failed" : "", trace.is_open ? "open" : "", state.compared?.id === trace.trace_id ? "chosen" : ""].join(" "));
  choice.setAttribute("aria-current", trace.trace_id === state.id);
  const lines = [[
    formatDate(trace.start_time_unix_nano / 1e6),
    trace.is_open ? "goes on" : formatTime(trace.duration * 1000),
    trace.input_tokens ? `${formatCount(trace.input_tokens + trace.output_tokens)} tokens` : "",
  ], [
    trace.error_type || (trace.errors ? "error" : ""),
    trace.agent,
    (trace.models ?? []).join(", "),
    trace.user,
    trace.dollars ? formatDollars(trace.dollars, trace.unpriced) : "",
    trace.rating ? `thumbs ${trace.rating}` : "",
  ]].map((facts) => element("span", facts.filter(Boolean).map((fact) => cut(fact, 80)).join(" · "), "facts"));
  choice.append(element("b", cut(trace.question || trace.name || "(no name)", 200)), ...lines);
  item.append(choice);
  return item;
}

/* ---- one trace ---- */

/* Returns the trace that a URL names by its id, or by `run=` and the id of a run. */
async function find(hash) {
  if (!hash.startsWith("run=")) return hash;
  const { traces } = await get(`?limit=1&run_id=${hash.slice(4)}`);
  if (!traces.length) state.id = "";
  if (!traces.length) throw Object.assign(new Error("There is no trace of this answer, or there is none any more."), { status: 404 });
  history.replaceState(null, "", `#${traces[0].trace_id}`);
  return traces[0].trace_id;
}

/* Opens a trace; if there is none, says so in its place. */
const choose = (hash) => attempt(() => open(hash).catch((error) => {
  if (error.status !== 404) throw error;
  document.querySelector("main").classList.add("reading");
  $("trace").hidden = $("costs").hidden = true;
  $("missing").hidden = false;
  $("missing-words").textContent = error.message;
}));

async function open(hash) {
  $("missing").hidden = true;
  const id = await find(hash);
  state.id = id;
  for (const item of $("list").children) item.firstElementChild.setAttribute("aria-current", item.dataset.trace === id);
  document.querySelector("main").classList.toggle("reading", Boolean(id));
  $("trace").hidden = !id || id === "costs";
  $("costs").hidden = !$("trace").hidden;
  $("span").hidden = true;
  $("status").textContent = $("no-thread").textContent = "";
  state.spans.clear();
  waterfall.collapsed.clear();
  waterfall.selected = "";
  $("find").value = "";
  findSpans("");
  state.summary = null;
  nameTab(id === "costs" ? "Costs" : "");
  if ($("trace").hidden) return;
  for (const span of live.get(id)?.values() ?? []) state.spans.set(span.span_id, span);
  try {
    const { spans, trace, is_own: isOwn } = await get(`/${encodeURIComponent(id)}`);
    if (state.id !== id) return;
    state.summary = { ...trace, isOwn };
    for (const span of spans) state.spans.set(span.span_id, span);
  } catch (error) {
    if (!state.spans.size) throw error; // else it is running, and not stored yet
  }
  $("waterfall").scrollTop = 0;
  redraw();
  showTab(state.compared && state.compared.id !== id ? "difference" : "waterfall");
}

function redraw() {
  state.isRedrawing = false;
  const spans = [...state.spans.values()];
  if (!spans.length) return;
  showWaterfall(spans);
  showFacts(spans);
  if (!$("flow-box").hidden) $("flow-box").replaceChildren(...drawFlow(spans));
  const isCompared = Boolean(state.compared) && state.compared.id !== state.id;
  $("tab-difference").hidden = !isCompared;
  if (isCompared && !$("difference-box").hidden) $("difference-box").replaceChildren(drawDifference(state.compared.spans, spans));
}

function showFacts(spans) {
  const root = spans.find((span) => !span.parent_span_id) ?? waterfall.nodes[0].span;
  const run = spans.find((span) => attributeOf(span, NAME.run)) ?? root;
  const sums = sumUp(spans);
  $("compare").setAttribute("aria-pressed", state.compared?.id === state.id);
  const { question, agent, user, isOwn } = state.summary ?? {}, thread = attributeOf(run, NAME.thread);
  $("title").textContent = cut(question || root.name, 300);
  nameTab(question || root.name);
  $("to-chat").hidden = !thread || !agent || !isOwn;
  $("to-chat").onclick = () => attempt(() => openThread(agent, thread));
  const asked = questionOf(run);
  $("ask-again").hidden = $("scenario").hidden = !asked;
  $("ask-again").onclick = () => askAgain(agent, asked);
  const facts = {
    agent,
    user,
    began: formatDate(waterfall.begin),
    took: spans.some(isOpen) ? "goes on" : formatTime(waterfall.length < 0.001 ? 0 : waterfall.length),
    spans: formatCount(spans.length),
    tokens: sums.input + sums.output ? `${formatCount(sums.input)} in, ${formatCount(sums.output)} out${sums.estimated ? `, estimated for ${sums.estimated} of ${sums.models} requests` : ""}` : "",
    cost: sums.dollars ? formatDollars(sums.dollars) + (sums.unpriced ? ` and ${sums.unpriced} without a price` : "") : sums.input + sums.output ? $("no-prices").textContent || "no known price" : "",
    errors: sums.errors ? formatCount(sums.errors) : "",
    outcome: attributeOf(run, NAME.outcome) === "interrupted" ? "asked a question" : attributeOf(run, NAME.outcome),
    playground: [attributeOf(run, NAME.overrides) ?? []].flat().join(", "),
    rating: attributeOf(run, NAME.rating) && `thumbs ${attributeOf(run, NAME.rating)}`,
    thread: idOf(thread),
    trace: idOf(state.id),
  };
  $("facts").replaceChildren(...Object.entries(facts).filter(([, value]) => value).map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), value instanceof Node ? value : element("dd", cut(String(value), 300)));
    return pair;
  }));
}

/* Opens a thread in the chat, if it is still there. */
async function openThread(agent, thread) {
  const { messages } = await (await fetchData(`/threads/${encodeURIComponent(thread)}/messages`)).json();
  if (!messages.length) $("no-thread").textContent = "This thread is not there any more.";
  else location.href = `${pages.chat}#${encodeURIComponent(agent)}/${encodeURIComponent(thread)}`;
}

/* The person's last text in a run, if its content is stored. */
function questionOf(run) {
  const messages = parsed(run.content?.["gen_ai.input.messages"]);
  const last = Array.isArray(messages) ? messages.findLast((message) => isMessage(message) && message.role === "user") : undefined;
  return last?.parts.filter(({ type }) => type === "text").map(({ content }) => content).join("\n") ?? "";
}

/* Opens the chat with a question that is ready to be sent, and the playground beside it. */
function askAgain(agent, question) {
  stored("sessionStorage", "draft").set(JSON.stringify({ agent, question }));
  location.href = pages.chat;
}

function showTab(name) {
  for (const tab of ["waterfall", "flow", "difference"]) {
    $(`tab-${tab}`).setAttribute("aria-selected", tab === name);
    $(`${tab}-box`).hidden = tab !== name;
  }
  redraw();
}

/* Selects or deselects the trace for comparison with the next opened one. */
function compare() {
  const isChosen = state.compared?.id === state.id;
  state.compared = isChosen ? null : { id: state.id, spans: [...state.spans.values()] };
  for (const item of $("list").children) item.firstElementChild.classList.toggle("chosen", item.dataset.trace === state.compared?.id);
  $("compare").setAttribute("aria-pressed", !isChosen);
  $("status").textContent = isChosen ? "" : "Choose the trace to compare it with.";
  if (!isChosen) document.querySelector("main").classList.remove("reading");
  showTab("waterfall");
}

/* The server's unparsed response: JavaScript numbers are too imprecise for nanoseconds. */
async function download(query, ending) {
  const id = state.id;
  const response = await fetchTraces(`/${encodeURIComponent(id)}${query}`);
  saveFile(await response.blob(), `trace-${id}.${ending}`);
}

/* ---- live updates ---- */

function take(span, phase) {
  span.is_open = phase === "start";
  remember(span);
  if (span.trace_id !== state.id) return;
  if (!$("missing").hidden) return choose(state.id);  // it has spans now
  state.spans.set(span.span_id, span);
  redrawSoon();
}

function redrawSoon() {
  if (!state.isRedrawing) requestAnimationFrame(redraw);
  state.isRedrawing = true;
}

/* Records running spans. Ended spans are stored by the server, from which content is read. */
function remember({ content, ...span }) {
  const hasEnded = !span.is_open && !span.parent_span_id;
  if (!live.has(span.trace_id)) {
    live.set(span.trace_id, new Map());
    if (live.size > MOST_LIVE) live.delete(live.keys().next().value);
    refreshSoon();
  }
  live.get(span.trace_id).set(span.span_id, span);
  if (!hasEnded) return;
  live.delete(span.trace_id);
  refreshSoon();
}

/* Reloads from the server: spans whose end was missed would appear as running forever. At first, that can only be a
trace whose run was about to end. */
function catchUp(isFirst) {
  if (isFirst && (!state.id || [...state.spans.values()].some((span) => !span.parent_span_id))) return;
  live.clear();
  refreshSoon();
  if (state.id) choose(state.id);
}

let refreshing = 0;

function refreshSoon() {
  clearTimeout(refreshing);
  refreshing = setTimeout(() => attempt(list), 150);
}

function watch() {
  state.following?.abort();
  state.following = null;
  if (!$("live").checked) return;
  state.following = new AbortController();
  attempt(() => follow(take, catchUp, state.following.signal));
}

/* ---- user actions ---- */

waterfall.open = showSpan;
$("filters").onsubmit = (event) => event.preventDefault();
$("text").oninput = refreshSoon;
for (const name of [...CHOICES, "failed"]) $(name).onchange = () => attempt(list);
$("live").onchange = watch;
$("more").onclick = () => { state.wanted = Math.min(MOST, state.wanted + PAGE); attempt(list); };
$("close").onclick = () => { $("span").hidden = true; };
$("compare").onclick = compare;
$("find").oninput = () => findSpans($("find").value);
for (const tab of ["waterfall", "flow", "difference"]) $(`tab-${tab}`).onclick = () => showTab(tab);
$("scenarios").onclick = () => attempt(async () => saveFile(await (await fetchTraces(`?format=scenario&limit=${MOST}&${query()}`)).blob(), "traces.test.yml"));
$("scenario").onclick = () => attempt(() => download("?format=scenario", "test.yml"));
$("download").onclick = () => attempt(() => download("", "json"));
$("download-otlp").onclick = () => attempt(() => download("?format=otlp", "otlp.json"));
window.onresize = redrawSoon;
window.onhashchange = () => choose(location.hash.slice(1));
onUser = () => attempt(list).then(watch);
attempt(list).then(watch);
if (location.hash.length > 1) choose(location.hash.slice(1));
