import { randomUUID, useThreads } from "@copilotkit/react-core/v2";
import { useState } from "react";

import { ThreadRow } from "./ThreadRow";
import { agentId } from "./runtime";
import { useNamesFromQuestions } from "./useNamesFromQuestions";
import { useRefetchAfterRuns } from "./useRefetchAfterRuns";

interface ThreadListProps {
  threadId: string;
  openThread: (threadId: string) => void;
}

/** All conversations the server keeps, and what can be done with them. */
export function ThreadList({ threadId, openThread }: ThreadListProps) {
  const [showsArchive, setShowsArchive] = useState(false);
  const list = useThreads({ agentId, includeArchived: true });
  useRefetchAfterRuns(list.refetchThreads);
  useNamesFromQuestions(list);

  const shown = list.threads.filter((thread) => thread.archived === showsArchive);
  const isNew = !list.threads.some((thread) => thread.id === threadId);
  const startNew = () => openThread(randomUUID());

  return (
    <nav className="threads" aria-label="Trips">
      <header>
        <span className="mark" aria-hidden="true" />
        <h1>Wayfarer</h1>
      </header>
      <button className="new" onClick={startNew}>
        New trip
      </button>
      <div className="tabs" role="group" aria-label="Which trips">
        <button aria-pressed={!showsArchive} onClick={() => setShowsArchive(false)}>
          Active
        </button>
        <button aria-pressed={showsArchive} onClick={() => setShowsArchive(true)}>
          Archive
        </button>
      </div>
      <ul>
        {isNew && !showsArchive && (
          <li className="thread current draft">
            <span className="name">New trip</span>
          </li>
        )}
        {shown.map((thread) => (
          <ThreadRow
            key={thread.id}
            thread={thread}
            current={thread.id === threadId}
            onOpen={() => openThread(thread.id)}
            onRename={(name) => list.renameThread(thread.id, name)}
            onArchive={() =>
              thread.archived ? list.unarchiveThread(thread.id) : list.archiveThread(thread.id)
            }
            onDelete={async () => {
              if (thread.id === threadId) startNew();
              await list.deleteThread(thread.id);
            }}
          />
        ))}
      </ul>
      {showsArchive && shown.length === 0 && <p className="hint">Nothing is archived.</p>}
      {list.listError && (
        <p className="hint" role="alert">
          The list could not be loaded or changed: {list.listError.message}{" "}
          <button onClick={list.refetchThreads}>Try again</button>
        </p>
      )}
    </nav>
  );
}
