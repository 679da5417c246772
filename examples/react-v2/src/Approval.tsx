import { type InterruptRenderProps, useInterrupt } from "@copilotkit/react-core/v2";
import { useEffect, useRef } from "react";

/** The agent waits for a person: a dialog asks, and the run goes on with the answer. */
export function Approval() {
  return useInterrupt({
    renderInChat: false,
    render: (question) => <Dialog {...question} />,
  });
}

function Dialog({ interrupt, event, resolve }: InterruptRenderProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);

  const answer = (approved: boolean) => {
    dialog.current?.close();
    resolve({ approved }).catch(() => {}); // the banner shows it
  };

  return (
    <dialog
      ref={dialog}
      className="approval"
      aria-labelledby="approval-question"
      onCancel={(event) => event.preventDefault()} // Escape is no answer
    >
      <h2 id="approval-question">May I?</h2>
      {/* a LangGraph asks with the value of an event, as on Node */}
      <p>{interrupt ? interrupt.message : String(event.value)}</p>
      <div className="buttons">
        <button onClick={() => answer(false)}>Decline</button>
        <button className="yes" onClick={() => answer(true)}>
          Approve
        </button>
      </div>
    </dialog>
  );
}
