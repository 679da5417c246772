// The peer: @copilotkit/runtime 1.10.6 with an OpenAIAdapter on the mock. PORT, MOCK_URL.
process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";
process.env.DO_NOT_TRACK = "1";
process.env.SCARF_ANALYTICS = "false";

import http from "node:http";

// imported late, so that the packages see the settings above
const { CopilotRuntime, OpenAIAdapter, copilotRuntimeNodeHttpEndpoint } = await import("@copilotkit/runtime");
const { default: OpenAI } = await import("openai");

const openai = new OpenAI({ apiKey: "sk-mock", baseURL: `${process.env.MOCK_URL}/v1` });
const handler = copilotRuntimeNodeHttpEndpoint({
  runtime: new CopilotRuntime(),
  serviceAdapter: new OpenAIAdapter({ openai, model: "gpt-4o" }),
  endpoint: "/copilotkit",
  logLevel: "error",
});

process.on("unhandledRejection", (error) => console.error("UNHANDLED", error?.message));
process.on("uncaughtException", (error) => console.error("UNCAUGHT", error?.message));
process.on("SIGTERM", () => process.exit(0));
http.createServer((request, response) => handler(request, response)).listen(Number(process.env.PORT), "127.0.0.1", 4096);
