"""Traces in a file of SQLite, which others may read with SQL while the server runs.

`spans` has a row for each span: its record as JSON, and columns that read it (`operation`,
`model`, `input_tokens` …). `traces` has a line for each trace, kept up to date with every batch.
The view `sessions` counts by thread. Times are nanoseconds since 1970.
"""

import sqlite3
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson

from copilot_runtime.concurrency import call
from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.store.query import TraceQuery
from copilot_runtime.telemetry.store.records import Record
from copilot_runtime.telemetry.store.store import EVERYTHING, ThreadedTraceStore
from copilot_runtime.telemetry.store.traces import (
    TraceFilter,
    TraceSummary,
    match_summary,
    sort_spans,
)

SCHEMA_VERSION = 1

_LIFTED = {
    "operation": semconv.OPERATION_NAME,
    "provider": semconv.PROVIDER_NAME,
    "model": semconv.REQUEST_MODEL,
    "response_model": semconv.RESPONSE_MODEL,
    "agent": semconv.AGENT_NAME,
    "tool": semconv.TOOL_NAME,
    "conversation_id": semconv.CONVERSATION_ID,
    "run_id": semconv.RUN_ID,
    "error_type": semconv.ERROR_TYPE,
    "input_tokens": semconv.USAGE_INPUT_TOKENS,
    "output_tokens": semconv.USAGE_OUTPUT_TOKENS,
    "cache_read_tokens": semconv.USAGE_CACHE_READ_TOKENS,
    "cache_write_tokens": semconv.USAGE_CACHE_WRITE_TOKENS,
    "reasoning_tokens": semconv.USAGE_REASONING_TOKENS,
    "dollars": semconv.COST_DOLLARS,
    "outcome": semconv.RUN_OUTCOME,
}
"""Columns that read an attribute of the record: they cost nothing until somebody asks."""

_COLUMNS = ",\n  ".join(
    f"""{column} GENERATED ALWAYS AS (json_extract(record, '$.attributes."{name}"')) VIRTUAL"""
    for column, name in _LIFTED.items()
)
_MODELS = ", ".join(
    f"'{name}'" for name in (semconv.CHAT, semconv.TEXT_COMPLETION, semconv.GENERATE_CONTENT)
)

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS schema_version(version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS spans(
  trace_id TEXT NOT NULL,
  span_id TEXT NOT NULL,
  record TEXT NOT NULL,
  parent_span_id GENERATED ALWAYS AS (json_extract(record, '$.parent_span_id')) VIRTUAL,
  name GENERATED ALWAYS AS (json_extract(record, '$.name')) VIRTUAL,
  kind GENERATED ALWAYS AS (json_extract(record, '$.kind')) VIRTUAL,
  start_time GENERATED ALWAYS AS (json_extract(record, '$.start_time_unix_nano')) VIRTUAL,
  end_time GENERATED ALWAYS AS (json_extract(record, '$.end_time_unix_nano')) VIRTUAL,
  status GENERATED ALWAYS AS (json_extract(record, '$.status.code')) VIRTUAL,
  {_COLUMNS},
  PRIMARY KEY (trace_id, span_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS traces(
  trace_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  start_time INTEGER NOT NULL,
  end_time INTEGER NOT NULL,
  thread_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  agent TEXT NOT NULL,
  spans INTEGER NOT NULL,
  errors INTEGER NOT NULL,
  model_calls INTEGER NOT NULL,
  tool_calls INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  dollars REAL NOT NULL,
  unpriced INTEGER NOT NULL,
  models TEXT NOT NULL,
  error_type TEXT NOT NULL,
  outcome TEXT NOT NULL,
  has_root INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS traces_by_start ON traces(start_time);
CREATE INDEX IF NOT EXISTS traces_by_thread ON traces(thread_id, start_time);
CREATE INDEX IF NOT EXISTS traces_by_run ON traces(run_id);
CREATE INDEX IF NOT EXISTS traces_by_agent ON traces(agent, start_time);
CREATE INDEX IF NOT EXISTS traces_with_errors ON traces(start_time) WHERE errors > 0;
CREATE VIEW IF NOT EXISTS sessions AS
  SELECT thread_id AS session_id, count(*) AS runs, min(start_time) AS start_time,
         max(end_time) AS end_time, sum(model_calls) AS llm_calls, sum(tool_calls) AS tool_calls,
         sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
         sum(dollars) AS dollars, sum(errors) AS errors
  FROM traces GROUP BY thread_id;
"""  # noqa: S608  # names of ours

_SUMMARY_COLUMNS = (
    *("trace_id", "name", "start_time", "end_time", "thread_id", "run_id", "agent", "spans"),
    *("errors", "model_calls", "tool_calls", "input_tokens", "output_tokens", "dollars"),
    *("unpriced", "models", "error_type", "outcome", "has_root"),
)
_SELECT = f"SELECT {', '.join(_SUMMARY_COLUMNS)} FROM traces"  # noqa: S608  # names of ours
_INSERT_SUMMARY = (
    f"INSERT OR REPLACE INTO traces({', '.join(_SUMMARY_COLUMNS)}) "  # noqa: S608  # names of ours
    f"VALUES ({', '.join('?' * len(_SUMMARY_COLUMNS))})"
)
_CLEAN_EVERY = 60 * 10**9
_AT_ONCE = 500


class SqliteTraceStore(ThreadedTraceStore):
    """Keeps traces in a file for `days`, and at most `max_traces`; 0 for any number of either.

    What is too old goes while the server runs. Several processes may use one file. Raises
    `ConfigurationFailed` for a file that cannot be opened, at the first use.
    """

    def __init__(self, path: str | Path, *, days: float = 7.0, max_traces: int = 100_000) -> None:
        super().__init__()
        self.path = Path(path)
        self.days = days
        self.max_traces = max_traces
        self._next_clean = 0
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    async def get_trace(self, trace_id: str) -> list[Record]:
        """Return the spans of a trace by their start; an empty list if it is not known."""
        await self.flush()

        def read() -> list[Record]:
            with self._reader() as reader:
                return _read_trace(reader, trace_id)

        return await call(read)

    async def list_traces(
        self, filter: TraceFilter = EVERYTHING, *, limit: int = 100, before: str = ""
    ) -> Sequence[TraceSummary]:
        """Return traces in short, the newest first; those that began before the one named."""
        await self.flush()

        def read() -> Sequence[TraceSummary]:
            with self._reader() as reader:
                found: list[TraceSummary] = []
                for summary in _find_summaries(reader, filter, before):
                    if _needs_spans(filter) and not _match_spans(reader, summary, filter):
                        continue
                    found.append(summary)
                    if len(found) >= limit:
                        break
                return found

        return await call(read)

    async def query_spans(
        self, query: str = "", filter: TraceFilter = EVERYTHING, *, limit: int = 0
    ) -> list[Record]:
        """Return the spans of all traces that a JMESPath matches, by their start."""
        compiled = TraceQuery(query)
        await self.flush()

        def read() -> list[Record]:
            with self._reader() as reader:
                traces = _read_traces(reader, filter, errors_only=compiled.wants_errors_only)
                return sort_spans(
                    span for spans in compiled.select(traces, limit) for span in spans
                )

        return await call(read)

    async def delete_traces(self, before: int) -> int:
        """Delete traces that ended before a time, in nanoseconds; return how many."""
        await self.flush()

        def delete() -> int:
            with self._writing:
                return _delete(self._open_writer(), "end_time < ?", (before,))

        return await call(delete)

    async def aclose(self) -> None:
        """Write what waits, and close the file."""
        await super().aclose()

        def close() -> None:
            with self._writing, self._lock:
                for connection in (*self._readers, self._writer):
                    if connection is not None:
                        connection.close()
                self._readers.clear()
                self._writer = None

        await call(close)

    def _write(self, records: Sequence[Record]) -> None:
        writer = self._open_writer()
        writer.execute("BEGIN IMMEDIATE")
        try:
            _write_spans(writer, records)
            writer.execute("COMMIT")
        except BaseException:
            writer.execute("ROLLBACK")
            raise

    def _clean(self, now: int) -> None:
        if now < self._next_clean:
            return
        self._next_clean = now + _CLEAN_EVERY
        writer = self._open_writer()
        if self.days:
            _delete(writer, "end_time < ?", (now - int(self.days * 86_400 * 1e9),))
        if self.max_traces:
            newest = "SELECT trace_id FROM traces ORDER BY start_time DESC LIMIT -1 OFFSET ?"
            _delete(writer, f"trace_id IN ({newest})", (self.max_traces,))

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = _connect(self.path)
            with closing(self._writer.cursor()) as cursor:
                _create(cursor, self.path)
        return self._writer

    @contextmanager
    def _reader(self) -> Generator[sqlite3.Connection]:
        """Lend a connection to the running thread."""
        if self._writer is None:
            with self._writing:
                self._open_writer()
        with self._lock:
            reader = self._readers.pop() if self._readers else None
        if reader is None:
            reader = _connect(self.path)
            reader.execute("PRAGMA query_only = ON")
        try:
            yield reader
        finally:
            with self._lock:
                self._readers.append(reader)


def _connect(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            path, timeout=3.0, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationFailed(
            f"Traces cannot be kept in {path}: {error}",
            hint="Set telemetry.store to a file that can be written, or to memory.",
        ) from None
    return connection


def _create(cursor: sqlite3.Cursor, path: Path) -> None:
    try:
        cursor.executescript(_SCHEMA)
        found = cursor.execute("SELECT max(version) FROM schema_version").fetchone()[0]
        if found is None:
            cursor.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
    except sqlite3.Error as error:
        raise ConfigurationFailed(
            f"{path} is no store of traces: {error}", hint="Name another file in telemetry.store."
        ) from None
    if found is not None and found > SCHEMA_VERSION:
        raise ConfigurationFailed(
            f"{path} was written by a newer version of this package.",
            hint="Upgrade, or name another file in telemetry.store.",
        )


def _write_spans(writer: sqlite3.Connection, records: Sequence[Record]) -> None:
    """Insert spans, and bring the lines of their traces up to date."""
    by_trace: dict[str, list[Record]] = {}
    for record in records:
        by_trace.setdefault(record["trace_id"], []).append(record)
    summaries_before = _read_summaries(writer, by_trace)
    writer.executemany(
        "INSERT OR REPLACE INTO spans(trace_id, span_id, record) VALUES (?, ?, ?)",
        ((one["trace_id"], one["span_id"], _dump(one)) for one in records),
    )
    summaries: list[TraceSummary] = []
    for trace_id, spans in by_trace.items():
        summary = summaries_before.get(trace_id)
        if summary is not None and any(span["resource"]["attributes"] for span in spans):
            # what another process sends may come twice: count all spans again
            summary, spans = None, _read_trace(writer, trace_id)
        summary = summary or TraceSummary(trace_id=trace_id)
        for span in spans:
            summary.add(span)
        summaries.append(summary)
    writer.executemany(_INSERT_SUMMARY, map(_encode_summary, summaries))


def _read_summaries(
    writer: sqlite3.Connection, trace_ids: dict[str, list[Record]]
) -> dict[str, TraceSummary]:
    ids, summaries_before = list(trace_ids), dict[str, TraceSummary]()
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        marks = ", ".join("?" * len(part))
        for row in writer.execute(f"{_SELECT} WHERE trace_id IN ({marks})", part):
            summary = _decode_summary(row)
            summaries_before[summary.trace_id] = summary
    return summaries_before


def _dump(record: Record) -> str:
    try:
        return orjson.dumps(record, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # half a character, a number that is too large
        return orjson.dumps(_plain(record), default=repr).decode()


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: what it cannot becomes a text."""
    match value:
        case dict():
            return {_plain(str(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case str():
            return value.encode(errors="replace").decode()
        case bool() | None | float():
            return value
        case int():
            return value if -(2**63) <= value < 2**64 else str(value)
        case _:
            return _plain(repr(value))


def _encode_summary(summary: TraceSummary) -> tuple[Any, ...]:
    return (
        summary.trace_id,
        summary.name,
        summary.start,
        summary.end,
        summary.thread_id,
        summary.run_id,
        summary.agent,
        summary.spans,
        summary.errors,
        summary.model_calls,
        summary.tool_calls,
        summary.input_tokens,
        summary.output_tokens,
        summary.dollars,
        summary.unpriced,
        "\n".join(summary.models),
        summary.error_type,
        summary.outcome,
        int(summary.has_root),
    )


def _decode_summary(row: tuple[Any, ...]) -> TraceSummary:
    values = dict(zip(_SUMMARY_COLUMNS, row, strict=True))
    start, end, models = values.pop("start_time"), values.pop("end_time"), values.pop("models")
    values["has_root"] = bool(values["has_root"])
    return TraceSummary(**values, start=start, end=end, models=models.split("\n") if models else [])


def _find_summaries(
    reader: sqlite3.Connection, filter: TraceFilter, before: str = "", *, errors_only: bool = False
) -> Iterator[TraceSummary]:
    """Yield the traces that the columns do not rule out, the newest first."""
    conditions: list[str] = []
    values: list[Any] = []
    columns = (
        ("trace_id = ?", filter.trace_id),
        ("run_id = ?", filter.run_id),
        ("end_time >= ?", filter.since),
        ("start_time <= ?", filter.until),
        ("end_time - start_time >= ?", int(filter.min_duration * 1e9)),
    )
    for condition, value in columns:
        if value:
            conditions.append(condition)
            values.append(value)
    if filter.has_error is not None or errors_only:
        conditions.append("errors > 0" if errors_only or filter.has_error else "errors = 0")
    if before:
        conditions.append(
            "(start_time, trace_id) < (SELECT start_time, trace_id FROM traces WHERE trace_id = ?)"
        )
        values.append(before)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = reader.execute(f"{_SELECT}{where} ORDER BY start_time DESC, trace_id DESC", values)
    yield from map(_decode_summary, rows)


def _needs_spans(filter: TraceFilter) -> bool:
    """Return whether the columns do not tell if a trace is meant."""
    return bool(filter.text or filter.agent or filter.thread_id or filter.resource_id)


def _match_spans(reader: sqlite3.Connection, summary: TraceSummary, filter: TraceFilter) -> bool:
    return match_summary(summary, filter, _read_trace(reader, summary.trace_id))


def _read_trace(reader: sqlite3.Connection, trace_id: str) -> list[Record]:
    rows = reader.execute("SELECT record FROM spans WHERE trace_id = ?", (trace_id,))
    return sort_spans(orjson.loads(row[0]) for row in rows)


def _read_traces(
    reader: sqlite3.Connection, filter: TraceFilter, *, errors_only: bool
) -> Iterator[list[Record]]:
    """Yield the spans of the traces that are meant, the newest trace first."""
    for summary in _find_summaries(reader, filter, errors_only=errors_only):
        spans = _read_trace(reader, summary.trace_id)
        if not _needs_spans(filter) or _match_spans(reader, summary, filter):
            yield spans


def _delete(writer: sqlite3.Connection, condition: str, values: Sequence[Any]) -> int:
    """Delete traces in small transactions, so that others may write between them."""
    select = f"SELECT trace_id FROM traces WHERE {condition}"  # noqa: S608  # a text of ours
    rows = writer.execute(select, values).fetchall()
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        writer.execute("BEGIN IMMEDIATE")
        writer.executemany("DELETE FROM spans WHERE trace_id = ?", part)
        writer.executemany("DELETE FROM traces WHERE trace_id = ?", part)
        writer.execute("COMMIT")
    return len(rows)
