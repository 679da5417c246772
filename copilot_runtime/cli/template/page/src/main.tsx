import { CopilotChat, CopilotKit, useDefaultRenderTool } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { createRoot } from "react-dom/client";

function Chat() {
  useDefaultRenderTool(); // draws calls of the server's actions
  return <CopilotChat />;
}

createRoot(document.getElementById("root")!).render(
  <CopilotKit runtimeUrl="/api/copilotkit" enableInspector={false} showDevConsole={false}>
    <Chat />
  </CopilotKit>,
);
