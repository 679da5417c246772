/* The data of a surface: what components read by path, and what a person writes back. */

const FORBIDDEN_KEYS = new Set(["__proto__", "constructor", "prototype"]);
const DEEPEST_VALUE = 16;  // calls within calls

/* What an agent has written, and on top of it what a person has changed since. */
class SurfaceData {
  #written = {};
  #value = {};
  #edits = new Map();

  /* Takes what the agent says now. A change of a person stays, unless the agent has changed the same place. */
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

/* A place in the data: paths without a slash at their front begin here. */
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

  /* What a property says: itself, what is at a path, or what a function of the catalog makes of its arguments. */
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

  /* Writes what a person has put into an input, if the property is bound to a path. */
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

/* Returns a whole with a value in a place. Where there is no such place, it stays as it was. */
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
