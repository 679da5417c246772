import { randomUUID, useAgent, useCopilotKit } from "@copilotkit/react-core/v2";
import { useCallback } from "react";

/** The name that the settings give the analyst. */
export const agentId = "analyst";

/** Say something in the person's name. */
export function useAsk() {
  const { agent } = useAgent({ agentId });
  const { copilotkit } = useCopilotKit();
  return useCallback(
    (content: string) => {
      agent.addMessage({ id: randomUUID(), role: "user", content });
      copilotkit.runAgent({ agent }).catch(() => {}); // the banner shows it
    },
    [agent, copilotkit],
  );
}
