import { CopilotChat, CopilotKit, useDefaultRenderTool } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const runtimeUrl = "/api/copilotkit";

function Chat() {
  useDefaultRenderTool(); // draws calls of the server's actions
  return <CopilotChat />;
}

function Page() {
  const [status, setStatus] = useState(0);
  useEffect(() => {
    fetch(`${runtimeUrl}/info`).then((response) => setStatus(response.status));
  }, []);
  if (status === 401) {
    return <p role="alert">You are signed out (401). <a href="/login">Sign in</a></p>;
  }
  return (
    <CopilotKit runtimeUrl={runtimeUrl} enableInspector={false} showDevConsole={false}>
      <Chat />
    </CopilotKit>
  );
}

createRoot(document.getElementById("root")!).render(<Page />);
