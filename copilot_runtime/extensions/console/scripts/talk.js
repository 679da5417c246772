/* The frontend tools of this page. */

const text = (description, more = {}) => ({ type: "string", description, ...more });
const schema = (properties) => ({ type: "object", properties, required: Object.keys(properties) });
const TOOLS = {
  set_accent_color: {
    description: "Change the accent colour of the page.",
    parameters: schema({ color: text("A CSS colour, such as teal or #c2410c") }),
    run({ color }) {
      if (!CSS.supports("color", color)) throw new Error(`${JSON.stringify(color)} is not a CSS colour.`);
      root.style.setProperty("--accent", color);
      root.style.setProperty("--on-accent", isLight(color) ? "#111" : "#fff");
      return `The accent colour is ${color} now.`;
    },
  },
  set_theme: {
    description: "Switch the page between light and dark.",
    parameters: schema({ mode: text("The theme", { enum: ["light", "dark"] }) }),
    run({ mode }) {
      if (mode !== "light" && mode !== "dark") throw new Error("The theme is light or dark.");
      root.dataset.theme = mode;
      for (const { changeTheme } of sandboxes) changeTheme?.();
      return `The page is ${mode} now.`;
    },
  },
  add_note: {
    description: "Add a note to the list beside the chat.",
    parameters: schema({ text: text("What the note says") }),
    run({ text }) {
      if (typeof text !== "string" || !text) throw new Error("A note needs a text.");
      return `The note is on the page, number ${notesOf(thread).length + 1}.`;
    },
  },
  // drawn while it is streamed, from the activity that the server derives from the call
  [PAGE_TOOL]: { description: PAGE_DESCRIPTION, parameters: PAGE_PARAMETERS, run: () => "UI generated" },
};

/* A thread's notes, which are its successful calls. */
function notesOf(conversation) {
  const calls = conversation.items.flatMap((item) => item.toolCalls ?? []);
  return calls
    .filter((call) => call.function.name === "add_note" && call.result && failureIn(call.result.content) === null)
    .map((call) => asValue(call.function.arguments)?.text)
    .filter(Boolean);
}

const offers = { surfaces: false, agents: null, pages: false };  // what the server draws with this page

const offersSurfaces = () => offers.surfaces && (offers.agents?.includes(agent) ?? true);

const offeredTools = () => Object.entries(TOOLS).filter(([name]) => name !== PAGE_TOOL || offers.pages).map(([name, { description, parameters }]) => ({ name, description, parameters }));

async function resultOf(call) {
  try {
    return await TOOLS[call.function.name].run(JSON.parse(call.function.arguments || "{}"));
  } catch (error) {
    return JSON.stringify({ error: { code: "HANDLER_ERROR", message: error.message } });
  }
}

function isLight(color) {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
  return 0.299 * r + 0.587 * g + 0.114 * b > 150;
}

/* The conversation on the page: ask, run tools, resume and stop. */

const ROUNDS = 10;   // maximum rounds of frontend tools without user input
let agent = "default";
let threadId = newId();
let thread = new Conversation();
let transcript = new Transcript($("items"), thread);
let reading = null;  // the current answer: its AbortController, and whether to stop it
let again = false;   // whether another tab has started a run meanwhile
let decided = new Map();
let lastClick;       // the last click in a surface since the user's last message
const tabs = "BroadcastChannel" in window ? new BroadcastChannel(`copilot-runtime ${base}`) : null;

const pathOf = (name) => `/agent/${encodeURIComponent(agent)}/${name}`;

function show(conversation) {
  thread = conversation;
  thread.items.forEach((item) => thread.changed.add(item));
  transcript = new Transcript($("items"), thread);
  decided = new Map();
  lastClick = undefined;
}

/* Reads one stream at a time; a later call ends the previous reading, not the run. */
async function alone(work, ways) {
  reading?.controller.abort();
  const mine = reading = { controller: new AbortController(), stop: false };
  setBusy(true);
  dismissBanners();
  try {
    await work(mine);
  } catch (error) {
    if (!mine.controller.signal.aborted) showProblem(error, ways);
  } finally {
    if (reading === mine) {
      reading = null;
      thread.close();
      setBusy(false);
      draw();
      refreshThreads();
      discoverLeftOut().catch(() => {});  // of the tools of this run
      if (again) open();
    }
  }
}

/* Sends requests to the agent until it calls no more frontend tools. A click is repeated each time, as no message has it. */
function answer({ click = lastClick, ...resume } = {}) {
  return alone(async (mine) => {
    for (let round = 0; round < ROUNDS; round++) {
      const run = await readRun(mine, input({ ...resume, click }));
      resume = {};
      if (run.error || mine.stop || thread.interrupts.length || !(await act(mine))) return;
    }
  });
}

function input({ resume, command, click } = {}) {
  const draws = offersSurfaces();
  return {
    threadId, runId: newId(), messages: thread.messages(), state: thread.state ?? {}, tools: offeredTools(),
    context: [
      { description: "The page the person looks at", value: location.origin + location.pathname },
      ...(draws ? SURFACE_CONTEXT : []), ...(offers.pages ? PAGE_CONTEXT : []),
    ],
    forwardedProps: {
      ...(draws && { a2uiCatalogAvailable: true, a2uiCards: false }),  // plans and findings have their own views
      ...(command && { command }), ...(click && { a2uiAction: { userAction: click } }),
    },
    ...(resume && { resume }),
  };
}

/* Sends a click on a surface's button to the agent: once, and not while it answers. */
function click(action) {
  if (reading) return undefined;
  lastClick = action;
  thread.add({ role: "note", kind: "plain", text: `You pressed “${action.name.slice(0, 100)}”.` });
  draw();
  scrollDown();
  return answer(decisions());
}

async function readRun(mine, body) {
  const conversation = thread, before = thread.run;
  mine.run = body.runId;
  for await (const found of events(pathOf("run"), body, mine.controller.signal)) {
    found.forEach((event) => conversation.apply(event));
    if (found.some(({ type }) => type === "RUN_STARTED")) begun(mine);
    scheduleDraw();
  }
  if (conversation.run === before) throw new Problem("No answer", "The server closed the stream without a word.");
  if (!conversation.run.ended) throw new Problem("Connection lost", "The answer broke off here, but the server goes on with it.", { broken: true });
  return conversation.run;
}

function begun(mine) {
  tabs?.postMessage({ agent, threadId });
  refreshThreads();
  if (mine.stop) stop();  // pressed before the server knew the run
}

async function act(mine) {
  const conversation = thread;
  let acted = false;
  for (const call of conversation.unanswered()) {
    if (!TOOLS[call.function.name] || mine.controller.signal.aborted) continue;
    const content = await resultOf(call);
    conversation.add({ id: newId(), role: "tool", toolCallId: call.id, content });
    acted = true;
  }
  draw();
  return acted && !mine.stop;
}

/* Resumes calls without a result, because the page was left in between. */
function finishCalls() {
  return act({ controller: new AbortController(), stop: false }).then((acted) => acted && answer());
}

/* Shows the server's state of the thread, and follows its active run. */
function open() {
  again = false;
  return alone(async (mine) => {
    const conversation = new Conversation();
    const body = { ...input(), messages: [], state: {} };
    for await (const found of events(pathOf("connect"), body, mine.controller.signal)) {
      found.forEach((event) => conversation.apply(event));
      if (thread !== conversation) show(conversation);
      if (mine.run !== conversation.run?.id) {
        mine.run = conversation.run.id;
        if (mine.stop) stop();
      }
      scheduleDraw();
    }
    if (thread !== conversation) show(conversation);
    if (conversation.run && !conversation.run.ended)
      throw new Problem("Connection lost", "The answer broke off here, but the server may go on with it.", { broken: true });
  }, [["Try again", open]]);
}

/* Stops the run on the server; its last events arrive as usual. */
async function stop() {
  if (!reading) return;
  const mine = reading;
  mine.stop = true;
  if (!mine.run) return;
  try {
    await json("POST", `${pathOf("stop")}/${encodeURIComponent(threadId)}`, { runId: mine.run });
  } catch (error) {
    if (reading !== mine) return;
    mine.controller.abort();
    showProblem(error);
  }
}

/* Answers a question of the agent, which continues when none is open. */
function decide(interrupt, decision) {
  decided.set(interrupt.id, { interruptId: interrupt.id, ...decision });
  thread.items.filter((item) => item.interrupt === interrupt).forEach((item) => thread.changed.add(item));
  draw();
  if (thread.interrupts.every(({ id }) => decided.has(id))) answer(decisions());
}

function decisions() {
  const open = thread.interrupts, old = open.find((interrupt) => interrupt.event);
  const all = open.map(({ id }) => decided.get(id) ?? { interruptId: id, status: "cancelled" });
  thread.interrupts = [];
  decided = new Map();
  if (!open.length) return undefined;
  if (!old) return { resume: all };
  const { payload = null } = all.find(({ interruptId }) => interruptId === old.id);
  return { command: { resume: payload, interruptEvent: old.event.value } };
}

function send(content) {
  lastClick = undefined;
  thread.add({ id: newId(), role: "user", content });
  if (!location.hash) history.replaceState(null, "", hashOf(agent, threadId));
  draw();
  scrollDown();
  return answer(decisions());
}

function showProblem(error, ways = []) {
  const shown = error.broken ? [["Go on", open]] : ways;
  $("waiting").before(banner(error, shown));
  scrollDown();
}

/* Errors of the page; the error of a run belongs to the conversation. */
function dismissBanners() {
  document.querySelectorAll("#log > .banner").forEach((each) => each.remove());
}

/* ---- drawing, at most once a frame ---- */

let scheduled = false;

function scheduleDraw() {
  if (scheduled) return;
  scheduled = true;
  const wait = document.hidden ? (then) => setTimeout(then, 200) : requestAnimationFrame;
  wait(() => { scheduled = false; draw(); });
}

function draw() {
  transcript.draw();
  $("intro").hidden = thread.items.length > 0 || reading !== null;
  $("waiting").hidden = !reading || thread.items.at(-1)?.open === true;
  $("chips").classList.toggle("row", $("intro").hidden);
  drawNotes();
  drawState();
  drawTitle();
  if (atEnd) scrollDown();
}

let atEnd = true;  // no automatic scrolling after the user has scrolled up

function scrollDown() {
  atEnd = true;
  $("log").scrollTop = $("log").scrollHeight;
}

$("log").onscroll = () => {
  const { scrollHeight, scrollTop, clientHeight } = $("log");
  atEnd = scrollHeight - scrollTop - clientHeight < 60;
};
new ResizeObserver(() => { if (atEnd) scrollDown(); }).observe($("log"));

function setBusy(busy) {
  $("log").setAttribute("aria-busy", String(busy));
  $("send").hidden = busy;
  $("stop").hidden = !busy;
  draw();
}

tabs?.addEventListener("message", ({ data }) => {
  refreshThreads();
  if (data.threadId !== threadId) return;
  if (reading) again = true;
  else open();
});

/* The footer of an answer: traces and feedback of its runs. */

const MOST_RATINGS = 500;
let ratings = readRatings();
let readsTraces = false;  // whether the user may open traces

async function discoverTraces() {
  if (!$("traces").dataset.kept) return;
  readsTraces = await json("GET", "/traces/access").then((access) => access.may_read, () => false);
  for (const item of thread.items) if (item.kind === "run") thread.changed.add(item);
  draw();
}

function runView() {
  const node = element("div", "note run");
  return { node, update(item) {
    const links = readsTraces ? item.values.map((id, at) => traceLink(id, item.values.length > 1 ? ` ${at + 1}` : "")) : [];
    const problem = element("span", "", item.problem ?? "");
    problem.role = "status";
    const focused = node.querySelector("button:focus")?.ariaLabel;
    node.replaceChildren(thumb("up", "Good answer", item), thumb("down", "Bad answer", item), ...links, problem);
    if (focused) node.querySelector(`[aria-label="${focused}"]`).focus();
  } };
}

function traceLink(runId, number) {
  const made = element("a", "", `Trace${number}`);
  made.href = `${$("traces").getAttribute("href")}#run=${encodeURIComponent(runId)}`;
  return made;
}

function thumb(rating, label, item) {
  const made = button("", () => rate(item, rating), rating);
  made.append($("thumb").content.cloneNode(true));
  made.ariaLabel = made.title = label;
  made.ariaPressed = String(ratings[item.values.at(-1)] === rating);
  return made;
}

/* Sends feedback on the run that gave the answer. */
async function rate(item, rating) {
  item.problem = "";
  try {
    await json("POST", "/traces/feedback", { run_id: item.values.at(-1), rating });
    keepRating(item.values.at(-1), rating);
  } catch (error) {
    item.problem = `That could not be noted. ${error.message}`;
  }
  thread.changed.add(item);
  draw();
}

/* Returns ratings given in this browser, by run id: not every user may read them from the server. */
function readRatings() {
  try {
    return JSON.parse(localStorage.getItem("ratings") ?? "{}");
  } catch {
    return {};  // storage is disabled
  }
}

function keepRating(runId, rating) {
  const { [runId]: former, ...others } = ratings;
  ratings = Object.fromEntries([...Object.entries(others), [runId, rating]].slice(-MOST_RATINGS));
  try {
    localStorage.setItem("ratings", JSON.stringify(ratings));
  } catch {
    // it is shown until the page is left
  }
}
