// An AG-UI agent over HTTP that belongs to no runtime, so that any runtime can register it by URL.
//
//   PORT=4111 node agent.mjs       PORT=0 takes a free port; the address is printed
//
// The last user message names what it plays: "scenario:tool" (see scripts.mjs).
// GET /__log → what was asked, {url, headers, body}, and how each ended, {closed, finished, runId}; DELETE forgets.
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { play } from "./scripts.mjs";

const log = [];

async function read(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts).toString();
}

function reply(response, status, value) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}

async function run(input, request, response) {
  let closed = false;
  response.on("close", () => {
    closed = true;
    log.push({ closed, finished: response.writableFinished, runId: input.runId });
  });
  for (const step of play(input, request.headers)) {
    if (closed) return;
    if (step.http) return reply(response, step.http, { error: `upstream ${step.http}` });
    if (step.sleep) await sleep(step.sleep);
    else if (step.drop) {
      await sleep(30); // lets the events before it reach the runtime
      return response.destroy();
    } else {
      if (!response.headersSent) response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
      response.write(`data: ${JSON.stringify(step)}\n\n`);
    }
  }
  response.end();
}

const server = http.createServer(async (request, response) => {
  const text = await read(request);
  if (request.url === "/__log") return reply(response, 200, request.method === "DELETE" ? log.splice(0) : log);
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    return reply(response, 400, { error: "bad json" });
  }
  log.push({ url: request.url, headers: request.headers, body });
  await run(body, request, response);
});
server.listen(Number(process.env.PORT ?? 4111), "127.0.0.1", () => {
  console.log(`agent on http://localhost:${server.address().port}`);
});
