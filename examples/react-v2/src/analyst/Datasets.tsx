import { useEffect, useState } from "react";
import { z } from "zod";

import { urlOf } from "./address";
import { type Dataset, dataset } from "./schemas";
import { countOf, formatCount } from "./values";

const shape = z.object({
  datasets: z.array(dataset),
  progress: z.array(z.object({ name: z.string(), rows: z.number().nullish() })),
});

const mostLooks = 60;

/** The tables that may be asked about. `version` changes when there may be another one. */
export function Datasets({ version }: { version: unknown }) {
  const [datasets, setDatasets] = useState<Dataset[]>();
  const [loading, setLoading] = useState("");
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    let looks = 0;
    const look = async () => {
      const response = await fetch(urlOf("analyst/datasets"));
      const found = shape.safeParse(await response.json());
      if (!found.success) return;
      const { datasets, progress } = found.data;
      setDatasets(datasets);
      setLoading(progress.map(({ name, rows }) => (rows ? `${name} (${countOf(rows, "row")})` : name)).join(", "));
      // the server copies its data when it is first asked
      const isLoaded = datasets.length > 0 && datasets.every((it) => typeof it.row_count === "number");
      if ((progress.length || !isLoaded) && ++looks < mostLooks) timer = setTimeout(retry, 500);
    };
    const retry = () => void look().catch(() => {}); // the chat says what is wrong
    retry();
    return () => clearTimeout(timer);
  }, [version]);

  if (!datasets?.length && !loading) return null;
  return (
    <section aria-labelledby="datasets">
      <h2 id="datasets">Data</h2>
      <ul className="datasets">
        {datasets?.map((it) => (
          <li key={it.name}>
            <details>
              <summary>
                <b>{it.name}</b>
                {typeof it.row_count === "number" && (
                  <span title={countOf(it.row_count, "row")}>{formatCount(it.row_count)}</span>
                )}
              </summary>
              {it.description && <p className="quiet">{it.description}</p>}
              <ul>
                {it.columns.map((column) => (
                  <li key={column.name}>
                    {column.name} <span className="quiet">{column.type.toLowerCase()}</span>
                  </li>
                ))}
              </ul>
            </details>
          </li>
        ))}
      </ul>
      {loading && <p className="quiet loading">Loading {loading}…</p>}
    </section>
  );
}
