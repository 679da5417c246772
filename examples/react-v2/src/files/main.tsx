import { CopilotChat, CopilotKit } from "@copilotkit/react-core/v2";
import { createRoot } from "react-dom/client";

import { runtimeUrl } from "../runtime";
import { progress, sources } from "./activities";

import "@copilotkit/react-core/v2/styles.css";
import "./files.css";

const accept = ".pdf,.docx,.xlsx,.pptx,.csv,.md,.txt,.html,image/*";
const threadId = location.hash.slice(1) || "files";

/** A chat with files: what is attached is read by the runtime, and answers cite it. */
function Files() {
  return (
    <CopilotKit
      runtimeUrl={runtimeUrl}
      enableInspector={false}
      showDevConsole={false}
      renderActivityMessages={[progress, sources]}
    >
      <CopilotChat
        threadId={threadId}
        attachments={{ enabled: true, accept }}
        labels={{ chatInputPlaceholder: "Attach a file, and ask about it…", chatDisclaimerText: "" }}
      />
    </CopilotKit>
  );
}

createRoot(document.getElementById("root")!).render(<Files />);
