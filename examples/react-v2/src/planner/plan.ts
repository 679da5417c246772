import { z } from "zod";

const statuses = ["pending", "running", "waiting", "finished", "failed", "skipped", "stopped"] as const;

const fields = z.object({
  id: z.string(),
  name: z.string(),
  purpose: z.string(),
  status: z.enum(statuses),
  assistant: z.string().optional(),
  depends_on: z.array(z.string()).optional(),
  is_correction: z.boolean().optional(),
  reason: z.string().optional(),
  evaluation: z.object({ passed: z.boolean(), missing: z.string() }).optional(),
  rounds: z.number().optional(),
  dollars: z.number().optional(),
  output: z.string().optional(),
});

export type Task = z.infer<typeof fields> & { tasks?: Task[] };

const task: z.ZodType<Task> = fields.extend({ tasks: z.lazy(() => z.array(task)).optional() });

/** A plan as the runtime sends it: in the state of the agent, and as an activity. */
export const plan = z.object({
  id: z.string(),
  request: z.string(),
  status: z.enum(statuses),
  reason: z.string(),
  progress: z.object({ over: z.number(), finished: z.number(), total: z.number() }),
  dollars: z.number(),
  tasks: z.array(task),
});

export type Plan = z.infer<typeof plan>;

/** All tasks, each before those below it. */
export function walk(tasks: Task[]): Task[] {
  return tasks.flatMap((it) => [it, ...walk(it.tasks ?? [])]);
}

/** What came of the tasks that one needs: what a person should read before it begins. */
export function groundsOf(plan: Plan, id: string): string[] {
  const siblings = [plan, ...walk(plan.tasks)].map((it) => it.tasks ?? []);
  const beside = siblings.find((tasks) => tasks.some((it) => it.id === id)) ?? [];
  const needed = beside.find((it) => it.id === id)?.depends_on ?? [];
  return beside.filter((it) => needed.includes(it.name)).flatMap((it) => it.output ?? []);
}
