/* The widget: a bubble that opens a chat, in a shadow root of the element `copilot-widget`. */

const script = document.currentScript ?? document.querySelector("script[src*='/widget.js']");
const { endpoint, title: ownTitle } = SERVER;
const base = new URL(endpoint, script.src).href.replace(/\/$/, "");
const { agent = "default", title = ownTitle, greeting = "How can I help?", theme, fill } = script.dataset;
const hljs = { getLanguage: () => undefined };  // code without colours: the library is larger than all else
const normalizeLink = parser.normalizeLink;
parser.normalizeLink = (url) => (url.startsWith("/") ? new URL(url, base).href : normalizeLink(url));  // paths are the server's
let wireBegan;
const watchWire = () => {};
const refuse = () => {};

/* Headers that the page adds to each request: `window.copilotWidget = { headers: () => ({ … }) }`. */
function fetchAuthorized(path, { headers, ...options }) {
  const { credentials = "same-origin" } = script.dataset;
  return fetch(base + path, { ...options, credentials, headers: { ...headers, ...window.copilotWidget?.headers?.() } });
}

async function copyText(words, from) {
  await navigator.clipboard.writeText(words).then(() => { from.textContent = "Copied"; }, () => { from.textContent = "Not permitted"; });
}

/* ---- the frame ---- */

const host = document.createElement("copilot-widget");
const shadow = host.attachShadow({ mode: "open" });
const sheet = new CSSStyleSheet();  // permitted where the page's policy forbids style elements
sheet.replaceSync(STYLE);
shadow.adoptedStyleSheets = [sheet];
if (theme) host.dataset.theme = theme;

const panel = element("section", "", "panel"), log = element("div", "", "log"), form = element("form", "", "compose");
const field = element("textarea"), send = element("button", "Send", "main"), bubble = button("", () => open(panel.hidden), "bubble");
const again = button("New chat", () => { reading?.abort(); remember(newId()); show(new Conversation()); field.focus(); }, "plain");
const head = element("div", "", "title");
head.append(element("h2", title), again, ...(fill === undefined ? [button("Close", () => open(false), "plain")] : []));
log.role = "log";
log.tabIndex = 0;
log.ariaLabel = "Conversation";
Object.assign(field, { rows: 1, placeholder: "Say something", ariaLabel: "Message" });
form.append(field, send);
panel.append(head, log, form);
panel.role = "dialog";
panel.ariaLabel = title;
panel.classList.toggle("fill", fill !== undefined);
bubble.innerHTML = '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M4 5h16v11H9l-5 4z"/></svg>';
shadow.append(panel, ...(fill === undefined ? [bubble] : []));

function setOpen(isOpen) {
  panel.hidden = !isOpen;
  bubble.ariaExpanded = String(isOpen);
  bubble.ariaLabel = isOpen ? "Close the chat" : `Chat: ${title}`;
}

function open(isOpen) {
  setOpen(isOpen);
  keep(" open", isOpen ? "yes" : "");
  if (!isOpen) return bubble.focus();
  field.focus();
  log.scrollTop = log.scrollHeight;  // a closed panel has no end
  if (!thread.items.length && kept("")) read("connect", { messages: [] });
}

panel.onkeydown = (event) => {
  event.stopPropagation();  // shortcuts of the page are not meant
  if (event.key === "Escape" && fill === undefined) open(false);
};
field.onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
};
form.onsubmit = (event) => {
  event.preventDefault();
  if (reading) return stop();
  const words = field.value.trim();
  if (words) ask(words);
};

/* ---- the conversation: one thread for each tab ---- */

const KEY = `copilot-widget ${base} ${agent}`;
let thread, views, reading = null, isScheduled = false;

/* What the tab keeps: its thread, and whether the chat is open. */
function kept(name) {
  try { return sessionStorage.getItem(KEY + name); } catch { return null; }
}

function keep(name, value) {
  try { sessionStorage.setItem(KEY + name, value); } catch { /* storage is disabled: until the page is left */ }
}

let threadId = kept("") ?? newId();

function remember(id) {
  threadId = id;
  keep("", id);
}

function show(conversation) {
  thread = conversation;
  views = new Map();
  decided = new Map();
  draw();
}

function ask(words) {
  field.value = "";
  remember(threadId);
  thread.add({ id: newId(), role: "user", content: words });
  return answer();
}

/* Answers the open questions of the agent: what was not decided is declined. */
function decisions() {
  const resume = thread.interrupts.map(({ id }) => decided.get(id) ?? { interruptId: id, status: "cancelled" });
  thread.interrupts = [];
  decided = new Map();
  return resume;
}

function answer(resume = decisions()) {
  const context = [{ description: "The page the person looks at", value: `${document.title} (${location.href})` }];
  return read("run", { messages: thread.messages(), context, ...(resume.length && { resume }) });
}

/* Reads the events of a run, or of the thread as the server has it. */
async function read(way, values) {
  const mine = reading = new AbortController();
  const conversation = way === "run" ? thread : new Conversation();
  const body = { threadId, runId: newId(), state: conversation.state ?? {}, tools: [], context: [], forwardedProps: {}, ...values };
  for (const item of thread.items) if (item.kind === "interrupt") thread.changed.add(item);
  draw();
  try {
    for await (const found of events(`/agent/${encodeURIComponent(agent)}/${way}`, body, mine.signal)) {
      for (const event of found) {
        conversation.apply(event);
        host.dispatchEvent(new CustomEvent("ag-ui", { detail: event }));
      }
      if (thread !== conversation) show(conversation);
      scheduleDraw();
    }
  } catch (error) {
    if (!mine.signal.aborted) thread.add({ role: "note", kind: "error", error });
  }
  if (reading !== mine) return;
  reading = null;
  thread.close();
  draw();
}

function stop() {
  json("POST", `/agent/${encodeURIComponent(agent)}/stop/${encodeURIComponent(threadId)}`, { runId: thread.run?.id }).catch(() => reading?.abort());
}

/* ---- drawing ---- */

function scheduleDraw() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => { isScheduled = false; draw(); });
}

function draw() {
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  for (const item of thread.items) if (!views.has(item)) views.set(item, makeView(item));
  for (const item of thread.changed) {
    try { views.get(item)?.update(item, thread); } catch { views.set(item, VIEWS.plain(UNREADABLE)); }
  }
  thread.changed.clear();
  const shown = thread.items.map((item) => views.get(item).node).filter(Boolean);
  if (!shown.length) shown.push(element("p", greeting, "greeting"));
  if (reading && !thread.items.at(-1)?.open) shown.push(Object.assign(element("div", "…", "waiting"), { ariaLabel: "Waiting for the answer" }));
  if (shown.length !== log.childElementCount || shown.some((node, at) => node !== log.children[at])) log.replaceChildren(...shown);
  send.textContent = reading ? "Stop" : "Send";
  log.ariaBusy = String(Boolean(reading));
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

const UNREADABLE = { text: "This part of the answer cannot be shown." };

function makeView(item) {
  try { return (VIEWS[item.kind ?? item.activityType ?? item.role] ?? (() => ({ update() {} })))(item); } catch { return VIEWS.plain(UNREADABLE); }
}

const VIEWS = {
  user: ({ content }) => still(element("div", typeof content === "string" ? content : content.map((part) => part.text ?? `(${part.type})`).join(" "), "user")),
  assistant() {
    const node = element("div"), words = node.appendChild(element("div", "", "assistant")), calls = node.appendChild(element("div", "", "calls"));
    const view = new MarkdownView(words);
    return { node, update({ content = "", open, toolCalls = [] }) {
      view.update(content, open);
      calls.replaceChildren(...toolCalls.map((call) => element("div", `${call.result ? "✓" : "…"} ${call.function.name}`, "note")));
    } };
  },
  sources(item) {
    const node = element("ol", "", "sources");
    node.append(...(item.content?.sources ?? []).map(({ title: name, id, url }) => {
      const row = element("li");
      row.append(sourceOf(name || id, url));
      return row;
    }));
    return still(node);
  },
  interrupt: interruptView,
  error({ error }) {
    const node = element("div", error.message, "error");
    node.role = "alert";
    node.append(" ", button("Try again", () => { node.remove(); answer(); }, "link"));
    return still(node);
  },
  stopped: () => still(element("div", "Stopped.", "note")),
  plain: ({ text }) => still(element("div", text, "note")),
};

const still = (node) => ({ node, update() {} });

show(new Conversation());
setOpen(fill !== undefined);
(document.body ?? document.documentElement).append(host);
if (fill !== undefined || kept(" open")) open(true);
