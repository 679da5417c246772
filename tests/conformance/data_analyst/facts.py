"""Compare what a case expects with the facts that a handler found.

A fact is a value, or a function that finds it when a case asks for it. `a.b[0]` is a path into
facts. `x_max`, `x_min`, `x_not`, `x_contains`, `x_not_contains` and `x_matches` ask something of
the fact `x`; `contains` and `not_contains` alone ask it of the fact `text`.
"""

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]

_PART = re.compile(r"[^.\[\]]+")
_NOTHING = object()


@dataclass(frozen=True)
class Prose:
    """A fact about which cases say something in words: a handler judged what they mean."""

    holds: bool
    actual: Any = None


@dataclass(frozen=True)
class Text:
    """A text of which cases name parts."""

    value: str


class Unknown(Exception):
    """A case says something that no handler understands."""


async def judge(expect: Mapping[str, Any], facts: Facts, tolerance: float) -> Sequence[str]:
    """Return a sentence for each thing that is not as expected."""
    problems: list[str] = []
    for key, expected in expect.items():
        try:
            problem = await _judge_one(key, expected, facts, tolerance)
        except Unknown as error:
            problem = str(error)
        if problem:
            problems.append(problem)
    return problems


async def _judge_one(key: str, expected: Any, facts: Facts, tolerance: float) -> str:
    actual = await find_fact(key, facts)
    if actual is not _NOTHING:
        if equal(expected, actual, tolerance):
            return ""
        return f"{key}: expected {_show(expected)}, got {_show(actual)}"
    for suffix, (check, words) in _CHECKS.items():
        base = "text" if key == suffix else key.removesuffix(f"_{suffix}")
        if base == key:
            continue
        actual = await find_fact(base, facts)
        if actual is _NOTHING:
            continue
        if check(actual, expected):
            return ""
        return f"{base} {words} {_show(expected)}: it is {_show(actual)}"
    raise Unknown(f"No handler knows what {key!r} expects.")


async def find_fact(path: str, facts: Facts) -> Any:
    """Return the fact at a path, and `_NOTHING` where there is none."""
    value: Any = _NOTHING
    if path in facts:
        value = facts[path]
    elif (parts := _PART.findall(path))[0] in facts and len(parts) > 1:
        value = await _resolve(facts[parts[0]])
        for part in parts[1:]:
            value = _step(value, part)
    return await _resolve(value)


async def _resolve(value: Any) -> Any:
    if callable(value) and not isinstance(value, type):
        value = value()
    return await value if inspect.isawaitable(value) else value


def _step(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, Sequence) and part.isdigit() and int(part) < len(value):
        return value[int(part)]
    return None


def equal(expected: Any, actual: Any, tolerance: float) -> bool:
    """Return whether a value is as expected: an object may have more than is expected of it."""
    match actual:
        case Prose():
            return actual.holds
        case Text():
            parts: list[Any] = expected if isinstance(expected, list) else [expected]
            return all(str(part) in actual.value for part in parts)
        case _:
            pass
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int) and isinstance(actual, list | tuple):
        return len(actual) == expected  # a case that counts
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        return math.isclose(expected, actual, rel_tol=0, abs_tol=tolerance)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return all(
            key in actual and equal(value, actual[key], tolerance)
            for key, value in expected.items()
        )
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        return len(expected) == len(actual) and all(
            equal(one, other, tolerance) for one, other in zip(expected, actual, strict=True)
        )
    return expected == actual


def _contains(actual: Any, parts: Any) -> bool:
    return all(part in _text(actual) for part in _list(parts))


def _contains_none(actual: Any, parts: Any) -> bool:
    return all(part not in _text(actual) for part in _list(parts))


_CHECKS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "not_contains": (_contains_none, "must not contain"),
    "contains": (_contains, "must contain"),
    "max": (lambda actual, most: actual is not None and actual <= most, "must be at most"),
    "min": (lambda actual, least: actual is not None and actual >= least, "must be at least"),
    "not": (lambda actual, other: not equal(other, actual, 0), "must not be"),
    "matches": (lambda actual, pattern: bool(re.search(pattern, _text(actual))), "must match"),
    "in": (lambda actual, choices: actual in choices, "must be one of"),
}


def _text(actual: Any) -> str:
    if isinstance(actual, Text):
        return actual.value
    if isinstance(actual, str):
        return actual
    return json.dumps(actual, ensure_ascii=False, default=str)


def _list(parts: Any) -> Sequence[str]:
    return [parts] if isinstance(parts, str) else parts


def _show(value: Any) -> str:
    if isinstance(value, Prose):
        value = value.actual
    return _text(value)[:2000]
