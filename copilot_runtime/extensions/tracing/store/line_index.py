"""An in-memory index of the position of each trace's lines in JSON Lines files.

The index is built by reading the files once, and then reads only appended lines, by any process.
It is rebuilt if a file was replaced or deleted. It takes about a third of a kilobyte for each span;
the spans themselves stay in their files.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import (
    TraceFilter,
    TraceSummary,
    copy_summary,
    count_spans,
    match_summary,
)

DecodeLine = Callable[[bytes, Path], Record | None]
"""Returns the record of a line, or `None` for a line without a span."""

_MOST_OPEN = 16


class Place(NamedTuple):
    """The start of a line in a file."""

    path: Path
    offset: int


class IndexOutdated(Exception):
    """A line is not at its indexed position: another process has rewritten its file."""


@dataclass(slots=True)
class _Trace:
    summary: TraceSummary
    places: dict[str, Place] = field(default_factory=dict[str, Place])


class LineIndex:
    """Holds the summaries of all traces and the positions of their spans. It is thread-safe.

    `decode` is also called for each line when it is indexed.
    """

    def __init__(self, decode: DecodeLine) -> None:
        self._decode = decode
        self._traces: dict[str, _Trace] = {}
        self._sizes: dict[Path, int] = {}
        self._version: object = None
        self._lock = threading.Lock()

    def refresh(self, paths: Sequence[Path], version: object) -> None:
        """Read lines appended to files, the oldest first; read all again if `version` changed."""
        sizes = {path: path.stat().st_size for path in paths}
        with self._lock:
            has_shrunk = any(sizes.get(path, -1) < size for path, size in self._sizes.items())
            if has_shrunk or version != self._version:
                self._traces, self._sizes, self._version = {}, {}, version
            replaced: set[str] = set()
            for path in paths:
                if sizes[path] > self._sizes.get(path, 0):
                    self._scan(path, replaced)
            self._recount(replaced)

    def forget(self) -> None:
        """Make the next `refresh` read all files again."""
        with self._lock:
            self._version = object()

    def find(
        self, filter: TraceFilter, before: str = ""
    ) -> Iterator[tuple[TraceSummary, Mapping[str, Place]]]:
        """Yield matching traces with their places, the newest first; the text is ignored."""
        with self._lock:
            if filter.trace_id:
                traces = [self._traces[one] for one in (filter.trace_id,) if one in self._traces]
            else:
                traces = list(self._traces.values())
            first = self._traces.get(before)
            age = _age(first) if first is not None else None
            traces.sort(key=_age, reverse=True)
        for trace in traces:
            if before and (age is None or _age(trace) >= age):
                continue
            if match_summary(trace.summary, filter):
                with self._lock:
                    found = copy_summary(trace.summary), dict(trace.places)
                yield found

    def _scan(self, path: Path, replaced: set[str]) -> None:
        """Index the new lines of a file; a partial last line is left for the next scan.

        Traces in which a span replaced an earlier one are added to `replaced`.
        """
        offset = self._sizes.get(path, 0)
        with path.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                record = self._decode(line, path)
                if record is not None and not self._add(record, Place(path, offset)):
                    replaced.add(record["trace_id"])
                offset += len(line)
                self._sizes[path] = offset

    def _add(self, record: Record, place: Place) -> bool:
        """Index a line; return `True` if its span is new and was added to the summary."""
        trace_id, span_id = record["trace_id"], record["span_id"]
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = _Trace(TraceSummary(trace_id=trace_id))
        is_new = span_id not in trace.places
        trace.places[span_id] = place
        if is_new:
            trace.summary.add(record)
        return is_new

    def _recount(self, trace_ids: Iterable[str]) -> None:
        with LineReader(self._decode) as reader:
            for trace_id in trace_ids:
                trace = self._traces[trace_id]
                records = reader.read_spans(trace_id, trace.places)
                trace.summary = count_spans(trace_id, records)


class LineReader:
    """A context manager that reads indexed lines, and closes the files on exit."""

    def __init__(self, decode: DecodeLine) -> None:
        self._decode = decode
        self._files: dict[Path, BinaryIO] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.clear()
        self._stack.close()

    def read_spans(self, trace_id: str, places: Mapping[str, Place]) -> Sequence[Record]:
        """Return the spans of a trace in arrival order.

        Raises `IndexOutdated` if a line is not at its indexed position.
        """
        return [self._read(trace_id, span_id, place) for span_id, place in places.items()]

    def _read(self, trace_id: str, span_id: str, place: Place) -> Record:
        file = self._open(place.path)
        file.seek(place.offset)
        record = self._decode(file.readline(), place.path)
        if record is None or (record["trace_id"], record["span_id"]) != (trace_id, span_id):
            raise IndexOutdated
        return record

    def _open(self, path: Path) -> BinaryIO:
        file = self._files.get(path)
        if file is None:
            if len(self._files) >= _MOST_OPEN:
                self.__exit__()
            try:
                file = self._stack.enter_context(path.open("rb"))
            except FileNotFoundError:
                raise IndexOutdated from None
            self._files[path] = file
        return file


def _age(trace: _Trace) -> tuple[int, str]:
    return trace.summary.start, trace.summary.trace_id
