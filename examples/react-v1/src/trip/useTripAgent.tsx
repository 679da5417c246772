import {
  useCoAgent,
  useCoAgentStateRender,
  useCopilotAction,
  useLangGraphInterrupt,
} from "@copilotkit/react-core";
import { useState } from "react";

/** What the agent and the page share: both read it, both write it. */
export interface Plan {
  stops?: string[];
  bookings?: string[];
}

/** Everything the page and its agent do together. */
export function useTripAgent() {
  const { state, setState, running } = useCoAgent<Plan>({ name: "trip", initialState: {} });
  const [city, setCity] = useState("Anywhere");

  // The state as it is while the agent works, drawn into the chat.
  useCoAgentStateRender<Plan>({
    name: "trip",
    render: ({ state: plan, status }) =>
      status === "inProgress" && plan?.stops?.length ? (
        <p className="working">Planning {plan.stops.length} stops…</p>
      ) : null,
  });

  // The agent waits for a person. What it hears is JSON: here, as the page of react-v2 says it.
  useLangGraphInterrupt({
    render: ({ event, resolve }) => (
      <div className="card approval" role="group" aria-label="Approval">
        <h3>May I?</h3>
        <p>{question(event.value)}</p>
        <div className="buttons">
          <button className="yes" onClick={() => resolve(JSON.stringify({ approved: true }))}>
            Approve
          </button>
          <button onClick={() => resolve(JSON.stringify({ approved: false }))}>Decline</button>
        </div>
      </div>
    ),
  });

  // The agent calls this, the browser does it, and the agent hears what came of it.
  useCopilotAction({
    name: "showDestination",
    description: "Show a destination at the top of the page.",
    parameters: [{ name: "city", type: "string", description: "The name of the city" }],
    handler: ({ city }) => {
      setCity(city);
      return `The page shows ${city}.`;
    },
  });

  return { plan: state ?? {}, setPlan: setState, running, city };
}

/** The words of `interrupt("…")`, or of an agent that is no graph: it asks `{ message: "…" }`. */
function question(value: string | { message?: string }): string {
  return typeof value === "string" ? value : (value.message ?? "");
}
