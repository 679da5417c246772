import { CopilotKit } from "@copilotkit/react-core";
import { CopilotSidebar } from "@copilotkit/react-ui";
import { useRef, useState } from "react";

import { Board } from "./Board";
import { ErrorBanner } from "./ErrorBanner";
import { Header } from "./Header";
import { type Task, exampleTasks } from "./tasks";
import { useBoardCopilot } from "./useBoardCopilot";

/** Where the Python runtime listens: the page's own server, unless the build said otherwise. */
const runtimeUrl = import.meta.env.VITE_RUNTIME_URL ?? "/graphql";

/** `?console` in the address shows CopilotKit's inspector, and its own error banner. */
const showDevConsole = new URLSearchParams(location.search).has("console");

export function App() {
  return (
    <CopilotKit runtimeUrl={runtimeUrl} showDevConsole={showDevConsole}>
      <Page />
    </CopilotKit>
  );
}

function Page() {
  const [tasks, setTasks] = useState<Task[]>(exampleTasks);
  useBoardCopilot(tasks, setTasks);

  // CopilotKit keeps an error until it is dismissed; the next question should do that too
  const dismissError = useRef<() => void>();

  return (
    <CopilotSidebar
      defaultOpen
      clickOutsideToClose={false}
      instructions="You help a small team with its task board. Answer briefly."
      labels={{
        title: "Board copilot",
        initial: "Hello! Ask me about the board, or let me change it.",
        placeholder: "Ask about the board…",
      }}
      Header={Header}
      onSubmitMessage={() => dismissError.current?.()}
      renderError={({ message, onDismiss }) => {
        dismissError.current = onDismiss;
        return <ErrorBanner message={message} onDismiss={onDismiss} />;
      }}
    >
      <Board tasks={tasks} />
    </CopilotSidebar>
  );
}
