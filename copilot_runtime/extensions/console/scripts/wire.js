/* Requests to the server and their responses: AG-UI over HTTP. */

// randomUUID is missing where the page came over plain HTTP from another machine
const newId = crypto.randomUUID ? () => crypto.randomUUID() : () => `${Date.now()}-${Math.random()}`;

class Problem extends Error {
  /* `broken`: the response had started, and the server may continue the run. `retryAt`: the earliest time for a retry. */
  constructor(title, message, { broken = false, retryAt, status } = {}) {
    super(message);
    this.title = title;
    this.broken = broken;
    this.retryAt = retryAt;
    this.status = status;
  }
}

const TITLES = { LIMIT_EXCEEDED: "Limit reached" };  // of errors that are not failures
const titleOfError = (code) => TITLES[code] ?? `${code[0]}${code.slice(1).toLowerCase()}`.replaceAll("_", " ");

function retryTimeOf(response) {
  const seconds = Number(response.headers.get("retry-after"));
  return seconds > 0 ? Date.now() + seconds * 1000 : undefined;
}

async function request(method, path, body, signal) {
  const isForm = body instanceof FormData;
  const headers = { accept: "text/event-stream, application/json" };
  if (body && !isForm) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetchAuthorized(path, { method, headers, signal, body: isForm || !body ? body : JSON.stringify(body) });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem("No connection", `${base} could not be reached. Is the server running? (${error.message})`);
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function json(method, path, body) {
  const response = await request(method, path, body);
  try {
    return await response.json();
  } catch (error) {
    throw new Problem(`HTTP ${response.status}`, `${path} was not answered with JSON. (${error.message})`);
  }
}

async function refusal(response) {
  const body = await response.text().catch(() => "");
  let answer = null;
  try { answer = JSON.parse(body); } catch { /* not JSON: shown as it is */ }
  const detail = answer?.message ?? answer?.details ?? answer?.detail ?? answer?.error ?? body.slice(0, 300);
  const title = TITLES[answer?.errors?.[0]?.extensions?.code] ?? (response.status === 401 ? "Sign in" : `HTTP ${response.status}`);
  const words = String(detail || response.statusText || "The answer was empty.");
  if (response.status === 401) refuse(words);
  return new Problem(title, words, { retryAt: retryTimeOf(response), status: response.status });
}

/* Yields the events of a stream in batches, as they arrive. */
async function* events(path, body, signal) {
  wireBegan = performance.now();
  const response = await request("POST", path, body, signal);
  const type = response.headers.get("content-type") ?? "";
  if (!type.startsWith("text/event-stream"))
    throw new Problem(`HTTP ${response.status}`, (await response.text()).slice(0, 300) || "The answer was empty.");
  const retryAt = retryTimeOf(response);
  try {
    for await (const found of framesOf(response)) {
      found.forEach(({ data }) => watchWire(data));
      yield found.map(({ data }) => ({ ...JSON.parse(data), ...(retryAt && { retryAt }) }));
    }
  } catch (error) {
    if (signal.aborted || error instanceof Problem) throw error;
    throw new Problem("Connection lost", `The answer broke off here. (${error.message})`, { broken: true });
  }
}

/* Applies an RFC 6902 patch to a state. Returns the new value without changing the old one. */

function patched(value, operations) {
  let whole = { value: structuredClone(value) };
  for (const operation of operations) whole = OPERATIONS[operation.op](whole, operation);
  return whole.value;
}

const OPERATIONS = {
  add: (whole, { path, value }) => put(whole, path, value, true),
  replace: (whole, { path, value }) => put(whole, path, value, false),
  remove(whole, { path }) {
    const [parent, key] = place(whole, path);
    if (Array.isArray(parent)) parent.splice(Number(key), 1);
    else delete parent[key];
    return whole;
  },
  copy: (whole, { from, path }) => put(whole, path, structuredClone(valueAt(whole, from)), true),
  move(whole, { from, path }) {
    const value = valueAt(whole, from);
    return put(OPERATIONS.remove(whole, { path: from }), path, value, true);
  },
  test(whole, { path, value }) {
    if (JSON.stringify(valueAt(whole, path)) !== JSON.stringify(value)) throw new Error(`${path} is something else.`);
    return whole;
  },
};

function put(whole, path, value, isNew) {
  const [parent, key] = place(whole, path);
  if (!Array.isArray(parent)) parent[key] = value;
  else if (isNew) parent.splice(key === "-" ? parent.length : Number(key), 0, value);
  else parent[Number(key)] = value;
  return whole;
}

function valueAt(whole, path) {
  const [parent, key] = place(whole, path);
  return parent[key];
}

/* Returns the parent of a JSON pointer's target, and the key in it. */
function place(whole, path) {
  const keys = ["value", ...path.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"))];
  const last = keys.pop();
  const parent = keys.reduce((value, key) => value?.[key], whole);
  if (parent === null || typeof parent !== "object") throw new Error(`There is no ${path}.`);
  return [parent, last];
}
