/* The views of a conversation. Text of models only becomes text nodes. */

/* Draws the items of a conversation into a box, and redraws changed items. */
class Transcript {
  #views = new Map();

  constructor(box, thread) {
    this.box = box;
    this.thread = thread;
    box.replaceChildren();
  }

  draw() {
    const { items, changed } = this.thread;
    for (const item of changed) {
      try { this.#viewOf(item)?.update(item, this.thread); } catch (error) { this.#views.set(item, unreadableView(error)); }
    }
    changed.clear();
    arrange(this.box, ordered(items).map((item) => this.#views.get(item)?.node));
  }

  #viewOf(item) {
    const make = VIEWS[item.role === "note" ? item.kind : item.role];
    if (make && !this.#views.has(item)) this.#views.set(item, make(item));
    return this.#views.get(item);
  }
}

/* Content of an agent that has another form than it should. */
function unreadableView(error) {
  console.error(error);
  return { node: element("div", "This part of the answer cannot be shown.", "note"), update() {} };
}

const VIEWS = {
  user: userView,
  assistant: assistantView,
  reasoning: reasoningView,
  activity: (item) => choose(ACTIVITIES, item.activityType, activityView)(item),
  interrupt: interruptView,
  error: errorView,
  stopped: () => ({ node: element("div", "Stopped.", "note stopped"), update() {} }),
  plain: ({ text }) => ({ node: element("div", text, "note"), update() {} }),
  run: footerView,
  changes: changesView,
  step: stepView,
};

/* Activities that are more than a card. */
const ACTIVITIES = {
  "a2ui-surface": surfaceActivityView,
  sources: sourcesView,
  files: filesView,
  ...(hasSandbox() && { "mcp-apps": appView, "open-generative-ui": generatedPageView }),
};

/* The order on the page: that of the thread, but sources stand below the answer, above its footer. The analyst's
thoughts are a list; clients that do not know it get them as reasoning, too. */
function ordered(items) {
  const shown = [], sources = [];
  const thoughts = items.flatMap(({ activityType, content }) => (activityType === "analyst-thoughts" && content?.thoughts) || []).map(({ content }) => content);
  for (const item of items) {
    if (item.role === "reasoning" && thoughts.some((words) => words && item.content.includes(words))) continue;
    if (item.activityType === "sources") { sources.push(item); continue; }
    if (item.role === "user" || item.kind === "run") shown.push(...sources.splice(0));
    shown.push(item);
  }
  return [...shown, ...sources];
}

function iconButton(icon, label, onclick) {
  const made = button("", onclick, "icon");
  made.append($("icons").content.getElementById(`icon-${icon}`).cloneNode(true));
  made.ariaLabel = made.title = label;
  return made;
}

function userView(item) {
  const node = element("div", "", "user"), bubble = node.appendChild(element("div", "", "bubble")), tools = node.appendChild(element("div", "", "actions"));
  tools.append(iconButton("edit", "Edit", () => edit(item, bubble)), iconButton("copy", "Copy", (event) => copyText(wordsOf([item]), event.currentTarget)));
  return { node, update() {
    const parts = Array.isArray(item.content) ? item.content : [{ type: "text", text: item.content }];
    bubble.replaceChildren(...parts.flatMap((part, at) => (at ? [" ", partView(part)] : [partView(part)])));
  } };
}

function partView(part) {
  if (part.type === "text") return document.createTextNode(part.text);
  const { type, value, mimeType } = part.source ?? {};
  if (part.type !== "image" || type !== "data") return element("em", `(${part.metadata?.filename ?? part.type})`);
  const image = element("img");
  image.src = `data:${mimeType};base64,${value}`;
  image.alt = "Attached image";
  return image;
}

function assistantView() {
  const node = element("div"), said = element("div", "", "assistant"), words = new MarkdownView(said), cards = new Map();
  return { node, update(item, thread) {
    if (item.content) {
      if (!said.isConnected && !node.contains(said)) node.prepend(said);
      words.update(item.content, item.open);
      said.classList.toggle("streaming", Boolean(item.open));
    }
    for (const call of item.toolCalls ?? []) {
      if (!cards.has(call.id)) cards.set(call.id, callView(call));
      const card = cards.get(call.id);
      if (card.node.parentNode !== node) node.append(card.node);
      card.update(thread);
    }
  } };
}

/* A call of a tool: one line, which opens. */
function callView(call) {
  const node = element("details", "", "card busy"), title = element("summary"), brief = element("span", "", "brief");
  const where = element("small"), given = element("div", "", "arguments"), result = element("div", "", "result");
  const { name } = call.function;
  const again = button("Run it here", finishCalls);
  title.append(element("b", name), brief, where);
  node.append(title, given, result);
  let drawn = "";
  return { node, update(thread) {
    const { arguments: args } = call.function, isHere = runsHere(name), failure = call.result ? failureIn(call.result.content) : null;
    node.classList.toggle("busy", Boolean(call.open || (!call.result && reading)));
    node.classList.toggle("failed", failure !== null);
    brief.textContent = failure ?? briefOf(args);
    where.textContent = call.took >= 1 ? formatTime(call.took) : call.result || call.open || reading ? "" : "no result";
    where.title = isHere ? "Ran in this page" : "Ran on the server";
    if (!isHere || call.open || call.result || reading) again.remove();
    else node.after(again);
    const look = JSON.stringify([args.length, call.open, call.result?.content]);
    if (drawn === look) return;
    drawn = look;
    given.replaceChildren(call.open ? element("pre", args || "…") : viewOfText(args || "{}"));
    const isBelow = thread.items.some(({ activityType, content }) => activityType === "analyst-table" && isSameTable(content, call.result?.content));
    result.replaceChildren(...(!call.result ? [] : isBelow ? [element("small", "The table is below.")] : [viewOfText(failure ?? (call.result.content || "done"))]));
  } };
}

/* Returns the error of a failed call's result, or null. */
function failureIn(result) {
  try {
    const told = JSON.parse(result);
    return told?.error?.message ?? (told?.status === "error" ? told.message : null) ?? null;
  } catch {
    return null;  // plain text is not a failure
  }
}

function reasoningView() {
  const node = element("details", "", "thought"), title = element("summary"), thought = element("div");
  node.append(title, thought);
  return { node, update(item) {
    title.textContent = item.open ? "Thinking…" : "Thoughts";
    thought.textContent = item.content;
  } };
}

function activityView() {
  const node = element("details", "", "card"), title = element("summary"), name = element("b"), content = element("pre");
  title.append(name, element("small", "activity"));
  node.append(title, content);
  node.open = true;
  return { node, update(item) {
    if (item.activityType === "plan" && Array.isArray(item.content?.tasks)) return drawPlan(node, title, item.content);
    if (Object.hasOwn(FINDINGS, item.activityType) && item.content) return FINDINGS[item.activityType](node, title, item.content);
    name.textContent = item.activityType;
    content.textContent = JSON.stringify(item.content, null, 2);
  } };
}

/* The sources of an answer, as chips that open the documents. */
function sourcesView() {
  const node = element("ol", "", "sources");
  node.ariaLabel = "Sources";
  return { node, update({ content }) {
    node.replaceChildren(...(content?.sources ?? []).map(({ title, id, url }) => {
      const item = element("li");
      item.append(sourceOf(title || id, url));
      return item;
    }));
  } };
}

/* The files of a question, as chips, with what the server says of them. */
function filesView() {
  const node = element("ul", "", "sources files");
  node.ariaLabel = "Files";
  return { node, update({ content }) {
    node.replaceChildren(...(content?.files ?? []).map(({ name, state, message }) => {
      const item = element("li", [name, state === "reading" ? "reading …" : message].filter(Boolean).join(" · "));
      return item;
    }));
  } };
}

const MOST_TASKS = 40;

/* The progress of a plan, and a link to it. */
function drawPlan(node, title, plan) {
  const { over = 0, total = 0 } = plan.progress ?? {};
  const list = element("ol", "", "plan"), rows = tasksOf(plan.tasks);
  for (const { task, depth } of rows.slice(0, MOST_TASKS)) {
    const item = list.appendChild(element("li"));
    item.dataset.status = task.status;
    item.style.marginLeft = `${Math.min(depth, 6) * 1.1}rem`;
    item.append(element("span", task.name), element("small", [task.status, task.assistant, task.decision && saidOf(task.decision)].filter(Boolean).join(" · ")));
  }
  const shown = Math.min(rows.length, MOST_TASKS);
  const more = element("small", total > shown ? `${shown} of ${total} tasks. ` : "");
  if (pages.planner) more.append(link("Open the plan", `${pages.planner}#${encodeURIComponent(plan.id)}`));
  title.dataset.status = plan.status;
  title.replaceChildren(element("b", "Plan"), element("small", [plan.status, plan.decision && saidOf(plan.decision), `${over} of ${total} tasks are over`].filter(Boolean).join(" · ")));
  node.replaceChildren(title, list, more);
}

/* The error that ended a run, prominent while it is the last item. */
function errorView({ error }) {
  const node = element("div");
  return { node, update(item, thread) {
    const last = thread.run?.error === error;
    node.replaceChildren(last ? banner(error) : element("div", `${error.title}: ${error.message}`, "note"));
  } };
}

function stepView(item) {
  const node = element("div", "", "note step");
  return { node, update() { node.textContent = item.open ? `▸ ${item.name} …` : `▸ ${item.name}`; } };
}

/* An error with its possible actions. */
function banner(error, ways = []) {
  const node = element("div", "", error.status === 401 ? "banner calm" : "banner");
  node.setAttribute("role", "alert");
  const shown = ways.length ? ways : [["Try again", () => { node.remove(); answer(); }]];
  node.append(element("strong", error.title ?? error.name), element("p", error.message));
  const buttons = shown.map(([label, act]) => button(label, act));
  if (error.retryAt) buttons.forEach((each) => holdBack(each, error.retryAt));
  node.append(...buttons, button("Dismiss", () => node.remove()));
  return node;
}

function spellSeconds(seconds) {
  if (seconds < 100) return `${seconds} s`;
  return seconds < 6000 ? `${Math.ceil(seconds / 60)} min` : `${Math.ceil(seconds / 3600)} h`;
}

/* Disables a button until a time, and shows a countdown. */
function holdBack(node, until) {
  const label = node.textContent;
  node.setAttribute("aria-live", "off");  // else each second would be read aloud
  const tick = () => {
    const left = Math.ceil((until - Date.now()) / 1000);
    node.disabled = left > 0;
    node.textContent = left > 0 ? `${label} in ${spellSeconds(left)}` : label;
    if (left > 0) setTimeout(() => node.isConnected && tick(), 1000);
  };
  tick();
}
