// A model that answers by rule, behind OpenAI's three addresses: /chat/completions, /responses (which the Node
// runtime's BuiltInAgent asks) and /audio/transcriptions.
//
//   PORT=4110 node mock-llm.mjs       PORT=0 takes a free port; the address is printed
//
// GET /__log → every body asked so far; DELETE forgets.
import http from "node:http";

const log = [];
let count = 0;

const textOf = (content) =>
  typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");

/** What to answer to a conversation: {text} or {name, args} of a call or {failure}. */
function decide(turns, tools) {
  const { text = "", result } = turns.at(-1) ?? {};
  if (result !== undefined) return { text: `Tool said: ${result}` };
  if (tools.includes("copilotkitSuggest")) {
    const suggestions = [
      { title: "Ask weather", message: "What is the weather?" },
      { title: "Say hi", message: "Hi!" },
    ];
    return { name: "copilotkitSuggest", args: { suggestions } };
  }
  const asked = /call (\w+) with (\{.*\})/s.exec(text);
  if (asked && tools.includes(asked[1])) return { name: asked[1], args: JSON.parse(asked[2]) };
  if (text.includes("set state") && tools.includes("AGUISendStateSnapshot"))
    return { name: "AGUISendStateSnapshot", args: { snapshot: { counter: 7 } } };
  if (text.includes("boom")) return { failure: "mock LLM exploded" };
  return { text: `Echo: ${text}` };
}

const words = (text) => text.match(/\S+\s*|\s+/g) ?? [];
const halves = (text) => {
  const half = Math.ceil(text.length / 2);
  return [text.slice(0, half), text.slice(half)].filter(Boolean);
};

/** /chat/completions: the chunks of a streamed answer, or with `whole` the one object. */
function chat(body, send, whole) {
  const turns = body.messages.map(({ role, content }) =>
    role === "tool" ? { result: textOf(content) } : { text: textOf(content) });
  const answer = decide(turns, (body.tools ?? []).map((tool) => tool.function.name));
  if (answer.failure) return answer;
  const base = { id: `chatcmpl-${++count}`, created: 1, model: body.model };
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  const id = `call_${count}`;
  const finish_reason = answer.name ? "tool_calls" : "stop";
  const named = (args) => ({ id, type: "function", function: { name: answer.name, arguments: args } });
  if (!body.stream) {
    const calls = answer.name && { tool_calls: [named(JSON.stringify(answer.args))] };
    const message = { role: "assistant", content: answer.text ?? null, ...calls };
    const choices = [{ index: 0, finish_reason, message }];
    return whole({ ...base, object: "chat.completion", choices, usage });
  }
  const chunk = (delta, reason = null) => {
    const choices = [{ index: 0, delta, finish_reason: reason }];
    send({ ...base, object: "chat.completion.chunk", choices });
  };
  chunk({ role: "assistant", content: answer.name ? null : "" });
  if (answer.name) {
    chunk({ tool_calls: [{ index: 0, ...named("") }] });
    for (const part of halves(JSON.stringify(answer.args)))
      chunk({ tool_calls: [{ index: 0, function: { arguments: part } }] });
  } else for (const content of words(answer.text)) chunk({ content });
  chunk({}, finish_reason);
  send({ ...base, object: "chat.completion.chunk", choices: [], usage });
  send("[DONE]");
}

/** /responses: the events of a streamed answer, or with `whole` the one object. */
function responses(body, send, whole) {
  const input = typeof body.input === "string" ? [{ content: body.input }] : body.input;
  const turns = input
    .filter((item) => item.role || item.type === "function_call_output" || input.length === 1)
    .map((item) => (item.type === "function_call_output" ? { result: textOf(item.output) } : { text: textOf(item.content) }));
  const answer = decide(turns, (body.tools ?? []).map((tool) => tool.name));
  if (answer.failure) return answer;
  const response = { id: `resp_${++count}`, object: "response", created_at: 1, model: body.model, status: "in_progress", output: [] };
  const id = `${answer.name ? "fc" : "msg"}_${count}`;
  const args = JSON.stringify(answer.args);
  const text = { type: "output_text", text: answer.text, annotations: [] };
  const item = answer.name
    ? { id, type: "function_call", status: "completed", call_id: `call_${count}`, name: answer.name, arguments: args }
    : { id, type: "message", status: "completed", role: "assistant", content: [text] };
  const usage = {
    input_tokens: 1,
    output_tokens: 1,
    total_tokens: 2,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens_details: { reasoning_tokens: 0 },
  };
  const completed = { ...response, status: "completed", output: [item], usage };
  if (!body.stream) return whole(completed);
  let sequence_number = 0;
  const event = (type, rest) => send({ type, sequence_number: sequence_number++, ...rest }, type);
  const where = { item_id: id, output_index: 0 };
  event("response.created", { response });
  if (answer.name) {
    event("response.output_item.added", { output_index: 0, item: { ...item, status: "in_progress", arguments: "" } });
    for (const delta of halves(args)) event("response.function_call_arguments.delta", { ...where, delta });
    event("response.function_call_arguments.done", { ...where, arguments: args });
  } else {
    const part = { ...where, content_index: 0 };
    event("response.output_item.added", { output_index: 0, item: { ...item, status: "in_progress", content: [] } });
    event("response.content_part.added", { ...part, part: { ...text, text: "" } });
    for (const delta of words(answer.text)) event("response.output_text.delta", { ...part, delta });
    event("response.output_text.done", { ...part, text: answer.text });
  }
  event("response.output_item.done", { output_index: 0, item });
  event("response.completed", { response: completed });
}

const server = http.createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const whole = (value, status = 200) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(value));
  };
  const send = (value, name) => {
    if (!response.headersSent) response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
    const data = typeof value === "string" ? value : JSON.stringify(value);
    response.write(`${name ? `event: ${name}\n` : ""}data: ${data}\n\n`);
  };
  const { url } = request;
  if (url === "/__log") return whole(request.method === "DELETE" ? log.splice(0) : log);
  if (url.endsWith("/audio/transcriptions")) return whole({ text: "hello from mock whisper" });
  const answering = url.endsWith("/chat/completions") ? chat : url.endsWith("/responses") ? responses : null;
  if (!answering) return whole({ error: { message: "not found" } }, 404);
  const body = JSON.parse(Buffer.concat(parts).toString());
  log.push({ url, body });
  const answer = answering(body, send, whole);
  if (answer?.failure) return whole({ error: { message: answer.failure, type: "server_error" } }, 500);
  response.end();
});
server.listen(Number(process.env.PORT ?? 4110), "127.0.0.1", () => {
  console.log(`mock-llm on http://localhost:${server.address().port}`);
});
