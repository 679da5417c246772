"""Spans as tests of telemetry record and read them."""

import asyncio
from typing import Any

from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry import Span
from tests.runs import run_input


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
