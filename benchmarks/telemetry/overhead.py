"""Measures what telemetry costs a chat: `python -m benchmarks.telemetry.overhead --help`.

The same chats are answered with telemetry and without it, in turns in one process: the machine may
be as busy as it likes, both sides see it. Counted is the CPU of the server alone. There is no
socket, and the model is a list of events, so the share of telemetry is larger than in service.
"""

import argparse
import asyncio
import gc
import os
import statistics
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from time import process_time
from typing import Any, NamedTuple

import orjson
from starlette.types import ASGIApp

from copilot_runtime import CopilotRuntime
from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.api.events import (
    Event,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)

SIDES = {"off": "false", "on": "true"}
"""Values of `COPILOT_TELEMETRY_ENABLED`."""


class Case(NamedTuple):
    """Chats that are answered at once, and what telemetry may add to their CPU; 0: no promise."""

    name: str
    streams: int
    chunks: int
    limit: float = 0.0


FLOOD = Case("32 streams of 2,000 chunks", 32, 2_000, 0.01)
SHORT = Case("320 chats of one chunk", 320, 1)


def main() -> int:
    """Measure; returns 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(prog="benchmarks.telemetry.overhead")
    parser.add_argument("--pairs", type=int, default=15, help="how often each side is measured")
    options = parser.parse_args()
    is_kept = True
    for case in (FLOOD, SHORT):
        is_kept &= asyncio.run(_measure(case, options.pairs))
    return 0 if is_kept else 1


async def _measure(case: Case, pairs: int) -> bool:
    async with _serve(case, "off") as off, _serve(case, "on") as on:
        for app in (off, on):  # what is imported and compiled at first is not counted
            await _answer(app, case, -1)
        taken: dict[str, list[float]] = {"off": [], "on": []}
        for pair in range(pairs):
            for name, app in (("off", off), ("on", on))[:: 1 if pair % 2 else -1]:
                gc.collect()
                began = process_time()
                await _answer(app, case, pair)
                taken[name].append(process_time() - began)
    return _report(case, taken)


def _report(case: Case, taken: dict[str, list[float]]) -> bool:
    """Print the medians, and that of the ratios of neighbours."""
    ratios = [on / off for on, off in zip(taken["on"], taken["off"], strict=True)]
    more = statistics.median(ratios) - 1
    is_kept = not case.limit or more <= case.limit
    print(f"{case.name}, {len(ratios)} pairs")
    for name, seconds in taken.items():
        each = statistics.median(seconds) / case.streams * 1e6
        print(f"  telemetry {name:4} {each:10,.0f} us of CPU for a chat")
    promise = f"   promise {case.limit:.1%}" if case.limit else ""
    print(f"  {more:+.2%}{promise}{'' if is_kept else '   NOT KEPT'}", flush=True)
    return is_kept


@asynccontextmanager
async def _serve(case: Case, side: str) -> AsyncGenerator[ASGIApp]:
    """Yield the application of a runtime with the settings as they are, but for telemetry."""
    os.environ["COPILOT_TELEMETRY_ENABLED"] = SIDES[side]
    runtime = CopilotRuntime(_Model(_write_answer(case.chunks)))
    del os.environ["COPILOT_TELEMETRY_ENABLED"]
    app = runtime.lazy_app("/")
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    started = asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "lifespan.startup.complete":
            started.set()

    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    task = asyncio.ensure_future(app(scope, events.get, send))
    events.put_nowait({"type": "lifespan.startup"})
    await started.wait()
    try:
        yield app
    finally:
        events.put_nowait({"type": "lifespan.shutdown"})
        await task


class _Model(ScriptedAdapter):
    """Answers each request with the same events."""

    def __init__(self, answer: Sequence[Event]) -> None:
        super().__init__()
        self._answer = answer

    async def stream(self, request: Any) -> AsyncGenerator[Event, None]:
        del request
        for event in self._answer:
            yield event


def _write_answer(chunks: int) -> Sequence[Event]:
    text = [TextMessageContent(message_id="a", content=f"word {n} ") for n in range(chunks)]
    usage = Usage(input_tokens=1_000, output_tokens=chunks, model="scripted", stop_reason="stop")
    return [TextMessageStart(message_id="a"), *text, TextMessageEnd(message_id="a"), usage]


async def _answer(app: ASGIApp, case: Case, number: int) -> None:
    await asyncio.gather(*(_chat(app, f"{number}-{chat}") for chat in range(case.streams)))


async def _chat(app: ASGIApp, name: str) -> None:
    body = orjson.dumps(
        {
            "threadId": f"thread-{name}",
            "runId": f"run-{name}",
            "messages": [{"id": "question", "role": "user", "content": "Hi"}],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
    )
    requests = iter([{"type": "http.request", "body": body, "more_body": False}])
    done = asyncio.Event()
    last = b""

    async def receive() -> Any:
        if (request := next(requests, None)) is not None:
            return request
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal last
        last = message.get("body") or last
        if message["type"] == "http.response.body" and not message.get("more_body"):
            done.set()

    path = "/agent/default/run"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"accept", b"text/event-stream"),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    assert b"RUN_FINISHED" in last, last


if __name__ == "__main__":
    sys.exit(main())
