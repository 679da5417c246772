import { useAgent } from "@copilotkit/react-core/v2";

import type { Question } from "./schemas";
import { agentId, useAsk } from "./useAsk";

/** A question that needs a word from the person: what they could say, as buttons. */
export function Options({ question, messageId }: { question: Question; messageId: string }) {
  const { agent } = useAgent({ agentId });
  const ask = useAsk();
  const after = agent.messages.slice(agent.messages.findIndex((it) => it.id === messageId) + 1);
  const reply = after.find((it) => it.role === "user")?.content;
  const isOver = reply !== undefined || agent.isRunning;

  return (
    <div className="options" role="group" aria-label={question.question}>
      {question.options.map((option) => (
        <button
          key={option}
          disabled={isOver}
          aria-pressed={reply === option || undefined}
          onClick={() => ask(option)}
        >
          {option}
        </button>
      ))}
    </div>
  );
}
