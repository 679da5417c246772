import { CopilotChat, CopilotKit, useDefaultRenderTool } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { type FormEvent, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const runtimeUrl = "/api/copilotkit";

function Chat() {
  useDefaultRenderTool(); // draws calls of the server's actions
  return <CopilotChat />;
}

function Page() {
  const [headers, setHeaders] = useState<Record<string, string>>({});
  const [info, setInfo] = useState<Response>();
  useEffect(() => {
    fetch(`${runtimeUrl}/info`, { headers }).then(setInfo);
  }, [headers]);

  function enterKey(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    setHeaders({ authorization: `Bearer ${new FormData(event.currentTarget).get("key")}` });
  }

  if (info?.status === 401 && info.headers.has("www-authenticate")) {
    return (
      <form onSubmit={enterKey}>
        <label>Key: <input name="key" type="password" /></label> <button>Sign in</button>
      </form>
    );
  }
  if (info?.status === 401) {
    return <p role="alert">You are signed out (401). <a href="/login">Sign in</a></p>;
  }
  return (
    <CopilotKit runtimeUrl={runtimeUrl} headers={headers} enableInspector={false} showDevConsole={false}>
      <Chat />
    </CopilotKit>
  );
}

createRoot(document.getElementById("root")!).render(<Page />);
