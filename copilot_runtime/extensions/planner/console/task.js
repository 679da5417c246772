/* The questions of a plan. A question whose answer is being typed is not redrawn. */

const NOTES = {
  approval: "A note, if you like",
  interrupted_call: "A note; if it was done, what came of it",
  interrupted_task: "A note; if it was done, what came of it",
  interrupt: "Your answer",
};

/* Shows the open questions. `answer` is called with a question, an answer and a note. */
function showQuestions(plan, answer, select) {
  const box = $("questions");
  const open = new Set(plan.questions.map((question) => question.id));
  for (const item of [...box.children]) if (!open.has(item.dataset.question)) item.remove();
  const known = new Set([...box.children].map((item) => item.dataset.question));
  for (const question of plan.questions) if (!known.has(question.id)) box.append(drawQuestion(question, answer, select));
  box.hidden = !box.childElementCount;
}

function drawQuestion(question, answer, select) {
  const item = element("li");
  item.dataset.question = question.id;
  const form = element("form");
  const text = element("p", cut(question.text, 20_000));
  text.id = `question-${question.id}`;
  const task = button(`Task ${question.task_id}`, () => select(question.task_id), "link");
  task.hidden = question.task_id === ROOT;
  const note = element("textarea");
  note.placeholder = NOTES[question.kind] ?? "A note";
  note.setAttribute("aria-label", note.placeholder);
  note.setAttribute("aria-describedby", text.id);
  const buttons = element("div", "", question.kind.startsWith("interrupted_") ? "answers plain" : "answers");
  buttons.append(...question.answers.map((name) => button(REPLIES[name]?.[0] ?? name, async () => {
    for (const other of buttons.children) other.disabled = true;
    await answer(question, name, note.value);
    for (const other of buttons.children) other.disabled = false;
  })));
  form.onsubmit = (event) => event.preventDefault();
  form.append(text, ...drawContext(question), ...drawDetails(question), task, note, buttons);
  item.append(form);
  return item;
}

/* The inputs of a task that waits for approval: outputs of other tasks, by name. */
function drawContext({ context = [] }) {
  return context.map(({ name, output }) => {
    const box = element("details");
    box.open = true;
    box.append(element("summary", name), element("pre", output));
    return box;
  });
}

/* An assistant's question, unchanged. */
function drawDetails({ interrupt }) {
  if (!interrupt) return [];
  const box = element("details");
  box.append(element("summary", "As it was asked"), element("pre", cut(JSON.stringify(interrupt, null, 2), 20_000)));
  return [box];
}

/* One task: what came of it first, as Markdown with its sources; then how it was done. */

const MOST_SOURCES = 20;
const openParts = new Set();  // the parts that the user has opened
const titles = new Map();  // of sources, as promises, by id

/* Shows a task, without its live text. */
function showTask(task) {
  $("task").hidden = false;
  $("task-title").textContent = visible(cut(task.id === ROOT ? "The plan" : task.name, 10_000));
  const scroll = $("task").scrollTop;
  $("task-content").replaceChildren(...drawTask(task));
  $("task").scrollTop = scroll;
  tick();
}

function drawTask(task) {
  const parts = [];
  const purpose = task.purpose === task.name ? "" : task.purpose;  // the name is the title
  const texts = { Why: task.reason, Purpose: purpose, Instructions: task.instructions, "When to use": task.applicability, "A good outcome": task.criterion };
  if (task.output != null) parts.push(element("h4", "Output"), drawOutput(cut(task.output, 100_000) || "(nothing)"));
  if (task.sources.length) parts.push(element("h4", "Sources"), drawSources(task.sources));
  for (const [name, text] of Object.entries(texts)) if (text) parts.push(element("h4", name), element("p", text));
  if (task.evaluations.length) parts.push(element("h4", "Checks"), ...task.evaluations.map(drawEvaluation));
  if (task.calls.length) parts.push(element("h4", "Calls"), ...task.calls.map((call) => drawCall(task, call)));
  return [...parts, element("h4", "Details"), drawTable(task)];
}

/* The sources of an output, with their titles and as links if the knowledge of this server has them. */
function drawSources(ids) {
  const list = element("ol", "", "sources");
  list.ariaLabel = "Sources";
  list.append(...ids.slice(0, MOST_SOURCES).map((id) => {
    const item = element("li", cut(id, 300));
    if (!pages.knowledge) return item;
    if (!titles.has(id)) titles.set(id, fetchData(`/knowledge/resources/${encodeURIComponent(id)}`).then((response) => response.json()));
    titles.get(id).then(({ title, url }) => item.replaceChildren(sourceOf(title || id, url)), () => {});  // it may be deleted
    return item;
  }));
  return list;
}

let drawnOutput = { text: null };

/* An unchanged output keeps its node: a running plan draws the task ten times a second. */
function drawOutput(text) {
  if (drawnOutput.text === text) return drawnOutput.box;
  drawnOutput = { text, box: element("div", "", "assistant") };
  new MarkdownView(drawnOutput.box).update(text);
  return drawnOutput.box;
}

function drawTable(task) {
  const table = element("table");
  const rows = {
    status: task.status,
    assistant: task.assistant,
    fits: task.score == null ? (task.assistant ? "was named" : "") : task.score && task.score.toFixed(2),
    after: task.depends_on?.join(", "),
    correction: task.round ? `of round ${task.round}` : "",
    corrected: task.rounds ? `in ${task.rounds} ${task.rounds === 1 ? "round" : "rounds"}` : "",
    attempts: task.attempts,
    approval: task.needs_approval ? "is needed before it begins" : "",
    answer: task.decision && saidOf(task.decision),
    began: task.started_at ? formatDate(task.started_at * 1000) : "",
    tokens: task.tokens ? `${formatCount(task.tokens)}${task.max_tokens ? ` of ${formatCount(task.max_tokens)}` : ""}` : "",
    cost: task.dollars ? formatDollars(task.dollars) : "",
    id: task.id,
  };
  for (const [name, value] of Object.entries(rows)) {
    if (!value) continue;
    const row = element("tr");
    row.append(element("td", name), element("td", cut(String(value), 5_000)));
    table.append(row);
  }
  return table;
}

function drawEvaluation({ round, passed, missing }) {
  const words = passed ? "✓ good" : `✗ ${missing || "not good"}`;
  return element("p", `${round ? `After round ${round}: ` : ""}${words}`, passed ? "good" : "bad");
}

function drawCall(task, call) {
  const key = `${task.id}/${call.id}`;
  const box = element("details");
  const state = call.result == null ? (isOver(task) ? " — was interrupted" : " …") : "";
  box.open = openParts.has(key);
  box.ontoggle = () => (box.open ? openParts.add(key) : openParts.delete(key));
  const title = element("summary", `${cut(call.tool, 300)}${state}`);
  title.append(" ", element("small", briefOf(call.arguments)));
  box.append(title, viewOfText(call.arguments));
  if (call.result != null) box.append(viewOfText(call.result));
  return box;
}
