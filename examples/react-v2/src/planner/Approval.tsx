import { type InterruptRenderProps, useInterrupt } from "@copilotkit/react-core/v2";
import { useEffect, useRef, useState } from "react";

import { type Plan, groundsOf } from "./plan";

/** A task waits for a person: the question stands in the chat, with what it is about. */
export function useApproval(plan: Plan | undefined) {
  useInterrupt({ render: (question) => <Card {...question} plan={plan} /> });
}

function Card({ interrupt, resolve, plan }: InterruptRenderProps & { plan: Plan | undefined }) {
  const [isAnswered, setAnswered] = useState(false);
  const card = useRef<HTMLDivElement>(null);
  useEffect(() => {
    card.current?.scrollIntoView({ block: "center" });
  }, []);
  const grounds = plan ? groundsOf(plan, String(interrupt?.metadata?.task_id)) : [];

  const answer = (approved: boolean) => {
    setAnswered(true); // an answer counts once
    resolve({ approved }).catch(() => {}); // the banner shows it
  };

  return (
    <div ref={card} className="question" role="group" aria-label="Question">
      <p>{interrupt?.message}</p>
      {grounds.map((text) => (
        <blockquote key={text}>{text}</blockquote>
      ))}
      <div className="buttons">
        <button disabled={isAnswered} onClick={() => answer(false)}>
          Decline
        </button>
        <button disabled={isAnswered} className="yes" onClick={() => answer(true)}>
          Approve
        </button>
      </div>
    </div>
  );
}
