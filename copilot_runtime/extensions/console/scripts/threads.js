/* The list of threads, and the actions on a thread. */

const PAGE = 30;
const MOST_SEARCHED = 300;  // threads among which the search looks
let threads = [];
let wanted = PAGE;        // maximum length of the list
let refreshing = null;
let asked = 0;
let opened = null;        // the thread whose tools are shown
let renaming = null;
const firstWords = new Map();

const hashOf = (agent, id) => `#${encodeURIComponent(agent)}/${encodeURIComponent(id)}`;

/* The thread id in the URL's hash, or null for a new chat. */
function named(hash) {
  const found = /^#([^/]+)\/(.+)$/.exec(hash);
  try {
    return found && { agent: decodeURIComponent(found[1]), id: decodeURIComponent(found[2]) };
  } catch {
    return null;
  }
}

/* Reloads the list: one request at a time, and one more if it was called meanwhile. */
async function refreshThreads() {
  if (refreshing) return (refreshing.again = true);
  const mine = refreshing = { again: false };
  try {
    await readThreads();
    $("list-problem").textContent = "";
  } catch (error) {
    $("list-problem").textContent = `The threads could not be read: ${error.message}`;
  }
  refreshing = null;
  drawThreads();
  if (mine.again) refreshThreads();
  else learnFirstWords();
}

async function readThreads() {
  const found = [], mine = ++asked;
  let cursor = null;
  do {
    const query = new URLSearchParams({ limit: String(wanted - found.length) });
    if ($("archived").checked) query.set("includeArchived", "true");
    if (cursor) query.set("cursor", cursor);
    const page = await json("GET", `/threads?${query}`);
    found.push(...page.threads);
    cursor = page.nextCursor;
  } while (cursor && found.length < wanted);
  if (mine !== asked) return;  // a later request replaces this one
  threads = found;
  $("more").hidden = !cursor;
}

/* Reads the first words of threads without a name, one after the other. */
async function learnFirstWords() {
  for (const { id, name } of threads) {
    if (name || firstWords.has(id)) continue;
    firstWords.set(id, "…");
    try {
      const { messages } = await json("GET", `/threads/${encodeURIComponent(id)}/messages`);
      firstWords.set(id, wordsOf(messages));
      drawThreads();
    } catch {
      firstWords.delete(id);  // retried with the next reload of the list
    }
  }
}

function wordsOf(messages) {
  const content = messages.find((message) => message.role === "user")?.content;
  if (!Array.isArray(content)) return content?.trim() ?? "";
  return content.find((part) => part.type === "text")?.text.trim() || "An image";
}

/* ---- changes by other tabs, devices and servers ---- */

const FOLLOW_AGAIN = 2000;
let following = null;      // ends the stream of changes
const answering = new Set();

/* Follows changes while the page is visible: a browser has few connections to one server. */
async function followThreads() {
  if (following || document.hidden) return;
  const mine = following = new AbortController();
  try {
    const response = await request("GET", "/threads/changes?includeArchived=true", null, mine.signal);
    for await (const found of framesOf(response)) found.forEach(({ data }) => takeChange(JSON.parse(data)));
  } catch {
    // the list is reloaded when the page becomes visible, and on request
  }
  if (following !== mine) return;
  following = null;
  setTimeout(followThreads, FOLLOW_AGAIN);
}

function leaveThreads() {
  following?.abort();
  following = null;
}

function takeChange({ type, ...change }) {
  if (type === "threads") {
    answering.clear();
    change.threads.filter(({ running }) => running).forEach(({ id }) => answering.add(id));
    return refreshThreads();
  }
  const id = change.threadId;
  if (type === "run") answering[change.eventType === "RUN_STARTED" ? "add" : "delete"](id);
  if (type === "thread" && change.operation === "deleted") answering.delete(id);
  refreshThreads();
  const isNews = type === "run" && change.eventType === "RUN_STARTED" && change.runId !== thread.run?.id;
  if (isNews && id === threadId && !reading) open();
}

document.addEventListener("visibilitychange", () => (document.hidden ? leaveThreads() : followThreads()));

const titleOf = ({ id, name }) => name || (id === threadId && wordsOf(thread.items)) || firstWords.get(id) || "Untitled";

/* Draws the threads that match the search, in groups by date. */
function drawThreads() {
  if (renaming && document.activeElement?.closest("#list input")) return;  // a title is being edited
  const focused = document.activeElement?.dataset?.focus, sought = $("find").value.trim().toLowerCase();
  const found = threads.filter((each) => titleOf(each).toLowerCase().includes(sought));
  drawn = new Map(found.map((each) => [each.id, viewOnce(each)]));
  const groups = Map.groupBy(found, groupOf), before = new Map([...$("list").children].map((box) => [box.ariaLabel, box]));
  arrange($("list"), [...groups.keys()].map((name) => before.get(name) ?? groupView(name)));
  [...groups.values()].forEach((members, at) => arrange($("list").children[at].lastElementChild, members.map(({ id }) => drawn.get(id).node)));
  $("find").hidden = !threads.length && !sought;
  $("no-threads").hidden = found.length > 0;
  $("no-threads").textContent = sought ? "No thread has these words." : "What you talk about is kept here.";
  if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

function groupView(name) {
  const box = element("section"), list = element("ul");
  box.ariaLabel = name;
  list.ariaLabel = `Threads: ${name}`;
  box.append(element("h2", name), list);
  return box;
}

function groupOf({ updatedAt, lastRunAt }) {
  const then = new Date(lastRunAt ?? updatedAt), today = new Date().setHours(0, 0, 0, 0);
  const days = Math.ceil((today - then) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Last seven days";
  return then.toLocaleDateString([], { month: "long", year: "numeric" });
}

let drawn = new Map();

/* Unchanged rows keep their nodes, so that a click in progress is not lost. */
function viewOnce(each) {
  const { id } = each, running = isRunning(id);
  const look = JSON.stringify([each, titleOf(each), id === threadId, running, opened === id, renaming === id, Object.keys(agents).length]);
  const before = drawn.get(id);
  return before?.look === look ? before : { look, node: threadView(each) };
}

const isRunning = (id) => (id === threadId ? reading !== null : answering.has(id));

function threadView(each) {
  const item = element("li"), here = each.id === threadId, title = titleOf(each);
  item.classList.toggle("current", here);
  item.classList.toggle("archived", each.archived);
  item.classList.toggle("running", isRunning(each.id));
  if (renaming === each.id) {
    item.append(nameField(each));
    return item;
  }
  const link = element("a"), menu = button("⋯", () => toggleTools(each), "menu");
  link.href = hashOf(each.agentId, each.id);
  link.dataset.focus = `link ${each.id}`;
  link.title = title;
  if (here) link.setAttribute("aria-current", "page");
  link.append(element("span", title, "title"), element("span", factsOf(each), "facts"));
  menu.setAttribute("aria-label", `More for ${title}`);
  menu.setAttribute("aria-expanded", String(opened === each.id));
  menu.dataset.focus = `menu ${each.id}`;
  item.append(link, menu);
  if (opened === each.id) item.append(toolsFor(each));
  return item;
}

function factsOf({ agentId, archived, updatedAt, lastRunAt }) {
  const then = new Date(lastRunAt ?? updatedAt), today = then.toDateString() === new Date().toDateString();
  const when = today ? then.toLocaleTimeString([], { timeStyle: "short" })
    : then.toLocaleDateString([], { day: "numeric", month: "short" });
  return [when, Object.keys(agents).length > 1 && agentId, archived && "archived"].filter(Boolean).join(" · ");
}

function toggleTools({ id }) {
  opened = opened === id ? null : id;
  drawThreads();
}

function toolsFor(each) {
  const tools = element("div", "", "tools");
  tools.append(
    button("Rename", () => rename(each)),
    button("Link", (event) => copyText(new URL(hashOf(each.agentId, each.id), location.href).href, event.currentTarget)),
    button(each.archived ? "Unarchive" : "Archive", () => archive(each)),
    button("Delete", () => remove(each), "danger"));
  return tools;
}

function rename({ id }) {
  renaming = id;
  opened = null;
  drawThreads();
  $("list").querySelector("input")?.select();
}

function nameField(each) {
  const field = element("input");
  field.value = titleOf(each);
  field.maxLength = 200;
  field.setAttribute("aria-label", "Name of the thread");
  const done = (save) => {
    if (renaming !== each.id) return;
    renaming = null;
    const name = field.value.trim();
    if (save && name && name !== each.name) {
      each.name = name;  // shown at once; the list is read again when the server has answered
      change(each, "PATCH", "", { name, agentId: each.agentId });
    }
    drawThreads();
    document.querySelector(`[data-focus="${CSS.escape(`menu ${each.id}`)}"]`)?.focus();
  };
  field.onblur = () => done(true);
  field.onkeydown = (event) => {
    if (event.isComposing) return;
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();  // or Enter would press the next focused button
    event.stopPropagation();
    done(event.key === "Enter");
  };
  return field;
}

function archive(each) {
  opened = null;
  if (each.archived) return change(each, "PATCH", "", { archived: false, agentId: each.agentId });
  return change(each, "POST", "/archive", { agentId: each.agentId });
}

async function remove(each) {
  $("question-text").textContent = `“${titleOf(each)}” and all that was said in it will be gone for good.`;
  $("question").returnValue = "keep";
  $("question").showModal();
  await new Promise((closed) => $("question").addEventListener("close", closed, { once: true }));
  if ($("question").returnValue !== "delete") return;
  opened = null;
  if ((await change(each, "DELETE", "", { agentId: each.agentId })) && each.id === threadId) newChat();
}

/* Sends a change to the server, and returns whether it succeeded. */
async function change({ id }, method, below, body) {
  let done = true;
  try {
    await json(method, `/threads/${encodeURIComponent(id)}${below}`, body);
  } catch (error) {
    done = false;
    showProblem(error, [["Look again", (event) => { event.target.closest(".banner").remove(); refreshThreads(); }]]);
  }
  await readThreads().catch(() => {});
  drawThreads();
  tabs?.postMessage({});
  return done;
}

$("more").onclick = () => { wanted += PAGE; refreshThreads(); };
$("find").oninput = () => {
  if ($("find").value.trim() && !$("more").hidden && wanted < MOST_SEARCHED) { wanted = MOST_SEARCHED; refreshThreads(); }
  drawThreads();
};
$("archived").onchange = refreshThreads;
window.addEventListener("focus", () => refreshThreads());
