"""Validate that agents yield events that can be serialised."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from itertools import product
from math import isfinite
from operator import attrgetter
from types import NoneType
from typing import Any, get_args

import orjson

from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import Message, Part, ResultMessage, TextMessage
from copilot_runtime.base.errors import IncompleteStream, Misuse
from copilot_runtime.base.jsontext import MAX_DEPTH, replace_surrogates

DEEPEST = 240
"""Levels of a value. JSON is written with more, of which events, lists and requests need some."""

_AROUND = MAX_DEPTH - DEEPEST
_MESSAGES: tuple[type, ...] = get_args(Message)
_PARTS: tuple[type, ...] = get_args(Part)


def validate_event(event: Event, agent: str) -> Event:
    """Return the event with its values as plain JSON; the same object if they already are.

    Raises `Misuse` for an object that is not an event or a value that is not JSON, and
    `IncompleteStream` for a value that is nested too deeply.
    """
    kind = type(event)
    known = _KINDS.get(kind) or next((_KINDS[one] for one in kind.__mro__ if one in _KINDS), None)
    if known is None:
        raise Misuse(
            f"The agent yielded {_one(kind)}, which is not an event.",
            hint="Agents yield the events of copilot_runtime.api.events, and nothing else.",
        )
    if tuple(map(type, known.read_texts(event))) in known.plain:
        return event
    for name in known.texts:
        if not isinstance(value := getattr(event, name), str):
            raise _no_text(kind, name, value)
    for name in known.perhaps:
        if not isinstance(value := getattr(event, name), (str, type(None))):
            raise _no_text(kind, name, value)
    for name in known.values:
        if not _is_plain(value := getattr(event, name), orjson.OPT_PASSTHROUGH_DATACLASS):
            event = replace(event, **{name: _convert(value, name, kind, agent)})
    for name, items in known.lists:
        if (value := getattr(event, name)) != ():
            _check_items(value, items, name, kind)
            if not _is_plain(value, 0):
                event = replace(event, **{name: _convert(value, name, kind, agent)})
    return event


def _check_items(value: Any, kinds: tuple[type, ...], name: str, kind: type) -> None:
    """Raise `Misuse` if the value is not a list of messages, or of parts."""
    for item in value if isinstance(value, Sequence) else (value,):
        if not isinstance(item, kinds):
            raise Misuse(
                f"The agent yielded {_one(kind)} whose {name} hold {_one(type(item))}.",
                hint=f"They are a list of {', '.join(one.__name__ for one in kinds)}, which are "
                "dataclasses of copilot_runtime.api.messages.",
            )
        if isinstance(item, TextMessage | ResultMessage):
            _check_items(item.parts, _PARTS, f"{name}' parts", kind)


def _convert(value: Any, name: str, kind: type, agent: str) -> Any:
    """Return a value as plain JSON. Raises `Misuse` and `IncompleteStream`."""
    try:
        return to_plain_json(value)
    except TooDeep:
        raise IncompleteStream(
            f"The agent sent something that is nested too deeply: the {name} of its "
            f"{kind.__name__} has more than {DEEPEST} levels.",
            hint="Values that grow by patches, or hold themselves, get as deep as that.",
        ) from None
    except TypeError as error:
        raise Misuse(
            f"The agent {agent!r} yielded {_one(kind)} whose {name} is not JSON: {error}.",
            hint="JSON has texts, numbers, booleans, None, lists, and dicts whose keys are texts. "
            "Dataclasses and models of pydantic become dicts.",
        ) from error


def _no_text(kind: type, name: str, value: object) -> Misuse:
    return Misuse(
        f"The agent yielded {_one(kind)} whose {name} is not a string.",
        hint=f"It is {_one(type(value))}; convert it with str(...).",
    )


def _one(kind: type) -> str:
    return f"{'an' if kind.__name__[:1] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of an event class by type: strings, optional strings, JSON values, and lists of
    messages or parts.
    """

    texts: Sequence[str]
    perhaps: Sequence[str]
    values: Sequence[str]
    lists: Sequence[tuple[str, tuple[type, ...]]]
    read_texts: Callable[[Event], Sequence[Any]]
    """Returns the values of `texts` and `perhaps`."""
    plain: Collection[Sequence[type]]
    """The types of these values for which nothing more is to be checked; empty if the class has
    other fields."""

    @classmethod
    def of(cls, kind: Any) -> "_Fields":
        def find(*hints: Any) -> list[str]:
            return [field.name for field in fields(kind) if field.type in hints]

        texts, perhaps = find(str), find(str | None)
        values = find(Any, Mapping[str, Any] | None)
        lists = [
            *((name, _MESSAGES) for name in find(Sequence[Message])),
            *((name, _PARTS) for name in find(Sequence[Part])),
        ]
        read_texts = attrgetter("type", *texts, *perhaps)  # of one attribute, it returns no tuple
        types = product((str,), *[(str,)] * len(texts), *[(str, NoneType)] * len(perhaps))
        plain = () if values or lists else frozenset(types)
        return cls(texts, perhaps, values, lists, read_texts, plain)


_KINDS: Mapping[type, _Fields] = {kind: _Fields.of(kind) for kind in get_args(Event)}


def _is_plain(value: Any, option: int) -> bool:
    """Ask orjson, which looks through a value in less time than Python needs to begin."""
    if type(value) in (str, int, float, bool, NoneType):
        return True
    for _ in range(_AROUND):
        value = [value]
    try:
        orjson.dumps(value, option=option)
    except TypeError:  # also for half a character, a number too large, a number as a key
        return False
    return True


class TooDeep(Exception):
    """A value is nested too deeply, or contains itself."""


def to_plain_json(value: Any, level: int = 0) -> Any:
    """Convert a value to strings, numbers, booleans, None, lists and dicts; messages are kept.

    Raises `TypeError` that names the part that is not JSON, and `TooDeep`.
    """
    if level == DEEPEST and not isinstance(value, (str, int, float, NoneType)):
        raise TooDeep
    match value:
        case Enum():
            return to_plain_json(value.value, level)
        case str():
            return replace_surrogates(value)
        case int() | None:
            return value
        case float():
            return float(value) if isfinite(value) else None
        case Mapping():
            return {_to_key(key): to_plain_json(part, level + 1) for key, part in value.items()}
        case list() | tuple():
            return [to_plain_json(part, level + 1) for part in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            parts = {
                field.name: to_plain_json(getattr(value, field.name), level + 1)
                for field in fields(value)
            }
            return replace(value, **parts) if isinstance(value, (*_MESSAGES, *_PARTS)) else parts
        case _:
            return _convert_object(value, level)


def _to_key(key: Any) -> str:
    """Return a key as the text that JSON has for it."""
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return str.__str__(key)  # an exact `str`, which orjson demands of keys
    if isinstance(key, (int, float, type(None))):
        return json.dumps(key)
    raise TypeError(f"it has a key of the type {type(key).__name__!r}")


def _convert_object(value: Any, level: int) -> Any:
    """Return a model of pydantic as JSON, and a time or an UUID as its text."""
    if hasattr(value, "model_dump") and not isinstance(value, type):
        try:
            return to_plain_json(value.model_dump(mode="json"), level)
        except ValueError as error:  # of pydantic, for a field that is no JSON
            raise TypeError(f"{type(value).__name__!r} cannot be written: {error}") from error
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        raise TypeError(f"it has a value of the type {type(value).__name__!r}") from None
