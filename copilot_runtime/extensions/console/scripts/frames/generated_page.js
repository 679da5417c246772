/* Open Generative UI: a page that a model writes, shown while it is written. */

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
  const node = element("section", "frame generated"), words = element("div", "note"), problems = element("div", "note problems");
  const sandbox = new Sandbox("A page that the model has written", { receive: ({ type, message } = {}) => {
    if (type === "sandbox/problem" && problems.children.length < MOST_PROBLEMS) problems.append(element("p", "", `In the page: ${asText(message).slice(0, 300)}`));
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

/* Puts the style into the head, behind what the page itself has there. */
function wholePage(html, css) {
  const style = `<style>${css.replace(/<\/style/gi, "<\\/style")}</style>`;
  const end = html.search(/<\/head>/i);
  const page = end < 0 ? `<head>${style}</head>${html}` : html.slice(0, end) + style + html.slice(end);
  return /^\s*<!doctype/i.test(page) ? page : `<!doctype html>${page}`;
}
