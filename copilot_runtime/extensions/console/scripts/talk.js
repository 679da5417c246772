/* The conversation on the page: asking, acting, reading on, stopping. */

const ROUNDS = 10;   // how often the page's tools may be answered without a person
let agent = "default";
let threadId = newId();
let thread = new Conversation();
let transcript = new Transcript($("items"), thread);
let reading = null;  // the answer that is read: its AbortController, and whether it is to be stopped
let again = false;   // whether another tab has asked meanwhile
let decided = new Map();
let lastClick;       // in a surface, since the person last wrote something
const tabs = "BroadcastChannel" in window ? new BroadcastChannel(`copilot-runtime ${base}`) : null;

const pathOf = (name) => `/agent/${encodeURIComponent(agent)}/${name}`;

function show(conversation) {
  thread = conversation;
  thread.items.forEach((item) => thread.changed.add(item));
  transcript = new Transcript($("items"), thread);
  decided = new Map();
  lastClick = undefined;
}

/* Reads one thing at a time; whoever comes later ends the reading before, not the run. */
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
      if (again) open();
    }
  }
}

/* Asks the agent, and again for as long as it calls tools of this page. A click is said again each time: no message has it. */
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
      ...(draws && { a2uiCatalogAvailable: true, a2uiCards: false }),  // plans and findings are drawn by views of their own
      ...(command && { command }), ...(click && { a2uiAction: { userAction: click } }),
    },
    ...(resume && { resume }),
  };
}

/* Tells the agent of a button in a surface that a person has pressed: once, and not while it answers. */
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

/* Takes up calls that nobody has answered, because the page was left in between. */
function finishCalls() {
  return act({ controller: new AbortController(), stop: false }).then((acted) => acted && answer());
}

/* Shows the thread as the server knows it, and goes on with the answer it is giving. */
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

/* Ends the run on the server; its last words then come as for any other end. */
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

/* Answers a question of the agent; it goes on when none is open. */
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

/* Those of the page; an error that a run ended with belongs to the conversation. */
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

let atEnd = true;  // whoever scrolled up reads, and is left where they are

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
