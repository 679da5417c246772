import { type UseThreadsResult, useAgent } from "@copilotkit/react-core/v2";
import { useEffect, useRef } from "react";

/** Name a thread after its first question, unless the server has named it already. */
export function useNamesFromQuestions({ threads, renameThread, refetchThreads }: UseThreadsResult) {
  const { agent } = useAgent();
  const firstQuestions = useRef(new Map<string, string>());

  useEffect(() => {
    const { unsubscribe } = agent.subscribe({
      onNewMessage: ({ message }) => {
        if (message.role !== "user" || typeof message.content !== "string") return;
        if (firstQuestions.current.has(agent.threadId)) return;
        firstQuestions.current.set(agent.threadId, message.content.slice(0, 60));
      },
    });
    return unsubscribe;
  }, [agent]);

  useEffect(() => {
    for (const { id, name } of threads) {
      const question = firstQuestions.current.get(id);
      if (name || !question) continue;
      firstQuestions.current.set(id, ""); // one attempt is enough: a name is no matter of life
      // a list that was on its way meanwhile does not have the name
      renameThread(id, question).then(refetchThreads, () => {});
    }
  }, [threads, renameThread, refetchThreads]);
}
