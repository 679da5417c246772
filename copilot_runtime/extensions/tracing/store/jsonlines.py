"""A trace store in JSON Lines: a file per day (UTC), which other programs can read meanwhile.

A line is a record (`records`) in the file of the day on which it was written. Lines are only
appended, and expire with their file; `delete_trace` and `delete_traces` rewrite the files. Lines
in the formats of Copilot-LD and VS Code are read as well. An in-memory index (`line_index`) finds
the lines of a trace. It is built on the first read, which suits a hundred thousand spans, but not
millions: use SQLite for those.
"""

import logging
import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import time_ns

from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import CopilotError, StoreFailed
from copilot_runtime.extensions.tracing.store.line_index import (
    IndexOutdated,
    LineIndex,
    LineReader,
    Place,
)
from copilot_runtime.extensions.tracing.store.query import TraceQuery
from copilot_runtime.extensions.tracing.store.records import Record, decode_record, encode_span
from copilot_runtime.extensions.tracing.store.store import (
    EVERYTHING,
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
)
from copilot_runtime.telemetry.span import Span

try:
    import fcntl
except ImportError:  # Windows: one process only
    fcntl = None

logger = logging.getLogger(__name__)

_SUFFIX = ".jsonl"
_LOCK = ".lock"
_ATTEMPTS = 5


class JsonLinesTraceStore(ThreadedTraceStore):
    """Stores traces in the files `YYYY-MM-DD.jsonl` of a folder for `days`; 0 for no expiry.

    Several processes may write to one folder. Methods that read raise `StoreFailed` if the files
    cannot be read; lines that are not spans are skipped.
    """

    def __init__(
        self, folder: str | Path, *, days: float = 7.0, clock: Callable[[], int] = time_ns
    ) -> None:
        super().__init__(clock=clock)
        self.folder = Path(folder)
        self.days = days
        self._has_warned = False
        self._index = LineIndex(self._decode)

    async def delete_traces(self, before: int) -> int:
        """Delete traces that ended before a time in nanoseconds; return their number."""
        return await self._delete(lambda summary: summary.end < before)

    async def delete_trace(self, trace_id: str) -> bool:
        """Delete a trace; return True if it existed."""
        own_id = clean_text(trace_id)
        return await self._delete(lambda summary: summary.trace_id == own_id) > 0

    def _read(self, work: Callable[[TraceReader], T], search: TraceQuery | None = None) -> T:
        del search
        return self._attempt_read(lambda: work(self))

    def _attempt_read(self, work: Callable[[], T]) -> T:
        """Run a function that reads lines; retry if another process rewrites the file meanwhile."""
        for _ in range(_ATTEMPTS):
            with suppress(IndexOutdated), _explain_errors():
                return work()
            self._index.forget()
        raise StoreFailed("Traces cannot be read: other processes keep rewriting the files.")

    def find(self, filter: TraceFilter, before: str = "") -> Iterator[TraceSummary]:
        """Yield the summaries of matching traces, the newest first."""
        return (summary for summary, _ in self._find(filter, before))

    def _find(
        self, filter: TraceFilter, before: str = ""
    ) -> Iterator[tuple[TraceSummary, Mapping[str, Place]]]:
        """Yield traces that match the filter, ignoring its text, the newest first."""
        with self._lock(is_required=False):
            self._index.refresh(self._list_files(), self._count_rewrites())
        return self._index.find(filter, before)

    def read(
        self, filter: TraceFilter, before: str = ""
    ) -> Iterator[tuple[TraceSummary, Sequence[Record]]]:
        """Yield matching traces, the newest first, with their spans in arrival order."""
        with LineReader(self._decode) as reader:
            for summary, places in self._find(filter, before):
                records = reader.read_spans(summary.trace_id, places)
                if match_text(summary.question, records, filter.text):
                    yield summary, records

    async def _delete(self, is_meant: Callable[[TraceSummary], bool]) -> int:
        await self.flush()

        def delete() -> int:
            doomed = {one.trace_id for one, _ in self._find(EVERYTHING) if is_meant(one)}
            if doomed:
                with self._lock():
                    for path in self._list_files():
                        self._rewrite(path, doomed)
                    self._add_rewrite()
            return len(doomed)

        def delete_alone() -> int:
            with self._writing:
                return self._attempt_read(delete)

        return await call(delete_alone)

    def _write(self, spans: Sequence[Span]) -> None:
        lines = [encode_json(encode_span(span))[1] for span in spans]
        day = datetime.fromtimestamp(self._clock() / 1e9, UTC).date()
        # users' messages are private, and so are their times
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock(), _open_file(self.folder / f"{day}{_SUFFIX}") as descriptor:
            size = os.fstat(descriptor).st_size
            # a process killed while writing leaves a partial line
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            try:
                _write_all(descriptor, b"\n" * is_torn + b"\n".join(lines) + b"\n")
            except OSError:
                os.ftruncate(descriptor, size)  # all or nothing: the batch is retried
                raise

    def _clean(self, now: int) -> None:
        if self.days:
            oldest = datetime.fromtimestamp(now / 1e9, UTC).date() - timedelta(days=self.days)
            for path in self._list_files():
                if date.fromisoformat(path.stem) < oldest:
                    with self._lock():
                        path.unlink(missing_ok=True)

    def _list_files(self) -> Sequence[Path]:
        """Return the files of all days, the oldest first, ignoring other files in the folder."""
        return sorted(path for path in self.folder.glob(f"*{_SUFFIX}") if _is_day(path.stem))

    def _decode(self, line: bytes, path: Path) -> Record | None:
        try:
            return decode_record(line)
        except CopilotError:
            if line.endswith(b"\n") and not self._has_warned:  # else it is being written
                self._has_warned = True
                logger.warning("%s has lines that are not spans; they are skipped.", path)
            return None

    def _rewrite(self, path: Path, traces: Collection[str]) -> None:
        """Rewrite a file without the spans of some traces."""
        copy = path.with_suffix(".new")
        with path.open("rb") as file, os.fdopen(_open(copy, os.O_TRUNC), "wb") as target:
            for line in file:
                record = self._decode(line, path)
                if record is None or record["trace_id"] not in traces:
                    target.write(line)
        copy.replace(path)

    def _count_rewrites(self) -> int:
        """Return the number of rewrites so far, which is the size of the lock file."""
        try:
            return (self.folder / _LOCK).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def _add_rewrite(self) -> None:
        with _open_file(self.folder / _LOCK) as descriptor:
            _write_all(descriptor, b".")

    @contextmanager
    def _lock(self, *, is_required: bool = True) -> Generator[None]:
        """Lock the folder for writers, and readers of new lines, of all processes."""
        if fcntl is None or not self.folder.is_dir():
            yield
            return
        try:
            descriptor = _open(self.folder / _LOCK)
        except OSError:
            if is_required:
                raise
            yield  # a read-only user needs no lock
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _is_day(name: str) -> bool:
    try:
        return str(date.fromisoformat(name)) == name
    except ValueError:
        return False


def _open(path: Path, flags: int = 0) -> int:
    """Open a file, and create it with private permissions if it does not exist."""
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)


@contextmanager
def _open_file(path: Path) -> Generator[int]:
    descriptor = _open(path, os.O_APPEND)
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
