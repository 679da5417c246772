import type { Thread } from "@copilotkit/react-core/v2";
import { type FormEvent, useState } from "react";

import { Icon } from "./Icon";

interface ThreadRowProps {
  thread: Thread;
  current: boolean;
  onOpen: () => void;
  onRename: (name: string) => Promise<void>;
  onArchive: () => Promise<void>;
  onDelete: () => Promise<void>;
}

/** One conversation. Changes show at once; if the server refuses one, the list says so. */
export function ThreadRow(props: ThreadRowProps) {
  const { thread, current, onOpen, onRename, onArchive, onDelete } = props;
  const [mode, setMode] = useState<"shown" | "renaming" | "deleting">("shown");
  const name = thread.name || "Untitled trip";

  const rename = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const wanted = String(new FormData(event.currentTarget).get("name")).trim();
    setMode("shown");
    if (wanted && wanted !== thread.name) quietly(onRename(wanted));
  };

  if (mode === "renaming") {
    return (
      <li className="thread current">
        <form onSubmit={rename} onBlur={(event) => event.currentTarget.requestSubmit()}>
          <input
            name="name"
            aria-label="Name of the trip"
            defaultValue={thread.name ?? ""}
            autoFocus
            onFocus={(event) => event.target.select()}
            onKeyDown={(event) => event.key === "Escape" && setMode("shown")}
          />
        </form>
      </li>
    );
  }

  return (
    <li className={current ? "thread current" : "thread"}>
      <button className="open" aria-current={current || undefined} onClick={onOpen}>
        <span className="name">{name}</span>
        <time dateTime={thread.lastRunAt ?? thread.updatedAt}>
          {ago(thread.lastRunAt ?? thread.updatedAt)}
        </time>
      </button>
      {mode === "deleting" ? (
        <div className="actions asking">
          <button className="danger" onClick={() => quietly(onDelete())}>
            Delete for good
          </button>
          <button onClick={() => setMode("shown")}>Keep</button>
        </div>
      ) : (
        <div className="actions">
          <button aria-label={`Rename ${name}`} title="Rename" onClick={() => setMode("renaming")}>
            <Icon name="pencil" />
          </button>
          <button
            aria-label={`${thread.archived ? "Restore" : "Archive"} ${name}`}
            title={thread.archived ? "Restore" : "Archive"}
            onClick={() => quietly(onArchive())}
          >
            <Icon name={thread.archived ? "restore" : "archive"} />
          </button>
          <button aria-label={`Delete ${name}`} title="Delete" onClick={() => setMode("deleting")}>
            <Icon name="bin" />
          </button>
        </div>
      )}
    </li>
  );
}

/** `useThreads` keeps the error and the list shows it; nobody else needs to hear of it. */
function quietly(change: Promise<void>): void {
  change.catch(() => {});
}

function ago(time: string): string {
  const minutes = Math.round((Date.now() - Date.parse(time)) / 60_000);
  if (!(minutes >= 1)) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 24 * 60) return `${Math.round(minutes / 60)} h ago`;
  return new Date(time).toLocaleDateString(undefined, { day: "numeric", month: "short" });
}
