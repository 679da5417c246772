// node behind-node.mjs <url of an agent>: what AG-UI's own HttpAgent ends up with, as JSON.
import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({ url: process.argv[2], threadId: "thread-1", initialState: { topic: "dogs" } });
const tools = [{ name: "setColor", description: "Set the color.", parameters: { type: "object", properties: {} } }];
const turn = async (message) => {
  const before = agent.messages.length;
  let error = null;
  agent.addMessage({ id: `new-${before}`, ...message });
  await agent.runAgent({ tools }, { onRunErrorEvent: ({ event }) => { error = event.message; } });
  return { messages: structuredClone(agent.messages.slice(before + 1)), state: agent.state, error };
};
const say = (content) => turn({ role: "user", content });

const text = await say("hi");
const pageaction = await say("[[pageaction]]");
const followed = await turn({ role: "tool", toolCallId: "call-color", content: "done" });
const ouraction = await say("[[ouraction]]");
const error = await say("[[agenterror]]");
console.log(JSON.stringify({ text, pageaction, followed, ouraction, error }));
process.exit(0);
