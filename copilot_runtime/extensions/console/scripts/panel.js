/* The panel: the state of the agent, the events on the wire, and how other programs connect. */

const PANEL = ["state", "wire", "connect", "playground"];

function openPanel(isOpen) {
  $("panel").hidden = !isOpen;
  $("open-panel").setAttribute("aria-expanded", String(isOpen));
  drawWire();
}

function choosePanel(name) {
  for (const each of PANEL) {
    $(`${each}-box`).hidden = each !== name;
    $(`tab-${each}`).setAttribute("aria-selected", String(each === name));
    $(`tab-${each}`).tabIndex = each === name ? 0 : -1;
  }
  drawWire();
}

$("open-panel").onclick = () => openPanel($("panel").hidden);
$("close-panel").onclick = () => { openPanel(false); $("open-panel").focus(); };
for (const each of PANEL) $(`tab-${each}`).onclick = () => choosePanel(each);
$("panel-tabs").onkeydown = ({ key }) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[key], shown = PANEL.filter((each) => !$(`tab-${each}`).hidden);
  if (!step) return;
  const at = shown.findIndex((each) => !$(`${each}-box`).hidden), next = shown[(at + step + shown.length) % shown.length];
  choosePanel(next);
  $(`tab-${next}`).focus();
};

/* ---- state ---- */

async function discoverLeftOut() {
  const { failing = [] } = await json("GET", "/health/ready");
  const tools = failing.filter((check) => check.split(":")[0] === "tools");
  $("left-out-box").hidden = !tools.length;
  $("open-panel").classList.toggle("warns", tools.length > 0);
  $("left-out").replaceChildren(...tools.map((check) => element("li", check.replace(/^tools:? ?/, "") || "The log of the server names them.")));
}

let stateShown;

function drawState() {
  if (thread.state === stateShown || document.activeElement === $("state")) return;
  stateShown = thread.state;
  $("state").value = stateShown === undefined ? "" : JSON.stringify(stateShown, null, 2);
  $("state").removeAttribute("aria-invalid");
}

$("state").oninput = () => {
  const written = $("state").value.trim();
  let wrong = "";
  try { thread.state = written ? JSON.parse(written) : undefined; } catch (error) { wrong = error.message; }
  $("state").setAttribute("aria-invalid", String(Boolean(wrong)));
  $("state-note").textContent = wrong ? `Not sent yet: ${wrong}` : "Sent with each message. The agent may change it, and so may you.";
};
$("state").onblur = () => { if ($("state").getAttribute("aria-invalid") !== "true") drawState(); };

/* ---- wire ---- */

const MOST_LINES = 60;
const wire = [];
let wireBegan = 0, wireTotal = 0, wireScheduled = false;

function watchWire(data) {
  wire.push([`+${formatCount(Math.round(performance.now() - wireBegan))} ms`, data.length > 2000 ? `${data.slice(0, 2000)}…` : data]);
  if (wire.length > MOST_LINES) wire.shift();
  wireTotal++;
  if (wireScheduled) return;
  wireScheduled = true;
  setTimeout(() => { wireScheduled = false; drawWire(); }, 50);
}

function drawWire() {
  if ($("panel").hidden || $("wire-box").hidden) return;
  $("wire-count").textContent = `${wireTotal} event${wireTotal === 1 ? "" : "s"}`;
  $("wire").replaceChildren(...wire.map(([time, data]) => {
    const item = element("li");
    item.append(element("span", time), ` ${data}`);
    return item;
  }));
  $("wire").scrollTop = $("wire").scrollHeight;
}

/* ---- connect ---- */

function drawConnect() {
  const ways = {
    "React, 1.50 and later": ["tsx", `import { CopilotKit } from "@copilotkit/react-core/v2";\n\n<CopilotKit runtimeUrl="${base}">\n  <App />\n</CopilotKit>`],
    "React, 1.10": ["tsx", `import { CopilotKit } from "@copilotkit/react-core";\n\n<CopilotKit runtimeUrl="${base}">\n  <App />\n</CopilotKit>`],
    "curl": ["bash", `curl -N ${base}/agent/${encodeURIComponent(agent)}/run \\\n  -H 'content-type: application/json' \\\n  -d '${JSON.stringify({ threadId: "t1", runId: "r1", messages: [{ id: "m1", role: "user", content: "Hello" }], tools: [], context: [] })}'`],
  };
  $("connect-box").replaceChildren(...Object.entries(ways).flatMap(([name, [language, code]]) => [element("h2", name), codeOf(code, language)]));
}
