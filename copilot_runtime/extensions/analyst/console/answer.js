/* One question and its answer: thoughts while it runs, then text, charts, tables and SQL. */

const BADGES = {
  verified: ["verified", "Computed from metrics that the operator of this server defined."],
  derived: ["derived", "Computed by the server's own tools from the columns of the data."],
  free_sql: ["free SQL", "Computed by SQL that the model wrote. Read it before you rely on it."],
};

function drawThought({ type, content, tool_name }) {
  const item = element("li", "", type);
  item.append(element("b", tool_name ?? type), element("span", content));
  return item;
}

/* A table of the text is left out where it is shown anyway. */
function drawWords(text, hasTable) {
  const box = element("div", "", "assistant");
  new MarkdownView(box).update(hasTable ? text.replace(/^\s*\|.*$/gm, "") : text);
  return box;
}

function drawChart(chart) {
  const box = element("figure", "", "chart"), image = Object.assign(element("img"), { alt: chart.title || "Chart", hidden: true });
  box.append(image);
  const load = (theme = themeOfPage()) => loadImage(pathOf("charts", `${chart.id}.png`)).then((data) => { if (theme === themeOfPage()) Object.assign(image, { src: data, hidden: false }); }, (error) => box.replaceChildren(element("p", error.message, "error")));
  themeListeners.add(() => load());
  load();
  return box;
}

const countRows = (count) => `${formatCount(count)} ${count === 1 ? "row" : "rows"}`;

function formatUntil(milliseconds) {
  const date = new Date(milliseconds), isToday = date.toDateString() === new Date().toDateString();
  return isToday ? date.toLocaleTimeString([], { timeStyle: "short" }) + " today" : formatDate(milliseconds);
}

function drawDownload(download) {
  const box = element("p", "", "buttons"), save = () => attempt(() => saveDownload(pathOf("downloads", download.id), download.filename));
  box.append(button(`Download ${download.filename}`, save), element("small", `${countRows(download.row_count)}, until ${formatUntil(Date.parse(download.expires_at))}`, "note"));
  return box;
}

function drawFacts(pairs) {
  const list = element("dl", "", "facts");
  for (const [name, value] of Object.entries(pairs)) {
    if (value === null || value === undefined || value === "") continue;
    const pair = element("div");
    pair.append(element("dt", name), element("dd", String(value)));
    list.append(pair);
  }
  return list;
}

/* The confidence in the answer, and the sources of its numbers. */
function drawLineage({ trust, lineage = [] }) {
  const box = element("div", "", "lineage");
  if (!trust) return box;
  const [name, meaning] = BADGES[trust] ?? [trust, ""];
  const metrics = trust === "verified" ? [...new Set(lineage.flatMap((one) => one.metrics ?? []))] : [];
  const badge = element("span", metrics.length ? `${name}: ${metrics.join(", ")}` : name, `badge ${trust}`);
  badge.title = meaning;
  box.append(badge, element("span", ` ${meaning}`, "note"));
  const checks = lineage.flatMap((one) => one.checks ?? []);
  if (checks.length) {
    const list = element("ul", "", "checks");
    list.append(...checks.map((check) => element("li", check)));
    box.append(list);
  }
  for (const one of lineage) {
    const details = element("details");
    details.append(element("summary", "SQL"));
    details.append(codeOf(one.sql, "sql"));
    details.append(drawFacts({
      tables: one.tables?.join(", "),
      filters: one.filters?.join("; "),
      metrics: one.metrics?.join(", "),
      "rows read": one.rows_scanned == null ? "" : formatCount(one.rows_scanned),
      fixes: one.fixes?.map((fix) => fix.description ?? fix).join("; "),
    }));
    box.append(details);
  }
  return box;
}

/* A question of the analyst: a choice of options, or an approval request. */
function drawQuestion(text, options, choose) {
  const box = element("div", "", "question"), buttons = element("p", "", "buttons");
  for (const [name, value] of options) {
    buttons.append(button(name, ({ target }) => {
      for (const other of buttons.children) other.disabled = true;
      target.setAttribute("aria-pressed", "true");
      choose(value);
    }, value === true ? "main" : ""));
  }
  box.append(element("p", text), buttons);
  return box;
}

/* The view of a question, of one data set if it names one: `think` adds a thought, `finish` shows the answer, `fail` an error. */
function drawAnswer(question, dataset, askAll) {
  const box = element("article", "", "answer"), thoughts = element("details", "", "thoughts");
  const summary = element("summary", "Working on it"), list = element("ol");
  thoughts.open = true;
  thoughts.append(summary, list);
  box.append(element("h3", question));
  if (dataset) {
    const note = element("p", `Asked about ${dataset}. `, "note");
    note.append(button("Ask about all data", askAll, "link"));
    box.append(note);
  }
  box.append(thoughts);
  const close = (words) => { summary.textContent = words; thoughts.open = false; thoughts.hidden = !list.children.length; };
  const count = () => `${list.children.length} ${list.children.length === 1 ? "thought" : "thoughts"}`;
  return {
    box,
    think: (thought) => list.append(drawThought(thought)),
    finish: (answer, reply) => {
      close(count());
      const tables = answer.tables ?? [];
      const options = answer.question?.options ?? [];  // they are buttons below the text
      box.append(drawWords(options.reduce((text, option) => text.replace(`\n- ${option}`, ""), answer.response ?? ""), tables.length > 0));
      box.append(...(answer.charts ?? []).map(drawChart), ...tables.map(drawTable));
      box.append(...(answer.downloads ?? []).map(drawDownload));
      if (answer.answer) box.append(drawLineage(answer.answer));
      if (options.length) box.append(drawQuestion("", options.map((option) => [option, option]), (option) => reply(option, {})));
      if (answer.approval) {
        const { id, tool, question: words, arguments: given } = answer.approval;
        if (given?.sql) box.append(codeOf(given.sql, "sql"));
        box.append(drawQuestion(answer.response ? "" : words ?? tool, [["Approve", true], ["Reject", false]], (approved) => reply(`${approved ? "Approved" : "Rejected"}: ${question.replace(/^(Approved|Rejected): /, "")}`, { approval: { id, approved }, message: undefined })));
      }
    },
    fail: (message) => { close(count()); box.append(element("p", message, "error")); },
  };
}
