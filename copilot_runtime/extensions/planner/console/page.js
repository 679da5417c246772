/* The page Plans: plans, their progress, and the user's answers. */

const PAGE = 50;
const MOST = 200;  // per response of the server
const MOST_WORDS = 200_000;
const QUIET = 250;  // milliseconds between two reloads of a changing plan
const state = { id: "", plan: null, task: "", wanted: PAGE, asked: 0, following: null, words: new Map(), shown: "", isOperator: false };

/* ---- the list ---- */

async function list() {
  const mine = ++state.asked;
  const plans = [];
  let before = "", page;
  do {
    const words = new URLSearchParams({ limit: Math.min(MOST, state.wanted - plans.length) });
    if ($("wanted").value) words.set("status", $("wanted").value);
    if ($("thread").value.trim()) words.set("thread_id", $("thread").value.trim());
    if (before) words.set("before", before);
    page = await get(`?${words}`);
    if (mine !== state.asked) return;  // a later request replaces this one
    plans.push(...page.plans);
    before = page.next;
  } while (before && plans.length < state.wanted);
  const focused = document.activeElement?.closest("#list li")?.dataset.plan;
  $("list").replaceChildren(...plans.map((plan) => drawPlan(plan, page.is_operator)));
  if (focused) document.querySelector(`#list [data-plan="${CSS.escape(focused)}"] button`)?.focus();
  $("more").hidden = !before;
  state.isOperator = page.is_operator;
  showTraceLink();
  const listed = plans.find((plan) => plan.id === state.plan?.id);
  if (listed && isOver(state.plan) && !isOver(listed)) quietly(takeUp);  // another user retried it
  $("nothing").hidden = plans.length > 0;
  const isFiltered = $("wanted").value || $("thread").value.trim();
  $("nothing").textContent = isFiltered ? "Nothing was found." : page.is_operator || page.user
    ? `No plan${page.is_operator ? "" : " of yours"} yet. Ask the agent that plans, and it is here.`
    : "No plan of yours. Without authentication, plans are found by the id of their thread.";
}

function drawPlan(plan, isOperator) {
  const item = element("li");
  item.dataset.plan = plan.id;
  const choice = button("", () => {
    if (state.id === plan.id) document.querySelector("main").classList.add("reading");
    location.hash = encodeURIComponent(plan.id);
  });
  choice.setAttribute("aria-current", plan.id === state.id);
  const facts = [plan.status, formatDate(plan.created_at * 1000), isOperator && plan.user ? plan.user : ""];
  choice.append(element("i", "", `mark ${plan.status}`), element("b", cut(plan.title || "(nothing was asked)", 200)), element("span", facts.filter(Boolean).map((fact) => cut(fact, 80)).join(" · "), "facts"));
  item.append(choice);
  return item;
}

/* ---- one plan ---- */

async function open(hash) {
  const [id = "", task = ""] = hash.split("/").map(decodeURIComponent);
  if (id !== state.id) {
    state.following?.abort();
    Object.assign(state, { id, plan: null, following: null, shown: "" });
    state.words.clear();
    openParts.clear();
    $("questions").replaceChildren();
    closeTask();
  }
  for (const item of $("list").children) item.firstElementChild.setAttribute("aria-current", item.dataset.plan === id);
  document.querySelector("main").classList.toggle("reading", Boolean(id));
  $("plan").hidden = !id;
  $("hint").hidden = Boolean(id);
  if (!id) {
    $("status").textContent = "";
    nameTab("");
    return;
  }
  if (!state.plan) {
    $("plan").hidden = true;
    const plan = await get(pathOf(id));
    if (state.id !== id) return;
    $("plan").hidden = false;
    show(plan);
    watch();
    if (!task) showOutcome();
  } else if (!task) closeTask();
  if (task && task !== state.task) await selectTask(task);
}

/* Opens what came of a finished plan, unless a task is open. */
function showOutcome() {
  if (state.plan.status === "finished" && !state.task) tree.select(ROOT);
}

/* Shows a plan, unless a newer snapshot is shown already. */
function show(plan) {
  if (plan.id !== state.id || plan.number < (state.plan?.number ?? 0)) return;
  const before = state.plan?.status;
  state.plan = plan;
  $("title").textContent = visible(cut(plan.request || "(nothing was asked)", 10_000));
  $("title").title = cut(plan.request, 2_000);
  nameTab(plan.request);
  $("stop").hidden = isOver(plan);
  $("retry").hidden = !isOver(plan) || plan.status === "finished";
  const { over, finished, total } = plan.progress;
  $("progress").className = plan.status;
  $("progress").max = total || 1;
  $("progress").value = finished;
  $("progress-text").textContent = `${formatCount(over)} of ${formatCount(total)} tasks are over${finished < over ? `, ${formatCount(finished)} finished` : ""}`;
  $("status").textContent = plan.questions.length ? `${plan.status}, ${plan.questions.length} open ${plan.questions.length === 1 ? "question" : "questions"}` : plan.status;
  showFacts(plan);
  showQuestions(plan, answer, (task) => { location.hash = hashOf(plan.id, task); });
  showTree(plan);
  showTaskButtons();
  $("trace").href = `${pages.tracing}#${plan.trace_id}`;
  showTraceLink();
  if (!before || before === plan.status) return;
  showOutcome();
  quietly(list);
}

/* Traces are visible to operators only, if they are stored. */
function showTraceLink() {
  $("trace").hidden = !pages.tracing || !state.isOperator || !state.plan?.trace_id;
}

const hashOf = (plan, task = "") => encodeURIComponent(plan) + (task ? `/${encodeURIComponent(task)}` : "");

function showFacts(plan) {
  const { limits } = plan;
  const of = (limit, format) => (limit == null ? "" : ` of ${format(limit)}`);
  const took = element("dd", "", "took");
  took.dataset.since = plan.created_at;
  took.dataset.until = plan.ended_at ?? "";
  $("facts").replaceChildren(...drawPairs({
    began: formatDate(plan.created_at * 1000),
    took,
    tokens: plan.tokens || limits.tokens ? `${formatCount(plan.tokens)}${of(limits.tokens, formatCount)}` : "",
    cost: plan.dollars || limits.dollars ? `${plan.dollars ? formatDollars(plan.dollars) : "$0"}${of(limits.dollars, formatDollars)}, planning included` : "",
    agent: plan.agent,
    user: plan.user,
    thread: idOf(plan.thread_id),
    plan: idOf(plan.id),
  }));
  $("limits").replaceChildren(...drawPairs({
    tasks: formatCount(limits.tasks),
    "side by side": formatCount(limits.width),
    levels: formatCount(limits.depth),
    "rounds of corrections": String(limits.rounds),
    "at the same time": formatCount(limits.concurrency),
    tokens: limits.tokens == null ? "no limit" : formatCount(limits.tokens),
    cost: limits.dollars == null ? "no limit" : formatDollars(limits.dollars),
    time: limits.seconds == null ? "no limit" : formatTime(limits.seconds * 1000),
  }));
  tick();
}

function drawPairs(pairs) {
  return Object.entries(pairs).filter(([, value]) => value).map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), typeof value === "string" ? element("dd", cut(value, 300)) : value);
    return pair;
  });
}

/* ---- one task ---- */

async function selectTask(id) {
  state.task = id;
  state.shown = "";
  markSelected(id);
  scrollToTask(id);
  showTaskButtons();
  showWords();
  $("task").scrollTop = 0;
  await loadTask();
}

async function loadTask() {
  const { id, task } = state;
  if (!task) return;
  const found = await get(`${pathOf(id)}/tasks/${encodeURIComponent(task)}`);
  const looks = JSON.stringify(found);
  if (state.id !== id || state.task !== task || looks === state.shown) return;
  state.shown = looks;
  showTask(found);
}

function closeTask() {
  state.task = "";
  $("task").hidden = true;
  markSelected(null);
}

function showTaskButtons() {
  const task = tree.nodes.find((node) => node.task.id === state.task)?.task;
  const isDone = !state.plan || isOver(state.plan);
  $("stop-task").hidden = !task || task.id === ROOT || isDone || isOver(task);
  $("retry-task").hidden = !task || task.id === ROOT || !isDone || task.status === "finished";
  showWords();
}

/* The live text of a task. It is not stored; the result is the task's output. */
function showWords() {
  const words = state.words.get(state.task) ?? "";
  $("words-box").hidden = !words;
  const box = $("words");
  const isAtEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 20;
  if (box.textContent !== words) box.textContent = words;
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

/* ---- live updates ---- */

function watch() {
  state.following?.abort();
  state.following = null;
  if (isOver(state.plan)) return;
  state.following = new AbortController();
  attempt(() => follow(state.id, state.plan.number, take, state.following.signal));
}

function take(event) {
  if (event.type === "task_text") {
    const before = event.is_whole ? "" : state.words.get(event.task_id) ?? "";
    state.words.set(event.task_id, (before + event.delta).slice(-MOST_WORDS));
    if (event.task_id === state.task) requestAnimationFrame(showWords);
    return;
  }
  if (["task_started", "task_output", "task_ended"].includes(event.type)) state.words.delete(event.task_id);
  refreshSoon();
}

let refreshing = 0;
let pause = QUIET;

/* Schedules a reload of the plan: soon, but less often if the server is slow. */
function refreshSoon() {
  if (refreshing) return;
  refreshing = setTimeout(async () => {
    const began = performance.now();
    refreshing = 0;
    await quietly(refresh);
    pause = Math.max(QUIET, 4 * (performance.now() - began));
  }, pause);
}

async function refresh() {
  const { id } = state;
  if (!id) return;
  show(await get(pathOf(id)));
  await loadTask();
}

/* Follows a plan that was resumed. */
async function takeUp() {
  await refresh();
  watch();
}

/* Runs background work, and ignores its failure. */
async function quietly(work) {
  try {
    await work();
  } catch { /* retried next time */ }
}

/* ---- user actions ---- */

/* Sends an action on the plan or a task, and shows the result. */
async function command(verb, task, sent = {}) {
  const { id } = state;
  await attempt(async () => {
    show(await send(id, task, verb, sent));
    if (!state.following || state.following.signal.aborted || verb === "retry") watch();
    await loadTask();
  });
}

const answer = (question, name, note) => command("answer", ROOT, { question_id: question.id, answer: name, note });

async function press(button, verb, task) {
  button.disabled = true;
  await command(verb, task);
  button.disabled = false;
}

tree.select = (task) => {
  if (task === state.task) return;
  history.replaceState(null, "", `#${hashOf(state.id, task)}`);
  attempt(() => selectTask(task));
};
$("filters").onsubmit = (event) => event.preventDefault();
$("wanted").onchange = () => attempt(list);
$("thread").onchange = () => attempt(list);
$("more").onclick = () => { state.wanted += PAGE; attempt(list); };
$("close").onclick = () => { location.hash = hashOf(state.id); $("tree").focus(); };
for (const part of [$("task"), $("tree")]) part.addEventListener("keydown", (event) => { if (event.key === "Escape" && state.task) $("close").click(); });
$("stop").onclick = () => press($("stop"), "stop", ROOT);
$("retry").onclick = () => press($("retry"), "retry", ROOT);
$("stop-task").onclick = () => press($("stop-task"), "stop", state.task);
$("retry-task").onclick = () => press($("retry-task"), "retry", state.task);
window.onhashchange = () => attempt(() => open(location.hash.slice(1)));
onUser = () => attempt(list);
setInterval(() => { if (!document.hidden) quietly(list); }, 5_000);
attempt(list);
if (location.hash.length > 1) attempt(() => open(location.hash.slice(1)));
