"""Evaluate SPARQL in separate processes, one for each visible part of the graph."""

import os
import socket
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.processes import start_worker
from copilot_runtime.extensions.knowledge.graph.sparql import (
    QueryKind,
    SparqlLimits,
    SparqlResult,
    describe_syntax_error,
)
from copilot_runtime.extensions.knowledge.graph.terms import (
    InvalidQuery,
    QueryTooLarge,
    parse_terms,
)
from copilot_runtime.extensions.knowledge.graph.worker import COMMAND, LENGTH
from copilot_runtime.extensions.knowledge.rdf.terms import parse_triples

ViewKey: TypeAlias = tuple[int, Hashable]
"""The generation of a graph, and a key of its visible part."""

_WORKER = Path(__file__).with_name("worker.py")
_GRACE = 2.0
"""Seconds after its own time limit until a child process is killed by its parent."""
_MOST_LOADING = 300.0
"""Seconds after which a worker that is still loading counts as hanging."""
_MOST_VIEWS = 4
_MOST_EVALUATIONS = 4
_LINES_AT_ONCE = 10_000


class Evaluation:
    """One query that is being evaluated."""

    def __init__(
        self, query: str, kind: QueryKind, limits: SparqlLimits, prefixes: Mapping[str, str]
    ) -> None:
        self.query = query
        self.kind: QueryKind = kind
        self.limits = limits
        self.prefixes = prefixes
        self.is_cancelled = False
        self._kill: Callable[[], None] | None = None

    def cancel(self) -> None:
        """Cancel the query, whose caller no longer waits."""
        self.is_cancelled = True
        if self._kill is not None:
            self._kill()

    def kill_with(self, kill: Callable[[], None]) -> None:
        """Set the function that kills the query."""
        self._kill = kill
        if self.is_cancelled:
            kill()


class SparqlEvaluator:
    """Evaluates a limited number of queries at once, and keeps the most recent worker processes."""

    def __init__(self, *, on_disk: bool = False) -> None:
        """Create an evaluator with its graphs in memory or in temporary files."""
        self._on_disk = on_disk
        self._views: OrderedDict[ViewKey, _View] = OrderedDict()
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_MOST_EVALUATIONS)

    def run(
        self, evaluation: Evaluation, key: ViewKey, triples: Callable[[], Iterable[str]]
    ) -> SparqlResult:
        """Evaluate a query over the triples (lines of N-Triples) that `key` identifies. Blocks.

        The time limit includes waiting for a slot and for the triples to be loaded.
        """
        seconds = evaluation.limits.seconds
        deadline = time.monotonic() + seconds
        if not self._slots.acquire(timeout=seconds):
            raise QueryTooLarge(
                f"{_MOST_EVALUATIONS} queries are being answered.", hint="Try again in a moment."
            )
        try:
            with self._view(key, triples) as view:
                view.wait_for_worker(evaluation, deadline)
                return view.evaluate(evaluation, deadline)
        finally:
            self._slots.release()

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            views = [*self._views.values()]
            self._views.clear()
        for view in views:
            view.close()

    @contextmanager
    def _view(self, key: ViewKey, triples: Callable[[], Iterable[str]]) -> "Generator[_View]":
        view, excess = self._take_view(key, triples)
        try:
            with ExitStack() as stack:
                for old in excess:
                    stack.callback(old.close)
            yield view
        finally:
            with self._lock:
                view.users -= 1

    def _take_view(
        self, key: ViewKey, triples: Callable[[], Iterable[str]]
    ) -> "tuple[_View, list[_View]]":
        """Return the view of a key with its usage count increased, and the views to close."""
        with self._lock:
            excess: list[_View] = []
            view = self._views.get(key)
            if view is None or not view.is_usable:
                excess += [view] if view else []
                view = self._views[key] = _View(triples, on_disk=self._on_disk)
            self._views.move_to_end(key)
            view.users += 1
            spare = [old for old, view in self._views.items() if not view.users]
            outdated = [old for old in spare if old[0] != key[0]]
            for old in outdated or spare[: max(0, len(self._views) - _MOST_VIEWS)]:
                excess.append(self._views.pop(old))
            return view, excess


class _View:
    """A worker process and its graph, which a thread loads."""

    def __init__(self, triples: Callable[[], Iterable[str]], *, on_disk: bool) -> None:
        self.users = 0
        self._folder = tempfile.TemporaryDirectory("-graph") if on_disk else None
        self._triples = triples
        self._lock = threading.Lock()
        self._state = threading.Condition()
        self._loader: threading.Thread | None = None
        self._began = 0.0
        self._is_loaded = False
        self._is_closed = False
        self._error: Exception | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @property
    def is_usable(self) -> bool:
        """Whether its worker is running or can be started, and does not hang."""
        if self._error is not None or self._is_closed:
            return False
        if self._loader is not None and not self._is_loaded:
            return time.monotonic() - self._began < _MOST_LOADING
        return self._process is None or self._process.poll() is None

    def wait_for_worker(self, evaluation: Evaluation, deadline: float) -> None:
        """Start a worker if there is none, and wait until it has loaded the triples."""
        evaluation.kill_with(self._wake)
        with self._state:
            if self._loader is None:
                self._began = time.monotonic()
                self._loader = threading.Thread(target=self._load, name="load graph", daemon=True)
                self._loader.start()
            self._state.wait_for(
                lambda: self._is_loaded or self._error or evaluation.is_cancelled,
                max(0.0, deadline - time.monotonic()),
            )
            if self._error is not None:
                raise self._error
            if not self._is_loaded:
                raise QueryTooLarge(
                    f"The graph was not loaded within {evaluation.limits.seconds:g} seconds.",
                    hint="That goes on: ask again in a moment.",
                )

    def _wake(self) -> None:
        with self._state:
            self._state.notify_all()

    def _load(self) -> None:
        error: Exception | None = None
        try:
            self._start()
        except Exception as raised:  # raised by the waiting caller
            error = raised
        with self._state:
            self._error, self._is_loaded = error, error is None
            self._state.notify_all()

    def _start(self) -> None:
        if not hasattr(os, "fork"):
            raise ConfigurationFailed(
                "SPARQL needs a system with processes that fork, such as Linux or macOS.",
                hint="Search with patterns, which work everywhere.",
            )
        ours, theirs = socket.socketpair()
        ours.settimeout(_MOST_LOADING)
        self._control = ours
        with theirs, tempfile.TemporaryFile() as data:
            lines = iter(self._triples())
            while not self._is_closed and (some := [*islice(lines, _LINES_AT_ONCE)]):
                data.write("\n".join(some).encode() + b"\n")
            data.seek(0)
            with self._lock:
                if self._is_closed:
                    ours.close()
                    raise CopilotError("The graph was closed while it was loaded.")
                self._process = self._start_process(data, theirs)
        if ours.recv(1) != b"r":
            self._process.wait()
            raise CopilotError("The process that answers SPARQL could not read the graph.")
        ours.settimeout(_GRACE)

    def _start_process(self, data: IO[bytes], control: socket.socket) -> "subprocess.Popen[bytes]":
        folder = self._folder.name if self._folder else ""
        return start_worker(
            *(_WORKER, str(control.fileno()), folder),
            stdin=data,
            stdout=subprocess.DEVNULL,
            pass_fds=[control.fileno()],
        )

    def evaluate(self, evaluation: Evaluation, deadline: float) -> SparqlResult:
        """Evaluate a query, and return its result."""
        limits = evaluation.limits
        ours, theirs = socket.socketpair()
        with ours:
            request = dumps(
                {
                    **asdict(limits),
                    "seconds": deadline - time.monotonic(),
                    "query": evaluation.query,
                    "prefixes": {**evaluation.prefixes},
                }
            )
            lines: list[Any] = []
            try:
                with theirs:
                    self._send(COMMAND.pack(b"q", 0), [theirs.fileno()])
                answer = _read_lines(ours, deadline + _GRACE)
                pid = loads(next(answer, b'{"pid":0}'))["pid"]
                evaluation.kill_with(lambda: self._kill(pid))
                ours.sendall(LENGTH.pack(len(request)) + request)
                lines = [loads(line) for line in answer]
            except TimeoutError:
                evaluation.cancel()
            except (ConnectionError, ValueError):
                pass
        last = cast("dict[str, Any]", lines[-1]) if lines and isinstance(lines[-1], dict) else {}
        if "syntax" in last:
            raise describe_syntax_error(str(last["syntax"]), evaluation.query, evaluation.prefixes)
        if "failure" in last:
            raise InvalidQuery(f"The query failed: {str(last['failure'])[:300]}")
        if "cut" in last:
            return _read_result(evaluation.kind, lines)
        if time.monotonic() >= deadline:
            raise QueryTooLarge(
                f"The query was stopped after {limits.seconds:g} seconds.",
                hint="Simplify the query: put the most specific pattern first, and set a LIMIT.",
            )
        raise QueryTooLarge(
            "The query needs more memory than it may have, or is nested too deeply.",
            hint="Ask for less at once, and join fewer large parts.",
        )

    def close(self) -> None:
        """Stop the worker and its queries."""
        with self._lock:
            self._is_closed = True
            if self._control is not None:
                with suppress(OSError):
                    self._control.shutdown(socket.SHUT_RDWR)  # wakes the loader, too
                self._control.close()
            if self._process is not None:
                try:
                    self._process.wait(_GRACE)  # it ends its children first
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
        if self._loader is not None:
            self._loader.join(_GRACE)
        if self._folder is not None:
            self._folder.cleanup()

    def _kill(self, pid: int) -> None:
        try:
            self._send(COMMAND.pack(b"k", pid), [])
        except OSError:  # the worker has ended, and its children have ended with their time
            return

    def _send(self, message: bytes, descriptors: list[int]) -> None:
        assert self._control is not None
        with self._lock:
            socket.send_fds(self._control, [message], descriptors)


def _read_lines(connection: socket.socket, deadline: float) -> Iterator[bytes]:
    """Yield whole lines until the other end is closed. Raises `TimeoutError` at the deadline."""
    rest = b""
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        data = connection.recv(1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def _read_result(kind: QueryKind, lines: list[Any]) -> SparqlResult:
    *rows, end = lines
    if kind == "ask":
        return SparqlResult(kind=kind, boolean=end["boolean"])
    if kind == "select":
        head, *rows = rows
        variables = tuple(head["variables"])
        terms = iter(parse_terms(text for row in rows for text in row if text is not None))
        solutions = tuple(
            {
                name: next(terms)
                for name, text in zip(variables, row, strict=True)
                if text is not None
            }
            for row in rows
        )
        return SparqlResult(kind=kind, variables=variables, rows=solutions, cut=end["cut"])
    triples = parse_triples(f"{' '.join(row)} ." for row in rows)
    return SparqlResult(kind=kind, triples=tuple(triples), cut=end["cut"])
