import type { FormEvent } from "react";

import type { Plan } from "./useTripAgent";

interface PlanPanelProps {
  plan: Plan;
  setPlan: (plan: Plan) => void;
  running: boolean;
  city: string;
}

export function PlanPanel({ plan, setPlan, running, city }: PlanPanelProps) {
  const stops = plan.stops ?? [];
  const bookings = plan.bookings ?? [];

  // The agent sees this with its next run; what it does then comes back the same way.
  const setStops = (changed: string[]) => setPlan({ ...plan, stops: changed });

  const add = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const stop = String(new FormData(event.currentTarget).get("stop")).trim();
    if (stop) setStops([...stops, stop]);
    event.currentTarget.reset();
  };

  return (
    <main className="board">
      <header>
        <h1>{city}</h1>
        <p>You and the agent on the right write on the same plan.</p>
      </header>
      <div className="columns">
        <section className="column doing" aria-label="Stops">
          <h2>Stops</h2>
          <ol className="plain">
            {stops.map((stop, index) => (
              <li key={`${index} ${stop}`} className="task stop">
                <strong>{stop}</strong>
                <button
                  aria-label={`Remove ${stop}`}
                  disabled={running}
                  onClick={() => setStops(stops.filter((_, other) => other !== index))}
                >
                  ×
                </button>
              </li>
            ))}
          </ol>
          <form onSubmit={add}>
            <input name="stop" aria-label="Another stop" placeholder="Add a stop" />
            <button disabled={running}>Add</button>
          </form>
        </section>
        <section className="column done" aria-label="Bookings">
          <h2>Bookings</h2>
          <ul className="plain">
            {bookings.map((booking, index) => (
              <li key={`${index} ${booking}`} className="task">
                <strong>{booking}</strong>
              </li>
            ))}
          </ul>
        </section>
      </div>
    </main>
  );
}
