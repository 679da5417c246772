/* A subset of Markdown: paragraphs, lists, fences, bold, emphasis, code and links. */
const LINK = /^\[([^\]\n]+)\]\((https?:\/\/[^\s()]+|\/(?!\/)[^\s()]*)\)$/;

function markdown(source) {
  const blocks = [];
  source.split(/^```.*$/m).forEach((piece, i) => {
    if (i % 2) {
      const pre = element("pre");
      pre.append(element("code", "", piece.replace(/^\n|\n$/g, "")));
      return blocks.push(pre);
    }
    for (const paragraph of piece.split(/\n{2,}/)) if (paragraph.trim()) blocks.push(...lines(paragraph));
  });
  return blocks;
}

function lines(paragraph) {
  const blocks = [];
  for (const line of paragraph.trim().split("\n")) {
    const item = /^\s*(?:[-*]|(\d+)[.)])\s+(.*)$/.exec(line), tag = item ? (item[1] ? "ol" : "ul") : "p";
    let block = blocks.at(-1);
    if (block?.localName !== tag) blocks.push((block = element(tag)));
    else if (!item) block.append("\n");
    const into = item ? block.appendChild(element("li")) : block;
    const heading = /^#{1,6}\s+(.*)$/.exec(line);
    if (heading) into.append(element("strong", "", heading[1]));
    else inline(into, item ? item[2] : line);
  }
  return blocks;
}

function inline(into, source) {
  for (const piece of source.split(/(\\[!-/:-@[-`{-~]|\*\*[^*]+\*\*|`[^`]+`|\[[^\]\n]+\]\([^\s()]+\)|\*[^*\s][^*]*\*)/)) {
    const found = LINK.exec(piece);
    if (found) into.append(link(unescapeMarkdown(found[1]), found[2]));
    else if (/^\*\*.+\*\*$/.test(piece)) into.append(element("strong", "", unescapeMarkdown(piece.slice(2, -2))));
    else if (/^`.+`$/.test(piece)) into.append(element("code", "", piece.slice(1, -1)));
    else if (/^\*.+\*$/.test(piece)) into.append(element("em", "", unescapeMarkdown(piece.slice(1, -1))));
    else into.append(unescapeMarkdown(piece));
  }
}

/* A backslash escapes a markup character. */
const unescapeMarkdown = (source) => source.replace(/\\([!-/:-@[-`{-~])/g, "$1");

/* A link that opens in a new tab. As a model wrote it, only web URLs and pages of this server are linked. */
function link(words, url) {
  const made = element("a", "", words);
  made.href = url;
  made.target = "_blank";
  made.rel = "noreferrer noopener";
  return made;
}
