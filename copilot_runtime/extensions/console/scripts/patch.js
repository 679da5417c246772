/* Changes of a state, as RFC 6902 writes them. Returns the new value; the old one stays as it was. */

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

/* The parent of what a JSON pointer names, and its key there. */
function place(whole, path) {
  const keys = ["value", ...path.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"))];
  const last = keys.pop();
  const parent = keys.reduce((value, key) => value?.[key], whole);
  if (parent === null || typeof parent !== "object") throw new Error(`There is no ${path}.`);
  return [parent, last];
}
