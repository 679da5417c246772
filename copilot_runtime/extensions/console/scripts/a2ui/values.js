/* The component catalog that this page sends to agents. */

const CATALOG_ID = "https://a2ui.org/specification/v0_9/basic_catalog.json";
/* Servers and agents identify these context entries by their descriptions. */
const CAPABILITIES = "A2UI catalog capabilities: available catalog IDs and custom component definitions the client can render.";
const COMPONENT_SCHEMA = "A2UI Component Schema \u2014 available components for generating UI surfaces. Use these component names and properties when creating A2UI operations.";

/* `notes` describes common properties once, to save tokens: agents get the catalog with each run. */
const bound = (description) => (description ? { description } : {});
const childId = { type: "string", description: "id of a component" };
const childIds = { description: "ids of components, or {\"componentId\": \"id\", \"path\": \"/list\"} for one per item" };
const oneOf = (...names) => ({ enum: names });
const checks = { type: "array" };
const box = { children: childIds, justify: oneOf("start", "center", "end", "spaceBetween", "spaceAround", "spaceEvenly", "stretch"), align: oneOf("start", "center", "end", "stretch") };
const of = (properties, ...required) => ({ type: "object", properties, required });

const CATALOG = {
  catalogId: CATALOG_ID,
  components: {
    Text: of({ text: bound("Markdown without HTML"), variant: oneOf("h1", "h2", "h3", "h4", "h5", "caption", "body") }, "text"),
    Image: of({ url: bound(), description: bound(), fit: oneOf("contain", "cover", "fill", "none", "scaleDown"), variant: oneOf("icon", "avatar", "smallFeature", "mediumFeature", "largeFeature", "header") }, "url"),
    Icon: of({ name: { description: "such as add, check, close, event, favorite, home, info, locationOn, mail, person, phone, search, send, settings, star, warning" } }, "name"),
    Video: of({ url: bound() }, "url"),
    AudioPlayer: of({ url: bound(), description: bound() }, "url"),
    Row: of(box, "children"),
    Column: of(box, "children"),
    List: of({ children: childIds, direction: oneOf("vertical", "horizontal"), align: box.align, listStyle: oneOf("ordered", "unordered", "none") }, "children"),
    Card: of({ child: childId }, "child"),
    Tabs: of({ tabs: { type: "array", items: of({ title: bound(), child: childId }, "title", "child") } }, "tabs"),
    Modal: of({ trigger: childId, content: childId }, "trigger", "content"),
    Divider: of({ axis: oneOf("horizontal", "vertical") }),
    Button: of({ child: childId, variant: oneOf("default", "primary", "borderless"), action: { description: "{\"event\": {\"name\": \"book\", \"context\": {}}}, or {\"functionCall\": {\"call\": \"openUrl\", \"args\": {\"url\": \"https://…\"}}}" }, checks }, "child", "action"),
    TextField: of({ label: bound(), value: bound("a path, which gets what is written"), variant: oneOf("shortText", "longText", "number", "obscured"), validationRegexp: { type: "string" }, checks }, "label"),
    CheckBox: of({ label: bound(), value: bound(), checks }, "label", "value"),
    ChoicePicker: of({ label: bound(), value: bound("a path to a list of texts"), options: { type: "array", items: of({ label: bound(), value: { type: "string" } }, "label", "value") }, variant: oneOf("mutuallyExclusive", "multipleSelection"), displayStyle: oneOf("checkbox", "chips"), filterable: { type: "boolean" }, checks }, "options", "value"),
    Slider: of({ label: bound(), min: { type: "number" }, max: { type: "number" }, step: { type: "number" }, value: bound(), checks }, "max", "value"),
    DateTimeInput: of({ label: bound(), value: bound("ISO 8601"), enableDate: { type: "boolean" }, enableTime: { type: "boolean" }, min: bound(), max: bound(), checks }, "value"),
  },
  notes: {
    values: "A property without a type is a value, {\"path\": \"/where\"} or {\"call\": \"function\", \"args\": {}}.",
    checks: "[{\"condition\": {\"call\": \"required\", \"args\": {\"value\": {\"path\": \"/x\"}}}, \"message\": \"…\"}]",
  },
  functions: "required, regex, length, numeric, email, and, or, not (for checks); formatString with ${/path}, formatNumber, formatCurrency, formatDate, pluralize (for texts)",
};

const SURFACE_CONTEXT = [
  { description: CAPABILITIES, value: JSON.stringify({ supportedCatalogIds: [CATALOG_ID] }) },
  { description: COMPONENT_SCHEMA, value: JSON.stringify(CATALOG) },
];

/* The functions of A2UI's basic catalog. They are pure; actions run on clicks only. */

const MOST_TEXT = 20_000;
const MOST_NESTED = 10;       // ${…} within ${…}
const MOST_PATTERN = 200;     // characters of a regular expression, and of the text it is matched against
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

/* Returns the result of a call; undefined for an unknown function or invalid arguments. */
function callFunction({ call, args }, scope, depth) {
  if (!Object.hasOwn(FUNCTIONS, call)) return undefined;
  try {
    const values = Object.entries(args ?? {}).map(([name, value]) => [name, scope.valueOf(value, depth)]);
    return FUNCTIONS[call](Object.fromEntries(values), scope);
  } catch {
    return undefined;
  }
}

/* Opens a web URL in a new tab; other URLs are ignored. */
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

/* Nested and adjacent repetitions can cause catastrophic backtracking, and models write the patterns: such patterns are not checked. */
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
  // a date without a time is in the local time zone, not in UTC
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

/* The data of a surface, which components read and write by path. */

const FORBIDDEN_KEYS = new Set(["__proto__", "constructor", "prototype"]);
const DEEPEST_VALUE = 16;  // nested calls

/* The agent's data, overlaid with the user's later changes. */
class SurfaceData {
  #written = {};
  #value = {};
  #edits = new Map();

  /* Replaces the agent's data. A user's change is kept unless the agent has changed the same path. */
  load(updates) {
    let written = {};
    for (const { path = "/", value } of updates) written = withValue(written, keysOf(String(path)), structuredClone(value));
    this.#written = written;
    this.#value = structuredClone(written);
    for (const [path, { value, before }] of this.#edits) {
      if (JSON.stringify(readValue(written, keysOf(path))) === before) this.#value = withValue(this.#value, keysOf(path), value);
      else this.#edits.delete(path);
    }
  }

  read(path) { return readValue(this.#value, keysOf(path)); }

  write(path, value) {
    const before = JSON.stringify(readValue(this.#written, keysOf(path)));
    this.#edits.set(path, { value, before });
    this.#value = withValue(this.#value, keysOf(path), value);
  }
}

/* A scope in the data, to which relative paths refer. */
class Scope {
  constructor(data, path = "") {
    this.data = data;
    this.path = path;
  }

  absolute(path) {
    if (path.startsWith("/")) return path;
    return path === "" || path === "." ? this.path || "/" : `${this.path}/${path}`;
  }

  item(path, index) {
    return new Scope(this.data, `${this.absolute(path).replace(/\/$/, "")}/${index}`);
  }

  /* Returns the value of a property: a literal, the value at a path, or the result of a function call. */
  valueOf(value, depth = 0) {
    if (value === null || typeof value !== "object" || depth > DEEPEST_VALUE) return value;
    if (Array.isArray(value)) return value.map((each) => this.valueOf(each, depth + 1));
    if (typeof value.path === "string") return this.data.read(this.absolute(value.path));
    if (typeof value.call === "string") return callFunction(value, this, depth + 1);
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, this.valueOf(each, depth + 1)]));
  }

  textOf(value) {
    return asText(this.valueOf(value)).slice(0, MOST_TEXT);
  }

  /* Writes an input's value, if the property is bound to a path. */
  write(property, value) {
    if (typeof property?.path === "string") this.data.write(this.absolute(property.path), value);
  }
}

const asText = (value) => value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);

const keysOf = (path) => path.split("/").filter(Boolean).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));

function readValue(value, keys) {
  for (const key of keys) {
    if (value === null || typeof value !== "object" || !Object.hasOwn(value, key)) return undefined;
    value = value[key];
  }
  return value;
}

/* Returns a copy with a value set at a path, or the original if there is no such path. */
function withValue(whole, keys, value) {
  if (!keys.length) return value ?? {};
  if (keys.some((key) => FORBIDDEN_KEYS.has(key))) return whole;
  const root = { value: whole };
  let parent = root, at = "value";
  for (const key of keys) {
    parent[at] ??= /^\d+$/.test(key) ? [] : {};
    parent = parent[at];
    if (typeof parent !== "object") return whole;
    if (Array.isArray(parent) && !(Number(key) <= parent.length)) return whole;  // no holes
    at = key;
  }
  if (value === undefined && !Array.isArray(parent)) delete parent[at];
  else parent[at] = value;
  return root.value;
}
