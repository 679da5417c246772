import { Sql } from "./Sql";
import type { Answer, Lineage } from "./schemas";
import { countOf } from "./values";

const trusts: Record<string, { name: string; meaning: string }> = {
  verified: { name: "Verified", meaning: "Computed from metrics that this team has defined." },
  derived: { name: "Derived", meaning: "Computed by fixed tools over the raw columns." },
  free_sql: { name: "Free SQL", meaning: "The model wrote this SQL: read it before you rely on it." },
};

/** How far an answer can be trusted, and where its numbers come from. */
export function AnswerBadge({ answer }: { answer: Answer }) {
  const trust = trusts[answer.trust] ?? { name: answer.trust, meaning: "" };
  const tables = [...new Set(answer.lineage.flatMap((it) => it.tables))];
  const rows = answer.lineage.reduce((sum, it) => sum + (it.rows_scanned ?? 0), 0);
  const warnings = answer.lineage.flatMap((it) => it.checks).length;

  return (
    <details className="answer" data-trust={answer.trust}>
      <summary aria-label={`${trust.name}: where the numbers come from`}>
        <b className="badge">{trust.name}</b>
        {warnings > 0 && <span className="warning">{countOf(warnings, "note")}</span>}
        <span className="quiet">
          {tables.length > 0 && `from ${tables.join(", ")}`}
          {rows > 0 && ` · ${countOf(rows, "row")} read`}
        </span>
        <span className="chevron" aria-hidden="true" />
      </summary>
      <p className="quiet">{trust.meaning}</p>
      {answer.lineage.map((it, at) => (
        <Source key={at} lineage={it} />
      ))}
    </details>
  );
}

function Source({ lineage }: { lineage: Lineage }) {
  const { tables, filters, metrics, rows_scanned, checks, fixes } = lineage;
  return (
    <section className="source">
      {checks.map((text) => (
        <p key={text} className="check">
          {text}
        </p>
      ))}
      <Sql text={lineage.sql} />
      <dl>
        <Row name={tables.length > 1 ? "Tables" : "Table"} values={tables} />
        <Row name={metrics.length > 1 ? "Metrics" : "Metric"} values={metrics} />
        <Row name={filters.length > 1 ? "Filters" : "Filter"} values={filters} />
        {typeof rows_scanned === "number" && <Row name="Read" values={[countOf(rows_scanned, "row")]} />}
        {fixes.length > 0 && (
          <div>
            <dt>{fixes.length > 1 ? "Repairs" : "Repair"}</dt>
            <dd>
              {fixes.map((fix) => (
                <p key={fix.description}>
                  {fix.description}
                  {fix.nulls ? <em> {countOf(fix.nulls, "value")} became empty.</em> : null}
                </p>
              ))}
            </dd>
          </div>
        )}
      </dl>
    </section>
  );
}

function Row({ name, values }: { name: string; values: string[] }) {
  if (!values.length) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {values.map((value) => (
          <code key={value}>{value}</code>
        ))}
      </dd>
    </div>
  );
}
