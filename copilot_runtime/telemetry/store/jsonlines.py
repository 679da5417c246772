"""Traces as JSON Lines: a file for each day, in UTC, that other programs can read as it grows.

A line is a record (`records`). A file is that of the day on which a line was written, so a new one
begins at midnight. Lines are only ever added, those of old days go with their file; `delete_trace`
and `delete_traces` write files anew. Lines in the form of Copilot-LD and of VS Code are read, too.
Nothing is kept in memory: a question reads the files, which suits thousands of traces, not
millions.
"""

import logging
import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from time import time_ns
from typing import TypeVar

from copilot_runtime.concurrency import call
from copilot_runtime.errors import CopilotError, StoreFailed
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.store.formats import decode_line
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
    match_summary,
    match_text,
    sort_spans,
)

try:
    import fcntl
except ImportError:  # Windows: one process only
    fcntl = None

T = TypeVar("T")

logger = logging.getLogger(__name__)

_SUFFIX = ".jsonl"
_LOCK = ".lock"


class JsonLinesTraceStore(ThreadedTraceStore):
    """Keeps traces in the files `YYYY-MM-DD.jsonl` of a folder, for `days`; 0 for ever.

    Several processes may write into one folder. Methods that read raise `StoreFailed` where the
    files cannot be read; a line that is no span is left out.
    """

    def __init__(
        self, folder: str | Path, *, days: float = 7.0, clock: Callable[[], int] = time_ns
    ) -> None:
        super().__init__(clock=clock)
        self.folder = Path(folder)
        self.days = days
        self._has_warned = False

    async def get_trace(self, trace_id: str) -> list[Record]:
        """Return the spans of a trace by their start; an empty list if it is not known."""
        own_id = clean_text(trace_id)
        traces = await self._read(lambda: self._load(own_id))
        return sort_spans(traces.get(own_id, {}).values())

    async def list_traces(
        self, filter: TraceFilter = EVERYTHING, *, limit: int = 100, before: str = ""
    ) -> Sequence[TraceSummary]:
        """Return traces in short, the newest first; those that began before the one named."""

        def find() -> Sequence[TraceSummary]:
            found = (summary for summary, _ in _find(self._load(), filter, clean_text(before)))
            return list(islice(found, max(0, limit)))

        return await self._read(find)

    async def query_spans(
        self, query: str = "", filter: TraceFilter = EVERYTHING, *, limit: int = 0
    ) -> list[Record]:
        """Return the spans of all traces that a JMESPath matches, by their start."""
        compiled = TraceQuery(query)
        meant = compiled.narrow(filter)
        await self.flush()

        def find() -> list[Record]:
            if meant is None:
                return []
            with _explain_errors():
                traces = self._load(meant.trace_id)
            return compiled.collect((spans for _, spans in _find(traces, meant)), limit)

        return await compiled.run(find)

    async def delete_traces(self, before: int) -> int:
        """Delete traces that ended before a time, in nanoseconds; return how many."""
        return await self._delete(lambda summary: summary.end < before)

    async def delete_trace(self, trace_id: str) -> bool:
        """Delete a trace; return whether there was one."""
        own_id = clean_text(trace_id)
        return await self._delete(lambda summary: summary.trace_id == own_id) > 0

    async def _read(self, work: Callable[[], T]) -> T:
        await self.flush()

        def read() -> T:
            with _explain_errors():
                return work()

        return await call(read)

    async def _delete(self, is_meant: Callable[[TraceSummary], bool]) -> int:
        def delete() -> int:
            with self._writing, self._lock():
                summaries = (
                    count_spans(trace_id, spans.values())
                    for trace_id, spans in self._load().items()
                )
                doomed = {summary.trace_id for summary in summaries if is_meant(summary)}
                if doomed:
                    for path in self._list_files():
                        self._rewrite(path, doomed)
                return len(doomed)

        return await self._read(delete)

    def _write(self, spans: Sequence[Span]) -> None:
        lines = [encode_json(encode_span(span))[1] for span in spans]
        day = datetime.fromtimestamp(self._clock() / 1e9, UTC).date()
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(), _open_file(self.folder / f"{day}{_SUFFIX}") as descriptor:
            size = os.fstat(descriptor).st_size
            # who was killed while it wrote has left half a line
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            try:
                _write_all(descriptor, b"\n" * is_torn + b"\n".join(lines) + b"\n")
            except OSError:
                os.ftruncate(descriptor, size)  # all or nothing: they are written once more
                raise

    def _clean(self, now: int) -> None:
        if self.days:
            oldest = datetime.fromtimestamp(now / 1e9, UTC).date() - timedelta(days=self.days)
            for path in self._list_files():
                if date.fromisoformat(path.stem) < oldest:
                    path.unlink(missing_ok=True)

    def _list_files(self) -> Sequence[Path]:
        """Return the files of all days, the oldest first; others in the folder are not ours."""
        return sorted(path for path in self.folder.glob(f"*{_SUFFIX}") if _is_day(path.stem))

    def _load(self, trace_id: str = "") -> dict[str, dict[str, Record]]:
        """Return the spans of all traces, or of one, by their ids, in the order they came."""
        traces: dict[str, dict[str, Record]] = {}
        needle = encode_json({"": trace_id})[1][4:-1] if trace_id else b""
        for path in self._list_files():
            with path.open("rb") as file:
                for line in file:
                    if needle and needle not in line:
                        continue
                    for span in self._decode(line, path):
                        if not trace_id or span.trace_id == trace_id:
                            record = encode_span(span)
                            traces.setdefault(span.trace_id, {})[span.span_id] = record
        return traces

    def _decode(self, line: bytes, path: Path) -> Sequence[Span]:
        try:
            return list(decode_line(line))
        except CopilotError:
            if line.endswith(b"\n") and not self._has_warned:  # else it is being written
                self._has_warned = True
                logger.warning("%s has lines that are no spans; they are left out.", path)
            return []

    def _rewrite(self, path: Path, traces: Collection[str]) -> None:
        """Write a file without the spans of some traces."""
        copy = path.with_suffix(".new")
        with path.open("rb") as file, copy.open("wb") as target:
            for line in file:
                if not any(span.trace_id in traces for span in self._decode(line, path)):
                    target.write(line)
        copy.replace(path)

    @contextmanager
    def _lock(self) -> Generator[None]:
        """Keep writers of all processes apart."""
        if fcntl is None or not self.folder.is_dir():
            yield
            return
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _find(
    traces: Mapping[str, Mapping[str, Record]], filter: TraceFilter, before: str = ""
) -> Iterator[tuple[TraceSummary, Sequence[Record]]]:
    """Yield the traces that are meant, the newest first; of each the spans as they came."""
    found = [(count_spans(trace_id, each.values()), each) for trace_id, each in traces.items()]
    first = next((_age(one) for one, _ in found if one.trace_id == before), None)
    for summary, each in sorted(found, key=lambda one: _age(one[0]), reverse=True):
        if before and (first is None or _age(summary) >= first):
            continue
        if match_summary(summary, filter) and match_text(each.values(), filter.text):
            yield summary, list(each.values())


def _age(summary: TraceSummary) -> tuple[int, str]:
    return summary.start, summary.trace_id


def _is_day(name: str) -> bool:
    try:
        return str(date.fromisoformat(name)) == name
    except ValueError:
        return False


@contextmanager
def _open_file(path: Path) -> Generator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextmanager
def _explain_errors() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreFailed("Traces cannot be read or deleted at the moment.") from error
