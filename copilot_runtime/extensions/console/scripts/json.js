/* JSON for people: lists of objects as tables, objects as pairs, and all else formatted. */

const MOST_ROWS = 50;
const MOST_JSON = 20_000;  // characters
const SHORT = 24;          // characters of a cell that stay on one line
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/* The value of a text that is JSON, else the text. */
function asValue(written) {
  try { return JSON.parse(written); } catch { return written; }
}

/* Draws a text, which is JSON if it can be parsed. */
function viewOfText(words) {
  const value = asValue(words);
  return value === null || typeof value !== "object" ? element("pre", words) : viewOf(value);
}

function viewOf(value, depth = 0) {
  const rows = Array.isArray(value) ? value : value?.rows;
  if (Array.isArray(rows) && rows.length && rows.every(isObject)) {
    const names = [...new Set(rows.flatMap(Object.keys))];
    return tableOf(names, rows.map((row) => names.map((name) => row[name])));
  }
  if (!isObject(value)) return formatted(value);
  const pairs = Object.entries(value);
  if (!pairs.length) return element("small", "nothing");
  if (pairs.length > 12 || depth > 2) return formatted(value);
  const list = element("dl", "", "pairs");
  for (const [name, each] of pairs) {
    const cell = element("dd");
    cell.append(name === "sql" ? codeOf(visible(each), "sql") : isObject(each) || (Array.isArray(each) && each.some(isObject)) ? viewOf(each, depth + 1) : visible([each].flat().join(", ").slice(0, MOST_JSON)));
    list.append(element("dt", name), cell);
  }
  return list;
}

/* The plain values of a call's arguments in one line. */
function briefOf(args) {
  const values = asValue(args);
  if (values === null || typeof values !== "object") return args;
  return Object.values(values).filter((value) => typeof value !== "object").join(", ").replace(/\s+/g, " ").slice(0, 200);
}

const formatted = (value) => codeOf(visible(JSON.stringify(value, null, 2).slice(0, MOST_JSON)), "json");

/* A table of the first rows, whose numbers stand on the right. */
function tableOf(names, rows) {
  const box = element("div", "", "scroll"), table = box.appendChild(element("table"));
  const isNumber = names.map((_, at) => rows.some((row) => typeof row[at] === "number")), digits = names.map((name, at) => digitsOf(name, rows.map((row) => row[at])));
  const write = (line, tag, cells) => cells.forEach((cell, at) => {
    const text = typeof cell === "number" ? formatCell(cell, digits[at]) : cell === undefined ? "" : typeof cell === "object" ? JSON.stringify(cell) : String(cell);
    line.append(element(tag, text, isNumber[at] ? "number" : text.length < SHORT ? "short" : ""));
  });
  write(table.createTHead().insertRow(), "th", names);
  const body = table.createTBody();
  for (const row of withDates(rows).slice(0, MOST_ROWS)) write(body.insertRow(), "td", row);
  box.tabIndex = 0;
  if (rows.length <= MOST_ROWS) return box;
  const all = element("div");
  all.append(box, element("small", `${MOST_ROWS} of ${formatCount(rows.length)} rows`));
  return all;
}

/* Whether the result of a call has the rows of a table that is shown anyway. */
function isSameTable(shown, result) {
  const { rows, columns } = asValue(result ?? "") ?? {};
  return Array.isArray(rows) && Array.isArray(columns) && JSON.stringify(columns.map(({ name }) => name)) === JSON.stringify(shown?.columns?.map(({ name }) => name));
}
