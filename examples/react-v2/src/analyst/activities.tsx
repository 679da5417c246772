import type { ReactActivityMessageRenderer } from "@copilotkit/react-core/v2";

import { AnswerBadge } from "./AnswerBadge";
import { ChartCard } from "./ChartCard";
import { TableCard } from "./DataTable";
import { DownloadCard } from "./DownloadCard";
import { Options } from "./Options";
import { Thoughts } from "./Thoughts";
import * as schemas from "./schemas";

/** How each thing that the analyst finds is drawn into the conversation. */
export const activities = [
  {
    activityType: "analyst-thoughts",
    content: schemas.thoughts,
    render: ({ content, message, agent }) => (
      <Thoughts content={content} messageId={message.id} agent={agent} />
    ),
  } satisfies ReactActivityMessageRenderer<schemas.Thoughts>,
  {
    activityType: "analyst-chart",
    content: schemas.chart,
    render: ({ content }) => <ChartCard chart={content} />,
  } satisfies ReactActivityMessageRenderer<schemas.Chart>,
  {
    activityType: "analyst-table",
    content: schemas.table,
    render: ({ content }) => <TableCard table={content} />,
  } satisfies ReactActivityMessageRenderer<schemas.Table>,
  {
    activityType: "analyst-download",
    content: schemas.download,
    render: ({ content }) => <DownloadCard download={content} />,
  } satisfies ReactActivityMessageRenderer<schemas.Download>,
  {
    activityType: "analyst-answer",
    content: schemas.answer as never, // its lists may be left out, which the type does not say
    render: ({ content }: { content: schemas.Answer }) => <AnswerBadge answer={content} />,
  },
  {
    activityType: "analyst-question",
    content: schemas.question,
    render: ({ content, message }) => <Options question={content} messageId={message.id} />,
  } satisfies ReactActivityMessageRenderer<schemas.Question>,
] as ReactActivityMessageRenderer<unknown>[];
