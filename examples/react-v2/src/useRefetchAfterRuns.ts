import { useAgent } from "@copilotkit/react-core/v2";
import { useEffect } from "react";

/**
 * Read the list again when a run begins or ends.
 *
 * `useThreads` reads it once: only CopilotKit's own cloud tells it of changes. So a thread that
 * was just begun, or named by the server, would be missing until the page is loaded again.
 */
export function useRefetchAfterRuns(refetch: () => void) {
  const { agent } = useAgent();

  useEffect(() => {
    const { unsubscribe } = agent.subscribe({
      onRunStartedEvent: refetch,
      onRunFinalized: refetch,
    });
    return unsubscribe;
  }, [agent, refetch]);
}
