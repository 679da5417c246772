import { randomUUID } from "@copilotkit/react-core/v2";
import { useCallback, useEffect, useState } from "react";

/**
 * The open thread, kept in the address as `#<thread id>`: a reload, a bookmark and the browser's
 * back button lead to the same conversation. Without an id in the address, a new thread begins.
 */
export function useThreadInAddress(): [string, (threadId: string) => void] {
  const [threadId, setThreadId] = useState(() => threadInAddress() || begin());

  useEffect(() => {
    const onHashChange = () => setThreadId(threadInAddress() || begin());
    addEventListener("hashchange", onHashChange);
    return () => removeEventListener("hashchange", onHashChange);
  }, []);

  const open = useCallback((id: string) => {
    location.hash = encodeURIComponent(id);
  }, []);
  return [threadId, open];
}

function threadInAddress(): string {
  return decodeURIComponent(location.hash.slice(1));
}

function begin(): string {
  const id = randomUUID();
  history.replaceState(null, "", `#${id}`);
  return id;
}
