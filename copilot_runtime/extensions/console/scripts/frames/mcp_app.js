/* MCP Apps: the page of an MCP server in a frame, which asks by way of this page. */

const APP_PROTOCOL = "2026-01-26";
const APP_MIME = "text/html";
const MOST_PAGE = 4_000_000;     // characters of the page of an app
const MOST_PENDING = 8;          // requests of one app at the same time
const MOST_WORDS = 4_000;        // characters of a message that an app wants to send
const MOST_REFUSALS = 3;         // of a person; then the app may no longer ask

/* Answers the requests of one app, and shows it. */
class AppHost {
  node = element("section", "frame app");
  #status = element("div", "note");
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

  /* Asks the app's own server, by way of ours, which decides what an app may ask. */
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

  /* JSON-RPC: requests are answered, notifications are not, and anything else is left alone. */
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

const themeOfPage = () => root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

function appView(item) {
  return { node: new AppHost(item).node, update() {} };
}
