/* What belongs to the runs behind an answer: their traces, and what a person thinks of them. */

const MOST_RATINGS = 500;
let ratings = readRatings();
let readsTraces = false;  // whether whoever looks may open a trace

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

/* Says of the last run, which gave the answer, what it was worth. */
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

/* Returns what was said of runs in this browser, by their ids: not everybody may read it from the server. */
function readRatings() {
  try {
    return JSON.parse(localStorage.getItem("ratings") ?? "{}");
  } catch {
    return {};  // nothing may be kept here
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
