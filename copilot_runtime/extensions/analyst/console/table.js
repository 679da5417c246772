/* A table that is sorted by a click on a column. */

const SHOWN = 500;
const isNumber = (value) => typeof value === "number";

function drawCell(value, digits) {
  if (value === null || value === undefined) return element("td", "NULL", "null");
  if (isNumber(value)) return element("td", formatCell(value, digits), "number");
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return element("td", text, text.length < SHORT ? "short" : "");
}

/* Compares numbers as numbers and other values as text; missing values come last. */
function compareCells(one, other) {
  if (one == null || other == null) return (one == null) - (other == null);
  if (isNumber(one) && isNumber(other)) return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}

function drawTable({ title, columns, rows: given, total_rows, is_truncated }) {
  const rows = withDates(given), digits = columns.map(({ name }, at) => digitsOf(name, rows.map((row) => row[at])));
  const box = element("figure", "", "table");
  const table = element("table"), head = element("thead"), body = element("tbody"), line = element("tr");
  table.setAttribute("aria-label", title || "Result");
  let by = -1, direction = 1;
  const fill = () => {
    const sorted = by < 0 ? rows : [...rows].sort((one, other) => {
      const isMissing = one[by] == null || other[by] == null;
      return compareCells(one[by], other[by]) * (isMissing ? 1 : direction);
    });
    body.replaceChildren(...sorted.slice(0, SHOWN).map((cells) => {
      const row = element("tr");
      row.append(...cells.map((cell, at) => drawCell(cell, digits[at])));
      return row;
    }));
  };
  columns.forEach((column, at) => {
    const cell = element("th"), button = element("button", column.name);
    button.type = "button";
    button.title = column.type ?? "";
    if (rows.some((row) => isNumber(row[at]))) cell.className = "number";
    button.onclick = () => {
      direction = by === at ? -direction : 1;
      by = at;
      for (const other of line.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      for (const [index, other] of [...line.children].entries()) other.firstChild.textContent = columns[index].name;
      button.textContent = `${column.name} ${direction > 0 ? "▲" : "▼"}`;
      fill();
    };
    cell.append(button);
    line.append(cell);
  });
  head.append(line);
  table.append(head, body);
  fill();
  const scroll = element("div", "", "scroll");
  scroll.tabIndex = 0;
  scroll.append(table);
  const count = total_rows ?? rows.length;
  const more = is_truncated || count > rows.length ? ` of ${total_rows == null ? "more" : formatCount(count)}` : "";
  box.append(scroll, element("small", `${formatCount(Math.min(rows.length, SHOWN))}${more} ${count === 1 ? "row" : "rows"}`, "note"));
  return box;
}
