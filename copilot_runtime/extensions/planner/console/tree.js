/* The tree of tasks, virtualised: only visible rows are in the document. */

const ROW = 48;
const tree = { nodes: [], visible: [], collapsed: new Set(), selected: "", drawn: new Map(), select: () => {} };

/* Shows the tasks of a plan; the first one is the plan itself. */
function showTree(plan) {
  const { id, status, reason, evaluation, rounds, tokens, dollars, created_at, ended_at, tasks } = plan;
  const root = { id: ROOT, name: "The plan", status, reason, evaluation, rounds, tokens, dollars, started_at: created_at, ended_at, tasks };
  tree.nodes = flatten(root);
  if (tree.plan !== id) {
    tree.plan = id;
    tree.collapsed.clear();
    $("tree").scrollTop = 0;
  }
  hideCollapsed();
}

/* Returns the tasks in tree order, each with its depth, its parent, and the number of ended descendants. */
function flatten(root) {
  const nodes = [];
  const stack = [{ task: root, depth: 0, parent: -1 }];
  while (stack.length) {
    const node = { ...stack.pop(), total: 0, over: 0 };
    const index = nodes.push(node) - 1;
    const below = node.task.tasks ?? [];
    for (let at = below.length - 1; at >= 0; at -= 1) stack.push({ task: below[at], depth: node.depth + 1, parent: index });
    for (let at = node.parent; at >= 0; at = nodes[at].parent) {
      nodes[at].total += 1;
      nodes[at].over += isOver(node.task) ? 1 : 0;
    }
  }
  return nodes;
}

const isOver = (task) => ["finished", "failed", "skipped", "stopped"].includes(task.status);

function hideCollapsed() {
  const { nodes, collapsed } = tree;
  const isHidden = new Array(nodes.length).fill(false);
  tree.visible = [];
  nodes.forEach((node, index) => {
    isHidden[index] = node.parent >= 0 && (isHidden[node.parent] || collapsed.has(nodes[node.parent].task.id));
    if (!isHidden[index]) tree.visible.push(node);
  });
  $("rows").style.height = `${tree.visible.length * ROW}px`;
  drawRows();
}

/* Draws the visible rows; unchanged rows keep their elements, so that no click hits a removed one. */
function drawRows() {
  const box = $("tree");
  const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 8);
  const last = Math.min(tree.visible.length, Math.ceil((box.scrollTop + (box.clientHeight || 800)) / ROW) + 8);
  for (const [index, { row }] of tree.drawn) {
    if (index >= first && index < last) continue;
    row.remove();
    tree.drawn.delete(index);
  }
  for (let index = first; index < last; index += 1) {
    const node = tree.visible[index];
    const { tasks, ...own } = node.task;
    const looks = JSON.stringify([own, Boolean(tasks), node.depth, node.total, node.over, tree.collapsed.has(own.id), tree.selected === own.id]);
    const before = tree.drawn.get(index);
    if (before?.looks === looks) continue;
    const row = drawRow(node, index);
    if (before) before.row.replaceWith(row);
    else $("rows").append(row);
    tree.drawn.set(index, { row, looks });
  }
  tick();
}

function drawRow(node, index) {
  const { task, depth } = node;
  const row = element("div", "", "row");
  row.id = `row-${task.id}`;
  row.dataset.task = task.id;
  row.style.top = `${index * ROW}px`;
  row.style.marginLeft = `${Math.min(depth, 8) * 16}px`;
  row.setAttribute("role", "treeitem");
  row.setAttribute("aria-level", depth + 1);
  row.setAttribute("aria-selected", task.id === tree.selected);
  if (task.tasks?.length) row.setAttribute("aria-expanded", !tree.collapsed.has(task.id));
  const name = element("div", "", "name");
  const space = element("i", "", "space");
  name.append(task.tasks?.length && depth ? drawToggle(task.id) : space, element("i", "", `mark ${task.status}`), element("span", cut(task.name, 300)));
  name.title = cut(task.name, 1000);
  if (task.round) name.append(element("em", `correction, round ${task.round}`, "badge"));
  if (task.attempts > 1) name.append(element("em", `attempt ${task.attempts}`, "badge"));
  if (task.needs_approval && task.status === "pending") name.append(element("em", "needs approval", "badge"));
  row.append(name, drawFacts(node));
  row.onclick = () => tree.select(task.id);
  return row;
}

function drawFacts({ task, total, over }) {
  const facts = element("div", "", "facts");
  const misses = task.evaluation && !task.evaluation.passed ? task.evaluation.missing || "not good" : "";
  facts.append(element("span", task.status));
  if (task.evaluation?.passed) facts.append(element("span", "✓ checked", "good"));
  if (misses && isOver(task)) facts.append(element("span", `✗ ${cut(misses, 300)}`, "bad long"));
  if (task.assistant) facts.append(element("span", `${cut(task.assistant, 60)}${!task.score ? "" : `, fits ${task.score.toFixed(2)}`}`, "who"));
  if (total) facts.append(drawProgress(task.status, over, total), element("span", `${formatCount(over)}/${formatCount(total)}`));
  if (task.started_at) {
    const took = element("span", "", "took");
    took.dataset.since = task.started_at;
    took.dataset.until = task.ended_at ?? "";
    facts.append(took);
  }
  if (task.tokens) facts.append(element("span", `${formatCount(task.tokens)} tokens`));
  if (task.dollars) facts.append(element("span", formatDollars(task.dollars)));
  if (misses && !isOver(task)) facts.append(element("span", `✗ ${cut(misses, 300)}`, "bad long"));
  if (task.reason && task.reason !== misses) facts.append(element("span", cut(task.reason, 300), "long"));
  facts.title = cut([task.evaluation?.missing, task.reason].filter(Boolean).join(" "), 1000);
  return facts;
}

function drawProgress(status, over, total) {
  const bar = element("progress", "", status);
  bar.max = total;
  bar.value = over;
  bar.setAttribute("aria-label", `${over} of ${total} tasks below are over`);
  return bar;
}

function drawToggle(id) {
  const isCollapsed = tree.collapsed.has(id);
  const toggle = button(isCollapsed ? "▸" : "▾", (event) => {
    event.stopPropagation();
    collapse(id, !isCollapsed);
  });
  toggle.tabIndex = -1;  // the tree has keyboard navigation
  toggle.setAttribute("aria-label", isCollapsed ? "Show what is below" : "Hide what is below");
  return toggle;
}

function collapse(id, isCollapsed) {
  if (isCollapsed) tree.collapsed.add(id);
  else tree.collapsed.delete(id);
  hideCollapsed();
}

/* Updates the durations of running tasks. */
function tick() {
  for (const took of document.querySelectorAll(".took")) {
    const until = took.dataset.until ? Number(took.dataset.until) : Date.now() / 1000;
    took.textContent = formatTime(Math.max(0, until - Number(took.dataset.since)) * 1000);
  }
}

/* Marks a task as selected; null for none. */
function markSelected(id) {
  tree.selected = id ?? "";
  if (id) $("tree").setAttribute("aria-activedescendant", `row-${id}`);
  else $("tree").removeAttribute("aria-activedescendant");
  drawRows();
}

function scrollToTask(id) {
  const index = tree.visible.findIndex(({ task }) => task.id === id);
  if (index < 0) return;
  const top = index * ROW, box = $("tree");
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight + 12;
  drawRows();
}

function moveSelection(step) {
  const at = tree.visible.findIndex(({ task }) => task.id === tree.selected);
  const node = tree.visible[Math.max(0, Math.min(tree.visible.length - 1, at + step))];
  if (!node) return;
  tree.select(node.task.id);
  scrollToTask(node.task.id);
}

/* Left collapses a task or selects its parent; right expands it or selects its first subtask. */
function moveSideways(isLeft) {
  const node = tree.visible.find(({ task }) => task.id === tree.selected);
  if (!node) return;
  const isOpen = node.task.tasks?.length && !tree.collapsed.has(node.task.id);
  if (isLeft && isOpen && node.depth) collapse(node.task.id, true);
  else if (isLeft && node.parent >= 0) tree.select(tree.nodes[node.parent].task.id);
  else if (!isLeft && isOpen) moveSelection(1);
  else if (!isLeft) collapse(node.task.id, false);
}

$("tree").addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
$("tree").onkeydown = (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
  const isSideways = event.key === "ArrowLeft" || event.key === "ArrowRight";
  if (step === undefined && !isSideways) return;
  event.preventDefault();
  if (isSideways) moveSideways(event.key === "ArrowLeft");
  else moveSelection(step);
};
new ResizeObserver(drawRows).observe($("tree"));
setInterval(tick, 1000);
