import { CopilotChat, CopilotKit } from "@copilotkit/react-core/v2";
import { createRoot } from "react-dom/client";

import { runtimeUrl } from "../runtime";
import { sources } from "../files/activities";
import { Header } from "./Header";
import { useDelegation } from "./useDelegation";

import "@copilotkit/react-core/v2/styles.css";
import "../files/files.css";
import "./assistants.css";

const first = "desk";
const threadId = location.hash.slice(1) || "assistants";

/** A chat with three assistants: who answers, and who was asked, stands beside the words. */
function Assistants() {
  useDelegation();
  return (
    <div className="assistants">
      <Header agentId={first} />
      <CopilotChat
        agentId={first}
        threadId={threadId}
        labels={{ chatInputPlaceholder: "Ask Skerry Line…", chatDisclaimerText: "" }}
      />
    </div>
  );
}

createRoot(document.getElementById("root")!).render(
  <CopilotKit
    runtimeUrl={runtimeUrl}
    agent={first}
    enableInspector={false}
    showDevConsole={false}
    renderActivityMessages={[sources]}
  >
    <Assistants />
  </CopilotKit>,
);
