/* Totals of the traces that the filters choose, over time, and their costs by user, model, agent and time. */

const CHOICES = ["since", "agent", "model", "user", "rating"];
const GROUPS = { users: ["User", "user"], models: ["Model", "model"], agents: ["Agent", "agent"], times: ["Time"] };
const OWN_WORK = "(server)";  // among users
const LEAST_BARS = 24;
const COUNT_AGAIN = 2000;  // milliseconds, while traces arrive
const counting = { query: null, timer: 0 };

/* Counts anew: at once for other filters, else soon. */
function countSoon(query) {
  if (query === counting.query && counting.timer) return;
  clearTimeout(counting.timer);
  counting.timer = setTimeout(() => attempt(() => count(query)), query === counting.query ? COUNT_AGAIN : 0);
  counting.query = query;
}

async function count(query) {
  counting.timer = 0;
  const stats = await get(`/stats?${query}`);
  if (query !== counting.query) return;  // a later request is pending
  const sum = (name) => stats.users.reduce((total, group) => total + group[name], 0), dollars = sum("dollars");
  const tokens = sum("input_tokens") + sum("output_tokens");
  $("totals-box").hidden = !stats.traces;
  $("made-up").hidden = stats.models.every(({ name }) => name !== "demo");
  $("no-prices").hidden = !sum("unpriced");
  $("totals").textContent = [
    `${formatCount(stats.traces)} ${stats.traces === 1 ? "trace" : "traces"}`, stats.failed && `${formatCount(stats.failed)} with errors`,
    tokens && `${formatCount(tokens)} tokens`, dollars && formatDollars(dollars, sum("unpriced")),
  ].filter(Boolean).join(" · ");
  if (stats.traces) drawChart(stats.times);
  for (const [name, [, filter]] of Object.entries(GROUPS)) if (filter) offer($(filter), stats[name]);
  $("groups").replaceChildren(...Object.entries(GROUPS).filter(([name]) => stats[name].length).map(([name, [title, filter]]) => drawGroup(title, filter, stats[name])));
}

/* Adds the names of a group to the choices of a filter. */
function offer(select, groups) {
  const known = new Set([...select.options].map(({ value }) => value));
  select.append(...groups.filter(({ name }) => name !== OWN_WORK && !known.has(name)).map(({ name }) => Object.assign(element("option", cut(name, 60)), { value: name })));
  select.hidden = select.options.length < 3 && !select.value;
}

/* Bars of the number of traces; the lower part is those with errors. */
function drawChart(times) {
  const start = ({ name }) => Date.parse(name), first = start(times[0] ?? { name: "" }), last = start(times.at(-1) ?? { name: "" });
  const isDay = times[0]?.name.length === 10, isHour = times.every(({ name }) => name.endsWith(":00Z")) && times.length > 1;
  const step = isDay ? 86_400_000 : isHour ? 3_600_000 : 60_000, bars = Math.max(LEAST_BARS, (last - first) / step + 1), most = Math.max(...times.map(({ count }) => count));
  const bar = (at, height, className, words) => {
    const made = document.createElementNS(SVG, "rect"), title = document.createElementNS(SVG, "title");
    for (const [name, value] of Object.entries({ x: at + 0.1, y: 100 - height, width: 0.8, height, class: className })) made.setAttribute(name, value);
    title.textContent = words;
    made.append(title);
    return made;
  };
  $("chart").setAttribute("viewBox", `0 0 ${bars} 100`);
  $("chart").setAttribute("aria-label", `Traces by ${isDay ? "day" : isHour ? "hour" : "minute"}, at most ${most}`);
  $("chart").replaceChildren(...times.flatMap((time) => {
    const at = (start(time) - first) / step + bars - ((last - first) / step + 1), words = `${nameTime(time.name)}: ${time.count}, ${time.errors} with errors`;
    return [bar(at, 100 * time.count / most, "", words), ...(time.errors ? [bar(at, 100 * time.errors / most, "failed", words)] : [])];
  }));
  const [from, to] = $("chart-ends").children;
  from.textContent = times.length ? nameTime(new Date(last - (bars - 1) * step).toISOString().slice(0, isDay ? 10 : undefined)) : "";
  to.textContent = times.length ? nameTime(times.at(-1).name) : "";
}

function nameTime(name) {
  return name.length === 10 ? new Date(`${name}T12:00`).toLocaleDateString([], { dateStyle: "medium" }) : formatDate(Date.parse(name));
}

function drawGroup(title, filter, groups) {
  const box = element("section"), table = box.appendChild(element("table")), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const name of [title, title === "Model" ? "Requests" : title === "Agent" ? "Calls" : "Traces", "Errors", "Median", "Tokens", "Cost"]) head.append(element("th", name, name === title ? "" : "number"));
  for (const group of groups) {
    const row = body.insertRow(), isChoice = filter && group.name && group.name !== OWN_WORK;
    const name = element(isChoice ? "button" : "span", cut(!filter ? nameTime(group.name) : group.name === OWN_WORK ? "the server's own work" : group.name || "nobody signed in", 100), "link");
    if (name.localName === "button") Object.assign(name, { type: "button", onclick: () => { $(filter).value = group.name; attempt(list); } });
    row.append(element("td"), ...[
      formatCount(group.count), group.errors ? formatCount(group.errors) : "", formatTime(group.p50 * 1000), formatCount(group.input_tokens + group.output_tokens),
      group.dollars ? formatDollars(group.dollars, group.unpriced) : group.unpriced ? "no price" : "",
    ].map((words) => element("td", words, "number")));
    row.firstElementChild.append(name);
  }
  return box;
}
