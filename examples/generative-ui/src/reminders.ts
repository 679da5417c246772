import type { SandboxFunction } from "@copilotkit/react-core/v2";
import { useSyncExternalStore } from "react";
import { z } from "zod";

let reminders: readonly string[] = [];
const listeners = new Set<() => void>();

function set(to: readonly string[]) {
  reminders = to;
  listeners.forEach((listener) => listener());
}

export function forget() {
  set([]);
}

/** What script in the sandbox has set. */
export function useReminders(): readonly string[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => reminders,
  );
}

/**
 * What script in the sandbox may call of this page: only this. It comes from a model, so look at
 * each value as at one from the network.
 */
export const sandboxFunctions: SandboxFunction[] = [
  {
    name: "remind",
    description: "Put a short reminder beside the chat.",
    parameters: z.object({ text: z.string() }),
    handler: async ({ text }: { text: unknown }) => {
      const words = String(text).slice(0, 60);
      if (!reminders.includes(words)) set([...reminders.slice(-4), words]);
      return "Set.";
    },
  },
];
