import type { Plan, Task } from "./plan";

const signs = {
  pending: "○",
  running: "◐",
  waiting: "?",
  finished: "✓",
  failed: "✕",
  skipped: "–",
  stopped: "■",
};

/** A plan with its tasks: who does each, how far it is, what it cost, and whether it is good. */
export function PlanTree({ plan }: { plan: Plan }) {
  const { finished, total } = plan.progress;
  return (
    <section className="plan" aria-label="Plan">
      <header>
        <h2>{plan.request}</h2>
        <progress value={finished} max={total} aria-label="Progress" />
        <p>
          <b className={plan.status}>{plan.status}</b>
          <span>
            {finished} of {total} tasks
          </span>
          <span>${plan.dollars.toFixed(4)}</span>
        </p>
        {plan.reason && <p className="reason">{plan.reason}</p>}
      </header>
      <Tasks tasks={plan.tasks} />
    </section>
  );
}

function Tasks({ tasks }: { tasks: Task[] }) {
  return (
    <ol className="tasks">
      {tasks.map((it) => (
        <li key={it.id} className={it.status} aria-label={it.name}>
          <div className="task">
            <span className="sign" role="img" aria-label={it.status}>
              {signs[it.status]}
            </span>
            <div>
              <p className="name">
                <b>{it.name}</b>
                {it.assistant && <span className="assistant">{it.assistant}</span>}
                {it.is_correction && <span className="correction">correction</span>}
                {it.dollars ? <span className="cost">${it.dollars.toFixed(4)}</span> : null}
              </p>
              <p className="purpose">{it.purpose}</p>
              <Verdict task={it} />
              {it.status === "finished" && !it.tasks && <p className="output">{it.output}</p>}
              {it.reason && <p className="reason">{it.reason}</p>}
            </div>
          </div>
          {it.tasks && <Tasks tasks={it.tasks} />}
        </li>
      ))}
    </ol>
  );
}

function Verdict({ task }: { task: Task }) {
  const { evaluation, rounds } = task;
  if (!evaluation) return null;
  if (!evaluation.passed) return <p className="verdict missing">Not good enough: {evaluation.missing}</p>;
  return <p className="verdict passed">Checked{rounds ? ` after ${rounds} correction` : ""}</p>;
}
