// The reference: @copilotkit/runtime 1.74.0, by REST at /api/copilotkit and as single endpoint at /api/single.
//
//   PORT=4112 AGENT_URL=http://localhost:4111/ LLM_URL=http://localhost:4110/v1 node node-runtime.mjs
process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";
process.env.DO_NOT_TRACK = "1";
import { createOpenAI } from "@ai-sdk/openai";
import { HttpAgent } from "@ag-ui/client";
import { BuiltInAgent, CopilotRuntime, InMemoryAgentRunner, TranscriptionService } from "@copilotkit/runtime/v2";
import { createCopilotExpressHandler } from "@copilotkit/runtime/v2/express";
import express from "express";

const { PORT = 4112, AGENT_URL = "http://localhost:4111/", LLM_URL = "http://localhost:4110/v1" } = process.env;

// a delta that does not apply and an agent that drops its socket end the process otherwise
process.on("unhandledRejection", (error) => console.error("UNHANDLED", error?.message));

class Transcripts extends TranscriptionService {
  async transcribeFile({ audioFile, mimeType, size }) {
    return `transcript of ${audioFile.name} ${mimeType} ${size}`;
  }
}

const openai = createOpenAI({ apiKey: "test", baseURL: LLM_URL });
const runtime = new CopilotRuntime({
  agents: {
    default: new HttpAgent({ url: AGENT_URL, description: "scripted agent" }),
    builtin: new BuiltInAgent({ model: openai("gpt-4o"), prompt: "You are a test." }),
  },
  transcriptionService: new Transcripts(),
  runner: new InMemoryAgentRunner(),
});
const hooks = {
  onRequest({ request }) {
    if (!request.headers.has("x-deny")) return;
    const body = JSON.stringify({ error: "unauthorized", message: "no token" });
    throw new Response(body, { status: 401, headers: { "content-type": "application/json" } });
  },
};

const app = express();
app.use(createCopilotExpressHandler({ runtime, basePath: "/api/copilotkit", cors: true, hooks }));
app.use(createCopilotExpressHandler({ runtime, basePath: "/api/single", mode: "single-route", cors: true, hooks }));
const server = app.listen(Number(PORT), "127.0.0.1", () => {
  console.log(`node runtime on http://localhost:${server.address().port}`);
});
