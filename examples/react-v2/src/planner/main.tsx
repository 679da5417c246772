import {
  CopilotChat,
  CopilotKit,
  type ReactActivityMessageRenderer,
  useAgent,
  useConfigureSuggestions,
  useCopilotKit,
} from "@copilotkit/react-core/v2";
import { createRoot } from "react-dom/client";

import { ErrorBanner } from "../ErrorBanner";
import { runtimeUrl } from "../runtime";
import { useChatError } from "../useChatError";
import { useApproval } from "./Approval";
import { PlanTree } from "./PlanTree";
import { type Plan, plan } from "./plan";

import "@copilotkit/react-core/v2/styles.css";
import "./planner.css";

const agentId = "planner";
const threadId = location.hash.slice(1) || "planner";

/** On a narrow screen, the plan grows in the conversation itself. */
const activity: ReactActivityMessageRenderer<Plan> = {
  activityType: "plan",
  content: plan,
  render: ({ content }) => <PlanTree plan={content} />,
};

const beginnings = [
  { title: "An extra sailing", message: "Plan an extra sailing to St Brannoc on Saturday." },
];

function Planner() {
  const { agent } = useAgent({ agentId });
  const { copilotkit } = useCopilotKit();
  const { error, dismiss } = useChatError(agent, threadId);
  const current: Plan | undefined = agent.state?.plan;
  useApproval(current);
  useConfigureSuggestions({ suggestions: beginnings, available: "before-first-message" });

  const ask = (content: string) => {
    agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
    copilotkit.runAgent({ agent }).catch(() => {}); // the banner shows it
  };
  const isUndone = current && ["failed", "stopped"].includes(current.status);

  return (
    <div className="planner">
      <header>
        <h1>Skerry Line</h1>
        {agent.isRunning && <button onClick={() => copilotkit.stopAgent({ agent })}>Stop</button>}
        {isUndone && !agent.isRunning && <button onClick={() => ask("Try again.")}>Try again</button>}
      </header>
      <main>
        {error && <ErrorBanner error={error} agent={agent} onDismiss={dismiss} />}
        <CopilotChat
          agentId={agentId}
          threadId={threadId}
          labels={{ chatInputPlaceholder: "What is to be done?", chatDisclaimerText: "" }}
        />
      </main>
      <aside>{current ? <PlanTree plan={current} /> : <p>The plan will be here.</p>}</aside>
    </div>
  );
}

createRoot(document.getElementById("root")!).render(
  <CopilotKit
    runtimeUrl={runtimeUrl}
    agent={agentId}
    enableInspector={false}
    showDevConsole={false}
    renderActivityMessages={[activity]}
  >
    <Planner />
  </CopilotKit>,
);
