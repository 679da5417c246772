/* Pictures, videos and sounds of elsewhere. Whoever wrote the address is a model, which may have put words of the
conversation into it: nothing is loaded before a person says so, and then in a frame that reaches that one place. */

function outsideMedia(tag, address, description, height = { video: 320, audio: 60 }[tag]) {
  const kind = { img: "image", video: "video", audio: "sound" }[tag], url = webAddress(address);
  if (!url) return element("span", "a2ui-unknown", description || (address ? `The ${kind} has an address that this page does not open.` : `No ${kind}`));
  const { host, origin } = new URL(url), node = element("div", "a2ui-outside");
  if (!hasSandbox()) return link(description || `The ${kind} at ${host}`, url);
  if (description) node.append(element("span", "", description));
  node.append(button(`Load the ${kind} from ${host}`, () => {
    const media = element(tag), sandbox = new Sandbox(description || kind, { reach: { resourceDomains: [origin] } });
    const sheet = element("style", "", "body { margin: 0 } img, video, audio { display: block; max-width: 100%; max-height: 100vh }");
    media.src = url;
    if (tag === "img") media.alt = description;
    else media.controls = true;
    sandbox.order("replace", { html: `<!doctype html>${sheet.outerHTML}${media.outerHTML}` });
    sandbox.resize(height);
    node.replaceChildren(sandbox.frame);
  }));
  return node;
}
