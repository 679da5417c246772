/* The page Traces: what runs did, while they do it and afterwards. */

const PAGE = 50;
const MOST_LIVE = 200;
const state = { id: "", spans: new Map(), compared: null, following: null, isRedrawing: false };
const live = new Map(); // spans by their ids, by the ids of the traces that were seen while they went on

/* ---- the list ---- */

function query(before) {
  const words = new URLSearchParams({ limit: PAGE });
  if ($("text").value.trim()) words.set("text", $("text").value.trim());
  if ($("failed").checked) words.set("has_error", "true");
  if (before) words.set("before", before);
  return `?${words}`;
}

async function list(isMore = false) {
  const last = isMore ? $("list").lastElementChild?.dataset.trace : "";
  const { traces } = await get(query(last));
  const running = isMore || $("text").value.trim() || $("failed").checked ? [] : listRunning(traces);
  const items = [...running, ...traces].map(drawTrace);
  if (isMore) $("list").append(...items);
  else $("list").replaceChildren(...items);
  $("more").hidden = traces.length < PAGE;
  $("nothing").hidden = $("list").childElementCount > 0;
  $("status").textContent = "";
}

/* Returns the traces that have begun, and of which the server has not yet kept anything. */
function listRunning(traces) {
  const kept = new Set(traces.map((trace) => trace.trace_id));
  const running = [];
  for (const [id, spans] of live) {
    const root = [...spans.values()].find((span) => !span.parent_span_id) ?? [...spans.values()][0];
    if (kept.has(id) || !isOpen(root)) continue;
    running.unshift({ trace_id: id, name: root.name, start_time_unix_nano: root.start_time_unix_nano, spans: spans.size, is_open: true });
  }
  return running;
}

function drawTrace(trace) {
  const item = element("li");
  item.dataset.trace = trace.trace_id;
  const button = element("button");
  button.type = "button";
  button.className = [trace.errors ? "failed" : "", trace.is_open ? "open" : "", state.compared?.id === trace.trace_id ? "chosen" : ""].join(" ");
  button.setAttribute("aria-current", trace.trace_id === state.id);
  const facts = [
    new Date(trace.start_time_unix_nano / 1e6).toLocaleTimeString(),
    trace.is_open ? "goes on" : formatTime(trace.duration * 1000),
    `${formatCount(trace.spans)} ${trace.spans === 1 ? "span" : "spans"}`,
    trace.input_tokens ? `${formatCount(trace.input_tokens + trace.output_tokens)} tokens` : "",
    trace.dollars ? formatDollars(trace.dollars) : "",
    trace.error_type,
  ];
  button.append(element("b", trace.name), element("span", facts.filter(Boolean).join(" · "), "facts"));
  button.onclick = () => { location.hash = trace.trace_id; };
  item.append(button);
  return item;
}

/* ---- one trace ---- */

async function open(id) {
  state.id = id;
  for (const item of $("list").children) item.firstElementChild.setAttribute("aria-current", item.dataset.trace === id);
  document.querySelector("main").classList.toggle("reading", Boolean(id));
  $("trace").hidden = !id;
  $("hint").hidden = Boolean(id);
  $("span").hidden = true;
  $("status").textContent = "";
  state.spans.clear();
  waterfall.collapsed.clear();
  waterfall.selected = "";
  $("find").value = "";
  findSpans("");
  if (!id) return;
  for (const span of live.get(id)?.values() ?? []) state.spans.set(span.span_id, span);
  try {
    const { spans } = await get(`/${encodeURIComponent(id)}`);
    if (state.id !== id) return;
    for (const span of spans) state.spans.set(span.span_id, span);
  } catch (error) {
    if (!state.spans.size) throw error; // else it goes on, and nothing of it is kept yet
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
  $("title").textContent = root.name;
  const facts = {
    began: new Date(waterfall.begin).toLocaleString(),
    took: spans.some(isOpen) ? "goes on" : formatTime(waterfall.length),
    spans: formatCount(spans.length),
    tokens: sums.input + sums.output ? `${formatCount(sums.input)} in, ${formatCount(sums.output)} out` : "",
    cost: sums.dollars ? formatDollars(sums.dollars) + (sums.unpriced ? ` and ${sums.unpriced} without a price` : "") : sums.input + sums.output ? "no known price" : "",
    errors: sums.errors ? formatCount(sums.errors) : "",
    outcome: attributeOf(run, NAME.outcome),
    thread: attributeOf(run, NAME.thread),
    trace: state.id,
  };
  $("facts").replaceChildren(...Object.entries(facts).filter(([, value]) => value).map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
  $("download").href = `data:application/json;charset=utf-8,${encodeURIComponent(JSON.stringify(spans, null, 1))}`;
  $("download").download = `trace-${state.id}.json`;
}

function showTab(name) {
  for (const tab of ["waterfall", "flow", "difference"]) {
    $(`tab-${tab}`).setAttribute("aria-selected", tab === name);
    $(`${tab}-box`).hidden = tab !== name;
  }
  redraw();
}

async function compare() {
  state.compared = { id: state.id, spans: [...state.spans.values()] };
  for (const item of $("list").children) item.firstElementChild.classList.toggle("chosen", item.dataset.trace === state.id);
  $("status").textContent = "Choose the trace to compare it with.";
  document.querySelector("main").classList.remove("reading");
}

/* ---- while it happens ---- */

function take(span, phase) {
  if (!live.has(span.trace_id)) {
    live.set(span.trace_id, new Map());
    if (live.size > MOST_LIVE) live.delete(live.keys().next().value);
    refreshSoon();
  }
  live.get(span.trace_id).set(span.span_id, span);
  if (phase === "end" && !span.parent_span_id) refreshSoon();
  if (span.trace_id !== state.id) return;
  state.spans.set(span.span_id, span);
  if (!state.isRedrawing) {
    state.isRedrawing = true;
    requestAnimationFrame(redraw);
  }
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
  attempt(() => follow(take, state.following.signal));
}

/* ---- what people do ---- */

waterfall.open = showSpan;
$("filters").onsubmit = (event) => event.preventDefault();
$("text").oninput = refreshSoon;
$("failed").onchange = () => attempt(list);
$("live").onchange = watch;
$("more").onclick = () => attempt(() => list(true));
$("back").onclick = () => { location.hash = ""; };
$("close").onclick = () => { $("span").hidden = true; };
$("compare").onclick = () => attempt(compare);
$("find").oninput = () => findSpans($("find").value);
for (const tab of ["waterfall", "flow", "difference"]) $(`tab-${tab}`).onclick = () => showTab(tab);
$("download-otlp").onclick = (event) => {
  event.preventDefault();
  attempt(async () => {
    const blob = await (await fetchTraces(`/${encodeURIComponent(state.id)}?format=otlp`)).blob();
    const link = element("a");
    link.href = URL.createObjectURL(blob);
    link.download = `trace-${state.id}.otlp.json`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
};
window.onhashchange = () => attempt(() => open(location.hash.slice(1)));
$("authorization").value = sessionStorage.getItem("authorization") ?? "";
$("authorization").onchange = () => {
  sessionStorage.setItem("authorization", $("authorization").value);
  attempt(list).then(watch);
};
attempt(list).then(watch);
if (location.hash.length > 1) attempt(() => open(location.hash.slice(1)));
