/* The page Access: the caller's identity, and, for operators, all permissions, keys and threads of users. */

let keys = [];
let mayChange = false;  // whether the user has the scope operate

async function ask(path, method = "GET", sent = undefined) {
  return (await fetchData(`/access${path}`, "application/json", undefined, sent, method)).json();
}

/* A button that acts at the second click, as what it does cannot be undone. */
function sureButton(label, question, act) {
  const made = button(label, () => {
    if (made.textContent === label) made.textContent = question;
    else attempt(act);
  }, "danger");
  made.onblur = () => { made.textContent = label; };
  return made;
}

function showPairs(list, pairs) {
  const parts = Object.entries(pairs).filter(([, value]) => value).flatMap(([name, value]) => [element("dt", name), element("dd", value)]);
  $(list).replaceChildren(...parts);
}

function row(cells, className = "") {
  const made = element("tr", "", className);
  for (const cell of cells) {
    const place = made.appendChild(element("td", cell instanceof Node ? "" : cell));
    if (cell instanceof Node) place.append(cell);
  }
  return made;
}

const WAYS = { api_key: "an API key", jwt: "a signed token (JWT)", proxy: "a proxy", service_token: "a token of a service", hook: "the authenticate function" };
const formatAmount = (number) => number.toLocaleString("en", { maximumFractionDigits: 4 });
const formatMoment = (seconds) => (seconds == null ? "never" : formatDate(seconds * 1000));

function showMe(me) {
  $("me-box").hidden = false;
  showPairs("me", {
    user: me.user ?? "anonymous: you have not signed in",
    tenant: me.tenant,
    owner: me.owner !== me.user && me.owner,
    "signed in by": WAYS[me.method] ?? me.method,
    key: me.key && `cpk_${me.key}`,
    roles: me.roles.join(", "),
    "roles that access.roles does not know": me.unknown_roles.join(", "),
    "you may": me.scopes.join(", ") || "nothing",
    operator: me.is_operator ? "yes" : "no",
  });
  $("my-limits").hidden = !me.limits.length;
  $("my-limit-rows").replaceChildren(...me.limits.map(({ level, kind, used, limit, seconds, seconds_left }) =>
    row([seconds ? `${kind} of the ${level} in ${formatTime(seconds * 1000).replace(/ 0 \w+$/, "")}` : kind === "storage" ? `bytes stored by the ${level}` : `runs of the ${level} at one time`, formatAmount(used), formatAmount(limit), used && seconds ? (seconds_left < 60 ? `${seconds_left} s` : formatTime(seconds_left * 1000)) : ""], used >= limit ? "warn" : "")));
}

function showServer(server) {
  for (const box of ["server-box", "roles-box", "keys-box", "limits-box"]) $(box).hidden = false;
  $("status").textContent = server.is_open ? "Authentication is disabled" : "";
  showPairs("server", {
    "ways to sign in": server.ways.map((way) => WAYS[way.replace(/s$/, "")] ?? way).join(", ") || "none: set access.authenticate",
    "without a credential": server.is_open ? "requests are answered as anonymous" : "requests are refused",
    "roles of a credential without any": server.default_roles.join(", "),
    "operators by name": server.operators.join(", "),
    "audit log": server.audit ? "written" : "not written: set audit.file",
  });
  const scopes = Object.keys(server.scopes);
  const heads = scopes.map((scope) => Object.assign(element("th", scope), { title: server.scopes[scope] }));
  $("role-head").replaceChildren(element("th", "Role"), ...heads);
  $("roles").replaceChildren(...Object.entries(server.roles).map(([name, allowed]) =>
    row([name, ...scopes.map((scope) => (allowed.includes(scope) ? "✓" : "–"))])));
  $("key-role").replaceChildren(Object.assign(element("option", "default"), { value: "" }), ...Object.keys(server.roles).map((name) => element("option", name)));
  $("new-key").hidden = !mayChange || !server.ways.includes("api_keys");
  $("threads-box").hidden = !mayChange;
  keys = server.keys;
  $("keys-title").textContent = server.key_count > keys.length ? `API keys: the newest ${formatAmount(keys.length)} of ${formatAmount(server.key_count)}` : "API keys";
  showKeys();
  const limits = Object.entries(server.limits);
  $("no-limits").hidden = limits.length > 0;
  showPairs("limits", Object.fromEntries(limits.map(([name, value]) => [name.replaceAll("_", " "), [value].flat().join(", ").replace(/\d{4,}/g, (digits) => formatCount(Number(digits)))])));
}

function showKeys() {
  const shown = keys.filter((key) => $("all-keys").checked || key.state === "active");
  $("no-keys").hidden = shown.length > 0;
  $("key-table").hidden = !shown.length;
  $("keys").replaceChildren(...shown.map((key) => row([
    key.prefix, key.name, key.tenant ? `${key.user} (${key.tenant})` : `cpk_${key.user.slice(4)}` === key.prefix ? "itself" : key.user, key.roles.join(", "),
    key.scopes == null ? "all" : key.scopes.join(", ") || "none",
    formatMoment(key.expires_at), formatMoment(key.used_at), key.state === "active" && mayChange ? sureButton("Revoke", "Really revoke?", () => revoke(key)) : key.state,
  ], key.state === "active" ? "" : "inactive")));
}

async function revoke(key) {
  Object.assign(key, await ask(`/keys/${key.prefix}`, "DELETE"));
  showKeys();
}

async function createKey() {
  const { name, user, role, expires } = Object.fromEntries(new FormData($("new-key")));
  const made = await ask("/keys", "POST", { name, ...(user && { user }), ...(role && { roles: [role] }), ...(expires && { expires }) });
  keys.push(made);
  $("new-key").reset();
  $("made").hidden = false;
  $("made-key").textContent = made.key;
  delete made.key;
  showKeys();
}

async function deleteThreads() {
  const owner = $("owner").value.trim(), path = `/users/${encodeURIComponent(owner)}/threads`;
  let deleted = 0;
  for (let more = Boolean(owner); more;) {
    const done = await ask(path, "DELETE");
    deleted += done.deleted;
    more = done.more;
    $("deleted").textContent = `${formatCount(deleted)} deleted${more ? " …" : ""}`;
  }
}

/* Clears the page: another user may see less. */
function clear() {
  keys = [];
  for (const box of ["me-box", "hint", "server-box", "roles-box", "keys-box", "limits-box", "threads-box", "made"]) $(box).hidden = true;
  for (const part of ["me", "my-limit-rows", "server", "roles", "keys", "limits"]) $(part).replaceChildren();
  $("status").textContent = "";
}

async function start() {
  const me = await ask("/whoami");
  mayChange = me.scopes.includes("operate");
  showMe(me);
  $("hint").hidden = me.is_operator;
  if (me.is_operator) showServer(await ask(""));
}

$("all-keys").onchange = showKeys;
$("new-key").onsubmit = (event) => { event.preventDefault(); attempt(createKey); };
$("copy-key").onclick = () => copyText($("made-key").textContent, $("copy-key"));
$("delete-threads").append(sureButton("Delete all threads", "Really delete them?", deleteThreads));
onUser = () => {
  clear();
  attempt(start);
};
attempt(start);
