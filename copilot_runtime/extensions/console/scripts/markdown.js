/* Markdown of models as nodes: parsed by markdown-it, cleaned by DOMPurify, coloured by highlight.js. */

const MOST_ELEMENTS = 2_000;   // of an answer, since it is elements that cost; a button draws more
const PER_ELEMENT = 40;        // characters of text that cost as much as an element
const PIECE = 3_000;           // characters that are parsed at once, and more for a longer block,
const MOST_PIECE = 24_000;     // which is cut after so many characters,
const MOST_TOKENS = 2_000;     // or so many parts
const MOST_INLINE = 8_000;     // characters of a paragraph with markup; a longer one is plain text
const MOST_COLOURED = 20_000;  // characters of code in colours
const MOST_TEX = 1_000;        // characters of a formula

const parser = markdownit({ linkify: true, breaks: true, maxNesting: 20 });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
parser.validateLink = (url) => /^(https?:|mailto:|\/(?!\/)|data:image\/(png|jpeg|gif|webp);base64,)/i.test(url);
parser.core.ruler.before("inline", "limits", ({ tokens }) => {
  for (const token of tokens) {
    if (token.type === "inline" && token.content.length > MOST_INLINE) token.type = "text";
    if (/^h[1-6]$/.test(token.tag)) token.tag = `h${Math.min(Number(token.tag[1]) + 2, 6)}`;  // h1 and h2 are the page's
    const aligned = token.attrGet("style")?.replace("text-align:", "");  // of a cell: the policy forbids the attribute
    if (aligned) token.attrs = [["class", aligned]];
  }
});

/* TeX is shown as it was written, as code: a library for it would be as large as all others, and Markdown would
take its backslashes. A price is none: a formula has one of the characters that TeX needs. */
const TEX = [/^\$\$([^$]+)\$\$/, /^\\\[(.+?)\\\]/s, /^\\\((.+?)\\\)/s, /^\$(?!\s)([^$\n]+)(?<!\s)\$(?!\w)/];
parser.inline.ruler.before("escape", "tex", (state, isSilent) => {
  if (!"$\\".includes(state.src[state.pos])) return false;
  const rest = state.src.slice(state.pos, state.pos + MOST_TEX);
  const found = TEX.map((form) => form.exec(rest)).find((match) => match && /[\\^_=]/.test(match[1]));
  if (!found) return false;
  if (!isSilent) state.push("code_inline", "code", 0).content = found[1].trim();
  state.pos += found[0].length;
  return true;
});

const CLEAN = {
  RETURN_DOM_FRAGMENT: true,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_TAGS: ["p", "br", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "strong", "em", "s", "a", "img", "hr",
    "table", "thead", "tbody", "tr", "th", "td", "span", "#text"],
  ALLOWED_ATTR: ["href", "src", "alt", "title", "start", "class"],
};

/* The node of a picture that is not in the answer itself; the chat asks before it loads one. */
let drawPicture = (url, words) => link(words || url, url);

/* A link that opens in a new tab. As a model wrote it, only web URLs and pages of this server are linked. */
function link(words, url) {
  return Object.assign(document.createElement("a"), { textContent: words, href: url, target: "_blank", rel: "noreferrer noopener" });
}

/* A source of an answer: a link, unless its address could run as a program. */
const sourceOf = (words, url) => (url && parser.validateLink(url) ? link(words, parser.normalizeLink(url)) : words);

/* Returns the nodes of tokens of the parser. */
function nodesOf(tokens, env) {
  const made = DOMPurify.sanitize(parser.renderer.render(tokens, parser.options, env), CLEAN);
  for (const each of made.querySelectorAll("a")) each.replaceWith(/^data:/i.test(each.href) ? each.textContent : Object.assign(each, { target: "_blank", rel: "noreferrer noopener" }));
  for (const each of made.querySelectorAll("img")) if (!each.src.startsWith("data:")) each.replaceWith(drawPicture(each.getAttribute("src") ?? "", each.alt));
  for (const each of made.querySelectorAll("li")) drawCheckbox(each);
  for (const each of made.querySelectorAll("table")) wrap(each, "scroll");
  for (const each of made.querySelectorAll("pre")) drawCode(each, /\blanguage-(\S+)/.exec(each.firstElementChild?.className ?? "")?.[1] ?? "");
  for (const each of [...made.childNodes]) if (/^\n+$/.test(each.data)) each.remove();  // between blocks
  return made;
}

/* Return the nodes of a short text, and of one line. */
const markdown = (words) => nodesOf(parser.parse(words.slice(0, MOST_PIECE), {}), {});
const inlineMarkdown = (words) => nodesOf(parser.parseInline(words.slice(0, MOST_INLINE), {}), {});

function wrap(node, className) {
  const box = Object.assign(document.createElement("div"), { className });
  node.replaceWith(box);
  box.append(node);
  if (className === "scroll") box.tabIndex = 0;
  return box;
}

/* An item of a task list begins with a box. */
function drawCheckbox(item) {
  const first = (item.firstElementChild?.localName === "p" ? item.firstElementChild : item).firstChild;
  const found = first?.nodeType === Node.TEXT_NODE && /^\s*\[([ x])\]\s/i.exec(first.data);
  if (!found) return;
  first.data = first.data.slice(found[0].length);
  const box = Object.assign(document.createElement("input"), { type: "checkbox", disabled: true, checked: found[1] !== " ", ariaLabel: found[1] === " " ? "Open" : "Done" });
  item.classList.add("task");
  first.before(box);
}

/* Code in colours, with its language and a button that copies it. */
function drawCode(pre, language) {
  const box = wrap(pre, "code"), head = Object.assign(document.createElement("div"), { className: "code-head" });
  const words = pre.textContent, copy = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy", className: "plain" });
  copy.onclick = () => copyText(words, copy);
  head.append(Object.assign(document.createElement("span"), { textContent: language.slice(0, 30) || "text" }), copy);
  box.prepend(head);
  pre.tabIndex = 0;
  if (words.length <= MOST_COLOURED && hljs.getLanguage(language))
    pre.firstElementChild.replaceChildren(DOMPurify.sanitize(hljs.highlight(words, { language }).value, CLEAN));
  return box;
}

/* Code of this page, such as the SQL of an answer. */
function codeOf(words, language) {
  const pre = document.createElement("pre");
  pre.append(Object.assign(document.createElement("code"), { textContent: words }));
  const box = document.createElement("div");
  box.append(pre);
  return drawCode(pre, language);
}

/* Draws a growing text into a box, a piece at a time. Finished blocks stay; only the last one is drawn anew,
and after one that took long, the page has time for other work. */
class MarkdownView {
  #source = "";
  #isOpen = false;
  #done = 0;      // characters of finished blocks
  #left = MOST_ELEMENTS;
  #tail = [];     // the nodes of the block that may still grow
  #env = {};
  #timer = 0;

  constructor(box) { this.box = box; }

  update(source, isOpen = false) {
    const text = source.includes("\r") ? source.replace(/\r\n?/g, "\n") : source;
    if (text === this.#source && isOpen === this.#isOpen) return;
    if (!text.startsWith(this.#source)) this.#restart();
    this.#source = text;
    this.#isOpen = isOpen;
    if (!this.#timer) this.#work();
  }

  #restart() {
    this.#done = 0;
    this.#left = MOST_ELEMENTS;
    this.#env = {};
    this.#tail = [];
    this.box.replaceChildren();
  }

  #work() {
    const began = performance.now(), drawn = this.#source, wasOpen = this.#isOpen;
    const isLeft = this.#step(), took = performance.now() - began;
    if (!isLeft && took < 8) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      if (isLeft || drawn !== this.#source || wasOpen !== this.#isOpen) this.#work();
    }, Math.min(took * 4, 1000));
  }

  /* Draws the next piece, and returns whether there are more. */
  #step() {
    for (const node of this.#tail.splice(0)) node.remove();
    if (this.#left <= 0) return this.#offerRest();
    let isLast, piece, tokens, last;
    for (let size = PIECE; ; size *= 2) {
      const taken = this.#source.slice(this.#done, this.#done + size);
      isLast = this.#done + taken.length === this.#source.length;
      piece = isLast ? taken : taken.slice(0, taken.lastIndexOf("\n") + 1) || taken;
      tokens = parser.parse(piece, this.#env);
      last = isLast && !this.#isOpen ? -1 : tokens.findLastIndex((token) => token.level === 0 && token.nesting >= 0);
      if (isLast || last > 0 || size >= MOST_PIECE || tokens.length > MOST_TOKENS) break;
    }
    const isWhole = last < 0 || (!isLast && last === 0);
    const taken = isWhole ? piece.length : offsetOf(piece, tokens[last].map[0]);
    this.#left -= this.#append(isWhole ? tokens : tokens.slice(0, last)).count + taken / PER_ELEMENT;
    this.#done += taken;
    if (isLast && !isWhole) this.#tail = this.#append(tokens.slice(last)).nodes;
    return !isLast;
  }

  #append(tokens) {
    const made = nodesOf(tokens, this.#env), nodes = [...made.childNodes], count = made.querySelectorAll("*").length;
    this.box.append(made);
    return { nodes, count };
  }

  #offerRest() {
    const left = this.#source.length - this.#done;
    if (!left) return false;
    const more = Object.assign(document.createElement("button"), { type: "button", textContent: `Show more: ${left.toLocaleString("en")} characters are left` });
    more.onclick = () => { this.#left = MOST_ELEMENTS; if (!this.#timer) this.#work(); };
    this.#tail = [more];
    this.box.append(more);
    return false;
  }
}

/* Returns the offset of a line, counted from 0. */
function offsetOf(text, line) {
  let at = 0;
  for (; line > 0; line--) at = text.indexOf("\n", at) + 1;
  return at;
}
