import { type InterruptRenderProps, useInterrupt } from "@copilotkit/react-core/v2";
import { useEffect, useRef, useState } from "react";

import { Sql } from "./Sql";
import { agentId } from "./useAsk";
import { countOf } from "./values";

/** What writes or is large waits for a person, who sees what it is. */
export function useApproval() {
  useInterrupt({ agentId, render: (question) => <Card {...question} /> });
}

const titles: Record<string, string> = {
  save_as_dataset: "Save a data set",
  download_data: "Make a file",
};

function Card({ interrupt, resolve }: InterruptRenderProps) {
  const [isAnswered, setAnswered] = useState(false);
  const [note, setNote] = useState("");
  const card = useRef<HTMLDivElement>(null);
  useEffect(() => {
    card.current?.scrollIntoView({ block: "center" });
  }, []);
  const { tool, rows, arguments: given = {} } = (interrupt?.metadata ?? {}) as {
    tool?: string;
    rows?: number;
    arguments?: Record<string, unknown>;
  };
  const { sql, ...details } = given;

  const answer = (approved: boolean) => {
    setAnswered(true); // an answer counts once
    resolve({ approved, ...(note && { note }) }).catch(() => {}); // the banner shows it
  };

  return (
    <div ref={card} className="approval" role="group" aria-label="Approval">
      <h3>{titles[tool ?? ""] ?? "May this be done?"}</h3>
      <p>{interrupt?.message}</p>
      <dl>
        {typeof rows === "number" && <Detail name="rows" value={countOf(rows, "row")} />}
        {Object.entries(details).map(([name, value]) =>
          value === null || value === "" ? null : <Detail key={name} name={name} value={String(value)} />,
        )}
      </dl>
      {typeof sql === "string" && <Sql text={sql} />}
      <label>
        <span>A word about it, if you like</span>
        <input value={note} disabled={isAnswered} onChange={(event) => setNote(event.target.value)} />
      </label>
      <div className="buttons">
        <button disabled={isAnswered} onClick={() => answer(false)}>
          Decline
        </button>
        <button disabled={isAnswered} className="primary" onClick={() => answer(true)}>
          Approve
        </button>
      </div>
    </div>
  );
}

function Detail({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
