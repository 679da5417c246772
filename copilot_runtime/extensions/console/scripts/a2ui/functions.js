/* The functions of A2UI's basic catalog. They only make values: what acts is done for a click alone. */

const MOST_TEXT = 20_000;
const MOST_NESTED = 10;       // ${…} within ${…}
const MOST_PATTERN = 200;     // characters of a regular expression, and of what it is compared with
const MOST_REPETITIONS = 3;
const EMAIL = /^[\w.%+-]{1,64}@[a-zA-Z0-9-]{1,63}(\.[a-zA-Z0-9-]{1,63}){0,8}\.[a-zA-Z]{2,24}$/;

const FUNCTIONS = {
  required: ({ value }) => !(value === undefined || value === null || value === "" || (Array.isArray(value) && !value.length)),
  regex: ({ value, pattern }) => matches(asText(value), asText(pattern)),
  length: ({ value, min, max }) => within((value ?? "").length ?? 0, min, max),
  numeric: ({ value, min, max }) => value !== "" && value !== null && within(Number(value), min, max),
  email: ({ value }) => EMAIL.test(asText(value)),
  formatString: ({ value }, scope) => interpolate(asText(value), scope),
  formatNumber: ({ value, decimals, grouping = true }) => formatWith({ useGrouping: Boolean(grouping), ...digits(decimals) }, value),
  formatCurrency: ({ value, currency, decimals, grouping = true }) =>
    formatWith({ style: "currency", currency: asText(currency), useGrouping: Boolean(grouping), ...digits(decimals) }, value),
  formatDate: ({ value, format }) => formatPattern(value, asText(format)),
  pluralize: (words) => asText(words[new Intl.PluralRules().select(Number(words.value))] ?? words.other),
  and: ({ values }) => Array.isArray(values) && values.every(Boolean),
  or: ({ values }) => Array.isArray(values) && values.some(Boolean),
  not: ({ value }) => !value,
  add: ({ a, b }) => Number(a) + Number(b),
  subtract: ({ a, b }) => Number(a) - Number(b),
  multiply: ({ a, b }) => Number(a) * Number(b),
  divide: ({ a, b }) => Number(a) / Number(b),
  equals: ({ a, b }) => a === b,
  not_equals: ({ a, b }) => a !== b,
  greater_than: ({ a, b }) => Number(a) > Number(b),
  less_than: ({ a, b }) => Number(a) < Number(b),
  contains: ({ string, substring }) => asText(string).includes(asText(substring)),
  starts_with: ({ string, prefix }) => asText(string).startsWith(asText(prefix)),
  ends_with: ({ string, suffix }) => asText(string).endsWith(asText(suffix)),
};

/* Returns what a call makes; undefined for a function that is not in the catalog, or whose arguments do not fit. */
function callFunction({ call, args }, scope, depth) {
  if (!Object.hasOwn(FUNCTIONS, call)) return undefined;
  try {
    const values = Object.entries(args ?? {}).map(([name, value]) => [name, scope.valueOf(value, depth)]);
    return FUNCTIONS[call](Object.fromEntries(values), scope);
  } catch {
    return undefined;
  }
}

/* Opens an address of the web beside this page; nothing else is opened. */
function openUrl(address) {
  const url = webAddress(address);
  if (url) window.open(url, "_blank", "noopener,noreferrer");
}

function webAddress(address) {
  try {
    const url = new URL(asText(address));
    return ["http:", "https:"].includes(url.protocol) ? url.href : "";
  } catch {
    return "";
  }
}

const digits = (decimals) => decimals === undefined ? {} : { minimumFractionDigits: Number(decimals), maximumFractionDigits: Number(decimals) };

const formatWith = (options, value) => value === "" || value === null || isNaN(value) ? "" : new Intl.NumberFormat(undefined, options).format(Number(value));

const within = (number, min = -Infinity, max = Infinity) => !isNaN(number) && number >= Number(min) && number <= Number(max);

/* Repetitions of repetitions, and many beside each other, can take for ever, and who wrote the pattern is a model: such a one is not checked. */
function matches(value, pattern) {
  if ((pattern.match(/[*+]|\{\d*,\d*\}/g) ?? []).length > MOST_REPETITIONS) return true;
  if (pattern.length > MOST_PATTERN || value.length > MOST_PATTERN || /[*+}]\)?[*+{]|\([^)]*([*+}]|\|)[^)]*\)[*+{]/.test(pattern)) return true;
  return new RegExp(pattern).test(value);
}

/* ---- dates, by the letters of Unicode's patterns ---- */

const two = (number) => String(number).padStart(2, "0");
const localized = (options) => (date) => date.toLocaleDateString(undefined, options);
const DATE_PARTS = {
  yyyy: (date) => date.getFullYear(), y: (date) => date.getFullYear(), yy: (date) => two(date.getFullYear() % 100),
  MMMM: localized({ month: "long" }), MMM: localized({ month: "short" }), MM: (date) => two(date.getMonth() + 1), M: (date) => date.getMonth() + 1,
  dd: (date) => two(date.getDate()), d: (date) => date.getDate(),
  EEEE: localized({ weekday: "long" }), EEE: localized({ weekday: "short" }), E: localized({ weekday: "short" }),
  HH: (date) => two(date.getHours()), H: (date) => date.getHours(),
  hh: (date) => two(date.getHours() % 12 || 12), h: (date) => date.getHours() % 12 || 12,
  mm: (date) => two(date.getMinutes()), m: (date) => date.getMinutes(), ss: (date) => two(date.getSeconds()), s: (date) => date.getSeconds(),
  a: (date) => (date.getHours() < 12 ? "AM" : "PM"),
};

function formatPattern(value, pattern) {
  // a day without a time is that day here, not the evening before
  const date = new Date(/^\d{4}-\d\d-\d\d$/.test(value) ? `${value}T00:00` : value ?? "");
  if (!value || isNaN(date)) return "";
  if (pattern === "ISO") return date.toISOString();
  return pattern.replace(/'((?:[^']|'')*)'|([a-zA-Z])\2*/g, (whole, quoted) => {
    if (quoted !== undefined) return quoted.replaceAll("''", "'") || "'";
    return Object.hasOwn(DATE_PARTS, whole) ? DATE_PARTS[whole](date) : whole;
  });
}

/* ---- formatString: text with ${expressions} ---- */

function interpolate(source, scope, depth = 0) {
  let made = "";
  const scanner = { source: source.slice(0, MOST_TEXT), at: 0 };
  while (scanner.at < scanner.source.length) {
    const plain = take(scanner, /(?:\\\$\{|(?!\$\{)[^])+/y);
    if (plain) made += plain.replaceAll("\\${", "${");
    else made += asText(braced(scanner, scope, depth));
  }
  return made;
}

const take = (scanner, pattern) => {
  pattern.lastIndex = scanner.at;
  const found = pattern.exec(scanner.source)?.[0] ?? "";
  scanner.at += found.length;
  return found;
};

function braced(scanner, scope, depth) {
  if (depth > MOST_NESTED) throw new Error("The expression is nested too deeply.");
  scanner.at += 2;
  const value = expression(scanner, scope, depth + 1);
  if (!take(scanner, /\s*\}/y)) throw new Error("A brace is missing.");
  return value;
}

/* A literal, a path, or a call with named arguments. */
function expression(scanner, scope, depth) {
  if (depth > MOST_NESTED) throw new Error("The expression is nested too deeply.");
  take(scanner, /\s+/y);
  if (scanner.source.startsWith("${", scanner.at)) return braced(scanner, scope, depth);
  const literal = take(scanner, /"(?:[^"\\]|\\[^])*"|'(?:[^'\\]|\\[^])*'/y);
  if (literal) return literal.slice(1, -1).replace(/\\([^])/g, (_, char) => ({ n: "\n", t: "\t", r: "\r" })[char] ?? char);
  const number = take(scanner, /-?\d+(?:\.\d+)?(?![\w/])/y);
  if (number) return Number(number);
  const name = take(scanner, /[\w/.~-]+/y);
  if (take(scanner, /\s*\(/y)) return callFunction({ call: name, args: namedArguments(scanner, scope, depth) }, scope, depth);
  if (["true", "false", "null"].includes(name)) return JSON.parse(name);
  return name ? scope.valueOf({ path: name }) : "";
}

function namedArguments(scanner, scope, depth) {
  const args = {};
  while (!take(scanner, /\s*\)/y)) {
    const [, name] = /^\s*,?\s*(\w+)\s*:$/.exec(take(scanner, /\s*,?\s*\w+\s*:/y)) ?? [];
    if (!name) throw new Error("An argument has no name.");
    if (!FORBIDDEN_KEYS.has(name)) args[name] = expression(scanner, scope, depth + 1);
  }
  return args;
}
