"""A fast JSON codec for stored events.

Validation by pydantic takes ten times as long: clients wait while a thread of 10,000 events is
read.
"""

import json
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from math import isfinite
from time import monotonic
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import orjson

from copilot_runtime.api.events import Event
from copilot_runtime.base import jsontext

logger = logging.getLogger("copilot_runtime.threads")

_SECONDS_BETWEEN_LINES = 60.0
_next_line: dict[str, float] = {}
"""The earliest time of the next log line about lost events of a type."""


def encode(events: Sequence[Event]) -> bytes:
    """Encode events as a JSON array. Values that are not JSON become their `str()`.

    An event that cannot be encoded at all, such as a state nested a thousand levels deep, is
    omitted and logged, so that the rest of the answer is stored.
    """
    try:
        return orjson.dumps(list(events), default=_as_json)
    except TypeError:
        return b"[" + b",".join(_encode_each(events)) + b"]"


def encode_parts(parts: Iterable[tuple[int, Sequence[Event]]]) -> bytes:
    """Encode events of several logs as one JSON array: `[[number, event, ...], ...]`."""
    rows = [[number, *events] for number, events in parts]
    try:
        return orjson.dumps(rows, default=_as_json)
    except TypeError:
        return b"[" + b",".join(map(_encode_part, rows)) + b"]"


def decode(data: bytes | str, where: str) -> list[Event]:
    """Decode the output of `encode`. Unreadable events are skipped, with a log line on `where`."""
    return _parse_rows(_load_rows(data, where), where)


def decode_parts(
    data: bytes | str, where: str, numbers: Container[int]
) -> Iterator[tuple[int, list[Event]]]:
    """Yield the logs with these numbers from the output of `encode_parts`, as `decode` does."""
    for part in _load_rows(data, where):
        match part:
            case [int(number), *rows]:
                if number in numbers:
                    yield number, _parse_rows(rows, where)
            case _:
                logger.error("Skipped unreadable data in %s: it has no number", where)


def parse_events(rows: Any) -> list[Event]:
    """Return the events of decoded JSON. Raises `ValueError` if one is invalid."""
    if not isinstance(rows, list):
        raise ValueError("the events are not a list")
    events, errors = _read_events(rows)
    if errors:
        raise ValueError(errors[0])
    return events


def _load_rows(data: bytes | str, where: str) -> list[Any]:
    try:
        rows = jsontext.loads(data if isinstance(data, bytes) else data.encode())
    except (ValueError, AttributeError) as error:
        logger.error("Skipped unreadable data in %s: %s", where, error)
        return []
    if not isinstance(rows, list):
        logger.error("Skipped unreadable data in %s: it is not a list", where)
        return []
    return rows


def _parse_rows(rows: Sequence[Any], where: str) -> list[Event]:
    """Return the valid events of some rows; log the others."""
    events, errors = _read_events(rows)
    if errors:
        logger.error(
            "Skipped %s of %s events in %s: %s", len(errors), len(rows), where, errors[0][:200]
        )
    return events


def _read_events(rows: Sequence[Any]) -> tuple[list[Event], list[str]]:
    """Return the valid events of some rows, and the errors of the others."""
    events: list[Event] = []
    errors: list[str] = []
    readers = _readers()
    for number, row in enumerate(rows, 1):
        try:
            events.append(readers[row["type"]](row))
        except (KeyError, TypeError, ValueError) as error:
            errors.append(f"event {number} is invalid ({type(error).__name__}: {error})")
    return events, errors


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def _encode_part(row: Sequence[Any]) -> bytes:
    number, *events = row
    return b"[" + b",".join([b"%d" % number, *_encode_each(events)]) + b"]"


def _encode_each(events: Iterable[Event]) -> Iterable[bytes]:
    for event in events:
        try:
            yield orjson.dumps(event, default=_as_json)
        except TypeError:
            try:
                yield json.dumps(_to_plain(event), separators=(",", ":")).encode()
            except (RecursionError, ValueError) as error:
                _log_loss(event, error)


def _log_loss(event: Event, error: Exception) -> None:
    """Log a lost event, at most once a minute per type: hundreds may be lost at a time."""
    now = monotonic()
    if now >= _next_line.get(event.type, now):
        _next_line[event.type] = now + _SECONDS_BETWEEN_LINES
        logger.error("An event of type %r was not stored: %s", event.type, error)


def _to_plain(value: Any) -> Any:
    """Return a value that the standard library can encode and orjson can decode."""
    if isinstance(value, (str, bool, int, NoneType)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if is_dataclass(value):
        return {field.name: _to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _to_plain(part) for key, part in value.items()}
    if isinstance(value, Iterable):
        return [_to_plain(part) for part in value]
    return str(value)


Read = Callable[[dict[str, Any]], Any]


@cache
def _readers() -> Mapping[str, Read]:
    return {_get_type(event): _Reader.of(event) for event in get_args(Event)}


def _get_type(kind: type) -> str:
    return next(str(field.default) for field in fields(kind) if field.name == "type")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Builds dataclasses of one kind from JSON objects. Raises `ValueError` or `TypeError`."""

    kind: Any
    names: frozenset[str]
    plain: Sequence[tuple[str, tuple[type, ...]]]
    words: Sequence[tuple[str, frozenset[str]]]
    nested: Sequence[tuple[str, Read | Mapping[str, Read]]]

    @classmethod
    def of(cls, kind: type) -> "_Reader":
        """Return the reader for a dataclass, derived from its annotations."""
        plain: list[tuple[str, tuple[type, ...]]] = []
        words: list[tuple[str, frozenset[str]]] = []
        nested: list[tuple[str, Read | Mapping[str, Read]]] = []
        for name, hint in get_type_hints(kind).items():
            origin, parts = get_origin(hint), get_args(hint)
            if is_dataclass(hint):
                nested.append((name, cls.of(hint)))  # pyright: ignore[reportArgumentType]  # a class, not a value
            elif origin is Literal:
                words.append((name, frozenset(parts)))
            elif hint == tuple[str, ...]:
                nested.append((name, _read_texts))
            elif origin is Sequence:
                nested.append(
                    (name, {_get_type(part): cls.of(part) for part in get_args(parts[0])})
                )
            elif hint is not Any:
                union = parts if isinstance(hint, UnionType) else (hint,)
                plain.append((name, tuple(map(_class, union))))
        return cls(kind, frozenset(get_type_hints(kind)), plain, words, nested)

    def __call__(self, row: dict[str, Any]) -> Any:
        for name, read in self.nested:
            if name not in row:
                continue
            value = row[name]
            if not isinstance(read, Mapping):
                row[name] = read(value)
            elif value:
                row[name] = [read[part["type"]](part) for part in value]
            else:
                row[name] = ()
        try:
            value = self.kind(**row)
        except TypeError:  # a later version of this package wrote more
            value = self.kind(**{name: row[name] for name in self.names & row.keys()})
        for name, kinds in self.plain:
            if not isinstance(getattr(value, name), kinds):
                raise ValueError(f"{name!r} of {row.get('type', 'it')!r} is wrong")
        for name, words in self.words:
            if getattr(value, name) not in words:
                raise ValueError(f"{name!r} is {getattr(value, name)!r}")
        return value


def _read_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError("expected a list of strings")
    return tuple(value)


def _class(hint: Any) -> type:
    origin = get_origin(hint)
    return dict if origin is not None and issubclass(origin, Mapping) else hint
