import type { Column } from "./schemas";

const numeric = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|REAL|DECIMAL)/i;
const isoTime = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/;

export const isNumeric = (column: Column) => numeric.test(column.type);

/** Whether the numbers of a column name things: then they are no amounts. */
const isName = (column: Column) => /(^|_)(id|year|number)$/i.test(column.name);

/** A cell as people read it: no time of day where all there is is midnight. */
export function formatCell(value: unknown, column: Column): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") {
    if (isName(column)) return String(value);
    return value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 3 : 2 });
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object") return JSON.stringify(value);
  const text = String(value);
  if (isoTime.test(text)) return text.slice(0, 16).replace("T", " ").replace(/ 00:00$/, "");
  return text;
}

/** Order two cells: nothing comes last, whatever the direction. */
export function compareCells(a: unknown, b: unknown, isDown: boolean): number {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
  if (b === null || b === undefined) return -1;
  const order =
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });
  return isDown ? -order : order;
}

export const formatCount = (count: number) => count.toLocaleString("en");

export const countOf = (count: number, noun: string) =>
  `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;

/** A column's name as a heading. */
export const formatName = (name: string) => name.replaceAll("_", " ");
