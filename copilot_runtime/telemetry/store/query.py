"""JMESPath over the spans of one trace at a time, as Copilot-LD has it, within limits."""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from typing import Any

import jmespath
from jmespath import exceptions
from jmespath.visitor import Options

from copilot_runtime.errors import LimitExceeded, Misuse
from copilot_runtime.telemetry.store.records import Record
from copilot_runtime.telemetry.store.traces import sort_spans

logger = logging.getLogger(__name__)

_LONGEST = 4_000
_DEEPEST = 50
_OPENING = re.compile(r"[\[({&!]")
_CLAUSE = re.compile(r"\[\?status\.code *== *`2`\](\.[A-Za-z_]+)?")


class TraceQuery:
    """A JMESPath for whole traces.

    It is evaluated on the list of the spans of each trace, by their start. The trace matches unless
    the result is null, false or an empty list: 0, an empty text and an object are matches, as in
    Copilot-LD. Raises `Misuse` for a wrong expression, `LimitExceeded` for one that is too long.
    """

    def __init__(self, expression: str, *, seconds: float = 10.0) -> None:
        self.expression = expression
        self.seconds = seconds
        self._compiled: Any = None
        if not expression:
            return
        if len(expression) > _LONGEST or len(_OPENING.findall(expression)) > _DEEPEST:
            raise LimitExceeded(
                "The query is too long.",
                hint=f"At most {_LONGEST} characters and {_DEEPEST} brackets are read.",
                status_code=400,
            )
        try:
            self._compiled = jmespath.compile(expression)
        except (exceptions.JMESPathError, ValueError, RecursionError) as error:
            raise Misuse(f"The query is no JMESPath: {_first_line(error)}") from None

    @property
    def wants_errors_only(self) -> bool:
        """Whether only traces with a failed span can match, which an index knows."""
        return _CLAUSE.fullmatch(self.expression) is not None

    def matches(self, spans: Sequence[Record]) -> bool:
        """Return whether a trace matches. Raises `Misuse` where a function gets a wrong type."""
        if self._compiled is None:
            return True
        try:
            found = self._compiled.search(spans, _OPTIONS)
        except (exceptions.JMESPathError, RecursionError, TypeError, ValueError) as error:
            raise Misuse(f"The query failed: {_first_line(error)}") from None
        return found is not None and found is not False and found != []

    def select(self, traces: Iterable[Sequence[Record]], limit: int = 0) -> Iterator[list[Record]]:
        """Yield the traces that match, each by the start of its spans; at most `limit`, if not 0.

        Raises `LimitExceeded` after `seconds`.
        """
        deadline, count = monotonic() + self.seconds, 0
        for spans in traces:
            ordered = sort_spans(spans)
            if self.matches(ordered):
                yield ordered
                count += 1
                if limit and count >= limit:
                    return
            if monotonic() > deadline:
                raise LimitExceeded(
                    f"The query took longer than {self.seconds:g} seconds.",
                    hint="Name a thread, an agent or a time, or a limit.",
                    status_code=400,
                )


_OPTIONS = Options()


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]
