import { useEffect, useMemo, useRef, useState } from "react";

import { DataTable } from "./DataTable";
import { urlOf } from "./address";
import type { Chart, Column } from "./schemas";
import { useTheme } from "./useTheme";

/** A chart, and the numbers behind it. */
export function ChartCard({ chart }: { chart: Chart }) {
  const [isTable, setTable] = useState(false);
  const [error, setError] = useState("");
  const place = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const data = useMemo(() => readData(chart.vega_lite), [chart.vega_lite]);

  useEffect(() => {
    if (isTable || !place.current) return;
    const element = place.current;
    let end = () => {};
    let isGone = false;
    import("./vega")
      .then(({ drawChart }) => drawChart(element, chart.vega_lite, theme))
      .then((view) => {
        if (isGone) return void view.finalize();
        const watch = new ResizeObserver(() => {
          view.signal("width", Math.max(120, element.clientWidth)).runAsync();
        });
        watch.observe(element);
        end = () => {
          watch.disconnect();
          view.finalize();
        };
      })
      .catch((problem) => setError(String(problem.message ?? problem)));
    return () => {
      isGone = true;
      end();
    };
  }, [chart.vega_lite, isTable, theme]);

  return (
    <figure className="card chart" aria-label={chart.title}>
      <figcaption>
        <h3>{chart.title}</h3>
        <span className="tools">
          {data && (
            <button aria-pressed={isTable} onClick={() => setTable(!isTable)}>
              {isTable ? "Chart" : "Numbers"}
            </button>
          )}
          <a href={urlOf(`analyst/charts/${chart.id}.png`)} download={`${chart.title}.png`}>
            PNG
          </a>
        </span>
      </figcaption>
      {error && <p className="quiet nothing">This chart cannot be drawn. {error}</p>}
      {isTable && data ? (
        <DataTable {...data} rows={data.all} label={chart.title} />
      ) : (
        <div ref={place} className="plot" role="img" aria-label={`Chart: ${chart.title}`} />
      )}
    </figure>
  );
}

/** The rows that a chart draws, for those who would rather read them. */
function readData(spec: Record<string, unknown>): { columns: Column[]; all: unknown[][] } | undefined {
  const values = (spec.data as { values?: Record<string, unknown>[] } | undefined)?.values;
  if (!Array.isArray(values) || !values.length) return undefined;
  const titles = readTitles(spec.encoding);
  const names = Object.keys(values[0]).filter((name) => name !== "index" && (name in titles || !titles.x));
  const columns = names.map((name) => ({
    name: titles[name] ?? name,
    type: values.some((row) => typeof row[name] === "number") ? "DOUBLE" : "VARCHAR",
  }));
  return { columns, all: values.map((row) => names.map((name) => row[name])) };
}

/** What the axes and colours of a chart are called, by the fields that they show. */
function readTitles(encoding: unknown): Record<string, string> {
  const channels = Object.values((encoding ?? {}) as Record<string, { field?: string; title?: string }>);
  return Object.fromEntries(
    channels.filter((it) => it?.field && it.title).map((it) => [it.field, it.title]),
  );
}
