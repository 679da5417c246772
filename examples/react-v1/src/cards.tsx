import type { ReactNode } from "react";

interface ActionCardProps {
  heading: string;
  status: "inProgress" | "executing" | "complete";
  result?: string;
  children: ReactNode;
}

/** A call of an action, drawn into the chat: it fills while the arguments arrive. */
export function ActionCard({ heading, status, result, children }: ActionCardProps) {
  return (
    <div className={`card ${status}`} data-status={status}>
      <h3>{heading}</h3>
      <p>{children}</p>
      <small>{status === "complete" ? result : "Working on it…"}</small>
    </div>
  );
}

interface ApprovalProps {
  title: string;
  waiting: boolean;
  result?: string;
  onYes: () => void;
  onNo: () => void;
}

/** A question to the person; the run waits for the answer. */
export function Approval({ title, waiting, result, onYes, onNo }: ApprovalProps) {
  return (
    <div className="card approval">
      <h3>Remove this task?</h3>
      <p>{title}</p>
      {waiting ? (
        <div className="buttons">
          <button className="yes" onClick={onYes}>
            Remove
          </button>
          <button onClick={onNo}>Keep</button>
        </div>
      ) : (
        <small>{result}</small>
      )}
    </div>
  );
}
