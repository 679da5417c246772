import { type AbstractAgent, useCopilotKit } from "@copilotkit/react-core/v2";

import { Icon } from "./Icon";

interface ErrorBannerProps {
  error: Error;
  agent: AbstractAgent;
  onDismiss: () => void;
}

/** What went wrong, for the person in front of the page. CopilotKit itself only logs it. */
export function ErrorBanner({ error, agent, onDismiss }: ErrorBannerProps) {
  const { copilotkit } = useCopilotKit();

  const tryAgain = () => {
    onDismiss();
    // without the runtime's description there is no agent to ask; a reload asks for it again
    if (copilotkit.runtimeConnectionStatus !== "connected") location.reload();
    else copilotkit.runAgent({ agent }).catch(() => {}); // reported like the first one
  };

  return (
    <div className="error" role="alert">
      <div>
        <strong>That did not work.</strong>
        <p>{sentence(error.message)}</p>
      </div>
      <button onClick={tryAgain}>Try again</button>
      <button aria-label="Dismiss" onClick={onDismiss}>
        <Icon name="cross" />
      </button>
    </div>
  );
}

/** The words for people in `HTTP 401: {"error": …, "message": "Log in first."}`. */
function sentence(message: string): string {
  const json = message.slice(message.indexOf("{"));
  try {
    const body = JSON.parse(json);
    return String(body.message ?? body.error ?? message);
  } catch {
    return message;
  }
}
