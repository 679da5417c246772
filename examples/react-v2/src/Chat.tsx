import { CopilotChat, useAgent, useConfigureSuggestions } from "@copilotkit/react-core/v2";
import { useEffect } from "react";

import { Approval } from "./Approval";
import { ErrorBanner } from "./ErrorBanner";
import { agentId } from "./runtime";
import { useChatError } from "./useChatError";

const beginnings = [
  { title: "Weather in Oslo", message: "What is the weather in Oslo?" },
  { title: "Plan three stops", message: "Plan Vigeland park, the fjord and the opera" },
  { title: "Take me to Lisbon", message: 'Show the sunny destination "Lisbon"' },
  { title: "Book a room", message: "Book a room in Oslo for two nights" },
];

/** The conversation of one thread. With an explicit id, CopilotKit asks the server for its past. */
export function Chat({ threadId }: { threadId: string }) {
  const { agent } = useAgent();
  const { error, dismiss } = useChatError(agent, threadId);

  // 1.74 forgets messages and state with the thread, but not what the old one waits for,
  // and would refuse every question in the new one
  useEffect(() => {
    agent.pendingInterrupts = [];
  }, [agent, threadId]);

  useConfigureSuggestions({ suggestions: beginnings, available: "before-first-message" });
  useConfigureSuggestions({
    instructions: "Suggest what to ask next about this trip, or how to go on planning it.",
    available: "after-first-message",
    providerAgentId: agentId,
    maxSuggestions: 3,
  });

  return (
    <main className="chat">
      {agent.messages.length === 0 && (
        <div className="welcome">
          <h2>Where to?</h2>
          <p>Ask about the weather, plan your stops, or let me book a room, if you agree.</p>
        </div>
      )}
      <CopilotChat
        threadId={threadId}
        labels={{
          chatInputPlaceholder: "Ask about your trip…",
          chatDisclaimerText: "",
        }}
      />
      {error && <ErrorBanner error={error} agent={agent} onDismiss={dismiss} />}
      <Approval key={threadId} />
    </main>
  );
}
