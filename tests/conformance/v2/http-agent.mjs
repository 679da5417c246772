// Lets AG-UI's own HttpAgent run an agent, and prints what it and the application behind it get.
//
//   node http-agent.mjs VERSION '{"url", "stop", "messages", "tools"}'
//
// VERSION is one of @ag-ui/client. With "stop", that URL is posted to at the first piece of a text.
const [version, question] = process.argv.slice(2);
const { url, stop, messages = [], tools = [] } = JSON.parse(question);
const PACKAGES = { "0.0.59": "@ag-ui/client", "1.0.0": "ag-ui-client-1.0.0" };

const warnings = [];
for (const level of ["warn", "error"]) console[level] = (...words) => warnings.push(words.map(String).join(" "));

const { HttpAgent } = await import(PACKAGES[version]);
const agent = new HttpAgent({ url, threadId: "t", initialMessages: messages });
const events = [];
const outcomes = [];
let failure = null;
let stopping = null;
const subscriber = {
  onEvent({ event }) {
    events.push(event);
    if (stop && event.type === "TEXT_MESSAGE_CONTENT") stopping ??= fetch(stop, { method: "POST" });
  },
  onRunFinishedEvent({ outcome, pendingToolCallIds }) {
    outcomes.push({ outcome, pendingToolCallIds });
  },
};
try {
  await agent.runAgent({ runId: "r", tools, context: [] }, subscriber);
} catch (error) {
  failure = String(error.message ?? error);
}
await stopping;
process.stdout.write(JSON.stringify({ events, outcomes, messages: agent.messages, failure, warnings }) + "\n");
process.exit();
