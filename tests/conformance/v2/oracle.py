"""Ask AG-UI's own client code which event sequences it accepts, and what they amount to.

One Node process answers thousands of questions; see oracle.mjs. Not for two threads at a time.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.conformance.v2.node import HERE, install
from tests.processes import running

NEWEST = "0.0.59"
STABLE = "1.0.0"
"""The version that refuses what its schemas do not have: also what the client would only strip."""

VERSIONS = ("0.0.42", "0.0.52", "0.0.53", NEWEST, STABLE)
"""The versions of @ag-ui/client that can be asked: of React 1.50 the first, of 1.57 the third."""

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Applied:
    """What the client shows after a sequence of events."""

    messages: list[dict[str, Any]]
    state: Any


class Refused(Exception):
    """The client cannot apply the events."""


class Oracle:
    """`with Oracle() as oracle: oracle.verify(events)`."""

    def __enter__(self) -> Self:
        install()
        self._stack = ExitStack()
        oracle = running(["node", "oracle.mjs"], cwd=HERE, stdin=subprocess.PIPE)
        self._program = self._stack.enter_context(oracle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def verify(self, sequence: Sequence[Event], version: str = NEWEST) -> str | None:
        """Return None if the client takes the events of a run in this order, else its complaint.

        As in HttpAgent each event must satisfy the schema, then chunks are expanded, and then
        the order is checked. A sequence that merely stops early is accepted.
        """
        return self._ask(op="verify", events=sequence, version=version)["error"]

    def schema(self, event: Event, version: str = NEWEST) -> str | None:
        """Return None if the event has the shape the client insists on, else its complaint."""
        return self._ask(op="schema", event=event, version=version)["error"]

    def apply(
        self,
        sequence: Sequence[Event],
        messages: Sequence[Mapping[str, Any]] = (),
        state: Any = None,
        version: str = NEWEST,
    ) -> Applied:
        """Return messages and state after the events, whose order is not checked, as on connect.

        A state of None is the empty one. Raises `Refused` where the client throws.
        """
        start = {} if state is None else state
        answer = self._ask(
            op="apply", events=sequence, messages=messages, state=start, version=version
        )
        if answer["error"] is not None:
            raise Refused(answer["error"])
        return Applied(answer["messages"], answer["state"])

    def _ask(self, **question: Any) -> dict[str, Any]:
        # json.dumps escapes U+2028, which Node's readline would take for the end of the line
        self._program.write(json.dumps(question).encode() + b"\n")
        return json.loads(self._program.until(r"^.*\n")[0])
