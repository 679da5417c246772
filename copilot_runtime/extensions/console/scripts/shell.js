/* Shared by all pages: the address of the server, the theme, and the credentials of the user. */

const root = document.documentElement;
const $ = (id) => document.getElementById(id);
const base = new URL(root.dataset.endpoint, location.href).href.replace(/\/$/, "");
const pages = JSON.parse(root.dataset.pages);  // the path of each extension's page

/* A value in the storage of the browser, which may be disabled. */
function stored(storage, key) {
  let value = "";
  try { value = window[storage].getItem(key) ?? ""; } catch { /* it is kept until the page is left */ }
  return {
    get: () => value,
    set(text) {
      value = text;
      try { window[storage].setItem(key, text); } catch { /* as above */ }
    },
  };
}

/* ---- the theme ---- */

const chosenTheme = stored("localStorage", "theme");
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const themeListeners = new Set();
const themeOfPage = () => root.dataset.theme ?? (prefersDark.matches ? "dark" : "light");

function drawTheme() {
  if (chosenTheme.get()) root.dataset.theme = chosenTheme.get();
  $("theme").setAttribute("aria-pressed", String(themeOfPage() === "dark"));
  for (const listen of themeListeners) listen();
}

function setTheme(theme) {
  chosenTheme.set(theme);
  drawTheme();
}

$("theme").onclick = () => setTheme(themeOfPage() === "dark" ? "light" : "dark");
prefersDark.addEventListener("change", drawTheme);
drawTheme();

/* ---- the credentials: a header of each request, for the session of the tab ---- */

const credentials = stored("sessionStorage", "authorization");
let onUser = () => {};    // called when another user has signed in
let hasDeclined = false;  // then the page does not ask again by itself
let me = {};              // who is signed in, and by which method, as the server says
const isByLogin = () => Boolean(me.user && me.method === "hook" && !credentials.get());  // of the application

/* Sends a request to the server with the credentials. A login of the application may answer it with a redirect. */
async function fetchAuthorized(path, { headers, ...options }) {
  const sent = credentials.get() ? { ...headers, authorization: credentials.get() } : headers;
  const response = await fetch(base + path, { ...options, headers: sent, redirect: "manual" });
  return response.type === "opaqueredirect" ? Response.json({ message: "You are signed out." }, { status: 401 }) : response;
}

/* Asks for a token; a page behind the login of an application is loaded again instead, so that it can ask. */
function askToSignIn(words = "", isBehindLogin = false) {
  const hasToken = Boolean(credentials.get()), isSignedIn = !words && isByLogin();
  $("token-box").hidden = isBehindLogin || isSignedIn;
  $("enter").hidden = isSignedIn;
  $("sign-in-title").textContent = isSignedIn ? "Account" : "Sign in";
  $("not-now").textContent = isSignedIn ? "Close" : "Not now";
  $("sign-in-text").textContent = words || (me.user ? `You are signed in as ${me.user}.${isSignedIn ? " Sign out in the application that signed you in." : ""}` : hasToken ? "You have signed in." : "With a token of this server, or of your login.");
  $("sign-out").hidden = !hasToken;
  $("sign-in").returnValue = "cancel";
  if (!$("sign-in").open) $("sign-in").showModal();
  $(isSignedIn ? "not-now" : isBehindLogin ? "enter" : "token").focus();
}

/* Asks after a response 401, once. */
async function refuse(words) {
  const refused = credentials.get();
  const page = await fetch(location.pathname, { method: "HEAD", redirect: "manual", headers: { accept: "text/html" }, cache: "no-store" }).catch(() => ({}));
  if (!hasDeclined && !$("sign-in").open && refused === credentials.get()) askToSignIn(words, [0, 401, 403].includes(page.status));
}

function drawAccount() {
  const isSignedIn = Boolean(me.user || credentials.get());
  $("account").setAttribute("aria-pressed", String(isSignedIn));
  $("account").ariaLabel = $("account").title = me.user ? `Signed in as ${me.user}` : isSignedIn ? "Signed in" : "Sign in";
  $("user-name").textContent = me.user ?? "";
}

/* Asks the server who is signed in: the page cannot see the session of an application. */
async function discoverUser() {
  const response = pages.access ? await fetchAuthorized("/access/whoami", {}).catch(() => ({})) : {};
  me = response.ok ? await response.json() : {};
  drawAccount();
  const traces = [...$("tabs").children].find((tab) => tab.pathname === pages.tracing && !tab.ariaCurrent);
  if (traces) traces.hidden = Boolean(me.user) && !me.is_operator;
}

function signIn(token) {
  credentials.set(!token || token.includes(" ") ? token : `Bearer ${token}`);
  discoverUser();
  onUser();
}

$("account").onclick = () => askToSignIn();
$("not-now").onclick = () => $("sign-in").close("cancel");
$("sign-out").onclick = () => $("sign-in").close("out");
$("sign-in").onclose = () => {
  const token = $("token").value.trim(), answer = $("sign-in").returnValue;
  $("token").value = "";
  hasDeclined = answer === "cancel" && !$("enter").hidden;
  if (answer === "in" && $("token-box").hidden) location.reload();
  else if (answer === "out") signIn("");
  else if (answer === "in" && token) signIn(token);
};
discoverUser();
$("tabs").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });

/* Names the browser's tab after what the page shows. */
const pageTitle = document.title;
const nameTab = (words) => { document.title = words ? `${cut(words, 60)} · ${pageTitle}` : pageTitle; };

/* ---- the clipboard ---- */

/* Copies a text, and says so on the button. */
async function copyText(words, button) {
  const label = button.textContent, name = button.ariaLabel;
  const say = (said) => {
    if (label) button.textContent = said;
    else button.ariaLabel = button.title = said;
  };
  try {
    await navigator.clipboard.writeText(words);
    say("Copied");
  } catch {
    say("Not permitted");
  }
  setTimeout(() => say(label || name), 1500);
}
