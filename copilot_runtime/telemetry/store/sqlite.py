"""Traces in a file of SQLite, which others may read with SQL while the server runs.

The view `spans` has a row for each span: its record as JSON, and columns that read it (`operation`,
`model`, `input_tokens` …). `traces` has a line for each trace, kept up to date with every batch.
The view `sessions` counts by thread. Times are nanoseconds since 1970.
"""

import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import time_ns
from typing import Any

import orjson

from copilot_runtime.concurrency import call
from copilot_runtime.errors import ConfigurationFailed, StoreFailed
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.store.query import TraceQuery
from copilot_runtime.telemetry.store.records import Record, encode_span
from copilot_runtime.telemetry.store.store import (
    EVERYTHING,
    ThreadedTraceStore,
    clean_text,
    encode_json,
)
from copilot_runtime.telemetry.store.traces import (
    TraceFilter,
    TraceSummary,
    count_spans,
    list_labels,
    match_text,
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
"""Columns of the view that read an attribute: they cost nothing until somebody asks."""

_COLUMNS = ",\n    ".join(
    f"""json_extract(record, '$.attributes."{name}"') AS {column}"""
    for column, name in _LIFTED.items()
)
_SCHEMA = f"""
CREATE TABLE schema_version(version INTEGER NOT NULL);
CREATE TABLE records(
  trace_id TEXT NOT NULL,
  span_id TEXT NOT NULL,
  record TEXT NOT NULL
);
CREATE UNIQUE INDEX records_by_id ON records(trace_id, span_id);
CREATE VIEW spans AS
  SELECT trace_id, span_id,
    json_extract(record, '$.parent_span_id') AS parent_span_id,
    json_extract(record, '$.name') AS name,
    json_extract(record, '$.kind') AS kind,
    json_extract(record, '$.start_time_unix_nano') AS start_time,
    json_extract(record, '$.end_time_unix_nano') AS end_time,
    json_extract(record, '$.status.code') AS status,
    {_COLUMNS},
    record
  FROM records;
CREATE TABLE traces(
  trace_id TEXT NOT NULL UNIQUE,
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
);
CREATE INDEX traces_by_start ON traces(start_time, trace_id);
CREATE INDEX traces_by_thread ON traces(thread_id, start_time);
CREATE INDEX traces_by_agent ON traces(agent, start_time);
CREATE INDEX traces_with_errors ON traces(start_time, trace_id) WHERE errors > 0;
CREATE TABLE labels(
  kind TEXT NOT NULL,
  value TEXT NOT NULL,
  trace_id TEXT NOT NULL,
  PRIMARY KEY (kind, value, trace_id)
) WITHOUT ROWID;
CREATE INDEX labels_by_trace ON labels(trace_id);
CREATE VIEW sessions AS
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
_INSERT_SPAN = "INSERT OR IGNORE INTO records(trace_id, span_id, record) VALUES (?, ?, ?)"
_REPLACE_SPAN = (
    "INSERT INTO records(trace_id, span_id, record) VALUES (?, ?, ?) "
    "ON CONFLICT(trace_id, span_id) DO UPDATE SET record = excluded.record"
)
_INSERT_SUMMARY = (
    f"INSERT OR REPLACE INTO traces({', '.join(_SUMMARY_COLUMNS)}) "  # noqa: S608  # names of ours
    f"VALUES ({', '.join('?' * len(_SUMMARY_COLUMNS))})"
)
_AT_ONCE = 500
_APPLICATION_ID = 0x54524143
"""Written into the file, so that nobody's other database is taken for a store of traces."""
_HAS_LABEL: Mapping[str, str] = {
    kind: f"{column}trace_id IN (SELECT trace_id FROM labels WHERE kind = '{kind}' AND value = ?)"  # noqa: S608
    for kind, column in (
        ("agent", "agent = ? OR "),
        ("thread", "thread_id = ? OR "),
        ("run", "run_id = ? OR "),
        ("resource", ""),
    )
}
_NEWEST_FIRST = "ORDER BY start_time DESC, trace_id DESC"


class SqliteTraceStore(ThreadedTraceStore):
    """Keeps traces in a file for `days`, and at most `max_traces`; 0 for any number of either.

    What is too old goes while the server runs. Several processes may use one file. Methods that
    read raise `ConfigurationFailed` for a file that is no store of traces, and `StoreFailed` where
    it cannot be read at the moment.
    """

    _passing_errors = (*ThreadedTraceStore._passing_errors, sqlite3.OperationalError)

    def __init__(
        self,
        path: str | Path,
        *,
        days: float = 7.0,
        max_traces: int = 100_000,
        clock: Callable[[], int] = time_ns,
    ) -> None:
        super().__init__(clock=clock)
        self.path = Path(path)
        self.days = days
        self.max_traces = max_traces
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    async def get_trace(self, trace_id: str) -> list[Record]:
        """Return the spans of a trace by their start; an empty list if it is not known."""
        await self.flush()

        def read() -> list[Record]:
            with self._reader() as reader:
                return _read_trace(reader, clean_text(trace_id))

        return await call(read)

    async def list_traces(
        self, filter: TraceFilter = EVERYTHING, *, limit: int = 100, before: str = ""
    ) -> Sequence[TraceSummary]:
        """Return traces in short, the newest first; those that began before the one named."""
        await self.flush()

        def read() -> Sequence[TraceSummary]:
            with self._reader() as reader:
                return list(islice(_find_summaries(reader, filter, before), max(0, limit)))

        return await call(read)

    async def query_spans(
        self, query: str = "", filter: TraceFilter = EVERYTHING, *, limit: int = 0
    ) -> list[Record]:
        """Return the spans of all traces that a JMESPath matches, by their start."""
        compiled = TraceQuery(query)
        meant = compiled.narrow(filter)
        await self.flush()

        def read() -> list[Record]:
            if meant is None:
                return []
            with self._reader() as reader:
                summaries = _find_summaries(reader, meant)
                traces = (_read_trace(reader, summary.trace_id) for summary in summaries)
                return compiled.collect(traces, limit)

        return await compiled.run(read)

    async def delete_traces(self, before: int) -> int:
        """Delete traces that ended before a time, in nanoseconds; return how many."""
        return await self._delete("end_time < ?", (before,))

    async def delete_trace(self, trace_id: str) -> bool:
        """Delete a trace; return whether there was one."""
        return await self._delete("trace_id = ?", (clean_text(trace_id),)) > 0

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

    def _write(self, spans: Sequence[Span]) -> None:
        with _transaction(self._open_writer()) as writer:
            _write_spans(writer, spans)

    def _clean(self, now: int) -> None:
        writer = self._open_writer()
        if self.days:
            _delete(writer, "end_time < ?", (now - int(self.days * 86_400 * 1e9),))
        if self.max_traces:
            newest = f"SELECT trace_id FROM traces {_NEWEST_FIRST} LIMIT -1 OFFSET ?"  # noqa: S608
            _delete(writer, f"trace_id IN ({newest})", (self.max_traces,))

    async def _delete(self, condition: str, values: Sequence[Any]) -> int:
        await self.flush()

        def delete() -> int:
            with self._writing, _explain_errors():
                return _delete(self._open_writer(), condition, values)

        return await call(delete)

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = _open(self.path)
        return self._writer

    @contextmanager
    def _reader(self) -> Generator[sqlite3.Connection]:
        """Lend a connection to the running thread."""
        with _explain_errors():
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
                    if self._writer is None:  # closed meanwhile
                        reader.close()
                    else:
                        self._readers.append(reader)


@contextmanager
def _explain_errors() -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreFailed(f"Traces cannot be read or deleted at the moment: {error}") from error


@contextmanager
def _transaction(writer: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    """Write what the block writes, all or nothing; other processes wait meanwhile."""
    writer.execute("BEGIN IMMEDIATE")
    try:
        yield writer
        writer.execute("COMMIT")
    except BaseException:
        if writer.in_transaction:  # a full disk ends it by itself
            writer.execute("ROLLBACK")
        raise


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=3.0, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA cache_size = -32000")
    return connection


def _open(path: Path) -> sqlite3.Connection:
    """Return a connection for writing; the file is made if there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = _connect(path)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_CANTOPEN:  # it is busy, or the disk is full
            raise
        raise _unusable(path, error) from None
    except sqlite3.DatabaseError as error:
        raise _foreign(path, str(error)) from None
    except OSError as error:
        raise _unusable(path, error) from None
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables in an empty file. Raises `ConfigurationFailed` for anybody else's."""
    if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        connection.execute("PRAGMA journal_mode = WAL")
        with _transaction(connection):
            if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        raise _foreign(path, "it is the database of something else")
    if connection.execute("SELECT max(version) FROM schema_version").fetchone()[0] > SCHEMA_VERSION:
        raise ConfigurationFailed(
            f"{path} was written by a newer version of this package.",
            hint="Upgrade, or name another file in telemetry.store.",
        )
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")


def _unusable(path: Path, error: Exception) -> ConfigurationFailed:
    return ConfigurationFailed(
        f"Traces cannot be kept in {path}: {error}",
        hint="Set telemetry.store to a file that can be written, or to memory.",
    )


def _foreign(path: Path, reason: str) -> ConfigurationFailed:
    return ConfigurationFailed(
        f"{path} is no store of traces: {reason}.",
        hint="Name another file in telemetry.store, or move this one away.",
    )


def _write_spans(writer: sqlite3.Connection, spans: Sequence[Span]) -> None:
    """Insert spans, and bring the lines of their traces up to date."""
    summaries = _find_existing(writer, {clean_text(span.trace_id) for span in spans})
    rows: list[tuple[str, str, str]] = []
    for span in spans:
        record, text = encode_json(encode_span(span))
        trace_id = record["trace_id"]
        rows.append((trace_id, record["span_id"], text.decode()))
        summary = summaries.get(trace_id)
        if summary is None:
            summary = summaries[trace_id] = TraceSummary(trace_id=trace_id)
        summary.add(record)
    if writer.executemany(_INSERT_SPAN, rows).rowcount < len(rows):
        # some were there already: they take the place of those, and their traces are counted anew
        writer.executemany(_REPLACE_SPAN, rows)
        for trace_id in summaries:
            summaries[trace_id] = count_spans(trace_id, _read_spans(writer, trace_id))
        writer.executemany("DELETE FROM labels WHERE trace_id = ?", [(one,) for one in summaries])
    writer.executemany(_INSERT_SUMMARY, map(_encode_summary, summaries.values()))
    labels = [(*label, one.trace_id) for one in summaries.values() for label in one.labels]
    if labels:
        writer.executemany("INSERT OR IGNORE INTO labels VALUES (?, ?, ?)", labels)


def _find_existing(writer: sqlite3.Connection, trace_ids: Iterable[str]) -> dict[str, TraceSummary]:
    ids, summaries = list(trace_ids), dict[str, TraceSummary]()
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        marks = ", ".join("?" * len(part))
        for row in writer.execute(f"{_SELECT} WHERE trace_id IN ({marks})", part):
            summary = _decode_summary(row)
            summaries[summary.trace_id] = summary
    return summaries


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
        orjson.dumps(summary.models).decode() if summary.models else "",
        summary.error_type,
        summary.outcome,
        summary.has_root,
    )


def _decode_summary(row: tuple[Any, ...]) -> TraceSummary:
    values = dict(zip(_SUMMARY_COLUMNS, row, strict=True))
    start, end, models = values.pop("start_time"), values.pop("end_time"), values.pop("models")
    values["has_root"] = bool(values["has_root"])
    return TraceSummary(
        **values, start=start, end=end, models=orjson.loads(models) if models else []
    )


def _find_summaries(
    reader: sqlite3.Connection, filter: TraceFilter, before: str = ""
) -> Iterator[TraceSummary]:
    """Yield the traces that are meant, the newest first."""
    conditions, values = _write_conditions(filter)
    if before:
        conditions.append(
            "(start_time, trace_id) < (SELECT start_time, trace_id FROM traces WHERE trace_id = ?)"
        )
        values.append(clean_text(before))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    for row in reader.execute(f"{_SELECT}{where} {_NEWEST_FIRST}", values):
        summary = _decode_summary(row)
        if not filter.text or match_text(_read_spans(reader, summary.trace_id), filter.text):
            yield summary


def _write_conditions(filter: TraceFilter) -> tuple[list[str], list[Any]]:
    """Return the conditions of a filter in SQL, and their values."""
    columns: list[tuple[str, Any]] = [
        ("trace_id = ?", clean_text(filter.trace_id)),
        ("end_time >= ?", filter.since),
        ("start_time <= ?", filter.until),
        ("end_time - start_time >= ?", int(filter.min_duration * 1e9)),
    ]
    conditions = [condition for condition, value in columns if value]
    values = [value for _, value in columns if value]
    for options in list_labels(filter):
        conditions.append(f"({' OR '.join(_HAS_LABEL[kind] for kind, _ in options)})")
        for kind, value in options:
            values += [clean_text(value)] * _HAS_LABEL[kind].count("?")
    if filter.has_error is not None:
        conditions.append("errors > 0" if filter.has_error else "errors = 0")
    if pattern := _write_pattern(filter.text):
        conditions.append(
            "trace_id IN (SELECT trace_id FROM records WHERE record LIKE ? ESCAPE '!')"
        )
        values.append(pattern)
    return conditions, values


def _write_pattern(text: str) -> str:
    """Return what LIKE finds a text with in JSON; nothing where that would miss some."""
    if not text or not text.isascii() or not text.isprintable() or set(text) & set('"\\'):
        return ""
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f"%{text}%"


def _read_spans(reader: sqlite3.Connection, trace_id: str) -> list[Record]:
    """Return the spans of a trace as they came."""
    rows = reader.execute(
        "SELECT record FROM records WHERE trace_id = ? ORDER BY rowid", (trace_id,)
    )
    return [orjson.loads(row[0]) for row in rows]


def _read_trace(reader: sqlite3.Connection, trace_id: str) -> list[Record]:
    return sort_spans(_read_spans(reader, trace_id))


def _delete(writer: sqlite3.Connection, condition: str, values: Sequence[Any]) -> int:
    """Delete traces in small transactions, so that others may write between them."""
    select = f"SELECT trace_id FROM traces WHERE {condition}"  # noqa: S608  # a text of ours
    rows = writer.execute(select, values).fetchall()
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        with _transaction(writer):
            for table in ("records", "traces", "labels"):
                writer.executemany(f"DELETE FROM {table} WHERE trace_id = ?", part)  # noqa: S608
    return len(rows)
