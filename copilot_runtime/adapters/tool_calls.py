"""The calls of one response while their pieces arrive, and calls inside the arguments of others."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from copilot_runtime.adapters.added_fields import ANSWER, ID, FieldPieces
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_object,
    get_object,
    get_text,
    parse_object,
)

_COMMON_ID = re.compile(r"[a-zA-Z0-9_-]{0,40}")
"""Call ids that all services accept. Others go back to the service that sent them only."""


@dataclass(slots=True)
class ToolCallBuffer:
    provider_id: str
    """The provider's id; `id` may differ from it."""
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    fields: FieldPieces = field(default_factory=FieldPieces)
    """The fields that the service has added."""
    answer_fields: Mapping[str, Any] | None = None
    """Those of the whole answer."""
    started: bool = False
    closed: bool = False
    """Whether the provider has marked it as complete."""
    ended: bool = False

    def add_name(self, piece: str) -> None:
        """Append a chunk of the name; some servers repeat the whole name in each chunk."""
        if piece != self.name:
            self.name += piece

    def is_another(self, call_id: str) -> bool:
        """Return `True` if a chunk with this id and a name starts another call of the same index.

        Some servers give every call the index 0; some of them send no id either.
        """
        if call_id and self.provider_id:
            return call_id != self.provider_id
        return not call_id and (self.closed or self.ended or self.is_complete())

    def added_fields(self) -> JsonObject | None:
        """Return the fields to send back, with an id that another service may refuse."""
        fields = self.fields.join()
        if self.provider_id and self.provider_id != self.id:
            fields[ID] = self.provider_id
        if self.answer_fields is not None:
            fields[ANSWER] = self.answer_fields
        return fields if fields or not _COMMON_ID.fullmatch(self.provider_id) else None

    def is_complete(self) -> bool:
        """Return `True` if the arguments are a complete JSON text."""
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        try:
            orjson.loads("".join(self.arguments))
        except orjson.JSONDecodeError:
            return False
        return True


def is_readable(arguments: str) -> bool:
    """Return whether the arguments of a call are JSON; no text stands for an empty object."""
    try:
        loads(arguments.encode(errors="replace"))
    except ValueError:
        return not arguments.strip()
    return True


PARALLEL_CALLS = frozenset({"multi_tool_use.parallel", "parallel"})


def expand_calls(call_id: str, arguments: str) -> Sequence[ToolCallBuffer]:
    """Return the calls in the arguments of a wrapper; their ids get the suffixes `_0`, `_1`, …"""
    calls: list[ToolCallBuffer] = []
    for number, use in enumerate(as_list(parse_object(arguments).get("tool_uses"))):
        fields, id = as_object(use), f"{call_id}_{number}"
        name = get_text(fields, "recipient_name") or get_text(fields, "name")
        values = get_object(fields, "parameters") or get_object(fields, "arguments")
        pieces = [dumps(values).decode()]
        calls.append(ToolCallBuffer(id, id, name.removeprefix("functions."), pieces))
    return calls
