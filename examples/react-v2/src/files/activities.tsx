import type { ReactActivityMessageRenderer } from "@copilotkit/react-core/v2";
import { z } from "zod";

const file = z.object({
  name: z.string(),
  state: z.enum(["reading", "searchable", "stored", "refused"]),
  message: z.string().optional(),
  step: z.string().optional(),
  done: z.number().optional(),
  total: z.number().optional(),
});
const files = z.object({ files: z.array(file) });

const source = z.object({ number: z.number(), title: z.string(), url: z.string() });
const grounds = z.object({ sources: z.array(source) });

const words = {
  reading: "is being read",
  searchable: "can be asked about",
  stored: "is stored",
  refused: "was refused",
};

/** How far the files of a question are. */
export const progress: ReactActivityMessageRenderer<z.infer<typeof files>> = {
  activityType: "files",
  content: files,
  render: ({ content }) => (
    <ul className="files" aria-label="Files">
      {content.files.map((it, at) => (
        <li key={at} className={it.state}>
          <b>{it.name}</b> {words[it.state]}
          {it.state === "reading" && it.total ? ` (${it.done} of ${it.total})` : ""}
          {it.message && <p>{it.message}</p>}
        </li>
      ))}
    </ul>
  ),
};

/** What an answer is grounded in. */
export const sources: ReactActivityMessageRenderer<z.infer<typeof grounds>> = {
  activityType: "sources",
  content: grounds,
  render: ({ content }) => (
    <ol className="sources" aria-label="Sources">
      {content.sources.map((it) => (
        <li key={it.number} value={it.number}>
          <a href={it.url} target="_blank" rel="noreferrer">
            {it.title}
          </a>
        </li>
      ))}
    </ol>
  ),
};
