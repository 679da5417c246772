import { CopilotChat, useAgent, useConfigureSuggestions, useCopilotKit } from "@copilotkit/react-core/v2";
import { useState } from "react";

import { ErrorBanner } from "./ErrorBanner";
import { forget, useReminders } from "./reminders";
import { useBookings } from "./useBookings";
import { useChatError } from "./useChatError";

const agentId = "default";

const examples = [
  {
    title: "Trips on Saturday",
    message: "Which trips are there on Saturday?",
    kind: "A2UI",
    text: "A list that grows while it is written, with a component of this page.",
  },
  {
    title: "Book a trip",
    message: "I want to book a trip.",
    kind: "A2UI",
    text: "A form. Its button reaches the agent, which adds the booking below.",
  },
  {
    title: "Choose a seat",
    message: "Show me the seats of MV Tern.",
    kind: "MCP Apps",
    text: "The page of an MCP server, which calls the tools of that server.",
  },
  {
    title: "See the tides",
    message: "Show me the tides.",
    kind: "Open Generative UI",
    text: "A page with script that the model writes, in a sandbox.",
  },
];

/** A chat, and beside it what one can ask for, and what came of it. */
export function App() {
  const [threadId, setThreadId] = useState(location.hash.slice(1) || "desk");
  const { agent } = useAgent({ agentId });
  const { copilotkit } = useCopilotKit();
  const { error, dismiss } = useChatError(agent, threadId);
  const bookings = useBookings(agent);
  const reminders = useReminders();
  useConfigureSuggestions({ suggestions: examples, available: "always" });

  const ask = (content: string) => {
    agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
    copilotkit.runAgent({ agent }).catch(() => {}); // the banner shows it
  };
  const beginAnew = () => {
    location.hash = crypto.randomUUID();
    setThreadId(location.hash.slice(1));
    forget();
  };

  return (
    <div className="desk">
      <header>
        <h1>
          Skerry Line <span>A desk that draws</span>
        </h1>
        <button onClick={beginAnew}>New conversation</button>
      </header>
      <aside>
        <h2>Try</h2>
        <ul className="examples">
          {examples.map(({ title, message, kind, text }) => (
            <li key={title}>
              <button disabled={agent.isRunning} onClick={() => ask(message)}>
                <small>{kind}</small>
                <b>{title}</b>
                <span>{text}</span>
              </button>
            </li>
          ))}
        </ul>
        <Notes title="Your bookings" empty="None yet." notes={bookings} />
        <Notes title="Your reminders" empty="The page with the tides can set some." notes={reminders} />
      </aside>
      <main>
        {error && <ErrorBanner error={error} onDismiss={dismiss} />}
        <CopilotChat
          agentId={agentId}
          threadId={threadId}
          labels={{
            chatInputPlaceholder: "Ask for trips, a seat, the tides",
            chatDisclaimerText: "",
          }}
        />
      </main>
    </div>
  );
}

function Notes({ title, empty, notes }: { title: string; empty: string; notes: readonly string[] }) {
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {notes.length ? (
        <ul className="notes">
          {notes.map((note, at) => (
            <li key={at}>{note}</li>
          ))}
        </ul>
      ) : (
        <p>{empty}</p>
      )}
    </section>
  );
}
