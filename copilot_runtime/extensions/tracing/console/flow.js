/* The call graph: the models and tools that each agent called, with numbers and durations of calls. */

const SVG = "http://www.w3.org/2000/svg";
const MOST_NODES = 60;
const BOX = { width: 230, height: 50, row: 66, column: 300, indent: 28, edge: 10 };

function drawFlow(spans) {
  const nodes = listCalls(spans);
  if (!nodes.length) return [element("p", "No agent, no model and no tool: nothing called another.", "note")];
  const shown = nodes.slice(0, MOST_NODES);
  const left = nodes.length - shown.length;
  return [drawPicture(shown), ...(left > 0 ? [element("p", `${left} more are not drawn.`, "note")] : [])];
}

/* Returns the callees, callers first; a model with two callers is listed for each. */
function listCalls(spans) {
  const root = { depth: -1, below: new Map() };
  const nodeOf = new Map();
  for (const { span, parent } of arrange(spans)) {
    const above = parent < 0 ? root : nodeOf.get(span.parent_span_id) ?? root;
    nodeOf.set(span.span_id, above);
    const kind = kindOf(span);
    if (kind === "other") continue;
    const label = String(attributeOf(span, { agent: NAME.agent, model: NAME.model, tool: NAME.tool }[kind]) ?? span.name);
    const id = `${kind} ${label}`;
    const node = id === above.id ? above : above.below.get(id) ?? { id, kind, label, above, depth: above.depth + 1, below: new Map(), count: 0, errors: 0, time: 0, tokens: 0 };
    if (node !== above) above.below.set(id, node);
    nodeOf.set(span.span_id, node);
    node.count += 1;
    node.errors += hasFailed(span) ? 1 : 0;
    node.time += lengthOf(span);
    node.tokens += kind === "model" ? (numberOf(span, NAME.input) ?? 0) + (numberOf(span, NAME.output) ?? 0) : 0;
  }
  const nodes = [];
  const waiting = [...root.below.values()].reverse();
  while (waiting.length) {
    const node = waiting.pop();
    nodes.push(node);
    waiting.push(...[...node.below.values()].reverse());
  }
  return nodes;
}

/* Draws callees to the right of their caller, or below it if that is too wide. */
function drawPicture(nodes) {
  const deepest = Math.max(...nodes.map((node) => node.depth));
  const room = $("flow-box").clientWidth - 40;
  const isWide = deepest * BOX.column + BOX.width + 2 * BOX.edge <= room;
  const step = isWide ? BOX.column : BOX.indent;
  let row = -1;
  for (const node of nodes) {
    // the first callee is beside its caller
    if (!isWide || node.above.depth < 0 || node.above.below.values().next().value !== node) row += 1;
    node.x = BOX.edge + node.depth * step;
    node.y = BOX.edge + Math.max(row, 0) * BOX.row;
  }
  const width = deepest * step + BOX.width + 2 * BOX.edge;
  const height = Math.max(row, 0) * BOX.row + BOX.height + 2 * BOX.edge;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Agents, tools and models, and who called whom");
  svg.append(...nodes.filter((node) => node.depth > 0).map((node) => drawLink(node.above, node, isWide)), ...nodes.map(drawNode));
  return svg;
}

function drawLink(a, b, isWide) {
  const path = document.createElementNS(SVG, "path");
  const [x, y] = [b.x, b.y + BOX.height / 2];
  const middle = b.x - (BOX.column - BOX.width) / 2;
  const begin = a.y + BOX.height / 2;
  path.setAttribute("d", isWide
    ? `M${a.x + BOX.width} ${begin} C${middle} ${begin} ${middle} ${y} ${x} ${y}`
    : `M${a.x + BOX.indent / 2} ${a.y + BOX.height} V${y} H${x}`);
  return path;
}

function drawNode(node) {
  const { x, y } = node;
  const group = document.createElementNS(SVG, "g");
  group.setAttribute("class", `${node.kind}${node.errors ? " failed" : ""}`);
  const box = document.createElementNS(SVG, "rect");
  for (const [name, value] of Object.entries({ x, y, width: BOX.width, height: BOX.height, rx: 8 })) box.setAttribute(name, value);
  const facts = [`${node.count} ×`, formatTime(node.time), node.tokens ? `${formatCount(node.tokens)} tokens` : "", node.errors ? `${node.errors} failed` : ""];
  group.append(box, drawText(x + 12, y + 21, cut(node.label, 30)), drawText(x + 12, y + 39, facts.filter(Boolean).join(" · "), "small"));
  return group;
}

function drawText(x, y, words, className = "") {
  const text = document.createElementNS(SVG, "text");
  text.setAttribute("x", x);
  text.setAttribute("y", y);
  if (className) text.setAttribute("class", className);
  text.textContent = words;
  return text;
}
