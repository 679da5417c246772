/* The page Data: data sets, questions about them, and the analyst's memory. */

/* A reload keeps the questions of this tab and their answers. */
const KEPT = "analyst-answers";
const state = { name: "", datasets: [], open: "", asking: null, history: [], ...read() };
const LOOK_AGAIN = 1_000, MOST_KEPT = 20;

function read() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT));
    if (kept?.session && Array.isArray(kept.answers)) return kept;
  } catch { /* not stored by this page */ }
  return { session: crypto.randomUUID(), answers: [] };
}

function keep(question, data, dataset) {
  state.answers = [...state.answers, { question, data, dataset }].slice(-MOST_KEPT);
  for (;;) {
    try {
      return sessionStorage.setItem(KEPT, JSON.stringify({ session: state.session, answers: state.answers }));
    } catch {
      if (!state.answers.length) return;
      state.answers.shift();  // the browser's storage is full
    }
  }
}

function remember(question, { response = "" }) {
  state.history.push({ role: "user", content: question }, { role: "assistant", content: response ?? "" });
}

/* Only the last answer may still wait for an approval. */
function restore() {
  for (const [at, { question, data, dataset }] of state.answers.entries()) {
    const isLast = at === state.answers.length - 1, answer = drawAnswer(question, dataset, () => askAll(question));
    remember(question, data);
    answer.finish(isLast ? data : { ...data, approval: null, question: null }, (text, extra) => start(text, extra));
    $("answers").prepend(answer.box);
  }
}

/* ---- data sets ---- */

async function list() {
  const { datasets, progress = [], problems = [] } = await get("datasets");
  state.datasets = datasets;
  $("nothing").hidden = datasets.length + progress.length > 0;
  $("list").replaceChildren(...datasets.map(drawDataset));
  $("loading").replaceChildren(...progress.map(drawProgress), ...problems.map(({ problem }) => element("li", problem, "error")));
  const rows = datasets.reduce((sum, one) => sum + (one.row_count ?? 0), 0);
  $("status").textContent = datasets.length ? `${formatCount(datasets.length)} data ${datasets.length === 1 ? "set" : "sets"}, ${countRows(rows)}` : "";
  if (!state.open && !state.asking && !$("answers").children.length) await welcome();
  if (progress.length || !datasets.length) setTimeout(() => attempt(list), LOOK_AGAIN);  // loading may not have started yet
}

function drawDataset({ name, description, row_count, columns, is_saved }) {
  const item = element("li"), choice = button("", () => attempt(() => open(name)).then(() => $("work").scrollIntoView({ block: "nearest" })));  // it is below the list on a phone
  choice.setAttribute("aria-current", String(name === state.open));
  choice.append(element("b", name));
  const facts = [`${formatCount(row_count ?? 0)} rows`, `${columns.length} columns`];
  if (is_saved) facts.push("saved by you");
  choice.append(element("small", facts.join(" · ")));
  if (description) choice.append(element("small", cut(description.replaceAll("`", ""), 120)));
  item.append(choice);
  return item;
}

function drawProgress({ name, rows, total }) {
  const item = element("li", name), bar = element("progress");
  if (total) { bar.max = total; bar.value = rows; }
  item.append(bar, element("small", `${formatCount(rows ?? 0)}${total ? ` of ${formatCount(total)}` : ""} rows`));
  return item;
}

/* Formats a time to the minute, and one at midnight as a date; other values are unchanged. */
const shorten = (value) => (isMidnight(value) ? value.slice(0, 10) : typeof value === "string" ? value.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[\d:.+Z]*$/, "$1 $2") : value);

/* The range of numbers and times, or examples of texts. */
function describeValues({ name, minimum, maximum, average, values = [], is_complete }) {
  const digits = digitsOf(name, [minimum, maximum]), write = (value, most = digits) => (isNumber(value) ? formatCell(value, most) : shorten(value));
  const own = digitsOf(name, [average]), isSmall = Math.abs(average) < 1;
  if (minimum != null) return `${write(minimum)} to ${write(maximum)}${average == null || isCode(name) ? "" : `, average ${write(average, Math.max(digits, isSmall ? own : Math.min(2, own)))}`}`;
  return cut((values ?? []).map(String).join(", ") + (is_complete === false && values?.length ? ", …" : ""), 90);
}

const COLUMNS = {
  column: (one) => one.name,
  type: (one) => one.type,
  distinct: (one) => one.unique_count,
  "NULL %": (one) => one.null_percent,
  values: describeValues,
};

async function open(name) {
  state.open = name;
  for (const [at, one] of state.datasets.entries()) $("list").children[at]?.firstChild.setAttribute("aria-current", String(one.name === name));
  const found = await get("datasets", name);
  if (state.open !== name) return;
  $("dataset-title").textContent = name;
  $("question").placeholder = `Ask something about ${name}`;
  const time = found.time_range ? `, ${found.time_range.map(shorten).join(" to ")}` : "";
  $("dataset-note").textContent = [found.description?.replaceAll("`", ""), `${formatCount(found.row_count ?? 0)} rows${time}.`].filter(Boolean).join(" ");
  const isNumeric = (read) => found.columns.some((column) => isNumber(read(column)));
  const head = element("tr");
  head.append(...Object.entries(COLUMNS).map(([title, read]) => {
    const cell = element("th", "", isNumeric(read) ? "number" : "");
    cell.append(element("span", title));
    return cell;
  }));
  $("columns-head").replaceChildren(head);
  $("columns").replaceChildren(...found.columns.map((column) => {
    const row = element("tr");
    row.append(...Object.values(COLUMNS).map((read) => {
      const value = read(column);
      const cell = value == null ? element("td") : drawCell(value);
      cell.classList.toggle("number", isNumeric(read));
      return cell;
    }));
    return row;
  }));
  $("dataset").hidden = false;
  suggest(found);
  await showMemory();
}

/* Before the first question: suggestions, with the data set with the most rows as the example. */
async function welcome() {
  const [largest] = [...state.datasets].sort((one, other) => (other.row_count ?? 0) - (one.row_count ?? 0));
  if (!largest || state.welcome === largest.name) return;
  state.welcome = largest.name;
  const found = await get("datasets", largest.name);
  if (!state.open && !$("answers").children.length) suggest(found, "Ask in your own words. Each answer shows its SQL, and how far it can be trusted.");
}

/* A numeric column whose sum or average is meaningful: neither a key nor a row number. */
const isAmount = ({ name, average, unique_count }, rows) => average != null && !isCode(name) && !(rows > 50 && unique_count === rows && /^(n|row|index)/i.test(name));
const isGroup = ({ values, average, is_complete }) => values?.length > 1 && average == null && is_complete !== false;

/* Offers questions that this data set can answer. */
function suggest({ name, row_count, columns, time_range }, words = "") {
  const number = columns.find((one) => isAmount(one, row_count)), text = columns.find(isGroup) ?? columns.find((one) => one.values?.length > 1);
  const offers = [`Summarize ${name}`];
  if (number && text) offers.push(`Show the average ${number.name} by ${text.name} as a bar chart`);
  else if (text) offers.push(`How many rows of ${name} are there by ${text.name}?`);
  if (number && time_range) offers.push(`Show ${number.name} by month as a chart`);
  else if (number) offers.push(`What is the highest ${number.name} in ${name}?`);
  $("suggestions").replaceChildren(...(words ? [element("span", words)] : []), ...offers.map((words) => button(words, () => start(words))));
  $("suggestions").hidden = false;
}

/* ---- memory ---- */

async function showMemory() {
  if (!state.open) return;
  const table = state.open;
  const { enabled, memories } = await (await fetchData(`/analyst/memory?table=${encodeURIComponent(table)}`)).json();
  if (table !== state.open) return;
  $("memory-box").hidden = !enabled;
  $("memory-note").textContent = memories.length ? `What the analyst learned from your questions about ${table}.` : `Nothing is remembered about ${table} yet.`;
  $("memories").replaceChildren(...memories.map(drawMemory));
}

function drawMemory({ id, kind, text, hits, is_pinned }) {
  const item = element("li"), buttons = element("div", "", "buttons");
  const path = pathOf("memory", id);
  const act = (name, work) => buttons.appendChild(button(name, () => attempt(async () => { await work(); await showMemory(); })));
  act("Pin", () => change("PATCH", path, { is_pinned: !is_pinned })).setAttribute("aria-pressed", String(Boolean(is_pinned)));
  buttons.append(button("Edit", () => editMemory(item, path, text)));
  act("Forget", () => change("DELETE", path));
  item.append(element("small", `${kind}${hits == null ? "" : ` · weight ${hits.toFixed(1)}`}`), element("p", text), buttons);
  return item;
}

/* Edits a memory in its place. */
function editMemory(item, path, text) {
  const field = element("textarea", text), buttons = element("div", "", "buttons");
  const save = async () => {
    if (field.value.trim() && field.value !== text) await change("PATCH", path, { text: field.value });
    await showMemory();
  };
  field.ariaLabel = "What is remembered";
  buttons.append(button("Save", () => attempt(save), "main"), button("Cancel", () => attempt(showMemory)));
  item.replaceChildren(field, buttons);
  field.focus();
}

/* ---- questions ---- */

async function start(words, more = {}) {
  words = words.trim();
  if (!words || state.asking) return;
  if (!state.open) $("suggestions").hidden = true;
  const dataset = state.open, answer = drawAnswer(words, dataset, () => askAll(words));
  $("answers").prepend(answer.box);
  $("question").value = "";
  $("dataset").hidden = true;
  $("ask").hidden = true;
  $("stop").hidden = false;
  state.asking = new AbortController();
  const body = { message: words, conversation_history: state.history, session_id: state.session, ...more };
  if (dataset) body.dataset_label = dataset;
  let isOver = false;
  try {
    await ask(body, (kind, data) => {
      if (kind === "thought") answer.think(data);
      if (kind === "response") {
        isOver = true;
        remember(words, data);
        keep(words, data, dataset);
        answer.finish(data, (text, extra) => start(text, extra));
      }
      if (kind === "error") { isOver = true; answer.fail(data.error ?? data.message ?? "It failed."); }
    }, state.asking.signal);
    if (!isOver) answer.fail("The answer broke off.");
  } catch (error) {
    answer.fail(error.name === "AbortError" ? "Stopped." : error.message);
  } finally {
    state.asking = null;
    $("ask").hidden = false;
    $("stop").hidden = true;
  }
  await attempt(list);
  await attempt(showMemory);
}

/* Asks a question about all data sets, which was asked about one. */
function askAll(words) {
  if (state.asking) return;
  leaveDataset();
  start(words);
}

function leaveDataset() {
  $("dataset").hidden = $("suggestions").hidden = true;
  state.open = state.welcome = "";
  $("question").placeholder = "Ask something about the data";
}

$("form").onsubmit = (event) => { event.preventDefault(); start($("question").value); };
$("question").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); $("form").requestSubmit(); }
};
$("stop").onclick = () => state.asking?.abort();
$("close").onclick = () => { leaveDataset(); attempt(list); };
/* A change of the user resets the page. */
onUser = () => {
  sessionStorage.removeItem(KEPT);
  Object.assign(state, read(), { history: [], open: "", welcome: "" });
  $("answers").replaceChildren();
  attempt(list);
};
restore();
attempt(list);
