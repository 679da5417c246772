"""Reads several calls out of one that no tool takes.

Models of OpenAI sometimes call `multi_tool_use.parallel`, which there is not, with calls in its
arguments.
"""

from collections.abc import Sequence
from typing import NamedTuple

from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import as_object, get_object, get_text, parse_object

PARALLEL_CALLS = frozenset({"multi_tool_use.parallel", "parallel"})

_PREFIX = "functions."


class InnerCall(NamedTuple):
    """A call in the arguments of another; its arguments are JSON."""

    id: str
    name: str
    arguments: str


def expand_calls(call_id: str, arguments: str) -> Sequence[InnerCall]:
    """Return the calls in the arguments of a call, numbered from 0; none if there are none."""
    uses = parse_object(arguments).get("tool_uses")
    calls: list[InnerCall] = []
    for number, use in enumerate(uses if isinstance(uses, list) else ()):
        fields = as_object(use)
        name = get_text(fields, "recipient_name") or get_text(fields, "name")
        values = get_object(fields, "parameters") or get_object(fields, "arguments")
        calls.append(
            InnerCall(f"{call_id}_{number}", name.removeprefix(_PREFIX), dumps(values).decode())
        )
    return calls
