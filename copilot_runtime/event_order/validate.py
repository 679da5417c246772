"""What an agent yields must be an event that can be sent and stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

import orjson

from copilot_runtime.errors import IncompleteStream, Misuse
from copilot_runtime.events import Event, MessagesSnapshot
from copilot_runtime.jsontext import MAX_DEPTH

DEEPEST = 240
"""Levels of a value. JSON is written with more, of which events, lists and requests need some."""

_AROUND = MAX_DEPTH - DEEPEST


def validate_event(event: object) -> None:
    """Raise `Misuse` for what is no event, `IncompleteStream` for a value nested too deeply."""
    kind = type(event)
    known = _KINDS.get(kind) or next((_KINDS[one] for one in kind.__mro__ if one in _KINDS), None)
    if known is None:
        raise Misuse(
            f"The agent yielded {_one(kind)}, which is no event.",
            hint="Agents yield the events of copilot_runtime.events, and nothing else.",
        )
    for name in known.texts:
        if not isinstance(value := getattr(event, name), str):
            raise _no_text(kind, name, value)
    for name in known.perhaps:
        if not isinstance(value := getattr(event, name), (str, type(None))):
            raise _no_text(kind, name, value)
    for name in known.values:
        if _too_deep(getattr(event, name)):
            raise IncompleteStream(
                f"The agent sent something that is nested too deeply: the {name} of its "
                f"{kind.__name__} has more than {DEEPEST} levels.",
                hint="Values that grow by patches, or hold themselves, get as deep as that.",
            )


def _no_text(kind: type, name: str, value: object) -> Misuse:
    return Misuse(
        f"The agent yielded {_one(kind)} whose {name} is no text.",
        hint=f"It is {_one(type(value))}; str(...) makes a text of it.",
    )


def _one(kind: type) -> str:
    return f"{'an' if kind.__name__[:1] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of an event that hold texts, texts or nothing, and anything JSON can hold."""

    texts: Sequence[str]
    perhaps: Sequence[str]
    values: Sequence[str]

    @classmethod
    def of(cls, kind: Any) -> "_Fields":
        hints = {field.name: field.type for field in fields(kind)}
        values = [name for name, hint in hints.items() if hint is Any]
        return cls(
            [name for name, hint in hints.items() if hint is str],
            [name for name, hint in hints.items() if hint == str | None],
            [*values, "messages"] if kind is MessagesSnapshot else values,
        )


_KINDS: Mapping[type, _Fields] = {kind: _Fields.of(kind) for kind in get_args(Event)}


def _too_deep(value: Any) -> bool:
    """Ask orjson, which looks through a value in less time than Python needs to begin."""
    if isinstance(value, (str, int, float, type(None))):
        return False
    for _ in range(_AROUND):
        value = [value]
    try:
        orjson.dumps(value, default=_nothing, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        if "ecursion" in str(error):
            return True
        return _too_deep_for_python(value)  # half a character, a number too large
    return False


def _nothing(_: object) -> None:
    """Replace what JSON cannot hold: where it is written, it becomes a text."""


def _too_deep_for_python(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST + _AROUND):
        # what is in two places counts once, so that a value that holds itself has an end, too
        inside = {
            id(part): part
            for one in level
            for part in (one.values() if isinstance(one, dict) else one)
            if isinstance(part, (dict, list, tuple))
        }
        if not inside:
            return False
        level = [*inside.values()]
    return True
