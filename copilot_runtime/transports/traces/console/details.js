/* One span: its attributes, what was written, its events. Nothing of it is markup. */

const MESSAGES = new Set(["gen_ai.input.messages", "gen_ai.output.messages"]);

function showSpan(span) {
  $("span").hidden = false;
  $("span-title").textContent = span.name;
  const parts = [];
  if (hasFailed(span)) parts.push(element("p", [attributeOf(span, NAME.error), span.status.message].filter(Boolean).join(": "), "error"));
  parts.push(table([
    ["began", new Date(startOf(span)).toISOString()],
    ["took", isOpen(span) ? "goes on" : formatTime(endOf(span) - startOf(span))],
    ["span", span.span_id],
    ["parent", span.parent_span_id],
    ["from", Object.entries(span.resource?.attributes ?? {}).map(([name, value]) => `${name}=${value}`).join(", ")],
    ["scope", span.scope?.name],
  ]));
  for (const [name, value] of Object.entries(span.content ?? {})) {
    parts.push(element("h4", name));
    parts.push(...(MESSAGES.has(name) ? drawMessages(value) : [element("pre", readable(value))]));
  }
  parts.push(element("h4", "Attributes"), table(Object.entries(span.attributes ?? {}).sort()));
  if (span.events?.length) {
    parts.push(element("h4", "Events"));
    for (const event of span.events) {
      const after = formatTime(event.time_unix_nano / 1e6 - startOf(span));
      parts.push(element("p", `${event.name} after ${after}`, "note"), table(Object.entries(event.attributes ?? {})));
    }
  }
  $("span-content").replaceChildren(...parts);
  $("span").scrollTop = 0;
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
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  if (!/^\s*[[{]/.test(value)) return value;
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}

function drawMessages(value) {
  const messages = typeof value === "string" ? JSON.parse(value) : value;
  if (!Array.isArray(messages)) return [element("pre", readable(value))];
  return messages.map((message) => {
    const box = element("div", "", `message ${["user", "assistant", "tool"].includes(message.role) ? message.role : ""}`);
    box.append(element("b", [message.role, message.finish_reason].filter(Boolean).join(" · ")));
    for (const part of message.parts ?? []) box.append(drawPart(part));
    return box;
  });
}

function drawPart(part) {
  switch (part.type) {
    case "text":
    case "reasoning":
      return element("pre", part.content ?? "");
    case "tool_call":
      return element("pre", `${part.name}(${readable(part.arguments ?? {})})`);
    case "tool_call_response":
      return element("pre", readable(part.response ?? part.result ?? ""));
    default:
      return element("pre", readable(part));
  }
}
