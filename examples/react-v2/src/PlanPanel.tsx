import { useAgent } from "@copilotkit/react-core/v2";
import type { FormEvent } from "react";

import { Icon } from "./Icon";
import type { View } from "./view";

/** What the agent and the page share: both read it, both write it. */
interface Plan {
  stops?: string[];
  bookings?: string[];
}

export function PlanPanel({ view }: { view: View }) {
  const { agent } = useAgent();
  const plan: Plan = agent.state ?? {};
  const stops = plan.stops ?? [];
  const bookings = plan.bookings ?? [];

  // The agent sees this with its next run; what it does then comes back the same way.
  const setStops = (changed: string[]) => agent.setState({ ...plan, stops: changed });

  const add = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const stop = String(new FormData(event.currentTarget).get("stop")).trim();
    if (stop) setStops([...stops, stop]);
    event.currentTarget.reset();
  };

  return (
    <aside className="plan" aria-label="Plan">
      <header className={view.sky}>
        <p>Destination</p>
        <h2>{view.city}</h2>
      </header>
      <section aria-label="Stops">
        <h3>Stops</h3>
        <ol>
          {stops.map((stop, index) => (
            <li key={`${index} ${stop}`}>
              <span>{stop}</span>
              <button
                aria-label={`Remove ${stop}`}
                disabled={agent.isRunning}
                onClick={() => setStops(stops.filter((_, other) => other !== index))}
              >
                <Icon name="cross" />
              </button>
            </li>
          ))}
        </ol>
        <form onSubmit={add}>
          <input name="stop" aria-label="Another stop" placeholder="Add a stop" />
          <button disabled={agent.isRunning}>Add</button>
        </form>
        <p className="hint">You and the copilot write on the same list.</p>
      </section>
      <section aria-label="Bookings">
        <h3>Bookings</h3>
        {bookings.length === 0 && <p className="hint">Nothing is booked without your word.</p>}
        <ul>
          {bookings.map((booking, index) => (
            <li key={`${index} ${booking}`} className="booked">
              <Icon name="check" />
              <span>{booking}</span>
            </li>
          ))}
        </ul>
      </section>
    </aside>
  );
}
