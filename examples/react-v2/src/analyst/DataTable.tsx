import { useMemo, useState } from "react";

import { Sql } from "./Sql";
import type { Column, Table } from "./schemas";
import { compareCells, countOf, formatCell, formatCount, formatName, isNumeric } from "./values";

const few = 8;

/** Rows that were found: a click on a heading sorts them. */
export function TableCard({ table }: { table: Table }) {
  const [isOpen, setOpen] = useState(false);
  const title = table.title || "Result";
  const known = table.rows.length;
  const total = table.total_rows ?? known;

  return (
    <figure className="card" aria-label={title}>
      <figcaption>
        <h3>{title}</h3>
        <span className="quiet" hidden={/\brows?\b/.test(title)}>
          {total > known || table.is_truncated
            ? `first ${formatCount(known)}${total > known ? ` of ${countOf(total, "row")}` : " rows"}`
            : countOf(known, "row")}
        </span>
      </figcaption>
      <DataTable columns={table.columns} rows={isOpen ? table.rows : undefined} all={table.rows} label={title} />
      <footer>
        {known > few && (
          <button className="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {isOpen ? "Show fewer" : `Show all ${formatCount(known)}`}
          </button>
        )}
        {table.sql && (
          <details className="plain">
            <summary>SQL</summary>
            <Sql text={table.sql} />
          </details>
        )}
      </footer>
    </figure>
  );
}

interface DataTableProps {
  columns: Column[];
  all: unknown[][];
  rows?: unknown[][]; // those to show; without them, the first few in the order chosen
  label: string;
}

/** A table that sorts. */
export function DataTable({ columns, all, rows, label }: DataTableProps) {
  const [order, setOrder] = useState<{ at: number; isDown: boolean }>();
  const sorted = useMemo(() => {
    if (!order) return all;
    return [...all].sort((a, b) => compareCells(a[order.at], b[order.at], order.isDown));
  }, [all, order]);
  const shown = rows ? sorted : sorted.slice(0, few);

  const sort = (at: number) => {
    const first = isNumeric(columns[at]); // the largest number is what one looks for
    if (order?.at !== at) setOrder({ at, isDown: first });
    else setOrder(order.isDown === first ? { at, isDown: !first } : undefined);
  };

  return (
    <div className="rows" tabIndex={0} role="region" aria-label={`${label}: rows`}>
      <table>
        <thead>
          <tr>
            {columns.map((column, at) => (
              <th
                key={column.name}
                scope="col"
                className={isNumeric(column) ? "number" : ""}
                aria-sort={order?.at !== at ? "none" : order.isDown ? "descending" : "ascending"}
                title={`${column.name} · ${column.type}`}
              >
                <button onClick={() => sort(at)}>{formatName(column.name)}</button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row, at) => (
            <tr key={at}>
              {columns.map((column, index) => (
                <td
                  key={column.name}
                  className={isNumeric(column) ? "number" : ""}
                  data-empty={row[index] === null || undefined}
                >
                  {formatCell(row[index], column)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {all.length === 0 && <p className="quiet nothing">No rows.</p>}
    </div>
  );
}
