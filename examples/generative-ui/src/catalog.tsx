import {
  type CatalogDefinitions,
  type CatalogRenderers,
  DynamicStringSchema,
  createCatalog,
} from "@copilotkit/a2ui-renderer";
import { z } from "zod";

/** A text, or the place of one in the data of the surface. */
const text = DynamicStringSchema;

/** What a button does: the agent gets the event, with the values at the paths in its context. */
const action = z.union([
  z.object({ event: z.object({ name: z.string(), context: z.record(z.any()).optional() }) }),
  z.object({ functionCall: z.any() }),
]);

/** What agents are told: the names of the components, what they are for, and their properties. */
const definitions = {
  Crossing: {
    description: "A sailing between two harbours, with a button to choose it",
    props: z.object({ from: text, to: text, leaves: text, arrives: text, ship: text, fare: text, action }),
  },
} satisfies CatalogDefinitions;

/** What the renderer gets: the values at the paths, and a function that sends the event. */
type Resolved = Record<"from" | "to" | "leaves" | "arrives" | "ship" | "fare", string> & {
  action: () => void;
};

/** How this page draws them. */
const renderers: CatalogRenderers<typeof definitions> = {
  Crossing: ({ props }) => {
    const { from, to, leaves, arrives, ship, fare, action } = props as unknown as Resolved;
    return (
      <article className="crossing" aria-label={`${from} to ${to}`}>
        <p className="harbour">
          <b>{leaves}</b>
          {from}
        </p>
        <p className="way">{ship}</p>
        <p className="harbour">
          <b>{arrives}</b>
          {to}
        </p>
        <button onClick={action}>{fare}</button>
      </article>
    );
  },
};

/** The basic components of A2UI, and ours. */
export const catalog = createCatalog(definitions, renderers, {
  catalogId: "https://skerryline.example/catalog.json",
  includeBasicCatalog: true,
});
