// Mock LLM server. OpenAI chat-completions (streaming and not) under /v1/chat/completions,
// Anthropic messages (streaming) under /v1/messages. The scenario is picked from the LAST user
// message: a marker like [[text]]. If a tool result follows that user message, the reply is the
// scenario's follow-up ("Tool said: <result>").
// GET /__requests -> every request body received so far; DELETE /__requests -> forget them.
// GET /__idle -> the same, once no request is open any more. PORT=0 takes a free port and prints it.
import http from "node:http";

const seen = [];
const waiting = []; // responses to /__idle
let open = 0;
const idle = () => { if (open === 0) for (const res of waiting.splice(0)) res.end(JSON.stringify(seen)); };
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

const T = (content) => ({ content });
const TC = (index, id, name, args) => ({
  tool_calls: [{ index, ...(id ? { id, type: "function" } : {}), function: { ...(name ? { name } : {}), arguments: args ?? "" } }],
});

export const SCRIPTS = {
  text: [T("Hello from the mock.")],
  chunks: [T("The"), T(" quick"), T(" brown"), T(" fox\n"), T("jumps — é 🙂"), T(" \"quoted\"."), ],
  tool: [TC(0, "call_color_1", "setColor", ""), TC(0, null, null, '{"col'), TC(0, null, null, 'or":"'), TC(0, null, null, "blue"), TC(0, null, null, '"}')],
  toolnoargs: [TC(0, "call_ping_1", "ping", ""), TC(0, null, null, "{}")],
  toolemptyargs: [TC(0, "call_ping_2", "ping", "")],
  servertool: [TC(0, "call_time_1", "getTime", ""), TC(0, null, null, '{"city":'), TC(0, null, null, '"Paris"}')],
  servertoolobj: [TC(0, "call_obj_1", "getObject", ""), TC(0, null, null, "{}")],
  servertoolthrow: [TC(0, "call_throw_1", "explode", ""), TC(0, null, null, '{"why":"test"}')],
  servertoolbadargs: [TC(0, "call_bad_1", "getTime", ""), TC(0, null, null, '{"city":')],
  remotetool: [TC(0, "call_remote_1", "remoteAdd", ""), TC(0, null, null, '{"a":2,"b":3}')],
  remotetoolfail: [TC(0, "call_remotefail_1", "remoteFail", ""), TC(0, null, null, '{}')],
  parallel: [
    TC(0, "call_par_1", "setColor", ""), TC(0, null, null, '{"color":'), TC(0, null, null, '"red"}'),
    TC(1, "call_par_2", "setSize", ""), TC(1, null, null, '{"size":'), TC(1, null, null, "42}"),
  ],
  parallelserver: [
    TC(0, "call_ps_1", "getTime", ""), TC(0, null, null, '{"city":"Oslo"}'),
    TC(1, "call_ps_2", "setColor", ""), TC(1, null, null, '{"color":"green"}'),
  ],
  texttool: [T("Sure,"), T(" doing it."), TC(0, "call_tt_1", "setColor", ""), TC(0, null, null, '{"color":'), TC(0, null, null, '"teal"}')],
  tooltext: [TC(0, "call_tx_1", "setColor", ""), TC(0, null, null, '{"color":"pink"}'), T("Done"), T(" and dusted.")],
  empty: [],
  texttooltext: [T("Before "), T("it. "), TC(0, "call_ttt_1", "setColor", ""), TC(0, null, null, '{"color":"ruby"}'), T("After"), T(" it.")],
  interleaved: [TC(0, "call_il_1", "setColor", ""), TC(1, "call_il_2", "setSize", ""), TC(0, null, null, '{"color":"cyan"}'), TC(1, null, null, '{"size":7}')],
  bothinone: [{ tool_calls: [TC(0, "call_bo_1", "setColor", '{"color":"navy"}').tool_calls[0], TC(1, "call_bo_2", "setSize", '{"size":9}').tool_calls[0]] }],
  servertoolnum: [TC(0, "call_num_1", "getNumber", ""), TC(0, null, null, "{}")],
  servertoolvoid: [TC(0, "call_void_1", "doNothing", ""), TC(0, null, null, "{}")],
  mcp: [TC(0, "call_mcp_1", "mcpEcho", ""), TC(0, null, null, '{"text":"hey"}')],
  unknowntool: [TC(0, "call_unk_1", "noSuchTool", ""), TC(0, null, null, '{"a":1}')],
  agenthandoff: [TC(0, "call_ag_1", "research_agent", ""), TC(0, null, null, "{}")],
  slow: Array.from({ length: 3000 }, (_, i) => T(`tick${i} `)), // ten minutes: whoever asks has to stop it
  disconnect: [T("Partial"), T(" answer"), "DESTROY"],
  disconnecttool: [TC(0, "call_dc_1", "setColor", ""), TC(0, null, null, '{"col'), "DESTROY"],
};
const ERRORS = {
  err400: [400, { message: "Bad request from mock.", type: "invalid_request_error", code: "bad_request", param: null }],
  err401: [401, { message: "Incorrect API key provided: mock.", type: "invalid_request_error", code: "invalid_api_key", param: null }],
  err404: [404, { message: "The model does not exist.", type: "invalid_request_error", code: "model_not_found", param: null }],
  err429: [429, { message: "Rate limit reached (mock).", type: "rate_limit_error", code: "rate_limit_exceeded", param: null }],
  err500: [500, { message: "The server had an error (mock).", type: "server_error", code: null, param: null }],
};

const textOf = (c) => (typeof c === "string" ? c : Array.isArray(c) ? c.map((p) => p.text ?? (typeof p.content === "string" ? p.content : "")).join("") : "");
function pick(messages) {
  let name = "text", at = -1;
  messages.forEach((m, i) => {
    const hit = m.role === "user" && /\[\[(\w+)\]\]/.exec(textOf(m.content));
    if (hit) { name = hit[1]; at = i; }
  });
  const after = messages.slice(at + 1);
  const results = after.flatMap((m) => m.role === "tool" ? [textOf(m.content)]
    : Array.isArray(m.content) ? m.content.filter((p) => p.type === "tool_result").map((p) => textOf(p.content)) : []);
  return { name, results };
}

async function readBody(req) { const b = []; for await (const c of req) b.push(c); return Buffer.concat(b).toString(); }

const server = http.createServer(async (req, res) => {
  try {
    if (req.url === "/__requests") {
      if (req.method === "DELETE") seen.length = 0;
      res.setHeader("content-type", "application/json");
      return res.end(JSON.stringify(seen));
    }
    if (req.url === "/__idle") {
      res.setHeader("content-type", "application/json");
      waiting.push(res);
      return idle();
    }
    open++;
    let entry;
    res.on("close", () => { if (entry && !res.writableFinished) entry.aborted = true; open--; idle(); });
    const raw = await readBody(req);
    let body = {}; try { body = JSON.parse(raw); } catch {}
    entry = { url: req.url, method: req.method, body, aborted: false };
    seen.push(entry);
    const { name, results } = pick(body.messages ?? []);
    const anthropic = req.url.includes("/messages");
    const followUp = results.length > 0;
    if (!followUp && ERRORS[name]) {
      const [status, error] = ERRORS[name];
      res.writeHead(status, { "content-type": "application/json", ...(status === 429 ? { "retry-after-ms": "5" } : {}) });
      return res.end(JSON.stringify(anthropic ? { type: "error", error: { type: error.type, message: error.message } } : { error }));
    }
    const script = followUp ? [T("Tool said: "), T(results.join(" | "))] : SCRIPTS[name] ?? SCRIPTS.text;
    const id = anthropic ? `msg_mock_${name}${followUp ? "_follow" : ""}` : `chatcmpl-mock-${name}${followUp ? "-follow" : ""}`;
    const delay = name === "slow" ? 200 : 8;
    res.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
    if (anthropic) {
      const ev = async (type, data) => { res.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`); await sleep(delay); };
      await ev("message_start", { message: { id, type: "message", role: "assistant", model: body.model, content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } } });
      let index = -1, open = null;
      const stop = async () => { if (open !== null) { await ev("content_block_stop", { index }); open = null; } };
      for (const step of script) {
        if (step === "DESTROY") return res.destroy();
        if (step.content !== undefined) {
          if (open !== "text") { await stop(); index++; open = "text"; await ev("content_block_start", { index, content_block: { type: "text", text: "" } }); }
          await ev("content_block_delta", { index, delta: { type: "text_delta", text: step.content } });
        } else {
          const tc = step.tool_calls[0];
          if (tc.id) { await stop(); index++; open = "tool"; await ev("content_block_start", { index, content_block: { type: "tool_use", id: tc.id, name: tc.function.name, input: {} } }); }
          else await ev("content_block_delta", { index, delta: { type: "input_json_delta", partial_json: tc.function.arguments } });
        }
      }
      await stop();
      await ev("message_delta", { delta: { stop_reason: "end_turn", stop_sequence: null }, usage: { output_tokens: 1 } });
      await ev("message_stop", {});
      return res.end();
    }
    const chunk = (delta, finish_reason = null) => `data: ${JSON.stringify({ id, object: "chat.completion.chunk", created: 1700000000, model: body.model ?? "mock", choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
    res.write(chunk({ role: "assistant", content: "" }));
    let tools = false;
    for (const step of script) {
      await sleep(delay);
      if (res.destroyed) return;
      if (step === "DESTROY") return res.destroy();
      if (step.tool_calls) tools = true;
      res.write(chunk(step));
    }
    res.write(chunk({}, tools ? "tool_calls" : "stop"));
    res.end("data: [DONE]\n\n");
  } catch (e) { console.error(e); res.destroy(); }
});
const port = Number(process.env.PORT ?? 4101);
server.listen(port, "127.0.0.1", () => console.log(`mock-llm on http://localhost:${server.address().port}`));
