/* The page around the conversation: its controls, its panel, and its startup. */

/* Suggestions for agents with the tools of this page; the server may add more for its own chat. */
const SUGGESTIONS = ["What can you do?", "Make it orange and dark", "Add a note: water the plants"];
/* Suggestions for agents that answer from data, by agent name. */
const dataSuggestions = {};
let agents = [];

/* ---- which thread is shown ---- */

async function go() {
  const found = named(location.hash);
  if (found && found.agent === agent && found.id === threadId && thread.items.length) return;
  reading?.controller.abort();
  reading = null;
  again = false;
  agent = found?.agent ?? ($("agent").value || agents[0] || "default");
  threadId = found?.id ?? newId();
  if (agents.includes(agent)) $("agent").value = agent;
  show(new Conversation());
  dismissBanners();
  setBusy(false);
  setView("chat");
  drawThreads();
  drawChips();
  $("input").focus();
  if (found) await open();
}

function newChat() {
  if (!location.hash) return go();
  history.pushState(null, "", location.pathname + location.search);
  return go();
}

function setView(view) {
  document.body.dataset.view = view;
  for (const each of $("views").children) each.setAttribute("aria-pressed", String(each.dataset.view === view));
}

function drawChips() {
  const more = agent === "default" ? JSON.parse($("chips").dataset.more) : [];
  const chip = (words) => button(words, () => { if (!reading) send(words); });
  const drawn = [offersSurfaces() && "Draw a form for a booking", offers.pages && "Draw a page with a stopwatch"].filter(Boolean);
  $("chips").replaceChildren(...(dataSuggestions[agent] ?? [...SUGGESTIONS, ...drawn, ...more]).map(chip));
}

async function discoverData(looks = 10) {
  if (!$("analyst").getAttribute("href")) return;  // there is no data
  const [{ name }, { datasets }] = await Promise.all([json("GET", "/analyst"), json("GET", "/analyst/datasets")]);
  const [largest] = datasets.sort((one, other) => (other.row_count ?? 0) - (one.row_count ?? 0));
  dataSuggestions[name] = ["What can you do?"];
  if (largest) dataSuggestions[name].push(`Summarize ${largest.name}`, `How many rows of ${largest.name} are there?`);
  else if (looks) setTimeout(() => discoverData(looks - 1).catch(() => {}), 1000);  // it is being loaded
  drawChips();
}

function drawTitle() {
  const words = threads.find(({ id }) => id === threadId)?.name || wordsOf(thread.items);
  document.title = words ? `${words.slice(0, 60)} · copilot-runtime` : "copilot-runtime";
}

async function discover() {
  try {
    const info = await json("GET", "/info");
    agents = Object.keys(info.agents);
    Object.assign(offers, { surfaces: Boolean($("items").dataset.surfaces), agents: info.a2ui?.agents ?? null, pages: hasSandbox() && info.openGenerativeUIEnabled === true });
    $("speak").hidden = !(info.audioFileTranscriptionEnabled && navigator.mediaDevices && window.MediaRecorder);
  } catch (error) {
    if (error.title === "HTTP 401") $("authorization-box").open = true;
    showProblem(error, [["Try again", start]]);
    return false;
  }
  const chosen = named(location.hash)?.agent ?? $("agent").value;
  $("agent").replaceChildren(...agents.map((name) => element("option", "", name)));
  if (agents.includes(chosen)) $("agent").value = chosen;
  $("agent-box").hidden = agents.length < 2;
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
  discoverTraces();
  discoverData().catch(() => {});  // the page Data shows the error
  discoverLeftOut().catch(() => {});  // a server that is not ready answers chats with its errors
  threadId = "";  // read it again even if it is the one that is shown
  await go();
}

/* ---- the panel ---- */

const wire = [];
let wireBegan = 0, wireTotal = 0;

function watchWire(data) {
  wire.push(`+${Math.round(performance.now() - wireBegan)} ms|${data.length > 2000 ? `${data.slice(0, 2000)}…` : data}`);
  if (wire.length > 60) wire.shift();
  wireTotal++;
  scheduleWire();
}

let wireScheduled = false;

function scheduleWire() {
  if (wireScheduled) return;
  wireScheduled = true;
  setTimeout(() => { wireScheduled = false; drawWire(); }, 50);
}

function drawWire() {
  $("wire-count").textContent = `${wireTotal} event${wireTotal === 1 ? "" : "s"}`;
  if (!$("wire-box").open) return;
  $("wire").replaceChildren(...wire.map((line) => {
    const item = element("li"), cut = line.indexOf("|");
    item.append(element("span", "", line.slice(0, cut)), ` ${line.slice(cut + 1)}`);
    return item;
  }));
  $("wire").scrollTop = $("wire").scrollHeight;
}

let notesShown = "";

function drawNotes() {
  const notes = notesOf(thread), now = JSON.stringify(notes);
  if (now === notesShown) return;
  notesShown = now;
  $("notes").replaceChildren(...notes.map((words) => element("li", "", words)));
  $("no-notes").hidden = notes.length > 0;
}

async function discoverLeftOut() {
  const { failing = [] } = await json("GET", "/health/ready");
  const tools = failing.filter((check) => check.split(":")[0] === "tools");
  $("left-out-box").hidden = !tools.length;
  $("left-out").replaceChildren(...tools.map((check) => element("li", "", check.replace(/^tools:? ?/, "") || "The log of the server names them.")));
}

let stateShown;

function drawState() {
  if (thread.state === stateShown || document.activeElement === $("state")) return;
  stateShown = thread.state;
  $("state").value = stateShown === undefined ? "" : JSON.stringify(stateShown, null, 2);
  $("state").removeAttribute("aria-invalid");
  $("state-box").open = Boolean(stateShown && Object.keys(stateShown).length);
}

$("state").oninput = () => {
  const written = $("state").value.trim();
  let wrong = "";
  try { thread.state = written ? JSON.parse(written) : undefined; } catch (error) { wrong = error.message; }
  $("state").setAttribute("aria-invalid", String(Boolean(wrong)));
  $("state-note").textContent = wrong ? `Not sent yet: ${wrong}` : "Sent with each message. The agent may change it, and so may you.";
};
$("state").onblur = () => { if ($("state").getAttribute("aria-invalid") !== "true") drawState(); };

/* ---- the controls ---- */

$("form").onsubmit = (event) => {
  event.preventDefault();
  if (discovering) return discovering.then(() => $("form").requestSubmit());  // then a new chat starts
  const said = $("input").value.trim();
  if (reading || (!said && !attachments.length)) return;
  $("input").value = "";
  const parts = detach();
  send(parts.length ? [...(said ? [{ type: "text", text: said }] : []), ...parts] : said);
};
$("input").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("form").requestSubmit();
};
document.onkeydown = (event) => { if (event.key === "Escape" && !document.querySelector("dialog[open]")) stop(); };
$("stop").onclick = () => { stop(); $("input").focus(); };
$("new").onclick = newChat;
$("agent").onchange = newChat;
for (const each of $("views").children) each.onclick = () => setView(each.dataset.view);
window.addEventListener("popstate", go);
$("list").onclick = (event) => { if (event.target.closest("a[aria-current]")) setView("chat"); };
$("wire-box").ontoggle = drawWire;
$("copy").onclick = async () => {
  try {
    await navigator.clipboard.writeText($("snippet").textContent);
    $("copied").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren($("snippet"));
    $("copied").textContent = "Selected: copy it with your keyboard";
  }
};
// a reload must keep the owner of the threads
$("authorization").value = sessionStorage.getItem("authorization") ?? "";
$("authorization").onchange = () => {
  sessionStorage.setItem("authorization", $("authorization").value);
  start();
};
$("endpoint").textContent = new URL(base).pathname;
$("snippet").textContent = `<CopilotKit runtimeUrl="${base}">`;
setView("chat");
start();
