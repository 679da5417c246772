/* Shared by the data pages: requests with the credentials of the user, and error messages. */

const $ = (id) => document.getElementById(id);
const base = new URL(document.documentElement.dataset.endpoint, location.href).href.replace(/\/$/, "");

/* Asks for what is at a path; with something to send, it is a POST of that as JSON. */
async function fetchData(path, accept = "application/json", signal = undefined, sent = undefined) {
  const headers = { accept };
  const posted = sent === undefined ? {} : { method: "POST", body: JSON.stringify(sent) };
  if (sent !== undefined) headers["content-type"] = "application/json";
  const authorization = $("authorization").value.trim();
  if (authorization) headers.authorization = authorization;
  const response = await fetch(base + path, { headers, signal, ...posted });
  if (response.ok) return response;
  if (response.status === 401 || response.status === 403) $("authorization-box").open = true;
  const answer = await response.json().catch(() => ({}));
  const words = answer.message ?? answer.error ?? `The server answered ${response.status}.`;
  throw Object.assign(new Error(words), { status: response.status });
}

/* Does something, and shows what keeps it from being done. */
async function attempt(work) {
  $("problem").hidden = true;
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    $("problem").textContent = error.message;
    $("problem").hidden = false;
    return undefined;
  }
}

/* Characters that turn the order of others around: what is approved shall be what is read. */
const BIDIRECTIONAL = /[\u202a-\u202e\u2066-\u2069]/g;

const visible = (text) => String(text).replace(BIDIRECTIONAL, "\ufffd");

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = visible(text);
  if (className) made.className = className;
  return made;
}

/* Keeps the header by which people sign in as long as the tab is there; `change` is called when they write another one. */
function keepAuthorization(change) {
  $("authorization").value = sessionStorage.getItem("authorization") ?? "";
  $("authorization").onchange = () => {
    sessionStorage.setItem("authorization", $("authorization").value);
    change();
  };
}

/* Times, counts and prices in words, and texts that are too long. */

function formatTime(milliseconds) {
  if (milliseconds < 1) return `${Math.round(milliseconds * 1000)} µs`;
  if (milliseconds < 1000) return `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`;
  if (milliseconds < 59_995) return `${(milliseconds / 1000).toFixed(2)} s`;
  const seconds = Math.round(milliseconds / 1000), minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.round(minutes / (24 * 60)).toLocaleString("en")} days`;
}

/* The time of a day, with the day unless it is today. */
function formatDate(milliseconds) {
  const date = new Date(milliseconds);
  if (date.toDateString() === new Date().toDateString()) return date.toLocaleTimeString();
  return date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

const formatCount = (count) => count.toLocaleString("en");
/* With a plus where requests without a known price come on top. */
const formatDollars = (dollars, unpriced = 0) => `$${dollars < 0.01 ? dollars.toPrecision(2) : dollars.toFixed(2)}${unpriced ? "+" : ""}`;

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
