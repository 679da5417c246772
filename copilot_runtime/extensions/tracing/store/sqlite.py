"""Traces in a file of SQLite, which others may read with SQL while the server runs.

The view `spans` has a row for each span: its record as JSON, and columns that read it (`operation`,
`model`, `input_tokens` …). `traces` has a line for each trace, kept up to date with every batch.
The view `sessions` counts by thread. Times are nanoseconds since 1970.
"""

import logging
import sqlite3
import threading
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from pathlib import Path
from time import time_ns
from typing import Any, NamedTuple, TypeVar

import orjson

from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed
from copilot_runtime.database.sqlite.file import (
    create_private_file,
    use_write_ahead_log,
)
from copilot_runtime.extensions.tracing.store.query import TraceQuery
from copilot_runtime.extensions.tracing.store.records import Record, encode_span
from copilot_runtime.extensions.tracing.store.store import (
    T,
    ThreadedTraceStore,
    TraceReader,
    clean_text,
    encode_json,
)
from copilot_runtime.extensions.tracing.store.text_search import match_text
from copilot_runtime.extensions.tracing.store.traces import (
    TraceFilter,
    TraceSummary,
    count_spans,
    list_labels,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import Span

C = TypeVar("C", bound=sqlite3.Connection)

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 4

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
"""Columns of the view that read an attribute; they are computed only when queried."""

_COLUMNS = ",\n    ".join(
    f"""json_extract(record, '$.attributes."{name}"') AS {column}"""
    for column, name in _LIFTED.items()
)
_SCHEMA = f"""
CREATE TABLE schema_version(version INTEGER NOT NULL);
CREATE TABLE records(
  trace INTEGER NOT NULL,
  span_id TEXT NOT NULL,
  record TEXT NOT NULL
);
CREATE UNIQUE INDEX records_by_id ON records(trace, span_id);
CREATE VIEW spans AS
  SELECT json_extract(record, '$.trace_id') AS trace_id, span_id,
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
  id INTEGER PRIMARY KEY,
  trace_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  start_time INTEGER NOT NULL,
  end_time INTEGER NOT NULL,
  thread_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  agent TEXT NOT NULL,
  user TEXT NOT NULL,
  question TEXT NOT NULL,
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
  has_root INTEGER NOT NULL,
  rating TEXT NOT NULL DEFAULT ''
);
CREATE INDEX traces_by_start ON traces(start_time, trace_id);
CREATE INDEX traces_by_thread ON traces(thread_id, start_time);
CREATE INDEX traces_with_errors ON traces(start_time, trace_id) WHERE errors > 0;
CREATE INDEX traces_by_rating ON traces(rating, start_time, trace_id) WHERE rating <> '';
CREATE TABLE labels(
  kind TEXT NOT NULL,
  value TEXT NOT NULL,
  trace INTEGER NOT NULL,
  PRIMARY KEY (kind, value, trace)
) WITHOUT ROWID;
CREATE INDEX labels_by_trace ON labels(trace);
CREATE VIEW sessions AS
  SELECT thread_id AS session_id, count(*) AS runs, min(start_time) AS start_time,
         max(end_time) AS end_time, sum(model_calls) AS llm_calls, sum(tool_calls) AS tool_calls,
         sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
         sum(dollars) AS dollars, sum(errors) AS errors
  FROM traces GROUP BY thread_id;
"""  # noqa: S608  # names of ours

_SUMMARY_COLUMNS = (
    *("trace_id", "name", "start_time", "end_time", "thread_id", "run_id", "agent", "user"),
    *(
        "question",
        "spans",
        "errors",
        "model_calls",
        "tool_calls",
        "input_tokens",
        "output_tokens",
        "dollars",
    ),
    *("unpriced", "models", "error_type", "outcome", "has_root", "rating"),
)
_get_values = attrgetter(*(name.removesuffix("_time") for name in _SUMMARY_COLUMNS))
_INSERT_SPAN = "INSERT OR IGNORE INTO records(trace, span_id, record) VALUES (?, ?, ?)"
_REPLACE_SPAN = (
    "INSERT INTO records(trace, span_id, record) VALUES (?, ?, ?) "
    "ON CONFLICT(trace, span_id) DO UPDATE SET record = excluded.record"
)
_NAMES, _MARKS = ", ".join(_SUMMARY_COLUMNS), ", ".join("?" * len(_SUMMARY_COLUMNS))
_SELECT = f"SELECT id, {_NAMES} FROM traces"  # noqa: S608  # names of ours
# one statement for both, INSERT OR REPLACE, takes four times as long with a key of our own
_INSERT_TRACE = f"INSERT INTO traces({_NAMES}, id) VALUES ({_MARKS}, ?)"  # noqa: S608
_UPDATE_TRACE = f"UPDATE traces SET ({_NAMES}) = ({_MARKS}) WHERE id = ?"  # noqa: S608
_AT_ONCE = 500
_STEPS_OF_SQLITE = 100_000
"""SQLite instructions, about a millisecond, between two calls of the progress handler."""
_BUSY_MILLISECONDS = 3_000
_RETRY_MILLISECONDS = 50
_MOST_AT_ONCE = 8_000
"""Maximum number of spans per read, give or take one trace."""
APPLICATION = 0x54524143
"""SQLite application id of the file; it tells a trace store from any other database."""
_HAS_LABEL: Mapping[str, str] = {
    kind: f"{column}id IN (SELECT trace FROM labels WHERE kind = '{kind}' AND value = ?)"  # noqa: S608
    for kind, column in (
        ("agent", "agent = ? OR "),
        ("thread", "thread_id = ? OR "),
        ("run", "run_id = ? OR "),
        ("resource", ""),
        ("user", "user = ? OR "),
        ("model", ""),
    )
}
_NEWEST_FIRST = "ORDER BY start_time DESC, trace_id DESC"


class _Trace(NamedTuple):
    """A row of the table `traces`. Spans refer to it by an ascending number, so that their index
    grows at its end; random trace ids would change pages all over the index."""

    id: int
    summary: TraceSummary


_FileId = tuple[int, int] | None
"""Device and inode of a file, or `None` if it does not exist."""


class _Reader(sqlite3.Connection):
    """A connection that can end its read snapshot even if statements are unfinished.

    SQLite keeps a snapshot of the file while any statement is open, even after a ROLLBACK, and the
    traceback of an exception keeps a reference to its statement.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cursors: list[sqlite3.Cursor] = []
        self.file: _FileId = None
        """Identifies the file for which the connection was opened."""

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        cursor = super().execute(sql, values)
        self._cursors.append(cursor)
        return cursor

    def find(self, filter: TraceFilter, before: str = "") -> Iterator[TraceSummary]:
        """Yield the summaries of matching traces, the newest first."""
        return (trace.summary for trace in _find_traces(self, filter, before))

    def read(
        self, filter: TraceFilter, before: str = ""
    ) -> Iterator[tuple[TraceSummary, Sequence[Record]]]:
        """Yield matching traces, the newest first, with their spans in arrival order."""
        for traces in _split(_find_traces(self, filter, before)):
            spans = _read_spans(self, [trace.id for trace in traces])
            for number, summary in traces:
                if match_text(summary.question, spans[number], filter.text):
                    yield summary, spans[number]

    def end_look(self) -> None:
        """Close cursors and the transaction, so that the next statement sees the current file."""
        for cursor in self._cursors:
            cursor.close()
        self._cursors.clear()
        if self.in_transaction:
            self.rollback()


class SqliteTraceStore(ThreadedTraceStore):
    """Stores traces in a file for `days`, and at most `max_traces`; 0 for no limit of either.

    Expired traces are deleted while the server runs. Several processes may use one file. Methods
    that read raise `ConfigurationFailed` for a file that is not a trace store, and `StoreFailed` if
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
        self._file: _FileId = None
        self._readers: list[_Reader] = []
        self._lock = threading.Lock()

    async def delete_traces(self, before: int) -> int:
        """Delete traces that ended before a time in nanoseconds; return their number."""
        return await self._delete("end_time < ?", (before,))

    async def delete_trace(self, trace_id: str) -> bool:
        """Delete a trace; return True if it existed."""
        return await self._delete("trace_id = ?", (clean_text(trace_id),)) > 0

    async def aclose(self) -> None:
        """Write the pending spans, and close the file."""
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
        writer = self._open_writer()
        # a read flushes writes first and must not wait for another lock each time
        milliseconds = _RETRY_MILLISECONDS if self.is_failing else _BUSY_MILLISECONDS
        writer.execute(f"PRAGMA busy_timeout = {milliseconds}")
        with _transaction(writer):
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
        if self._writer is not None and _identify(self.path) != self._file:
            logger.warning("The traces in '%s' are gone: another file is begun.", self.path)
            with self._lock:
                for connection in (*self._readers, self._writer):
                    connection.close()
                self._readers.clear()
                self._writer = None
        if self._writer is None:
            self._writer = open_trace_file(self.path)
            self._file = _identify(self.path)
        return self._writer

    def _read(self, work: Callable[[TraceReader], T], search: TraceQuery | None = None) -> T:
        with _explain_errors():
            if self._writer is None:
                with self._writing:
                    self._open_writer()
            with self._lock:
                reader = self._readers.pop() if self._readers else None
            if reader is None:
                reader = _connect(self.path, _Reader)
                reader.execute("PRAGMA query_only = ON")
                reader.file = self._file
            is_late = search.is_late if search is not None else None
            reader.set_progress_handler(is_late, _STEPS_OF_SQLITE)
            try:
                # one snapshot of traces and spans: trace numbers may be reused meanwhile
                reader.execute("BEGIN")
                return work(reader)
            except sqlite3.OperationalError:
                if search is not None:
                    search.check_time()
                raise
            finally:
                reader.set_progress_handler(None, 0)
                reader.end_look()
                with self._lock:
                    if self._writer is None or reader.file != self._file:  # closed meanwhile
                        reader.close()
                    else:
                        self._readers.append(reader)


def _identify(path: Path) -> _FileId:
    """Return the device and inode of the file at a path, or `None` if it does not exist."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


@contextmanager
def _explain_errors() -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreFailed(f"Traces cannot be read or deleted at the moment: {error}") from error


@contextmanager
def _transaction(writer: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    """Run the block in a write transaction; other writers wait until it ends."""
    writer.execute("BEGIN IMMEDIATE")
    try:
        yield writer
        writer.execute("COMMIT")
    except BaseException:
        if writer.in_transaction:  # a full disk ends it by itself
            writer.execute("ROLLBACK")
        raise


def _connect(path: Path, factory: type[C]) -> C:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, factory=factory
    )
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
    connection.execute("PRAGMA cache_size = -32000")
    return connection


def open_trace_file(path: Path) -> sqlite3.Connection:
    """Return a connection for writing; the file is created if it does not exist."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # users' messages are private; SQLite gives its other files the same mode
        create_private_file(path)
        connection = _connect(path, sqlite3.Connection)
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
    """Create the tables in an empty file. Raises `ConfigurationFailed` for another database."""
    if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        use_write_ahead_log(connection)
        with _transaction(connection):
            if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise _foreign(path, "it is another program's database")
    [version] = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    if version != SCHEMA_VERSION:
        age = "a newer" if version > SCHEMA_VERSION else "an older"
        raise ConfigurationFailed(
            f"{path} was written by {age} version of this package, with other tables.",
            hint="Name another file in telemetry.store, or move this one away.",
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
        f"{path} is not a trace store: {reason}.",
        hint="Name another file in telemetry.store, or move this one away.",
    )


def _write_spans(writer: sqlite3.Connection, spans: Sequence[Span]) -> None:
    """Insert spans, and update the rows of their traces."""
    encoded = [encode_json(encode_span(span)) for span in spans]
    traces = _find_existing(writer, {record["trace_id"] for record, _ in encoded})
    count = len(traces)
    [last_id] = writer.execute("SELECT coalesce(max(id), 0) FROM traces").fetchone()
    rows: list[tuple[int, str, str]] = []
    for record, text in encoded:
        trace_id = record["trace_id"]
        trace = traces.get(trace_id)
        if trace is None:
            last_id += 1
            trace = traces[trace_id] = _Trace(last_id, TraceSummary(trace_id=trace_id))
        rows.append((trace.id, record["span_id"], text.decode()))
        trace.summary.add(record)
    if writer.executemany(_INSERT_SPAN, rows).rowcount < len(rows):
        # some spans exist: replace them, and recompute the summaries of their traces
        writer.executemany(_REPLACE_SPAN, rows)
        for trace_id, (number, _) in traces.items():
            records = _read_spans(writer, [number])[number]
            traces[trace_id] = _Trace(number, count_spans(trace_id, records))
        numbers = [(trace.id,) for trace in traces.values()]
        writer.executemany("DELETE FROM labels WHERE trace = ?", numbers)
    lines = [_encode_trace(trace) for trace in traces.values()]
    writer.executemany(_UPDATE_TRACE, lines[:count])
    writer.executemany(_INSERT_TRACE, lines[count:])
    labels = [(*label, trace.id) for trace in traces.values() for label in trace.summary.labels]
    if labels:
        writer.executemany("INSERT OR IGNORE INTO labels VALUES (?, ?, ?)", labels)


def _find_existing(writer: sqlite3.Connection, trace_ids: Iterable[str]) -> dict[str, _Trace]:
    traces: dict[str, _Trace] = {}
    # not as one list of JSON: SQLite ends a text of JSON at U+0000
    ids = iter(trace_ids)
    while part := list(islice(ids, _AT_ONCE)):
        marks = ", ".join("?" * len(part))
        for row in writer.execute(f"{_SELECT} WHERE trace_id IN ({marks})", part):
            trace = _decode_trace(row)
            traces[trace.summary.trace_id] = trace
    return traces


def _encode_trace(trace: _Trace) -> tuple[Any, ...]:
    values = dict(zip(_SUMMARY_COLUMNS, _get_values(trace.summary), strict=True))
    values["models"] = orjson.dumps(values["models"]).decode() if values["models"] else ""
    return (*values.values(), trace.id)


def _decode_trace(row: tuple[Any, ...]) -> _Trace:
    values = dict(zip(_SUMMARY_COLUMNS, row[1:], strict=True))
    start, end, models = values.pop("start_time"), values.pop("end_time"), values.pop("models")
    values["has_root"] = bool(values["has_root"])
    models = orjson.loads(models) if models else []
    return _Trace(row[0], TraceSummary(**values, start=start, end=end, models=models))


def _find_traces(
    reader: sqlite3.Connection, filter: TraceFilter, before: str = ""
) -> Iterator[_Trace]:
    """Yield candidate traces, the newest first; `match_text` must still check the filter's text."""
    conditions, values = _write_conditions(filter)
    if before:
        conditions.append(
            "(start_time, trace_id) < (SELECT start_time, trace_id FROM traces WHERE trace_id = ?)"
        )
        values.append(clean_text(before))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return map(_decode_trace, reader.execute(f"{_SELECT}{where} {_NEWEST_FIRST}", values))


def _split(traces: Iterable[_Trace]) -> Iterator[Sequence[_Trace]]:
    """Split traces into batches of growing size: often the first few traces are enough."""
    part, size, most = list[_Trace](), 0, 100
    for trace in traces:
        part.append(trace)
        size += trace.summary.spans
        if size >= most:
            yield part
            part, size, most = [], 0, min(2 * most, _MOST_AT_ONCE)
    yield part


def _write_conditions(filter: TraceFilter) -> tuple[list[str], list[Any]]:
    """Return the SQL conditions of a filter, and their parameters."""
    columns: list[tuple[str, Any]] = [
        ("trace_id = ?", clean_text(filter.trace_id)),
        ("end_time >= ?", filter.since),
        ("start_time <= ?", filter.until),
        ("end_time - start_time >= ?", int(filter.min_duration * 1e9)),
    ]
    conditions = [condition for condition, value in columns if value]
    values = [value for _, value in columns if value]
    if filter.rating:
        conditions.append("rating <> '' AND rating = ?")
        values.append(filter.rating)
    for options in list_labels(filter):
        conditions.append(f"({' OR '.join(_HAS_LABEL[kind] for kind, _ in options)})")
        for kind, value in options:
            values += [clean_text(value)] * _HAS_LABEL[kind].count("?")
    if filter.has_error is not None:
        conditions.append("errors > 0" if filter.has_error else "errors = 0")
    if pattern := _write_pattern(filter.text):
        records = "SELECT trace FROM records WHERE record LIKE ? ESCAPE '!'"
        conditions.append(f"(question LIKE ? ESCAPE '!' OR id IN ({records}))")
        values += [pattern, pattern]
    return conditions, values


def _write_pattern(text: str) -> str:
    """Return the LIKE pattern for a text in JSON, or an empty text if LIKE could miss matches."""
    if not text or not text.isascii() or not text.isprintable() or set(text) & set('"\\'):
        return ""
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f"%{text}%"


def _read_spans(
    reader: sqlite3.Connection, numbers: Sequence[int]
) -> Mapping[int, Sequence[Record]]:
    """Return the spans of traces in arrival order, by the number of the trace."""
    found: dict[int, list[Record]] = {number: [] for number in numbers}
    rows = reader.execute(
        "SELECT trace, record FROM records WHERE trace IN (SELECT value FROM json_each(?)) "
        "ORDER BY rowid",
        (str(list(numbers)),),
    )
    for number, record in rows:
        found[number].append(orjson.loads(record))
    return found


def _delete(writer: sqlite3.Connection, condition: str, values: Sequence[Any]) -> int:
    """Delete traces in small transactions, to let others write meanwhile; return their number."""
    select = f"SELECT id FROM traces WHERE {condition} LIMIT {_AT_ONCE}"  # noqa: S608  # ours
    count = 0
    while True:
        with _transaction(writer):
            rows = writer.execute(select, values).fetchall()
            for table, column in (("records", "trace"), ("traces", "id"), ("labels", "trace")):
                writer.executemany(f"DELETE FROM {table} WHERE {column} = ?", rows)  # noqa: S608
        count += len(rows)
        if len(rows) < _AT_ONCE:
            return count
