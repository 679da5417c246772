/* Makes elements, and formats times, counts, prices and answers to questions. */

function formatTime(milliseconds) {
  if (milliseconds < 1) return `${Math.round(milliseconds * 1000)} µs`;
  if (milliseconds < 1000) return `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`;
  if (milliseconds < 59_995) return `${(milliseconds / 1000).toFixed(2)} s`;
  const seconds = Math.round(milliseconds / 1000), minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.round(minutes / (24 * 60)).toLocaleString("en")} days`;
}

/* Formats a time, with the date unless it is today. */
function formatDate(milliseconds) {
  const date = new Date(milliseconds);
  if (date.toDateString() === new Date().toDateString()) return date.toLocaleTimeString([], { timeStyle: "short" });
  return date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

/* Columns whose numbers are names, such as years: they have no separators and no average. */
const isCode = (name) => /(^|_)(id|key|no|nr|number|year|zip|code)$/i.test(name);

/* Formats a number of a column, with as many digits after the point as its others; one that would be zero keeps two. */
function formatCell(number, digits) {
  if (digits === null) return String(number);
  const isSmall = number && Math.abs(number) < 0.5 / 10 ** digits;
  return number.toLocaleString("en", isSmall ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: digits, maximumFractionDigits: digits ?? 6 });
}

const placesOf = (number) => (String(number).split(".")[1] ?? "").length;

/* The digits after the point of a column: two, or those that its numbers have. A quotient has any number of them: then
   two, or three of the largest number below one. */
function digitsOf(name, cells) {
  if (isCode(name)) return null;
  const numbers = cells.filter(Number.isFinite), most = (measure) => numbers.reduce((found, number) => Math.max(found, measure(number)), 0);
  const places = most((number) => placesOf(Number(number.toFixed(6)))), largest = most(Math.abs);
  if (places < 6) return places && Math.max(2, places);
  if (most(placesOf) <= 10) return 6;
  return largest >= 1 ? 2 : Math.min(6, 2 - Math.floor(Math.log10(largest)));
}

const formatCount = (count) => count.toLocaleString("en");
/* Appends a plus if there are requests without a known price. */
const formatDollars = (dollars, unpriced = 0) => `$${dollars < 0.01 ? dollars.toLocaleString("en", { minimumSignificantDigits: 2, maximumSignificantDigits: 2 }) : dollars.toFixed(2)}${unpriced ? "+" : ""}`;

const MIDNIGHT = /^\d{4}-\d\d-\d\d[T ]00:00(:00(\.0+)?)?(Z|\+00:00)?$/;
const isMidnight = (cell) => typeof cell === "string" && MIDNIGHT.test(cell);

/* Rows with dates in place of times, in columns whose times are all at midnight. */
function withDates(rows) {
  const isDate = (rows[0] ?? []).map((_, at) => rows.every((row) => row[at] == null || isMidnight(row[at])));
  return rows.map((row) => row.map((cell, at) => (isDate[at] && cell ? cell.slice(0, 10) : cell)));
}

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/* Bidirectional control characters: the approved text must be the displayed text. */
const BIDIRECTIONAL = /[\u202a-\u202e\u2066-\u2069]/g;

const visible = (text) => String(text).replace(BIDIRECTIONAL, "\ufffd");

/* An element with a text, which is no HTML. */
function element(tag, text = "", className = "") {
  return Object.assign(document.createElement(tag), { textContent: visible(text ?? ""), className });
}

/* The value of a pair that is an identifier: cut off where it is too long, and whole when it is copied. */
const idOf = (id) => id && Object.assign(element("dd", cut(id, 300), "id"), { title: id });

const button = (label, onclick, className = "") => Object.assign(element("button", label, className), { type: "button", onclick });

function readAsDataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

/* Downloads a file. */
function saveFile(blob, name) {
  const link = Object.assign(element("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/* Answers to questions: the button, and what is said of it afterwards. */
const REPLIES = {
  approve: ["Approve", "approved"],
  reject: ["Decline", "declined"],
  retry: ["Do it again", "to be done again, decided"],
  done: ["It was done", "noted as done"],
  fail: ["Give it up", "given up"],
  resolve: ["Answer", "answered"],
  cancel: ["Cancel", "cancelled"],
};

const saidOf = ({ answer, user, note }) => `${REPLIES[answer]?.[1] ?? answer}${user ? ` by ${user}` : ""}${note ? `: ${note}` : ""}`;
