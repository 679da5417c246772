/* The page around the conversation: which thread is shown, what is suggested, and its controls. */

const MOST_SUGGESTIONS = 4;
const suggestions = JSON.parse($("chips").dataset.own);  // by agent, that with which the page opens first
let agents = {};         // what the server says about each agent, by name

/* ---- which thread is shown ---- */

async function go() {
  const found = named(location.hash);
  if (found && found.agent === agent && found.id === threadId && thread.items.length) return;
  reading?.controller.abort();
  reading = null;
  again = false;
  agent = found?.agent ?? ($("agent").value || Object.keys(agents)[0] || "default");
  threadId = found?.id ?? newId();
  if (agents[agent]) $("agent").value = agent;
  show(new Conversation());
  setBusy(false);
  openThreads(false);
  drawThreads();
  drawIntro();
  drawConnect();
  discoverPlayground();
  $("input").focus();
  if (found) await open();
}

function newChat() {
  if (!location.hash) return go();
  history.pushState(null, "", location.pathname + location.search);
  return go();
}

/* ---- what a visitor sees first ---- */

function drawIntro() {
  const words = (agent === "default" && $("items").dataset.introduction) || (agents[agent]?.description ?? "");
  $("about").textContent = words === agent ? "" : words.slice(0, 300);
  drawChips();
}

/* Suggestions of the agent, without those that were asked in this thread. */
function drawChips() {
  const all = suggestions[agent] ?? [];
  const asked = new Set(thread.items.filter(({ role }) => role === "user").map((item) => wordsOf([item])));
  const left = all.slice(0, MOST_SUGGESTIONS).filter((words) => !asked.has(words));
  $("chips").hidden = !left.length || reading !== null;
  if (left.join("\n") === [...$("chips").children].map((chip) => chip.textContent).join("\n")) return;
  $("chips").replaceChildren(...left.map((words) => button(words, () => { if (!reading) send(words); })));
}

async function discoverData(looks = 10) {
  if (!pages.analyst) return;  // there is no data
  const [{ name }, { datasets }] = await Promise.all([json("GET", "/analyst"), json("GET", "/analyst/datasets")]);
  const [largest] = datasets.sort((one, other) => (other.row_count ?? 0) - (one.row_count ?? 0));
  if (largest) suggestions[name] ??= [`Summarize ${largest.name}`, `How many rows of ${largest.name} are there?`, ...questionsAbout(largest), "What can you do?"];
  else if (looks) setTimeout(() => discoverData(looks - 1).catch(() => {}), 1000);  // it is being loaded
  drawChips();
}

function questionsAbout({ name, columns = [] }) {
  const group = columns.find(({ type, name: column }) => /char|text|enum/i.test(type) && !/(^|_)(id|key|name)$/i.test(column));
  return group ? [`How many rows of ${name} are there by ${group.name}?`] : [];
}

function drawTitle() {
  nameTab(threads.find(({ id }) => id === threadId)?.name || wordsOf(thread.items));
}

async function discover() {
  try {
    const info = await json("GET", "/info");
    agents = info.agents;
    Object.assign(offers, { surfaces: Boolean($("items").dataset.surfaces), agents: info.a2ui?.agents ?? null, pages: hasSandbox() && info.openGenerativeUIEnabled === true });
    $("speak").hidden = !(info.audioFileTranscriptionEnabled && navigator.mediaDevices && window.MediaRecorder);
  } catch (error) {
    showProblem(error, [error.status === 401 ? ["Sign in", () => askToSignIn()] : ["Try again", start]]);
    return false;
  }
  const chosen = [named(location.hash)?.agent, asValue(draft.get()).agent, $("agent").value, ...Object.keys(suggestions)], names = Object.keys(agents);
  $("agent").replaceChildren(...names.map((name) => element("option", name)));
  $("agent").value = chosen.find((name) => names.includes(name)) ?? names[0];
  $("agent-box").hidden = names.length < 2;
  return true;
}

let discovering = null;

async function start() {
  dismissBanners();
  discovering = discover();
  const isKnown = await discovering;
  discovering = null;
  if (!isKnown) return;
  refreshThreads();
  leaveThreads();
  followThreads();
  discoverOperator();
  discoverData().catch(() => {});  // the page Data shows the error
  discoverLeftOut().catch(() => {});  // a server that is not ready answers chats with its errors
  threadId = "";  // read it again even if it is the one that is shown
  await go();
  openDraft();
}

/* ---- notes of the demo ---- */

let notesShown = "";

function drawNotes() {
  const notes = notesOf(thread), now = JSON.stringify(notes);
  if (now === notesShown) return;
  notesShown = now;
  $("notes").replaceChildren(...notes.map((words) => element("li", words)));
  $("notes-box").hidden = !notes.length;
}

/* ---- the controls ---- */

/* On a narrow page, the threads are a drawer. */
function openThreads(isOpen) {
  $("threads").classList.toggle("open", isOpen);
  $("open-threads").setAttribute("aria-expanded", String(isOpen));
}

$("form").onsubmit = (event) => {
  event.preventDefault();
  if (discovering) return discovering.then(() => $("form").requestSubmit());  // then a new chat starts
  const said = $("input").value.trim();
  if (reading || (!said && !attachments.length)) return;
  $("input").value = "";
  const parts = detach();
  send(parts.length ? [...(said ? [{ type: "text", text: said }] : []), ...parts] : said);
};
$("form").onclick = ({ target }) => { if (!target.closest("button, textarea, #attached")) $("input").focus(); };
$("input").onkeydown = (event) => {
  if (event.isComposing) return;
  if (event.key === "ArrowUp" && !$("input").value) {
    const last = [...$("items").querySelectorAll(".user")].at(-1)?.querySelector("[aria-label=Edit]");
    if (last) { event.preventDefault(); last.click(); }
  }
  if (event.key !== "Enter" || event.shiftKey) return;
  event.preventDefault();
  $("form").requestSubmit();
};
document.onkeydown = (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if ($("threads").classList.contains("open")) openThreads(false);
  else stop();
};
$("stop").onclick = () => { stop(); $("input").focus(); };
$("new").onclick = newChat;
$("agent").onchange = newChat;
$("open-threads").onclick = () => openThreads(!$("threads").classList.contains("open"));
$("chat").addEventListener("click", () => openThreads(false));
window.addEventListener("popstate", go);
$("list").onclick = (event) => { if (event.target.closest("a[aria-current]")) openThreads(false); };
onUser = start;  // a change of the user changes the threads
start();
