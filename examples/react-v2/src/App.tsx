import { CopilotKit } from "@copilotkit/react-core/v2";
import { useState } from "react";

import { Chat } from "./Chat";
import { PlanPanel } from "./PlanPanel";
import { ThreadList } from "./ThreadList";
import { agentId, runtimeUrl } from "./runtime";
import { type View, home } from "./view";
import { useThreadInAddress } from "./useThreadInAddress";
import { useTripTools } from "./useTripTools";

export function App() {
  return (
    <CopilotKit
      runtimeUrl={runtimeUrl}
      agent={agentId} // `agentId`, which exists as well, does not reach the chat
      enableInspector={false}
      showDevConsole={false}
    >
      <Page />
    </CopilotKit>
  );
}

function Page() {
  const [threadId, openThread] = useThreadInAddress();
  const [view, setView] = useState<View>(home);
  useTripTools(view, setView);

  return (
    <div className="page">
      <ThreadList threadId={threadId} openThread={openThread} />
      <Chat threadId={threadId} />
      <PlanPanel view={view} />
    </div>
  );
}
