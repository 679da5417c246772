import { useRenderTool } from "@copilotkit/react-core/v2";
import { z } from "zod";

/** Draws hand-offs, and the questions that assistants ask each other, into the conversation. */
export function useDelegation() {
  useRenderTool({
    name: "run_handoff",
    parameters: z.object({ label: z.string() }),
    render: ({ parameters }) => <p className="handoff">Handed over to {parameters?.label ?? "…"}</p>,
  });

  useRenderTool({
    name: "run_sub_agent",
    parameters: z.object({ agent: z.string(), prompt: z.string() }),
    render: ({ parameters, status, result }) => (
      <details className="sub-agent" open={status !== "complete"}>
        <summary>
          {parameters?.agent ?? "Somebody"} {status === "complete" ? "has answered" : "is asked"}
        </summary>
        <p>{parameters?.prompt}</p>
        {status === "complete" && <p>{result}</p>}
      </details>
    ),
  });
}
