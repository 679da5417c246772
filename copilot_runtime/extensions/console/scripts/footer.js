/* The footer of an answer: copy, ask again, branch, feedback, trace and usage of its runs. */

const MOST_RATINGS = 500;
const keptRatings = stored("localStorage", "ratings");
let ratings = asRecord(keptRatings.get());
let isOperator = false;  // whether the user may open traces, and the playground

function asRecord(text) {
  const value = text ? asValue(text) : null;
  return isObject(value) ? value : {};
}

async function discoverOperator() {
  isOperator = await json("GET", "/traces/access").then((access) => access.may_read, () => false);
  for (const item of thread.items) if (item.kind === "run") thread.changed.add(item);
  draw();
  known = null;
  discoverPlayground();
}

function footerView() {
  const node = element("div", "", "actions run");
  return { node, update(item, thread) {
    const problem = element("span", item.problem ?? ""), focused = node.querySelector("button:focus")?.ariaLabel;
    const isLast = thread.items.findLast(({ kind }) => kind === "run") === item;
    const ids = item.values.map(({ id }) => id), keepsTraces = Boolean($("items").dataset.keepsTraces);
    const waits = isLast && thread.interrupts.length > 0;  // for a decision: nothing is to be rated yet
    problem.role = "status";
    node.replaceChildren(
      iconButton("copy", "Copy", (event) => copyText(answerAbove(item, thread), event.currentTarget)),
      ...(isLast ? [iconButton("again", "Ask again", regenerate)] : []),
      ...(keepsHistory() ? [] : [iconButton("branch", "Go on from here in a new thread", () => branchAfter(item))]),
      ...(keepsTraces && !waits ? [thumb("up", "Good answer", item), thumb("down", "Bad answer", item)] : []),
      ...(keepsTraces && isOperator ? (planAbove(item, thread) ? ids.slice(0, 1) : ids).map((id, at, all) => traceLink(id, nameRun(at, all.length))) : []),
      ...usageOf(item, thread), problem);
    if (focused) node.querySelector(`[aria-label="${focused}"]`)?.focus();
  } };
}

function branchAfter(item) {
  if (reading) return;
  branchBefore(thread.items.indexOf(item) + 1);
  $("input").focus();
}

/* What is between the question and the footer of its answer. */
function itemsAbove(item, thread) {
  const before = thread.items.slice(0, thread.items.indexOf(item));
  return before.slice(before.findLastIndex(({ role }) => role === "user") + 1);
}

function answerAbove(item, thread) {
  return itemsAbove(item, thread).filter(({ role, content }) => role === "assistant" && content).map(({ content }) => content).join("\n\n");
}

/* The trace of the run that began a plan has all of its tasks. */
const planAbove = (item, thread) => itemsAbove(item, thread).findLast(({ activityType, content }) => activityType === "plan" && Array.isArray(content?.tasks))?.content;

/* A plan says what it cost as a whole: its tasks are no part of the runs. */
function usageOf(item, thread) {
  const plan = planAbove(item, thread);
  const spent = [plan?.tokens ? `${formatCount(plan.tokens)} tokens` : "", plan?.dollars ? formatDollars(plan.dollars) : ""];
  if (plan) return plan.tokens ? [element("span", `Plan: ${spent.filter(Boolean).join(" · ")}`, "usage")] : [];
  return tokensOf(item.values.flatMap(({ usage }) => usage));
}

/* The models and the tokens of requests. */
function tokensOf(values) {
  const sum = (name) => formatCount(values.reduce((total, each) => total + (each[name] ?? 0), 0));
  const models = [...new Set(values.map((each) => each.model).filter(Boolean))].join(", ");
  return values.length ? [element("span", `${models ? `${models}: ` : ""}${sum("inputTokens")} tokens in, ${sum("outputTokens")} out`, "usage")] : [];
}

/* Each answer of the user or of the page to a pause begins another run. */
const nameRun = (at, count) => (count < 2 ? "" : at ? ` after answer ${at}` : " of the question");

function traceLink(runId, name) {
  const made = element("a", `Trace${name}`);
  made.href = `${pages.tracing}#run=${encodeURIComponent(runId)}`;
  return made;
}

function thumb(rating, label, item) {
  const made = iconButton("thumb", label, () => rate(item, rating));
  made.classList.add(rating);
  made.ariaPressed = String(ratings[item.values.at(-1).id] === rating);
  return made;
}

/* Sends feedback on the run that gave the answer. */
async function rate(item, rating) {
  item.problem = "";
  try {
    await json("POST", "/traces/feedback", { run_id: item.values.at(-1).id, rating });
    keepRating(item.values.at(-1).id, rating);
  } catch (error) {
    item.problem = `That could not be noted. ${error.message}`;
  }
  thread.changed.add(item);
  draw();
}

/* Ratings given in this browser, by run id: not every user may read them from the server. */
function keepRating(runId, rating) {
  const { [runId]: former, ...others } = ratings;
  ratings = Object.fromEntries([...Object.entries(others), [runId, rating]].slice(-MOST_RATINGS));
  keptRatings.set(JSON.stringify(ratings));
}
