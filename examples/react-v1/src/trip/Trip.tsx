import { CopilotKit } from "@copilotkit/react-core";
import { CopilotSidebar } from "@copilotkit/react-ui";
import { useRef } from "react";

import { ErrorBanner } from "../ErrorBanner";
import { Header } from "../Header";
import { PlanPanel } from "./PlanPanel";
import { useTripAgent } from "./useTripAgent";

const runtimeUrl = import.meta.env.VITE_RUNTIME_URL ?? "/graphql";

/** A page for an agent instead of a model: everything said goes to the agent `trip`. */
export function Trip() {
  return (
    <CopilotKit runtimeUrl={runtimeUrl} agent="trip" showDevConsole={false}>
      <Page />
    </CopilotKit>
  );
}

function Page() {
  const trip = useTripAgent();
  const dismissError = useRef<() => void>();

  return (
    <CopilotSidebar
      defaultOpen
      clickOutsideToClose={false}
      labels={{
        title: "Trip agent",
        initial: "Where to? Let me plan your stops, or book a room, if you agree.",
        placeholder: "Ask about your trip…",
      }}
      Header={Header}
      onSubmitMessage={() => dismissError.current?.()}
      renderError={({ message, onDismiss }) => {
        dismissError.current = onDismiss;
        return <ErrorBanner message={message} onDismiss={onDismiss} />;
      }}
    >
      <PlanPanel {...trip} />
    </CopilotSidebar>
  );
}
