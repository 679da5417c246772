/* The analyst's results in the chat: thoughts, charts, tables, files, and sources of numbers. */

const FINDINGS = {
  "analyst-thoughts": drawThoughts,
  "analyst-chart": drawChart,
  "analyst-table": drawTable,
  "analyst-download": drawDownload,
  "analyst-answer": drawLineage,
  "analyst-question": drawChoice,
};

const TRUST = {
  verified: ["verified", "from metrics that the operator of this server defined"],
  derived: ["derived", "by the server's own tools from the columns of the data"],
  free_sql: ["free SQL", "by SQL that the model wrote: read it before you rely on it"],
};

function drawThoughts(node, title, { thoughts = [], is_done }) {
  const list = element("ol", "", "steps");
  for (const { type, content, tool_name } of thoughts) {
    const item = list.appendChild(element("li"));
    item.dataset.type = type;
    item.append(element("small", tool_name ?? type), element("span", content));
  }
  const count = `${thoughts.length} ${thoughts.length === 1 ? "thought" : "thoughts"}`;
  title.replaceChildren(element("b", is_done ? count : "Working on it"));
  if (is_done && !node.isDone) node.open = false;
  node.isDone = is_done;
  node.replaceChildren(title, list);
}

/* An image from the server, as a blob: the page's policy forbids other images. */
async function loadPicture(id) {
  return readAsDataUrl(await (await request("GET", `/analyst/charts/${id}.png?theme=${themeOfPage()}`)).blob());
}

function drawChart(node, title, { id, title: words }) {
  title.replaceChildren(element("b", "Chart"), element("span", words, "brief"));  // the image has its title
  const look = `${id} ${themeOfPage()}`;
  if (node.chart === look) return;
  node.chart = look;
  const image = node.querySelector("img") ?? Object.assign(element("img"), { alt: words || "Chart", hidden: true }), box = element("div", "", "chart");
  box.append(image);
  node.replaceChildren(title, box);
  loadPicture(id).then((data) => Object.assign(image, { src: data, hidden: false }), (error) => image.replaceWith(element("small", error.status === 404 ? "This server does not have the chart. Ask for it again." : error.message)));
}

themeListeners.add(() => {
  for (const item of thread.items) if (item.activityType === "analyst-chart") thread.changed.add(item);
  scheduleDraw();
});

function drawTable(node, title, { title: words, columns = [], rows = [], total_rows: total = rows.length }) {
  const name = words && !/^[\d,]+ rows?$/.test(words) ? words : "Table", shown = Math.min(rows.length, MOST_ROWS);
  title.replaceChildren(element("b", name), element("small", `${shown < total ? `${shown} of ` : ""}${formatCount(total)} ${total === 1 ? "row" : "rows"}`));
  node.replaceChildren(title, tableOf(columns.map((column) => column.name), rows.slice(0, MOST_ROWS)));
}

function drawDownload(node, title, { id, filename, row_count: rows = 0 }) {
  const get = button(`Download ${filename}`, async () => {
    try {
      saveFile(await (await request("GET", `/analyst/downloads/${id}`)).blob(), filename);
    } catch (error) {
      showProblem(error);
    }
  });
  title.replaceChildren(element("b", "File"), element("small", `${rows.toLocaleString("en")} rows`));
  node.replaceChildren(title, get);
}

function drawLineage(node, title, { trust, lineage = [] }) {
  const [name, meaning] = TRUST[trust] ?? [trust ?? "no data", "without numbers of the data"];
  title.replaceChildren(element("b", name, `trust ${trust}`), element("small", meaning));
  const parts = lineage.flatMap((one) => [
    ...(one.checks ?? []).map((check) => element("p", check, "check")),
    codeOf(one.sql, "sql"),
    element("small", [one.tables?.length && `tables: ${one.tables.join(", ")}`, one.filters?.length && `filters: ${one.filters.join("; ")}`, one.rows_scanned != null && `${one.rows_scanned.toLocaleString("en")} rows read`].filter(Boolean).join(" · ")),
  ]);
  if (!node.isDrawn) node.open = lineage.some((one) => one.checks?.length);
  node.isDrawn = true;
  node.replaceChildren(title, ...parts);
}

function drawChoice(node, title, { options = [] }) {
  title.replaceChildren(element("b", "Choose, or write something else"));
  const buttons = element("div", "", "buttons");
  buttons.append(...options.map((option) => button(option, () => {
    for (const each of buttons.children) each.disabled = true;
    send(option);
  })));
  node.replaceChildren(title, buttons);
}
