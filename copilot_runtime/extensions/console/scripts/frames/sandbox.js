/* Frames for pages that somebody else has written: without an origin, under a policy of their own. */

const MOST_MESSAGE = 1_000_000;   // characters of one message out of a frame
const MOST_RELOADS = 5;           // how often a page in a frame may load itself anew
const TALLEST = 900;
const sandboxes = new Set();

const hasSandbox = () => $("items").dataset.sandbox !== "";

/* `reach` has the origins that the page may load from, as an MCP app declares them; `receive` gets its messages. */
class Sandbox {
  frame = element("iframe");
  #address;
  #orders = [];         // what makes the page, given again when it loads itself anew
  #loads = 0;
  #key = "";            // of the document in the frame: it takes orders with this key alone

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

  /* Gives an order of sandbox.html; those that have to be there again after a load are kept. */
  order(type, more = {}, { keep = true } = {}) {
    const order = { type: `sandbox/${type}`, ...more };
    if (keep) this.#orders = [...(["preview", "replace"].includes(type) ? [] : this.#orders), order];
    if (this.#key) this.send({ ...order, key: this.#key });
  }

  /* The target has no origin that could be named; it is this frame, which shows nothing but this server's sandbox. */
  send(message) { this.frame.contentWindow?.postMessage(message, "*"); }

  resize(height) {
    if (Number.isFinite(height)) this.frame.style.height = `${Math.min(Math.max(Math.ceil(height), 40), TALLEST)}px`;
  }

  /* A page may load the sandbox anew, and with a wider policy: then it is sent back, and gets nothing there. */
  #fill({ key, search }) {
    if (this.#loads++ >= MOST_RELOADS) return;
    if (search !== this.#address.search) {
      this.frame.src = this.#address.href;
      return;
    }
    this.#key = asText(key);
    for (const order of this.#orders) this.send({ ...order, key: this.#key });
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
    if (contentWindow === null && each.wasShown) sandboxes.delete(each);  // its conversation is no longer on the page
    if (source === null || source !== contentWindow || isLarge(data)) continue;
    each.take(data);
  }
});

function isLarge(data) {
  try { return (JSON.stringify(data) ?? "").length > MOST_MESSAGE; } catch { return true; }
}

/* Asks the person whether a page in a frame may do something. One question at a time. */
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
