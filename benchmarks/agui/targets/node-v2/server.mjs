// The peer: @copilotkit/runtime 1.74 on Express. PORT, MOCK_URL.
//   default  BuiltInAgent on the OpenAI of the mock (chat completions, as ours: the AI SDK's default, the
//            responses API, would be other bytes)
//   remote   HttpAgent on the AG-UI agent of the mock
process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";
process.env.DO_NOT_TRACK = "1";

// imported late, so that the packages see the settings above
const { default: express } = await import("express");
const { BuiltInAgent, CopilotRuntime, InMemoryAgentRunner } = await import("@copilotkit/runtime/v2");
const { createCopilotExpressHandler } = await import("@copilotkit/runtime/v2/express");
const { HttpAgent } = await import("@ag-ui/client");
const { createOpenAI } = await import("@ai-sdk/openai");

const openai = createOpenAI({ apiKey: "sk-mock", baseURL: `${process.env.MOCK_URL}/v1` });
const runtime = new CopilotRuntime({
  runner: new InMemoryAgentRunner(),
  agents: {
    default: new BuiltInAgent({ model: openai.chat("gpt-4o"), prompt: "You are a test." }),
    remote: new HttpAgent({ url: `${process.env.MOCK_URL}/agui/run`, description: "The mock." }),
  },
});

process.on("unhandledRejection", (error) => console.error("UNHANDLED", error?.message));
process.on("uncaughtException", (error) => console.error("UNCAUGHT", error?.message));
process.on("SIGTERM", () => process.exit(0));
const app = express();
app.use(createCopilotExpressHandler({ runtime, basePath: "/api/copilotkit", cors: true }));
app.listen(Number(process.env.PORT), "127.0.0.1", 4096);
