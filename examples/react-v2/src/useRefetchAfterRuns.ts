import { useAgent } from "@copilotkit/react-core/v2";
import { useEffect } from "react";

/**
 * Read the list again when a run begins or ends.
 *
 * The server pushes changes of the list over a WebSocket, also those of other pages. Where none gets
 * through, as behind some proxies, `useThreads` reads it once: a thread that was just begun, or
 * named by the server, would be missing until the page is loaded again.
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
