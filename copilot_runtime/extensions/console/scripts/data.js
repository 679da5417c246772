/* Shared by the data pages: requests with the credentials of the user, and error messages. */

const $ = (id) => document.getElementById(id);
const base = new URL(document.documentElement.dataset.endpoint, location.href).href.replace(/\/$/, "");

/* Fetches a path; with a body, sends it as JSON by POST. */
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

/* Runs a function, and shows its error. */
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

/* Bidirectional control characters: the approved text must be the displayed text. */
const BIDIRECTIONAL = /[\u202a-\u202e\u2066-\u2069]/g;

const visible = (text) => String(text).replace(BIDIRECTIONAL, "\ufffd");

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = visible(text);
  if (className) made.className = className;
  return made;
}

/* Stores the authorization header for the session of the tab; `change` is called when the user edits it. */
function keepAuthorization(change) {
  $("authorization").value = sessionStorage.getItem("authorization") ?? "";
  $("authorization").onchange = () => {
    sessionStorage.setItem("authorization", $("authorization").value);
    change();
  };
}

/* Formats times, counts and prices, and truncates long texts. */

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
  if (date.toDateString() === new Date().toDateString()) return date.toLocaleTimeString();
  return date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

const formatCount = (count) => count.toLocaleString("en");
/* Appends a plus if there are requests without a known price. */
const formatDollars = (dollars, unpriced = 0) => `$${dollars < 0.01 ? dollars.toPrecision(2) : dollars.toFixed(2)}${unpriced ? "+" : ""}`;

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
