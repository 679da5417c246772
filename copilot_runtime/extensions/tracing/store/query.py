"""JMESPath queries on the spans of one trace at a time, as in Copilot-LD, within limits."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, TypeVar

from copilot_runtime.base.concurrency import ThreadPool
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import TraceFilter, sort_spans
from copilot_runtime.telemetry import semconv

T = TypeVar("T")

MAX_SPANS = 100_000
"""Maximum number of spans in a query's result."""
MAX_SECONDS = 10.0
"""Time limit of a query, in seconds."""
_LONGEST = 4_000
_DEEPEST = 50
_OPENING = re.compile(r"[\[({&!]")
_CHECK_EVERY = 256
_pool = ThreadPool(2, "trace-query")


class TraceQuery:
    """A JMESPath for whole traces.

    It is evaluated on the list of spans of each trace, sorted by start. The trace matches unless
    the result is null, false, 0, an empty text or an empty list. Raises `Misuse` for an invalid
    expression, `LimitExceeded` for one that is too long.

    It runs in a thread, and ends `seconds` after its first step, or when its task is cancelled.
    """

    def __init__(
        self,
        expression: str,
        *,
        seconds: float | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.expression = expression
        self.seconds = MAX_SECONDS if seconds is None else seconds
        self._clock = clock
        self._deadline = 0.0
        self._steps = 0
        self._tree: dict[str, Any] | None = None
        self._keeps: Predicate | None = None
        if not expression:
            return
        if len(expression) > _LONGEST or len(_OPENING.findall(expression)) > _DEEPEST:
            raise LimitExceeded(
                "The query is too long.",
                hint=f"At most {_LONGEST} characters and {_DEEPEST} brackets are read.",
                status_code=400,
            )
        # optional package, needed for queries only
        from copilot_runtime.extensions.tracing.store.interpreter import Interpreter, parse

        tree = self._tree = parse(expression)
        self._keeps = compile_filter(tree)
        self._interpreter = Interpreter(self._check)

    def narrow(self, filter: TraceFilter) -> TraceFilter | None:
        """Return the filter with the query's conditions that indexes support.

        Return `None` if nothing can match, because the query and the filter contradict each other.
        """
        for name, value in _find_conditions(self._tree):
            if name == "has_error":
                if filter.has_error is False:
                    return None
                filter = replace(filter, has_error=True)
            elif getattr(filter, name) in ("", value):
                filter = replace(filter, **{name: value})
            elif name == "trace_id":
                return None
        return filter

    def matches(self, spans: Sequence[Record]) -> bool:
        """Return `True` if a trace matches. Raises `Misuse` for an argument of a wrong type."""
        if self._tree is None:
            return True
        if self._keeps is not None:
            return any(map(self._keeps, spans))
        found = self._interpreter.evaluate(self._tree, spans)
        return found not in _NOTHING

    def select(self, traces: Iterable[Sequence[Record]], limit: int = 0) -> Iterator[list[Record]]:
        """Yield the spans of matching traces, sorted by start; at most `limit` traces, 0 for all.

        Raises `LimitExceeded` after `seconds`.
        """
        count = 0
        for spans in self.limit_time(traces):
            ordered = sort_spans(spans)
            if self.matches(ordered):
                yield ordered
                count += 1
                if limit and count >= limit:
                    return

    def limit_time(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items from another iterable. Raises `LimitExceeded` after `seconds`."""
        self._deadline = self._clock() + self.seconds
        for item in items:
            self.check_time()
            yield item

    def is_late(self) -> bool:
        """Return `True` if the time limit of the query has passed."""
        return bool(self._deadline) and self._clock() > self._deadline

    def check_time(self) -> None:
        """Raise `LimitExceeded` if the time limit of the query has passed."""
        if self.is_late():
            raise LimitExceeded(
                f"The query took longer than {max(self.seconds, 0):g} seconds.",
                hint="Name a thread, an agent or a time, or a limit.",
                status_code=400,
            )

    def collect(self, traces: Iterable[Sequence[Record]], limit: int = 0) -> list[Record]:
        """Return the spans of all matching traces, sorted by start.

        Raises `LimitExceeded` after `seconds`, or for more than `MAX_SPANS`.
        """
        found: list[Record] = []
        for spans in self.select(traces, limit):
            found += spans
            if len(found) > MAX_SPANS:
                raise LimitExceeded(
                    f"The query finds more than {MAX_SPANS:,} spans.",
                    hint="Name a limit, a thread, an agent or a time.",
                    status_code=400,
                )
        return sort_spans(found)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work`, which calls `collect` or `select`, in a thread and return its result.

        At most two queries run concurrently; further ones wait.
        """
        try:
            return await _pool.run(work)
        except asyncio.CancelledError:
            self.seconds = self._deadline = -1.0
            raise

    def _check(self) -> None:
        self._steps += 1
        if not self._steps % _CHECK_EVERY:
            self.check_time()


_NOTHING: Sequence[Any] = (None, False, 0, "", [])
_INDEXES: Mapping[tuple[str, ...], str] = {
    ("trace_id",): "trace_id",
    ("attributes", semconv.CONVERSATION_ID): "thread_id",
    ("attributes", semconv.RUN_ID): "run_id",
    ("attributes", semconv.AGENT_NAME): "agent",
    ("resource", "attributes", "id"): "resource_id",
}
_STATUS = ("status", "code")


def _find_conditions(tree: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """Yield filter fields with the values that a trace must have to match.

    They are found in `[?condition]`, whose result is empty if no span meets the condition, and in
    its operands of `&&`.
    """
    if tree is None or tree["type"] != "filter_projection":
        return
    base, _, condition = tree["children"]
    if base["type"] != "identity":
        return
    waiting = [condition]
    while waiting:
        node = waiting.pop()
        if node["type"] == "and_expression":
            waiting += node["children"]
            continue
        path, value = read_comparison(node)
        if not path or node["value"] != "eq":
            continue
        if path == _STATUS and value == 2:
            yield "has_error", True
        elif isinstance(value, str) and value and (name := _INDEXES.get(path)):
            yield name, value


Predicate = Callable[[Record], bool]

_TEXT_FIELDS = frozenset({"trace_id", "span_id", "parent_span_id", "name"})
"""Fields that are text in every span: text functions raise an error for other types."""
_TEXT_FUNCTIONS: Mapping[str, Callable[[str, str], bool]] = {
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": str.__contains__,
}


def compile_filter(tree: Mapping[str, Any]) -> Predicate | None:
    """Compile a query of the form `[?condition]` to a predicate; None for other queries."""
    if tree["type"] != "filter_projection":
        return None
    base, rest, condition = tree["children"]
    is_plain = base["type"] == rest["type"] == "identity"
    return _compile_condition(condition) if is_plain else None


def read_comparison(node: Mapping[str, Any]) -> tuple[tuple[str, ...], Any]:
    """Return the path and the value of `path == value`, or `!=`; no path for anything else."""
    if node["type"] != "comparator" or node["value"] not in ("eq", "ne"):
        return (), None
    left, right = node["children"]
    if left["type"] == "literal":
        left, right = right, left
    if right["type"] != "literal" or type(right["value"]) not in (str, int, float):
        return (), None
    return _read_path(left), right["value"]


def _compile_condition(node: Mapping[str, Any]) -> Predicate | None:
    match node["type"]:
        case "comparator":
            path, value = read_comparison(node)
            return _compile_comparison(path, value, is_equal=node["value"] == "eq")
        case "and_expression" | "or_expression" as kind:
            left, right = map(_compile_condition, node["children"])
            if left is None or right is None:
                return None
            if kind == "and_expression":
                return lambda span: left(span) and right(span)
            return lambda span: left(span) or right(span)
        case "function_expression":
            return _compile_function(node)
        case "not_expression":
            inner = _compile_condition(node["children"][0])
            return None if inner is None else lambda span: not inner(span)
        case _:
            return None


def _compile_comparison(path: tuple[str, ...], value: Any, *, is_equal: bool) -> Predicate | None:
    if not path:
        return None

    def compare(span: Record) -> bool:
        found: Any = span
        for name in path:
            if not isinstance(found, dict):
                found = None
                break
            found = found.get(name)
        # true is not 1
        return (found == value and not isinstance(found, bool)) is is_equal

    return compare


def _compile_function(node: Mapping[str, Any]) -> Predicate | None:
    function = _TEXT_FUNCTIONS.get(node["value"])
    match node["children"]:
        case [{"type": "field", "value": str(field)}, {"type": "literal", "value": str(text)}]:
            if function is None or field not in _TEXT_FIELDS:
                return None
            return lambda span: function(span[field], text)
        case _:
            return None


def _read_path(node: Mapping[str, Any]) -> tuple[str, ...]:
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] != "subexpression":
        return ()
    parts = [_read_path(child) for child in node["children"]]
    return tuple(name for part in parts for name in part) if all(parts) else ()
