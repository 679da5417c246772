/* The conversation on the page: ask, run tools, resume and stop. */

const LOOK = 3000;   // milliseconds between two looks for answers that were given elsewhere
const ROUNDS = 10;   // maximum rounds of frontend tools without user input
let agent = "default";
let threadId = newId();
let thread = new Conversation();
let transcript = new Transcript($("items"), thread);
let reading = null;  // the current answer: its AbortController, and whether to stop it
let again = false;   // whether another tab has started a run meanwhile
let lastClick;       // the last click in a surface since the user's last message
const tabs = "BroadcastChannel" in window ? new BroadcastChannel(`copilot-runtime ${base}`) : null;

const pathOf = (name) => `/agent/${encodeURIComponent(agent)}/${name}`;

function show(conversation) {
  dismissBanners();
  thread = conversation;
  thread.items.forEach((item) => thread.changed.add(item));
  transcript = new Transcript($("items"), thread);
  decided = new Map();
  lastClick = undefined;
  changes = null;
}

/* Reads one stream at a time; a later call ends the previous reading, not the run. */
async function alone(work, ways) {
  reading?.controller.abort();
  const mine = reading = { controller: new AbortController(), stop: false };
  setBusy(true);
  dismissBanners();
  let lost;
  try {
    await work(mine);
  } catch (error) {
    lost = error.broken && !ways && error;
    if (!mine.controller.signal.aborted && !lost) { dismissBanners(); showProblem(error, ways); }
  } finally {
    if (reading === mine) {
      reading = null;
      thread.close();
      setBusy(false);
      draw();
      refreshThreads();
      discoverLeftOut().catch(() => {});  // of the tools of this run
      if (lost) lookAfter(lost);
      else if (again) open();
    }
  }
}

/* Reads from the server what became of a run whose stream broke off. */
function lookAfter(lost) {
  open();
  lost.message += " Looking whether the server goes on with it …";
  showProblem(lost);
}

/* Sends requests to the agent until it calls no more frontend tools. A click is repeated each time, as no message has it. */
function answer({ click = lastClick, ...resume } = {}) {
  return alone(async (mine) => {
    for (let round = 0; round < ROUNDS; round++) {
      const run = await readRun(mine, { ...input({ ...resume, click }), ...(changes && { overrides: changes }) });
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
  conversation.isLive = true;
  mine.run = body.runId;
  for await (const found of events(pathOf("run"), body, mine.controller.signal)) {
    found.forEach((event) => conversation.apply(event));
    if (found.some(({ type }) => type === "RUN_STARTED")) begun(mine);
    scheduleDraw();
  }
  if (conversation.run === before) throw new Problem("No answer", "The server closed the stream without a word.");
  if (!conversation.run.ended) throw new Problem("Connection lost", "The answer broke off here.", { broken: true });
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
    if (!runsHere(call.function.name) || mine.controller.signal.aborted) continue;
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
  const ways = [["Try again", open]];
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
    if (!conversation.run && thread.items.length) {
      ways.pop();  // there is nothing to read
      throw new Problem("Connection lost", "The server does not have this answer.");
    }
    if (thread !== conversation) show(conversation);
    if (conversation.run && !conversation.run.ended)
      throw new Problem("Connection lost", "The answer broke off here.", { broken: true });
  }, ways).then(lookAtPlans);
}

/* Goes on with questions of plans that were answered elsewhere, as on the page of plans. */
async function lookAtPlans() {
  const asked = thread;
  for (const interrupt of document.hidden ? [] : asked.interrupts) {
    const id = interrupt.metadata?.plan_id;
    const plan = id && (await json("GET", `/plans/${encodeURIComponent(id)}`).catch(() => null));
    if (reading || thread !== asked) return;
    if (!plan || plan.questions.some((question) => interrupt.id === `${id}/${question.id}`)) continue;
    asked.items.filter((item) => item.interrupt === interrupt).forEach((item) => { item.said = "answered elsewhere"; });
    decide(interrupt, { status: "cancelled" });
  }
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
  takeChanges();
  thread.add({ id: newId(), role: "user", content });
  if (!location.hash) history.replaceState(null, "", hashOf(agent, threadId));
  draw();
  scrollDown();
  return answer(decisions());
}

/* Whether the thread of the server is the conversation: it is edited in place, and not copied. */
const keepsHistory = () => $("items").dataset.history === "server";

/* Asks a question again, in place of all that came after it. */
function askAgain(item, content = item.content) {
  takeChanges();
  item.content = content;
  thread.cut(thread.items.indexOf(item) + 1);
  thread.changed.add(item);
  return answer(decisions());
}

function regenerate() {
  const asked = thread.items.findLast((item) => item.role === "user");
  return reading || !asked ? undefined : askAgain(asked);
}

/* Goes on with what came before an item in a thread of its own; the old one is kept. */
function branchBefore(at) {
  const branch = new Conversation();
  for (const each of thread.items.slice(0, at)) branch.add(each);
  branch.state = thread.state;
  threadId = newId();
  history.pushState(null, "", location.pathname + location.search);
  show(branch);
  draw();
  drawThreads();
}

/* Edits a question, in a branch. */
function edit(item, bubble) {
  if (reading) return;
  const field = element("textarea"), buttons = element("div", "", "buttons");
  const close = () => { field.replaceWith(bubble); buttons.remove(); $("input").focus(); };
  const ask = () => {
    const words = field.value.trim();
    if (!words || reading) return;
    const files = Array.isArray(item.content) ? item.content.filter((part) => part.type !== "text") : [];
    const content = files.length ? [{ type: "text", text: words }, ...files] : words;
    if (keepsHistory()) return askAgain(item, content);
    branchBefore(thread.items.indexOf(item));
    return send(content);
  };
  field.value = wordsOf([item]);
  field.setAttribute("aria-label", "Edit the message");
  field.onkeydown = (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") { event.stopPropagation(); close(); }
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); ask(); }
  };
  buttons.append(button("Cancel", close), button("Ask", ask, "main"));
  bubble.replaceWith(field);
  field.after(buttons);
  field.focus();
}

function showProblem(error, ways = []) {
  const shown = error.broken ? [["Look again", open]] : ways;
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
  $("chat").classList.toggle("empty", !$("intro").hidden);
  $("waiting").hidden = !reading || thread.items.at(-1)?.open === true;
  drawNotes();
  drawChips();
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
const whenResized = new ResizeObserver(() => { if (atEnd) scrollDown(); });
for (const box of [$("log"), $("items")]) whenResized.observe(box);

function setBusy(busy) {
  $("log").setAttribute("aria-busy", String(busy));
  $("send").hidden = busy;
  $("stop").hidden = !busy;
  draw();
}

window.addEventListener("focus", lookAtPlans);
setInterval(lookAtPlans, LOOK);

tabs?.addEventListener("message", ({ data }) => {
  refreshThreads();
  if (data.threadId !== threadId) return;
  if (reading) again = true;
  else open();
});
