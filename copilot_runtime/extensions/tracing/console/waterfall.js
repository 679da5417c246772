/* The waterfall, virtualised: only visible rows are in the document. */

const ROW = 28;
const waterfall = {
  nodes: [],
  visible: [],
  collapsed: new Set(),
  matching: null,
  selected: "",
  begin: 0,
  length: 1,
  drawn: new Map(),
  open: () => {},
};

function showWaterfall(spans) {
  waterfall.nodes = arrange(spans);
  waterfall.begin = spans.reduce((first, span) => Math.min(first, startOf(span)), Infinity);
  const end = spans.reduce((last, span) => Math.max(last, endOf(span)), -Infinity);
  waterfall.length = Math.max(1e-3, end - waterfall.begin);
  drawScale();
  hideCollapsed();
}

function hideCollapsed() {
  const { nodes, collapsed } = waterfall;
  const isHidden = new Array(nodes.length).fill(false);
  waterfall.visible = [];
  nodes.forEach((node, index) => {
    const above = node.parent;
    isHidden[index] = above >= 0 && (isHidden[above] || collapsed.has(nodes[above].span.span_id));
    if (!isHidden[index]) waterfall.visible.push(node);
  });
  $("rows").style.height = `${waterfall.visible.length * ROW}px`;
  for (const row of waterfall.drawn.values()) row.remove();
  waterfall.drawn.clear();
  drawRows();
}

function drawScale() {
  const marks = Math.max(2, Math.min(8, Math.floor(($("scale").clientWidth * 0.55) / 80)));
  const least = waterfall.length / (marks + 1), unit = 10 ** Math.floor(Math.log10(least)), step = unit * [1, 2, 5, 10].find((times) => times * unit >= least);
  const scale = element("div");
  scale.append(...Array.from({ length: Math.ceil((0.9 * waterfall.length) / step) }, (_, index) => {
    const mark = element("span", index ? formatTime(step * index) : "0");
    mark.style.left = `${(100 * step * index) / waterfall.length}%`;
    return mark;
  }));
  $("scale").replaceChildren(scale);
}

function drawRows() {
  const box = $("waterfall");
  const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 10);
  const last = Math.min(waterfall.visible.length, Math.ceil((box.scrollTop + (box.clientHeight || 800)) / ROW) + 10);
  for (const [index, row] of waterfall.drawn) {
    if (index >= first && index < last) continue;
    row.remove();
    waterfall.drawn.delete(index);
  }
  const added = document.createDocumentFragment();
  for (let index = first; index < last; index += 1) {
    if (waterfall.drawn.has(index)) continue;
    const row = drawRow(waterfall.visible[index], index);
    waterfall.drawn.set(index, row);
    added.append(row);
  }
  $("rows").append(added);
}

function drawRow(node, index) {
  const { span } = node;
  const row = element("div", "", "row");
  row.style.top = `${index * ROW}px`;
  row.setAttribute("role", "treeitem");
  row.setAttribute("aria-level", node.depth + 1);
  row.setAttribute("aria-selected", span.span_id === waterfall.selected);
  row.dataset.span = span.span_id;
  if (waterfall.matching && !waterfall.matching.has(span.span_id)) row.classList.add("faint");
  const name = element("div", "", "name");
  name.style.paddingLeft = `${Math.min(node.depth, 12) * 14}px`;
  name.append(node.children ? drawToggle(span.span_id) : element("i"), element("span", cut(span.name, 300)));
  name.title = cut(span.name, 1000);
  const track = element("div", "", "track");
  track.append(drawBar(span));
  row.append(name, track);
  row.onclick = () => selectSpan(span);
  return row;
}

function drawToggle(id) {
  const isCollapsed = waterfall.collapsed.has(id);
  const toggle = button(isCollapsed ? "▸" : "▾", (event) => {
    event.stopPropagation();
    if (!waterfall.collapsed.delete(id)) waterfall.collapsed.add(id);
    hideCollapsed();
  });
  toggle.setAttribute("aria-label", isCollapsed ? "Show what is below" : "Hide what is below");
  return toggle;
}

function drawBar(span) {
  const left = (100 * (startOf(span) - waterfall.begin)) / waterfall.length;
  const width = (100 * lengthOf(span)) / waterfall.length;
  const bar = element("div", "", `bar ${kindOf(span)}`);
  bar.classList.toggle("failed", hasFailed(span));
  bar.classList.toggle("open", isOpen(span));
  bar.style.left = `${left}%`;
  bar.style.width = `${Math.max(0, Math.min(width, 100 - left))}%`;
  const label = element("em", describeBar(span));
  if (width > 30) label.className = "inside";
  else if (left > 100 - left - width) label.className = "left";
  if (label.className !== "inside") label.style.maxWidth = `${label.className ? left : 100 - left - width}cqw`;
  bar.append(label);
  return bar;
}

function describeBar(span) {
  const time = formatTime(lengthOf(span));
  if (hasFailed(span)) return `${time} ${cut(String(attributeOf(span, NAME.error) ?? "error"), 60)}`;
  const tokens = (numberOf(span, NAME.input) ?? 0) + (numberOf(span, NAME.output) ?? 0);
  return kindOf(span) === "model" && tokens ? `${time} · ${formatCount(tokens)} tokens` : time;
}

function selectSpan(span) {
  waterfall.selected = span.span_id;
  for (const row of waterfall.drawn.values()) row.setAttribute("aria-selected", row.dataset.span === span.span_id);
  waterfall.open(span);
}

/* Dims the spans without the text in their name, attributes or content. */
function findSpans(text) {
  const wanted = text.trim().toLowerCase();
  waterfall.matching = null;
  if (wanted) {
    const found = waterfall.nodes.filter(({ span }) => searchText(span).includes(wanted));
    waterfall.matching = new Set(found.map(({ span }) => span.span_id));
  }
  for (const row of waterfall.drawn.values()) row.classList.toggle("faint", Boolean(waterfall.matching) && !waterfall.matching.has(row.dataset.span));
  $("matches").textContent = waterfall.matching ? `${formatCount(waterfall.matching.size)} of ${formatCount(waterfall.nodes.length)}` : "";
  const first = waterfall.matching && waterfall.visible.findIndex(({ span }) => waterfall.matching.has(span.span_id));
  if (first > 0) $("waterfall").scrollTop = Math.max(0, first * ROW - 60);
}

const searchTexts = new WeakMap();

function searchText(span) {
  let text = searchTexts.get(span);
  if (text === undefined) {
    text = `${span.name} ${span.span_id} ${JSON.stringify(span.attributes)} ${JSON.stringify(span.content ?? "")}`.toLowerCase();
    searchTexts.set(span, text);
  }
  return text;
}

function moveSelection(step) {
  const at = waterfall.visible.findIndex(({ span }) => span.span_id === waterfall.selected);
  const node = waterfall.visible[Math.max(0, Math.min(waterfall.visible.length - 1, at + step))];
  if (!node) return;
  const top = waterfall.visible.indexOf(node) * ROW;
  const box = $("waterfall");
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
  drawRows();
  selectSpan(node.span);
}

$("waterfall").addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
$("waterfall").onkeydown = (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  moveSelection(step);
};
new ResizeObserver(() => {
  drawScale();
  drawRows();
}).observe($("waterfall"));
