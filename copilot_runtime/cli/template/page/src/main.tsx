import { CopilotChat, CopilotKit } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { createRoot } from "react-dom/client";

createRoot(document.getElementById("root")!).render(
  <CopilotKit runtimeUrl="/api/copilotkit" enableInspector={false} showDevConsole={false}>
    <CopilotChat />
  </CopilotKit>,
);
