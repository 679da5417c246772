/* One span: its attributes, content and events, all as plain text. */

/* Long content that is the same in all requests of an agent. */
const LONG = new Set(["gen_ai.tool.definitions", "gen_ai.system_instructions"]);
const TITLES = {
  "gen_ai.system_instructions": "Instructions",
  "gen_ai.tool.definitions": "Tools",
  "gen_ai.input.messages": "Input",
  "gen_ai.output.messages": "Output",
  "gen_ai.retrieval.query.text": "Query",
  "gen_ai.retrieval.documents": "Documents",
  "gen_ai.tool.call.arguments": "Arguments",
  "gen_ai.tool.call.result": "Result",
};
const MESSAGES = new Set(["gen_ai.input.messages", "gen_ai.output.messages"]);
const DOCUMENTS = "gen_ai.retrieval.documents";

function showSpan(span) {
  $("span").hidden = false;
  $("span-title").textContent = cut(span.name, 1000);
  const parts = [];
  if (hasFailed(span)) parts.push(element("p", [attributeOf(span, NAME.error), span.status.message].filter(Boolean).join(": "), "error"));
  parts.push(table([["took", describeLength(span)], ["began", formatExactTime(startOf(span))]]));
  for (const [name, value] of Object.entries(span.content ?? {})) {
    const drawn = MESSAGES.has(name) ? drawMessages(value) : name === DOCUMENTS ? drawDocuments(value) : [element("pre", readable(value))];
    const title = TITLES[name] ?? name;
    if (LONG.has(name)) parts.push(fold(title, ...drawn));
    else parts.push(element("h4", title), ...drawn);
  }
  parts.push(element("h4", "Attributes"), table(Object.entries(span.attributes ?? {}).sort()));
  if (span.events?.length) {
    parts.push(element("h4", "Events"));
    for (const event of span.events) {
      const after = formatTime(Math.max(0, event.time_unix_nano / 1e6 - startOf(span)));
      parts.push(element("p", `${event.name} after ${after}`, "note"), table(Object.entries(event.attributes ?? {})));
    }
  }
  parts.push(fold("Where it comes from", table([
    ["span", span.span_id],
    ["parent", span.parent_span_id],
    ["scope", span.scope?.name],
    ...Object.entries(span.resource?.attributes ?? {}),
  ])));
  $("span-content").replaceChildren(...parts);
  $("span").scrollTop = 0;
}

function fold(title, ...content) {
  const box = element("details");
  box.append(element("summary", title), ...content);
  return box;
}

function table(pairs) {
  const made = element("table");
  for (const [name, value] of pairs) {
    if (value == null || value === "") continue;
    const row = element("tr");
    row.append(element("td", name), element("td", readable(value)));
    made.append(row);
  }
  return made;
}

function readable(value) {
  const found = parsed(value);
  return typeof found === "string" ? found : JSON.stringify(found, null, 2);
}

/* Returns the value of a JSON text, or the text itself if it is not JSON. */
function parsed(value) {
  if (typeof value !== "string" || !/^\s*[[{]/.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

/* Draws messages. Other programs' formats, and truncated messages, are shown unchanged. */
function drawMessages(value) {
  const messages = parsed(value);
  if (!Array.isArray(messages) || !messages.every(isMessage)) return [element("pre", readable(value))];
  return messages.map((message) => {
    const box = element("div", "", `message ${["user", "assistant", "tool"].includes(message.role) ? message.role : ""}`);
    box.append(element("b", [message.role, message.finish_reason].filter(Boolean).join(" · ")), ...message.parts.map(drawPart));
    return box;
  });
}

/* Draws what a search found, with its scores. */
function drawDocuments(value) {
  const found = parsed(value);
  if (!Array.isArray(found) || !found.every((one) => isObject(one) && one.content)) return [element("pre", readable(value))];
  if (!found.length) return [element("p", "none", "note")];
  return found.map(({ title, id, score, content }) => {
    const box = element("div", "", "message");
    box.append(element("b", [title || id, typeof score === "number" && score.toFixed(3)].filter(Boolean).join(" · ")), element("pre", readable(content)));
    return box;
  });
}

const isObject = (value) => typeof value === "object" && value !== null;
const isMessage = (value) => isObject(value) && Array.isArray(value.parts) && value.parts.every(isObject);

function describeLength(span) {
  if (isOpen(span)) return "goes on";
  return span.end_time_unix_nano ? formatTime(lengthOf(span)) : "its end is not known";
}

function formatExactTime(milliseconds) {
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? String(milliseconds) : `${date.toLocaleDateString([], { dateStyle: "medium" })}, ${date.toLocaleTimeString([], { hour: "numeric", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 })}`;
}

function drawPart(part) {
  switch (part.type) {
    case "text":
    case "reasoning":
      return element("pre", readable(part.content ?? ""));
    case "tool_call":
      return element("pre", `${part.name}(${readable(part.arguments ?? {})})`);
    case "tool_call_response":
      return element("pre", readable(part.response ?? part.result ?? ""));
    default:
      return element("pre", readable(part));
  }
}
