/* Spans: their kind, duration and tree. */

const NAME = {
  operation: "gen_ai.operation.name",
  agent: "gen_ai.agent.name",
  tool: "gen_ai.tool.name",
  model: "gen_ai.request.model",
  input: "gen_ai.usage.input_tokens",
  output: "gen_ai.usage.output_tokens",
  estimated: "copilot.usage.estimated",
  dollars: "copilot.cost.usd",
  error: "error.type",
  outcome: "copilot.run.outcome",
  overrides: "copilot.run.overrides",
  rating: "copilot.feedback.rating",
  thread: "gen_ai.conversation.id",
  run: "copilot.run.id",
};
const MODEL_OPERATIONS = new Set(["chat", "text_completion", "generate_content"]);

const attributeOf = (span, name) => span.attributes?.[name];
const isOpen = (span) => span.is_open === true;  // its start was received, but not its end
const hasFailed = (span) => span.status?.code === 2;
const startOf = (span) => span.start_time_unix_nano / 1e6;
const endOf = (span) => Math.max(startOf(span), isOpen(span) ? Date.now() : span.end_time_unix_nano / 1e6);
const lengthOf = (span) => endOf(span) - startOf(span);

/* Some programs write numbers as strings. */
function numberOf(span, name) {
  const value = attributeOf(span, name);
  const number = typeof value === "string" && value.trim() ? Number(value) : value;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
}

function kindOf(span) {
  const operation = attributeOf(span, NAME.operation);
  if (operation === "invoke_agent") return "agent";
  if (MODEL_OPERATIONS.has(operation)) return "model";
  return operation === "execute_tool" ? "tool" : "other";
}

/* Returns the spans in tree order, each with its depth and number of descendants. */
function arrange(spans) {
  const known = new Set(spans.map((span) => span.span_id));
  const below = new Map();
  const sorted = [...spans].sort((a, b) => a.start_time_unix_nano - b.start_time_unix_nano);
  for (const span of sorted) {
    const parent = known.has(span.parent_span_id) && span.parent_span_id !== span.span_id ? span.parent_span_id : "";
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(span);
  }
  const nodes = [];
  const visited = new Set();
  const walk = (root) => {
    const stack = [{ span: root, depth: 0, parent: -1 }];
    while (stack.length) {
      const { span, depth, parent } = stack.pop();
      if (visited.has(span.span_id)) continue;
      visited.add(span.span_id);
      const index = nodes.push({ span, depth, parent, children: 0 }) - 1;
      const children = below.get(span.span_id) ?? [];
      nodes[index].children = children.length;
      for (let at = children.length - 1; at >= 0; at -= 1) stack.push({ span: children[at], depth: depth + 1, parent: index });
    }
  };
  for (const root of below.get("") ?? []) walk(root);
  for (const span of sorted) walk(span); // spans in cycles
  return nodes;
}

/* Sums the tokens and dollars of model requests; those of agents are already sums of these. */
function sumUp(spans) {
  const sums = { input: 0, output: 0, dollars: 0, unpriced: 0, estimated: 0, models: 0, tools: 0, errors: 0 };
  for (const span of spans) {
    const kind = kindOf(span);
    if (hasFailed(span)) sums.errors += 1;
    if (kind === "tool") sums.tools += 1;
    if (kind !== "model") continue;
    sums.models += 1;
    const input = numberOf(span, NAME.input) ?? 0, output = numberOf(span, NAME.output) ?? 0, dollars = numberOf(span, NAME.dollars);
    sums.input += input;
    sums.output += output;
    sums.dollars += dollars ?? 0;
    if (dollars === undefined && (input + output || !attributeOf(span, NAME.error))) sums.unpriced += 1;
    if (attributeOf(span, NAME.estimated)) sums.estimated += 1;
  }
  return sums;
}
