import { z } from "zod";

/** What the analyst sends beside its text: each is the content of an activity message. */

const thought = z.object({
  id: z.string(),
  type: z.string(),
  content: z.string(),
  color: z.string(),
  timestamp: z.string(),
  tool_name: z.string().nullish(),
});

export const thoughts = z.object({ thoughts: z.array(thought), is_done: z.boolean() });

const column = z.object({ name: z.string(), type: z.string() });

export const table = z.object({
  title: z.string().nullish(),
  columns: z.array(column),
  rows: z.array(z.array(z.unknown())),
  total_rows: z.number().nullish(),
  is_truncated: z.boolean().nullish(),
  sql: z.string().nullish(),
});

export const chart = z.object({
  id: z.string(),
  title: z.string(),
  vega_lite: z.record(z.unknown()),
});

export const download = z.object({
  id: z.string(),
  filename: z.string(),
  format: z.string(),
  row_count: z.number(),
  columns: z.array(z.string()),
  expires_at: z.string(),
});

const fix = z.object({
  before: z.string(),
  after: z.string(),
  description: z.string(),
  nulls: z.number().nullish(),
});

const lineage = z.object({
  trust: z.string(),
  sql: z.string(),
  tables: z.array(z.string()).default([]),
  filters: z.array(z.string()).default([]),
  metrics: z.array(z.string()).default([]),
  rows_scanned: z.number().nullish(),
  checks: z.array(z.string()).default([]),
  fixes: z.array(fix).default([]),
});

export const answer = z.object({ trust: z.string(), lineage: z.array(lineage) });

export const question = z.object({ question: z.string(), options: z.array(z.string()) });

export const dataset = z.object({
  name: z.string(),
  description: z.string().nullish(),
  row_count: z.number().nullish(),
  columns: z.array(column).default([]),
});

export type Thought = z.infer<typeof thought>;
export type Thoughts = z.infer<typeof thoughts>;
export type Column = z.infer<typeof column>;
export type Table = z.infer<typeof table>;
export type Chart = z.infer<typeof chart>;
export type Download = z.infer<typeof download>;
export type Lineage = z.infer<typeof lineage>;
export type Answer = z.infer<typeof answer>;
export type Question = z.infer<typeof question>;
export type Dataset = z.infer<typeof dataset>;
