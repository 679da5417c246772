import { CopilotKit } from "@copilotkit/react-core/v2";
import { createRoot } from "react-dom/client";

import { App } from "./App";
import { catalog } from "./catalog";
import { sandboxFunctions } from "./reminders";

import "@copilotkit/react-core/v2/styles.css";
import "./styles.css";

/** The URL of the Python runtime, `server.py`. */
const runtimeUrl = import.meta.env.VITE_RUNTIME_URL ?? "http://127.0.0.1:8000/graphql";

// the values are made once: CopilotKit compares them by identity
const a2ui = { catalog };
const openGenerativeUI = { sandboxFunctions };

// MCP Apps need no property here: the runtime knows their servers
createRoot(document.getElementById("root")!).render(
  <CopilotKit
    runtimeUrl={runtimeUrl}
    enableInspector={false}
    showDevConsole={false}
    a2ui={a2ui}
    openGenerativeUI={openGenerativeUI}
  >
    <App />
  </CopilotKit>,
);
