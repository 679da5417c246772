import { type AbstractAgent, useCopilotKit } from "@copilotkit/react-core/v2";
import { useCallback, useEffect, useState } from "react";

/** What went wrong last in this thread, until the person asks again or dismisses it. */
export function useChatError(agent: AbstractAgent, threadId: string) {
  const { copilotkit } = useCopilotKit();
  const [error, setError] = useState<Error>();
  const dismiss = useCallback(() => setError(undefined), []);

  useEffect(dismiss, [threadId, dismiss]);
  useEffect(() => {
    const errors = copilotkit.subscribe({ onError: (event) => setError(event.error) });
    const questions = agent.subscribe({
      onNewMessage: ({ message }) => {
        if (message.role === "user") dismiss();
      },
    });
    return () => {
      errors.unsubscribe();
      questions.unsubscribe();
    };
  }, [copilotkit, agent, dismiss]);

  return { error, dismiss };
}
