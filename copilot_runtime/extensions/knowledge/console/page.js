/* The page Knowledge: resources, their sources, and ingestion results. */

const PAGE = 20;
const MOST_SOURCES = 10;
const ORDER = ["failed", "in part", "skipped", "taken in"];
let count = 0;
let showsAllSources = false;
let timer = 0;
let current = "";

async function get(path) {
  return (await fetchData(`/knowledge${path}`)).json();
}

function entry({ id, title, text, score, type = "" }) {
  const item = element("li");
  const open = element("button", title || id);
  open.type = "button";
  open.className = "link";
  open.onclick = () => attempt(() => show(id));
  open.title = type;
  item.append(open);
  if (score != null) item.append(Object.assign(element("small", score.toFixed(3)), { title: "Score" }));
  const [first, ...lines] = (text ?? "").split("\n");  // the first line of a thing is its title and its class
  if (text) item.append(element("p", cut((lines.length && first.startsWith(title) ? lines : [first, ...lines]).join(" · "), 300)));
  return item;
}

function row(cells, failed = false) {
  const made = element("tr");
  made.className = failed ? "failed" : "";
  for (const cell of cells) made.insertCell().append(cell);
  return made;
}

const folderOf = (name) => name.slice(0, name.lastIndexOf("/") + 1);

/* The path of a file, of which the name stands out. */
function pathOf(name) {
  const folder = folderOf(name), path = element("span");
  path.append(...(folder ? [element("span", folder, "folder")] : []), name.slice(folder.length));
  return path;
}

async function search() {
  const words = $("query").value.trim();
  $("results-box").hidden = !words;
  if (!words) return;
  const { results } = await get(`/search?q=${encodeURIComponent(words)}`);
  $("results-title").textContent = results.length ? "Found" : "Nothing was found";
  $("results").replaceChildren(...results.map(entry));
}

async function show(id) {
  const found = await get(`/resources/${encodeURIComponent(id)}`);
  $("resource-title").textContent = found.title;
  $("resource-text").textContent = found.text;
  $("resource-content").textContent = found.content;
  $("resource-source").textContent = found.provenance.filter(([name]) => name === "source").map(([, file]) => file).join(", ");
  $("provenance").replaceChildren(...found.provenance.map((pair) => row(pair)));
  $("resource").showModal();
}

async function showStatus() {
  const { state, progress: { step, share }, resources, embedder, sources } = await get("");
  const what = step ? `${state}: ${step} ${Math.round(100 * share)} %` : state;
  $("status").textContent = state === "failed" || state === "incomplete" ? `${state}: the log of the server says why` : `${what}, ${formatCount(resources)} ${resources === 1 ? "resource" : "resources"}`;
  $("status").title = `Found by ${embedder}`;
  $("no-sources").hidden = sources.length > 0;
  const folders = new Set(sources.map(({ name }) => folderOf(name))), folder = folders.size === 1 ? [...folders][0] : "";  // that of all
  $("sources-title").textContent = `Files${sources.length ? `: ${formatCount(sources.length)}` : ""}${folder && ` in ${folder}`}`;
  // sources with problems come first
  const sorted = ORDER.flatMap((state) => sources.filter((source) => source.state === state));
  const shown = showsAllSources ? sorted : sorted.slice(0, MOST_SOURCES);
  $("sources").replaceChildren(...shown.map(({ name, state, message, read_at }) => row([pathOf(name.slice(folder.length)), state === "taken in" ? "" : state, message, read_at ? formatDate(read_at * 1000) : ""], state === "failed")));
  $("all-sources").hidden = shown.length === sources.length;
  $("all-sources").textContent = `Show all ${sources.length}`;
  clearTimeout(timer);
  timer = setTimeout(() => attempt(watch), state === "updating" ? 1000 : 5000);
  return JSON.stringify([state, resources, sources]);
}

// an update changes the resources, so reload them at its end
async function watch() {
  const before = current;
  current = await showStatus();
  if (current !== before && !current.startsWith('["updating"')) await showContents();
}

async function showOntology() {
  const picture = await (await fetchData("/knowledge/ontology.svg", "image/svg+xml")).text();
  $("ontology-box").hidden = !count;
  $("no-ontology").hidden = picture.includes("<g>");  // a box for each class
  $("ontology").parentElement.hidden = !$("no-ontology").hidden;
  $("ontology").src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture)}`;
}

async function list() {
  const offset = count;
  const { resources, total } = await get(`/resources?offset=${offset}&limit=${PAGE}`);
  if (offset !== count) return; // they are shown already
  count += resources.length;
  $("list").append(...resources.map(entry));
  $("list-title").textContent = `Resources: ${formatCount(total)}`;
  $("list-box").hidden = !total;
  $("more").hidden = count >= total;
}

async function showContents() {
  count = 0;
  $("list").replaceChildren();
  await list();
  await showOntology();
}

/* Clears the page. */
function clear() {
  count = 0;
  for (const id of ["results", "sources", "list", "provenance"]) $(id).replaceChildren();
  for (const id of ["results-box", "all-sources", "more", "ontology-box", "list-box"]) $(id).hidden = true;
  $("resource").close();
  for (const id of ["status", "list-title", "resource-title", "resource-text", "resource-source", "resource-content"]) $(id).textContent = "";
  $("ontology").removeAttribute("src");
}

async function start() {
  current = await showStatus();
  await showContents();
}

$("form").onsubmit = (event) => {
  event.preventDefault();
  attempt(search);
};
const picture = $("ontology"), view = picture.parentElement;

/* Scales the picture about a point of its view: from as wide as the view to twice its own size. */
function zoom(factor, x = view.clientWidth / 2, y = view.clientHeight / 2) {
  const before = picture.clientWidth, left = view.scrollLeft + x, top = view.scrollTop + y;
  picture.style.width = `${Math.max(Math.min(view.clientWidth, picture.naturalWidth), Math.min(2 * picture.naturalWidth, before * factor))}px`;
  const grown = picture.clientWidth / before;
  view.scrollTo(left * grown - x, top * grown - y);
}

picture.onload = () => zoom(0);
$("zoom-in").onclick = () => zoom(1.5);
$("zoom-out").onclick = () => zoom(1 / 1.5);
view.addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;  // a pinch on a touchpad has it, too
  event.preventDefault();
  const { left, top } = view.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY / 200), event.clientX - left, event.clientY - top);
}, { passive: false });
picture.onpointerdown = ({ pointerType, pointerId }) => { if (pointerType === "mouse") picture.setPointerCapture(pointerId); };
picture.onpointermove = ({ pointerId, movementX, movementY }) => { if (picture.hasPointerCapture(pointerId)) view.scrollBy(-movementX, -movementY); };
$("all-sources").onclick = () => {
  showsAllSources = true;
  attempt(showStatus);
};
$("more").onclick = () => attempt(list);
onUser = () => {
  clear(); // another user may read other resources
  attempt(async () => {
    await start();
    await search();
  });
};
attempt(start);
