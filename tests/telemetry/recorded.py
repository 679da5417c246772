"""Spans as tests of telemetry record and read them."""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry import Span, semconv
from tests.runs import run_input
from tests.telemetry.span_conventions import SpanConvention, find_convention


class Spans:
    """Keeps spans in the order in which they ended."""

    dropped = 0
    is_failing = False

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, span: Span) -> None:
        self.spans.append(span)

    async def flush(self) -> None: ...

    async def aclose(self) -> None: ...

    def named(self, name: str) -> Span:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def of(self, operation: str) -> list[Span]:
        return [span for span in self.spans if span.operation == operation]


async def run(runtime: Runtime, **more: Any) -> None:
    """Start a run, and wait until nothing of it goes on."""
    started = await runtime.start(run_input(detached=True, **more))
    assert started.task is not None
    await asyncio.wait([started.task])


_OWN = "copilot."


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(check(item) for item in value)


_CHECKS: Mapping[semconv.AttributeType, Callable[[Any], bool]] = {
    "string": _is_text,
    "int": _is_int,
    "double": lambda value: isinstance(value, float),
    "boolean": lambda value: isinstance(value, bool),
    "any": lambda value: value is not None,
    "string[]": _is_list(_is_text),
    "int[]": _is_list(_is_int),
    "double[]": _is_list(lambda value: isinstance(value, float)),
    "boolean[]": _is_list(lambda value: isinstance(value, bool)),
}


def find_violations(span: Span) -> list[str]:
    """Return what a span lacks, has too much, or has of a wrong type."""
    convention = find_convention(span.attributes, span.kind)
    if convention is None:
        return [f"There is no convention of the operation {span.operation!r}."]
    found = [f"{name} is missing" for name in convention.required if name not in span.attributes]
    if span.name != (name := _build_name(convention, span)):
        found.append(f"the name is {span.name!r}, not {name!r}")
    if span.kind not in convention.kinds:
        found.append(f"the kind is {span.kind!r}, not one of {convention.kinds}")
    if (span.status == "error") != (semconv.ERROR_TYPE in span.attributes):
        found.append(f"the status {span.status!r} does not fit error.type")
    return [*found, *_find_wrong_attributes(convention, span)]


def find_gaps(span: Span) -> set[str]:
    """Return the recommended attributes that a span does not have."""
    convention = find_convention(span.attributes, span.kind)
    return set(convention.recommended) - span.attributes.keys() if convention else set()


def _find_wrong_attributes(convention: SpanConvention, span: Span) -> list[str]:
    plain = {*convention.required, *convention.conditional, *convention.recommended}
    found: list[str] = []
    for values, allowed in ((span.attributes, plain), (span.content, {*convention.opt_in})):
        for name, value in values.items():
            known = semconv.ATTRIBUTES.get(name)
            if known is None or not (name in allowed or name.startswith(_OWN)):
                found.append(f"{name} does not belong there")
            elif not _CHECKS[known.type](value):
                found.append(f"{name} is {value!r}, and no {known.type}")
            elif known.is_content != (values is span.content):
                found.append(f"{name} is in the wrong half of the span")
    return found


def _build_name(convention: SpanConvention, span: Span) -> str:
    def fill(match: re.Match[str]) -> str:
        return str(span.attributes.get(match[1], ""))

    return re.sub(r"\{(.+?)\}", fill, convention.name).rstrip()
