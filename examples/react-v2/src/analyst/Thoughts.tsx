import { type AbstractAgent, type Message, useCopilotKit } from "@copilotkit/react-core/v2";
import { type CSSProperties, useEffect, useState } from "react";

import type { Thought, Thoughts as Content } from "./schemas";
import { countOf } from "./values";

interface ThoughtsProps {
  content: Content;
  messageId: string;
  agent?: AbstractAgent;
}

/** What the analyst does, step by step: open while it works, one line afterwards. */
export function Thoughts({ content, messageId, agent }: ThoughtsProps) {
  const { copilotkit } = useCopilotKit();
  const { thoughts } = content;
  const isNow = !!agent && isLast(messageId, agent.messages);
  const isWorking = !content.is_done && isNow && agent.isRunning;
  const isStopped = isNow && agent.state?.status === "stopped";
  const [isOpen, setOpen] = useState<boolean>();
  const last = thoughts.at(-1);

  return (
    <section className="thoughts" aria-label="Thoughts" data-working={isWorking || undefined}>
      <header>
        <button aria-expanded={isOpen ?? isWorking} onClick={() => setOpen(!(isOpen ?? isWorking))}>
          <span className="dots" aria-hidden="true">
            {thoughts.slice(-8).map((it) => (
              <i key={it.id} style={{ "--color": it.color } as CSSProperties} />
            ))}
          </span>
          <span className="now" aria-live="polite">
            {isWorking ? (last ? shorten(last.content) : "Looking at the question") : summarize(content, isStopped)}
          </span>
          {isWorking && <Clock since={thoughts[0]?.timestamp} />}
          <span className="chevron" aria-hidden="true" />
        </button>
        {isWorking && (
          <button className="stop" onClick={() => copilotkit.stopAgent({ agent: agent! })}>
            Stop
          </button>
        )}
      </header>
      {(isOpen ?? isWorking) && (
        <ol>
          {thoughts.map((it) => (
            <Step key={it.id} thought={it} />
          ))}
        </ol>
      )}
    </section>
  );
}

function Step({ thought }: { thought: Thought }) {
  return (
    <li data-type={thought.type} style={{ "--color": thought.color } as CSSProperties}>
      <span className="kind">{thought.type.replace("_", " ")}</span>
      {thought.tool_name && <code>{thought.tool_name}</code>}
      <p>{thought.content}</p>
    </li>
  );
}

/** Seconds since the first thought, while there is something to wait for. */
function Clock({ since }: { since?: string }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 200);
    return () => clearInterval(timer);
  }, []);
  const seconds = since ? Math.max(0, (now - Date.parse(since)) / 1000) : 0;
  return <span className="clock">{seconds.toFixed(1)} s</span>;
}

/** Whether no question came after a message: else a run that broke off would seem to go on. */
function isLast(id: string, messages: Message[]): boolean {
  return !messages.slice(messages.findIndex((it) => it.id === id) + 1).some((it) => it.role === "user");
}

function summarize({ thoughts, is_done }: Content, isStopped: boolean): string {
  if (!thoughts.length) return "Stopped";
  const took = Date.parse(thoughts.at(-1)!.timestamp) - Date.parse(thoughts[0].timestamp);
  const repairs = thoughts.filter((it) => it.content.startsWith("Auto-corrected SQL")).length;
  const words = [countOf(thoughts.length, "step")];
  if (took >= 50) words.push(`${(took / 1000).toFixed(1)} s`);
  if (!is_done || isStopped) words.unshift("Stopped");
  if (repairs) words.push(countOf(repairs, "repair"));
  return words.join(" · ");
}

const shorten = (text: string) => (text.length > 90 ? `${text.slice(0, 89)}…` : text);
