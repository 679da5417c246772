import { useCopilotAction, useCopilotReadable } from "@copilotkit/react-core";
import { useCopilotChatSuggestions } from "@copilotkit/react-ui";
import type { Dispatch, SetStateAction } from "react";

import { ActionCard, Approval } from "./cards";
import { type Task, columns, findTask, isColumn } from "./tasks";

/** Everything the copilot knows about the board, and everything it may do to it. */
export function useBoardCopilot(tasks: Task[], setTasks: Dispatch<SetStateAction<Task[]>>) {
  useCopilotReadable({ description: "The tasks on the board", value: tasks });

  // A handler runs here in the browser; what it returns goes back to the model.
  // `render` draws the call into the chat while its arguments are still arriving.
  useCopilotAction({
    name: "addTask",
    description: "Add a task to the board.",
    parameters: [
      { name: "title", type: "string", description: "What is to be done" },
      { name: "owner", type: "string", description: "Who does it", required: false },
    ],
    handler: ({ title, owner }) => {
      if (!title?.trim()) return "A task needs a title.";
      if (tasks.some((task) => task.title === title)) return `"${title}" is on the board already.`;
      setTasks((all) => [...all, { title, owner: owner || "Nobody yet", column: "todo" }]);
      return `Added "${title}".`;
    },
    render: ({ status, args, result }) => (
      <ActionCard heading="New task" status={status} result={result}>
        {args.title} {args.owner && <em>for {args.owner}</em>}
      </ActionCard>
    ),
  });

  useCopilotAction({
    name: "moveTask",
    description: "Move a task to another column of the board.",
    parameters: [
      { name: "title", type: "string", description: "The title of the task" },
      { name: "column", type: "string", enum: [...columns], description: "Where it goes" },
    ],
    handler: ({ title, column }) => {
      const task = findTask(tasks, title ?? "");
      if (!task) return `There is no task "${title}".`;
      if (!isColumn(column)) return `There is no column "${column}".`;
      setTasks((all) =>
        all.map((each) => (each.title === task.title ? { ...each, column } : each)),
      );
      return `Moved "${task.title}" to ${column}.`;
    },
    render: ({ status, args, result }) => (
      <ActionCard heading="Move" status={status} result={result}>
        {args.title} {args.column && <em>to {args.column}</em>}
      </ActionCard>
    ),
  });

  // This one waits for a person: the run goes on with whatever `respond` is given.
  useCopilotAction({
    name: "removeTask",
    description: "Remove a task from the board, after the person has agreed.",
    parameters: [{ name: "title", type: "string", description: "The title of the task" }],
    renderAndWaitForResponse: ({ status, args, respond, result }) => (
      <Approval
        title={args.title ?? ""}
        waiting={status === "executing"}
        result={result}
        onYes={() => {
          const task = findTask(tasks, args.title ?? "");
          setTasks((all) => all.filter((each) => each.title !== task?.title));
          respond?.(task ? `Removed "${task.title}".` : `There is no task "${args.title}".`);
        }}
        onNo={() => respond?.("The person wants to keep the task.")}
      />
    ),
  });

  useCopilotChatSuggestions({
    instructions: "Suggest what to ask about this task board, or how to change it.",
    maxSuggestions: 3,
  });
}
