/* Who called whom: agents, models and tools, each once, with how often and how long. */

const SVG = "http://www.w3.org/2000/svg";
const MOST_NODES = 60;

function drawFlow(spans) {
  const nodes = new Map();
  const links = new Map();
  const names = new Map();
  for (const { span, parent } of arrange(spans)) {
    const kind = kindOf(span);
    if (kind === "other") {
      names.set(span.span_id, parent < 0 ? null : names.get(span.parent_span_id) ?? null);
      continue;
    }
    const label = attributeOf(span, { agent: NAME.agent, model: NAME.model, tool: NAME.tool }[kind]) ?? span.name;
    const id = `${kind} ${label}`;
    names.set(span.span_id, id);
    const node = nodes.get(id) ?? { id, kind, label, count: 0, errors: 0, time: 0, tokens: 0 };
    nodes.set(id, node);
    node.count += 1;
    node.errors += hasFailed(span) ? 1 : 0;
    node.time += endOf(span) - startOf(span);
    node.tokens += kind === "model" ? (attributeOf(span, NAME.input) ?? 0) + (attributeOf(span, NAME.output) ?? 0) : 0;
    const above = names.get(span.parent_span_id);
    if (above && above !== id) links.set(`${above}\n${id}`, [above, id]);
  }
  const shown = [...nodes.values()].slice(0, MOST_NODES);
  const left = [...nodes.values()].length - shown.length;
  return [drawPicture(shown, [...links.values()]), ...(left > 0 ? [element("p", `${left} more are not drawn.`, "note")] : [])];
}

function drawPicture(nodes, links) {
  const columns = { agent: 0, tool: 1, model: 2 };
  const heights = [0, 0, 0];
  const places = new Map();
  for (const node of nodes) {
    const column = columns[node.kind];
    places.set(node.id, { x: column * 300 + 10, y: heights[column] * 66 + 10, node });
    heights[column] += 1;
  }
  const svg = document.createElementNS(SVG, "svg");
  const height = Math.max(...heights, 1) * 66 + 10;
  svg.setAttribute("viewBox", `0 0 840 ${height}`);
  svg.setAttribute("width", "840");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Agents, tools and models, and who called whom");
  for (const [from, to] of links) {
    const a = places.get(from);
    const b = places.get(to);
    if (a && b) svg.append(drawLink(a, b));
  }
  for (const place of places.values()) svg.append(drawNode(place));
  return svg;
}

function drawLink(a, b) {
  const path = document.createElementNS(SVG, "path");
  const isBack = b.x <= a.x;
  const [x1, x2] = isBack ? [a.x + 20, b.x + 20] : [a.x + 230, b.x];
  const [y1, y2] = isBack ? [a.y + 50, b.y] : [a.y + 25, b.y + 25];
  const middle = (x1 + x2) / 2;
  path.setAttribute("d", isBack ? `M${x1} ${y1} L${x2} ${y2}` : `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`);
  return path;
}

function drawNode({ x, y, node }) {
  const group = document.createElementNS(SVG, "g");
  group.setAttribute("class", `${node.kind}${node.errors ? " failed" : ""}`);
  const box = document.createElementNS(SVG, "rect");
  for (const [name, value] of Object.entries({ x, y, width: 230, height: 50, rx: 8 })) box.setAttribute(name, value);
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

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
