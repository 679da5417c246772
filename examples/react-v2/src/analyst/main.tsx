import {
  CopilotChat,
  CopilotKit,
  randomUUID,
  useAgent,
  useCopilotKit,
} from "@copilotkit/react-core/v2";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

import { ErrorBanner } from "../ErrorBanner";
import { runtimeUrl } from "../runtime";
import { useChatError } from "../useChatError";
import { useThreadInAddress } from "../useThreadInAddress";
import { useApproval } from "./Approval";
import { Datasets } from "./Datasets";
import { activities } from "./activities";
import { agentId, useAsk } from "./useAsk";
import { toggleTheme, useTheme } from "./useTheme";

import "@copilotkit/react-core/v2/styles.css";
import "./analyst.css";
import "./cards.css";

const beginnings = [
  { title: "See a trend", text: "Show revenue by month as a chart" },
  { title: "Find a problem", text: "Which products come back most often?" },
  { title: "Compare two things", text: "Compare the faithfulness of lark-1 and lark-2" },
  { title: "Take rows along", text: "Export the orders of June 2026 as CSV" },
];

function Analyst() {
  const [threadId, openThread] = useThreadInAddress();
  const [isOpen, setOpen] = useState(false);
  const { agent } = useAgent({ agentId });
  const { copilotkit } = useCopilotKit();
  const { error, dismiss } = useChatError(agent, threadId);
  const ask = useAsk();
  const theme = useTheme();
  useApproval();
  useEffect(() => {
    agent.pendingInterrupts = []; // 1.74 forgets all of the old thread but its questions
  }, [agent, threadId]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      if (agent.isRunning) copilotkit.stopAgent({ agent });
      setOpen(false);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [agent, copilotkit]);

  const begin = (text?: string) => {
    setOpen(false);
    if (text) ask(text);
    else openThread(randomUUID());
  };

  return (
    <div className="analyst" data-open={isOpen || undefined}>
      <header className="bar">
        <button className="menu" aria-expanded={isOpen} aria-controls="side" onClick={() => setOpen(!isOpen)}>
          Data
        </button>
        <h1>
          <Logo /> Fen &amp; Field
        </h1>
        <button className="icon" aria-label={theme === "dark" ? "Light colours" : "Dark colours"} onClick={toggleTheme}>
          <span aria-hidden="true">{theme === "dark" ? "☀" : "☾"}</span>
        </button>
        <button onClick={() => begin()}>New</button>
      </header>
      <nav id="side" className="side" aria-label="Data and questions">
        <Datasets version={agent.isRunning} />
        <section aria-labelledby="questions">
          <h2 id="questions">Try</h2>
          <ul className="questions">
            {beginnings.map(({ text }) => (
              <li key={text}>
                <button disabled={agent.isRunning} onClick={() => begin(text)}>
                  {text}
                </button>
              </li>
            ))}
          </ul>
        </section>
      </nav>
      <main>
        {error && <ErrorBanner error={error} agent={agent} onDismiss={dismiss} />}
        {agent.messages.length === 0 && !agent.isRunning && <Welcome ask={ask} />}
        <CopilotChat
          agentId={agentId}
          threadId={threadId}
          messageView={{ reasoningMessage: Nothing as never }} // the thoughts show it
          labels={{
            chatInputPlaceholder: "Ask about orders, customers, bots…",
            chatDisclaimerText: "",
          }}
        />
      </main>
    </div>
  );
}

/** What one can do here, before anything was asked. */
function Welcome({ ask }: { ask: (text: string) => void }) {
  return (
    <section className="welcome" aria-labelledby="welcome">
      <h2 id="welcome">What would you like to know?</h2>
      <p className="quiet">Every answer says where its numbers come from.</p>
      <div>
        {beginnings.map(({ title, text }) => (
          <button key={text} onClick={() => ask(text)}>
            <b>{title}</b>
            <span className="quiet">{text}</span>
          </button>
        ))}
      </div>
    </section>
  );
}

const Nothing = () => null;

function Logo() {
  return (
    <svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
      <path d="M3 20V11M9 20V5M15 20v-7M21 20V8" stroke="currentColor" strokeWidth="3" strokeLinecap="round" />
    </svg>
  );
}

createRoot(document.getElementById("root")!).render(
  <CopilotKit
    runtimeUrl={runtimeUrl}
    agent={agentId}
    enableInspector={false}
    showDevConsole={false}
    renderActivityMessages={activities}
  >
    <Analyst />
  </CopilotKit>,
);
