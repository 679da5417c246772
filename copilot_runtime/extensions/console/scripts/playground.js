/* The playground: an operator changes the agent for the next question, and compares answers. */

let known = null;     // what can be changed of the agent; null for who may change nothing
let changes = null;   // of the question that is being answered
const draft = stored("sessionStorage", "draft");  // a question that the page Traces asks again

async function discoverPlayground() {
  const mine = agent;
  if (known?.agent === mine) return;
  const found = isOperator ? await json("GET", `/playground/${encodeURIComponent(mine)}`).catch(() => null) : null;
  if (mine !== agent) return;
  known = found && { ...found, agent: mine };
  $("tab-playground").hidden = !known;
  if (known) resetPlayground();
  else if (!$("playground-box").hidden) choosePanel("state");
}

function resetPlayground() {
  $("instructions").value = known.instructions ?? "";
  $("instructions").placeholder = known.instructions === null ? "As they are" : "None";
  for (const id of ["model", "temperature"]) $(id).value = "";
  for (const id of ["instructions", "model", "temperature"]) $(id).disabled = !known.has_instructions;
  $("playground-note").textContent = !known.has_instructions ? "This agent is a program of its own: only its tools can be changed here."
    : known.is_secret ? "The instructions are secret, since traces keep no content: what you write replaces them."
      : known.instructions === null ? "A function writes the instructions: what you write replaces them." : "";
  $("playground-tools").replaceChildren(...known.tools.map(({ name, description }) => {
    const label = element("label", "", "check");
    label.append(Object.assign(element("input"), { type: "checkbox", value: name, checked: true }), name);
    label.title = description;
    return label;
  }));
  $("playground-tools-box").hidden = !known.tools.length;
  useChanges(false);
}

/* The changes as they are sent, or null if there are none. */
function readChanges() {
  if (!known) return null;
  const instructions = $("instructions").value, model = $("model").value.trim(), temperature = $("temperature").valueAsNumber;
  const boxes = [...$("playground-tools").querySelectorAll("input")], tools = boxes.filter(({ checked }) => checked).map(({ value }) => value);
  const parameters = { ...(model && { model }), ...(!Number.isNaN(temperature) && { temperature }) };
  const found = {
    ...(instructions !== (known.instructions ?? "") && { instructions }),
    ...(Object.keys(parameters).length && { parameters }),
    ...(tools.length < boxes.length && { tools }),
  };
  return Object.keys(found).length ? found : null;
}

/* Decides whether the next question is asked with the changes. */
function useChanges(isUsed) {
  const found = readChanges();
  $("use-changes").checked = isUsed && Boolean(found);
  $("use-changes").disabled = $("compare").disabled = !found;
  $("changed").hidden = !$("use-changes").checked;
  $("changed-words").textContent = $("changed").hidden ? "" : `Playground: the next question has other ${namesOf({ ...found, ...found.parameters }).join(", ")}`;
}

const CHANGED = ["instructions", "model", "temperature", "tools"];
const namesOf = (found) => CHANGED.filter((name) => found[name] !== undefined);

/* Takes the changes for a question: for this one only. */
function takeChanges() {
  changes = $("use-changes").checked ? readChanges() : null;
  useChanges(false);
}

/* The note in a thread that an answer was given with changes. */
function changesView({ value }) {
  const words = namesOf(value).map((name) => (name === "instructions" ? name : `${name} ${[value[name]].flat().join(", ") || "none"}`));
  return { node: element("div", `Asked in the playground, with other ${words.join(" · ")}`, "note changed"), update() {} };
}

/* Asks the question twice, as it is and with the changes. Neither answer becomes a part of the thread. */
function compare() {
  const written = $("input").value.trim(), sent = thread.messages();
  const messages = written ? [...sent, { id: newId(), role: "user", content: written }] : sent.slice(0, sent.findLastIndex(({ role }) => role === "user") + 1);
  if (!messages.length) return $("input").focus();
  const controller = new AbortController();
  $("compared-title").textContent = visible(wordsOf(messages.toReversed()));
  $("compared").onclose = () => { controller.abort(); $("columns").replaceChildren(); };
  $("compared").showModal();
  $("columns").replaceChildren(columnOf("As it is", { messages }, controller.signal), columnOf("Changed", { messages, overrides: readChanges() }, controller.signal));
}

/* A column with an answer that is still to come. */
function columnOf(title, body, signal) {
  const column = element("section"), box = element("div"), foot = element("p", "", "note"), began = performance.now();
  const conversation = new Conversation(), shown = new Transcript(box, conversation);
  conversation.isLive = true;
  const read = async () => {
    for await (const found of events(pathOf("ask"), { ...input(), threadId: newId(), tools: [], ...body }, signal)) {
      for (const event of found) {
        conversation.apply(event);
        if (event.type === "RUN_FINISHED") foot.append(...tokensOf(event.usage ?? []).flatMap((usage) => [usage, " · "]), formatTime(performance.now() - began));
      }
      for (const item of conversation.items) if (item.kind === "error") Object.assign(item, { kind: "plain", text: item.error.message });
      conversation.items = conversation.items.filter(({ kind }) => kind !== "run");
      conversation.interrupts = [];
      shown.draw();
    }
  };
  column.append(element("h3", title), box, foot);
  read().catch((error) => { if (!signal.aborted) foot.append(error.message); });
  return column;
}

/* A question from the page Traces: its agent, its words, and the playground beside it. */
function openDraft() {
  const found = asValue(draft.get());
  draft.set("");
  if (!isObject(found)) return;
  $("input").value = found.question;
  openPanel(true);
  choosePanel("playground");
  $("input").focus();
}

$("playground-box").oninput = ({ target }) => useChanges(target.id !== "use-changes" || target.checked);
$("reset").onclick = resetPlayground;
$("compare").onclick = compare;
$("drop-changes").onclick = () => { useChanges(false); $("input").focus(); };
