import { useAgent } from "@copilotkit/react-core/v2";

/** Who answers now: the last hand-off in the conversation says it. */
export function Header({ agentId }: { agentId: string }) {
  const { agent } = useAgent({ agentId });
  const handoffs = agent.messages.flatMap((message) =>
    message.role === "tool" ? readAgent(message.content) : [],
  );
  return (
    <header>
      <h1>Skerry Line</h1>
      <p aria-label="Assistant">{handoffs.at(-1) ?? agentId}</p>
    </header>
  );
}

/** The assistant that a result names, if it is one of a hand-off. */
function readAgent(result: string): string[] {
  try {
    const { agent_id } = JSON.parse(result);
    return typeof agent_id === "string" ? [agent_id.replace("common.Agent.", "")] : [];
  } catch {
    return [];
  }
}
