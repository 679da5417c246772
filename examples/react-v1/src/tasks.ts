export const columns = ["todo", "doing", "done"] as const;

export type Column = (typeof columns)[number];

export interface Task {
  title: string;
  owner: string;
  column: Column;
}

export const exampleTasks: Task[] = [
  { title: "Book the train to Oslo", owner: "Mira", column: "doing" },
  { title: "Write the release notes", owner: "Jonas", column: "todo" },
  { title: "Order a cake for Friday", owner: "Ada", column: "todo" },
  { title: "Renew the certificate", owner: "Jonas", column: "done" },
];

/** Models do not always repeat a title to the letter; the first task that fits is meant. */
export function findTask(tasks: Task[], title: string): Task | undefined {
  const wanted = title.trim().toLowerCase();
  return (
    tasks.find((task) => task.title.toLowerCase() === wanted) ??
    tasks.find((task) => wanted !== "" && task.title.toLowerCase().includes(wanted))
  );
}

export function isColumn(value: string): value is Column {
  return (columns as readonly string[]).includes(value);
}
