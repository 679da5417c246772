/* Frames for third-party pages: without an origin, under a policy of their own. */

const MOST_MESSAGE = 1_000_000;   // characters of one message out of a frame
const MOST_MESSAGES = 500;        // messages of a frame in a second; 10,000 characters count as one more
const MOST_RELOADS = 5;           // how often a page in a frame may reload itself
const TALLEST = 900;
const sandboxes = new Set();

const hasSandbox = () => $("items").dataset.sandbox !== "";

/* `reach` lists the origins that the page may load from, as declared by an MCP app; `receive` gets its messages. */
class Sandbox {
  frame = element("iframe");
  #address;
  #orders = [];         // orders that build the page, repeated after a reload
  #loads = 0;
  #key = "";            // key of the document in the frame, required for orders
  #second = 0;
  #count = 0;           // messages in the current second

  constructor(title, { allow = "allow-scripts", reach = {}, receive = () => {} } = {}) {
    const { resourceDomains, connectDomains, frameDomains, baseUriDomains } = reach;
    const address = new URL($("items").dataset.sandbox, location.href);
    for (const [name, domains] of Object.entries({ resource: resourceDomains, connect: connectDomains, frame: frameDomains, base: baseUriDomains }))
      for (const domain of Array.isArray(domains) ? domains.slice(0, 30) : []) address.searchParams.append(name, asText(domain));
    this.receive = receive;
    this.frame.title = title;
    this.frame.setAttribute("sandbox", allow);
    this.frame.referrerPolicy = "no-referrer";
    this.#address = address;
    this.frame.src = address.href;
    sandboxes.add(this);
  }

  /* Sends an order to sandbox.html; orders needed after a reload are stored. */
  order(type, more = {}, { keep = true } = {}) {
    const order = { type: `sandbox/${type}`, ...more };
    if (keep) this.#orders = [...(["preview", "replace"].includes(type) ? [] : this.#orders), order];
    if (this.#key) this.send({ ...order, key: this.#key });
  }

  /* The target origin is opaque and cannot be named, but the frame shows only this server's sandbox. */
  send(message) { this.frame.contentWindow?.postMessage(message, "*"); }

  resize(height) {
    if (Number.isFinite(height)) this.frame.style.height = `${Math.min(Math.max(Math.ceil(height), 40), TALLEST)}px`;
  }

  /* A page may reload the sandbox with a wider policy: then it is reset, and gets no orders there. */
  #fill({ key, search }) {
    if (this.#loads++ >= MOST_RELOADS) return;
    if (search !== this.#address.search) {
      this.frame.src = this.#address.href;
      return;
    }
    this.#key = asText(key);
    for (const order of this.#orders) this.send({ ...order, key: this.#key });
  }

  /* A page that floods this one with messages is closed. */
  admits(size) {
    const second = Math.floor(performance.now() / 1000);
    if (second !== this.#second) [this.#second, this.#count] = [second, 0];
    this.#count += 1 + size / 10_000;
    if (this.#count <= MOST_MESSAGES) return size <= MOST_MESSAGE;
    sandboxes.delete(this);
    this.frame.replaceWith(element("p", "It sent too many messages, and was closed.", "note"));
    return false;
  }

  take(data) {
    if (data?.type === "sandbox/ready") return this.#fill(data);
    if (data?.type === "sandbox/size") return this.resize(data.height);
    return this.receive(data);
  }
}

window.addEventListener("message", ({ source, data }) => {
  for (const each of sandboxes) {
    const { contentWindow } = each.frame;
    each.wasShown ||= contentWindow !== null;
    if (contentWindow === null && each.wasShown) sandboxes.delete(each);  // its conversation was removed from the page
    if (source !== null && source === contentWindow && each.admits(measureMessage(data))) each.take(data);
  }
});

/* Returns the number of characters, or one too many for what is no JSON. */
function measureMessage(data) {
  try { return (JSON.stringify(data) ?? "").length; } catch { return MOST_MESSAGE + 1; }
}

/* Asks the user to allow an action of a page in a frame, one question at a time. */
async function askConsent(title, words, yes) {
  const dialog = $("consent");
  if (dialog.open) return false;
  $("consent-title").textContent = title;
  $("consent-text").textContent = words;
  $("consent-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((closed) => dialog.addEventListener("close", closed, { once: true }));
  return dialog.returnValue === "yes";
}

/* Pictures, videos and sounds of other sites. A model wrote the address, and may have put words of the
conversation into it: nothing is loaded before a person says so, and then in a frame that reaches that one place. */

function outsideMedia(tag, address, description, height = { video: 320, audio: 60 }[tag]) {
  const kind = { img: "image", video: "video", audio: "sound" }[tag], url = webAddress(address);
  if (!url) return element("span", description || (address ? `The ${kind} has an address that this page does not open.` : `No ${kind}`), "a2ui-unknown");
  const { host, origin } = new URL(url), node = element("div", "", "a2ui-outside");
  if (!hasSandbox()) return link(description || `The ${kind} at ${host}`, url);
  if (description) node.append(element("span", description));
  node.append(button(`Load the ${kind} from ${host}`, () => {
    const media = element(tag), sandbox = new Sandbox(description || kind, { reach: { resourceDomains: [origin] } });
    const sheet = element("style", "body { margin: 0 } img, video, audio { display: block; max-width: 100%; max-height: 100vh }");
    media.src = url;
    if (tag === "img") media.alt = description;
    else media.controls = true;
    sandbox.order("replace", { html: `<!doctype html>${sheet.outerHTML}${media.outerHTML}` });
    sandbox.resize(height);
    node.replaceChildren(sandbox.frame);
  }));
  return node;
}

drawPicture = (url, words) => outsideMedia("img", url, words);
themeListeners.add(() => { for (const { changeTheme } of sandboxes) changeTheme?.(); });

/* Open Generative UI: a page written by a model, rendered while it is streamed. */

const PAGE_TOOL = "generateSandboxedUi";
const PREVIEW_EVERY = 150;   // milliseconds
const MOST_EXPRESSIONS = 200;
const MOST_PROBLEMS = 3;

const PAGE_CONTEXT = [{
  description: "Design guidelines for the generateSandboxedUi tool. Follow these when building UI.",
  value: "Flat and calm: white or transparent ground, one accent colour, system fonts, thin borders and small radii instead of shadows. "
    + "Lay out with grid or flexbox so that any width from 300 px on will do. Everything is inline: the page has no network, no storage and no other libraries.",
}];

const PAGE_PARAMETERS = {
  type: "object",
  properties: {
    initialHeight: { type: "number", description: "Height of the frame at first, in pixels" },
    placeholderMessages: { type: "array", items: { type: "string" }, description: "A few words for the person to read while the page is written" },
    css: { type: "string", description: "The whole style; nothing is shown before it is complete" },
    html: { type: "string", description: "The page; it is shown while it is written" },
    jsFunctions: { type: "string", description: "Functions that the expressions call" },
    jsExpressions: { type: "array", items: { type: "string" }, description: "Statements, run one by one when the page is there" },
  },
};

const PAGE_DESCRIPTION = "Draw a page of your own in the chat: HTML, style and script in a sandboxed frame. It has no origin, no network and no storage, "
  + "so write everything into it. Give the arguments in this order: initialHeight, placeholderMessages, css, html, jsFunctions, jsExpressions.";

function generatedPageView() {
  const node = element("section", "", "frame generated"), words = element("div", "", "note"), problems = element("div", "", "note problems");
  const sandbox = new Sandbox("A page that the model has written", { receive: ({ type, message } = {}) => {
    if (type === "sandbox/problem" && problems.children.length < MOST_PROBLEMS) problems.append(element("p", `In the page: ${asText(message).slice(0, 300)}`));
  } });
  let timer = 0, latest = {}, replaced = false, isSized = false, ran = 0, ranFunctions = false, measured = false;
  words.role = "status";
  node.ariaLabel = "Page of the model";
  node.append(words, sandbox.frame, problems);

  const html = () => (Array.isArray(latest.html) ? latest.html.map(asText).join("") : "");
  const preview = () => {
    timer = 0;
    if (!replaced) sandbox.order("preview", { css: asText(latest.css), html: html() });
  };

  /* Scripts run when the page is complete: the functions first, then each expression once. */
  const finish = () => {
    clearTimeout(timer);
    if (!replaced) sandbox.order("replace", { html: wholePage(html(), asText(latest.css)) });
    replaced = true;
    if (latest.jsFunctionsComplete && !ranFunctions) {
      ranFunctions = true;
      sandbox.order("run", { code: asText(latest.jsFunctions) });
    }
    const expressions = (Array.isArray(latest.jsExpressions) ? latest.jsExpressions : []).slice(0, MOST_EXPRESSIONS);
    for (; ran < expressions.length; ran++) sandbox.order("run", { code: asText(expressions[ran]) });
  };

  return { node, update({ content }) {
    latest = content ?? {};
    const isWritten = latest.generating === false, messages = Array.isArray(latest.placeholderMessages) ? latest.placeholderMessages : [];
    words.textContent = isWritten ? "" : `${asText(messages.at(-1) ?? "A page is being written").slice(0, 300)} …`;
    words.hidden = isWritten;
    node.classList.toggle("busy", !isWritten);
    if (!isSized) sandbox.resize(latest.initialHeight ?? 200);
    isSized ||= latest.initialHeight !== undefined;
    sandbox.frame.hidden = !(latest.cssComplete || latest.htmlComplete || isWritten) || !html();
    if (latest.htmlComplete && (latest.cssComplete || isWritten)) finish();
    else if (html()) timer ||= setTimeout(preview, PREVIEW_EVERY);
    if (isWritten && !measured) {
      measured = true;
      if (!latest.htmlComplete && html()) preview();
      sandbox.order("measure");
    }
  } };
}

/* Appends the style to the page's head. */
function wholePage(html, css) {
  const style = `<style>${css.replace(/<\/style/gi, "<\\/style")}</style>`;
  const end = html.search(/<\/head>/i);
  const page = end < 0 ? `<head>${style}</head>${html}` : html.slice(0, end) + style + html.slice(end);
  return /^\s*<!doctype/i.test(page) ? page : `<!doctype html>${page}`;
}

/* MCP Apps: a page of an MCP server in a frame, whose requests go through this page. */

const APP_PROTOCOL = "2026-01-26";
const APP_MIME = "text/html";
const MOST_PAGE = 4_000_000;     // characters of the page of an app
const MOST_PENDING = 8;          // requests of one app at the same time
const MOST_WORDS = 4_000;        // characters of a message that an app sends
const MOST_REFUSALS = 3;         // by the user, after which the app may not ask again

/* Shows an app, and answers its requests. */
class AppHost {
  node = element("section", "", "frame app");
  #status = element("div", "", "note");
  #pending = 0;
  #refusals = 0;

  constructor({ content }) {
    this.content = content ?? {};
    this.agent = agent;
    this.threadId = threadId;
    this.#status.role = "status";
    this.node.ariaLabel = "App";
    this.node.append(this.#status);
    this.#say(`The app ${asText(this.content.resourceUri)} is loading …`);
    this.#load().catch((error) => this.#say(`The app could not be shown. ${error.message}`));
  }

  #say(words) {
    this.#status.textContent = words.slice(0, 500);
    this.#status.hidden = !words;
  }

  async #load() {
    const { contents } = await this.proxy("resources/read", { uri: asText(this.content.resourceUri) });
    const [page] = Array.isArray(contents) ? contents : [];
    const html = typeof page?.text === "string" ? page.text : typeof page?.blob === "string" ? textOfBlob(page.blob) : "";
    if (!html || !asText(page.mimeType || APP_MIME).startsWith(APP_MIME)) throw new Error("Its resource is not a page.");
    if (html.length > MOST_PAGE) throw new Error(`It has more than ${MOST_PAGE.toLocaleString("en")} characters.`);
    this.reach = page._meta?.ui?.csp ?? {};
    this.sandbox = new Sandbox(`App of ${asText(this.content.serverId) || "an MCP server"}`, {
      allow: "allow-scripts allow-forms", reach: this.reach, receive: (message) => this.#receive(message),
    });
    this.sandbox.changeTheme = () => this.#send({ method: "ui/notifications/host-context-changed", params: { theme: themeOfPage() } });
    this.sandbox.resize(240);
    this.sandbox.order("replace", { html });
    this.#say("");
    this.node.append(this.sandbox.frame);
  }

  /* Forwards a request to the app's server through ours, which authorizes it. */
  async proxy(method, params) {
    const { serverHash, serverId } = this.content;
    const body = {
      threadId: this.threadId, runId: newId(), messages: [], state: {}, tools: [], context: [],
      forwardedProps: { __proxiedMCPRequest: { serverHash, ...(serverId !== undefined && { serverId }), method, params } },
    };
    let result;
    for await (const found of events(`/agent/${encodeURIComponent(this.agent)}/run`, body, new AbortController().signal)) {
      for (const event of found) {
        if (event.type === "RUN_ERROR") throw new Error(event.message);
        if (event.type === "RUN_FINISHED") result = event.result;
      }
    }
    if (result?.error !== undefined && !Array.isArray(result.content)) throw new Error(asText(result.error));
    return result ?? {};
  }

  /* JSON-RPC: requests are answered, notifications are handled, and other messages are ignored. */
  async #receive(message) {
    if (message?.jsonrpc !== "2.0" || typeof message.method !== "string") return;
    const isRequest = ["string", "number"].includes(typeof message.id);
    if (!isRequest) return this.#notice(message.method, message.params ?? {});
    if (this.#pending >= MOST_PENDING) return this.#send({ id: message.id, error: { code: -32000, message: "Too many requests at once." } });
    this.#pending++;
    try {
      if (!Object.hasOwn(AppHost.REQUESTS, message.method)) throw Object.assign(new Error("This host has no such method."), { code: -32601 });
      const result = await AppHost.REQUESTS[message.method].call(this, message.params ?? {});
      this.#send({ id: message.id, result });
    } catch (error) {
      this.#send({ id: message.id, error: { code: error.code ?? -32000, message: error.message } });
    } finally {
      this.#pending--;
    }
  }

  #send(message) { this.sandbox.send({ jsonrpc: "2.0", ...message }); }

  #notice(method, params) {
    if (method === "ui/notifications/size-changed") this.sandbox.resize(params.height);
    if (method !== "ui/notifications/initialized") return;
    this.#send({ method: "ui/notifications/tool-input", params: { arguments: this.content.toolInput ?? {} } });
    if (this.content.result) this.#send({ method: "ui/notifications/tool-result", params: this.content.result });
  }

  async ask(title, words, yes) {
    if (this.#refusals >= MOST_REFUSALS) return false;
    const allows = await askConsent(title, words, yes);
    this.#refusals = allows ? 0 : this.#refusals + 1;
    return allows;
  }

  static REQUESTS = {
    "ping": () => ({}),
    "ui/initialize"() {
      return {
        protocolVersion: APP_PROTOCOL,
        hostInfo: { name: "copilot-runtime console", version: "1" },
        hostCapabilities: { openLinks: {}, serverTools: {}, serverResources: {}, logging: {}, message: { text: {} }, sandbox: { csp: this.reach } },
        hostContext: {
          theme: themeOfPage(), displayMode: "inline", availableDisplayModes: ["inline"], platform: "web",
          containerDimensions: { width: this.node.clientWidth, maxHeight: TALLEST }, locale: navigator.language,
          timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
        },
      };
    },
    "tools/call"({ name, arguments: values }) { return this.proxy("tools/call", { name: asText(name), arguments: values ?? {} }); },
    "resources/read"({ uri }) { return this.proxy("resources/read", { uri: asText(uri) }); },
    "ui/request-display-mode": () => ({ mode: "inline" }),
    async "ui/open-link"({ url }) {
      const address = webAddress(url);
      if (!address || !(await this.ask("Open a page?", `The app wants to open ${address.slice(0, 2000)}`, "Open it"))) return { isError: true };
      openUrl(address);
      return {};
    },
    async "ui/message"({ content }) {
      const parts = Array.isArray(content) ? content : [content];
      const words = parts.filter((part) => part?.type === "text").map((part) => asText(part.text)).join("\n").slice(0, MOST_WORDS);
      if (!words || reading || threadId !== this.threadId) return { isError: true };
      if (!(await this.ask("Send a message?", `The app wants to say in your name: “${words}”`, "Send it")) || reading) return { isError: true };
      send(words);
      return {};
    },
  };
}

function textOfBlob(blob) {
  return new TextDecoder().decode(Uint8Array.from(atob(blob), (char) => char.charCodeAt(0)));
}

function appView(item) {
  return { node: new AppHost(item).node, update() {} };
}
