// node behind-node.mjs <base-url of node-runtime.mjs>: what the npm client ends up with, as JSON,
// when the Node runtime 1.10.6 has a Python runtime as its remote endpoint (../behind_node.py).
import { scenarios } from "./scenarios.mjs";
import { drive } from "./drive.mjs";

const agent = { endpoint: "-remote", agent: "research_agent" };
const setColor = { name: "setColor", description: "Set the color.", jsonSchema: '{"type":"object","properties":{"color":{"type":"string"}}}', available: "enabled" };
Object.assign(scenarios, {
  action: { endpoint: "-remote", user: "Please run [[remotetool]]", followUp: true },
  agent: { ...agent, user: "hi", agentStates: { research_agent: { topic: "dogs" } } },
  interrupt: { ...agent, user: "[[interrupt]]", interruptResponse: "Ada" },
  error: { ...agent, user: "[[agenterror]]" },
  ouraction: { ...agent, user: "[[ouraction]]" },
  pageaction: { ...agent, user: "[[pageaction]]", actions: [setColor], followUp: true },
});
console.warn = () => {};
const found = {};
for (const name of ["action", "agent", "interrupt", "error", "ouraction", "pageaction"]) {
  found[name] = (await drive(`${process.argv[2]}/copilotkit`, name)).turns;
}
console.log(JSON.stringify(found));
process.exit(0);
