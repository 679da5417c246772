"""Measure how the cost of a request grows with what is sent, stored or configured.

    .venv/bin/python -m benchmarks.growth                        # all cases, or some of them:
    .venv/bin/python -m benchmarks.growth history context

`ms` is the CPU of this process without the model's, and `steps` are bytecodes of the event loop,
which do not see what C code does (see `benchmarks.steps`). `us per unit` is the cost of one more
unit since the size before: it stays the same if the cost is linear, and is marked if it rises.
"""

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from benchmarks.in_process import InProcess, serve_in_process
from benchmarks.steps import count_files
from benchmarks.streaming.clients import AGUI, V1
from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.sqlite.store import SqliteThreads
from copilot_runtime.threads.store import Thread, ThreadKey, ThreadStore

_WAYS = {"v1": (V1, "/graphql"), "AG-UI": (AGUI, "/graphql/agent/default/run")}
_THREADS = "/graphql/threads"
_STORES: Mapping[str, Callable[[Path], ThreadStore]] = {
    "memory": lambda _: MemoryThreads(max_threads=100_000),
    "SQLite": lambda folder: SqliteThreads(folder / "threads.db"),
}
_ROUNDS = 9
_AT_A_TIME = 8
_RISE = 1.5
"""By how much the cost of one more unit may rise between sizes."""
_LEAST_MS = 0.15
"""Growth of a cost that is noise."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """What grows, and to which sizes."""

    unit: str
    sizes: Sequence[int]
    add: Callable[[str, Body, int], None] | None = None
    """Adds so many units to the body of a chat of `v1` or `AG-UI`."""
    continues: bool = False
    """All chats belong to one thread."""
    stored: bool = False
    """So many threads are stored."""
    lists: bool = False
    """Threads are listed, instead of a chat."""
    stages: bool = False
    """So many stages are configured."""


def _add_history(way: str, body: Body, size: int) -> None:
    past = [
        ("assistant" if at % 2 else "user", f"{at} " + "lorem ipsum " * 10) for at in range(size)
    ]
    body["messages"][-1:-1] = [
        _encode_message(way, f"h{at}", *said) for at, said in enumerate(past)
    ]


def _encode_message(way: str, id: str, role: str, text: str) -> Body:
    if way == "AG-UI":
        return {"id": id, "role": role, "content": text}
    created = {"id": id, "createdAt": "2026-01-01T00:00:00.000Z"}
    return {**created, "textMessage": {"content": text, "role": role}}


def _add_calls(way: str, body: Body, size: int) -> None:
    calls = [message for at in range(size) for message in _encode_call(way, f"c{at}")]
    body["messages"][-1:-1] = calls


def _encode_call(way: str, id: str) -> Iterator[Body]:
    arguments, result = json.dumps({"city": "Paris"}), json.dumps({"weather": "rain " * 20})
    if way == "AG-UI":
        function = {"name": "look_up", "arguments": arguments}
        call = {"id": id, "type": "function", "function": function}
        yield {"id": f"m-{id}", "role": "assistant", "toolCalls": [call]}
        yield {"id": f"r-{id}", "role": "tool", "toolCallId": id, "content": result}
        return
    created = {"createdAt": "2026-01-01T00:00:00.000Z"}
    call = {"name": "look_up", "arguments": arguments, "scope": "client"}
    yield {**created, "id": id, "actionExecutionMessage": call}
    found = {"actionExecutionId": id, "actionName": "look_up", "result": result}
    yield {**created, "id": f"r-{id}", "resultMessage": found}


def _add_context(_: str, body: Body, size: int) -> None:
    body["context"] = [{"description": f"item {at}", "value": "x" * 1000} for at in range(size)]


def _add_long_context(_: str, body: Body, size: int) -> None:
    body["context"] = [{"description": "one item", "value": "word " * (200 * size)}]


def _add_actions(way: str, body: Body, size: int) -> None:
    texts = {f"field{at}": {"type": "string", "description": "A field."} for at in range(8)}
    schema = {"type": "object", "properties": texts, "required": ["field0"]}
    for at in range(size):
        named = {"name": f"action{at}", "description": "Does something."}
        if way == "AG-UI":
            body["tools"].append({**named, "parameters": schema})
        else:
            action = {**named, "jsonSchema": json.dumps(schema), "available": "enabled"}
            body["frontend"]["actions"].append(action)


_CASES: Mapping[str, Case] = {
    "history": Case("messages of history", (10, 100, 1000), _add_history),
    "continued": Case("messages, in one thread", (10, 100, 1000), _add_history, continues=True),
    "calls": Case("calls in the history", (10, 100, 900), _add_calls),
    "context": Case("kB of context", (10, 100, 1000), _add_context),
    "text": Case("kB in one item of context", (10, 100, 1000), _add_long_context),
    "actions": Case("actions of the page", (1, 10, 100), _add_actions),
    "stored": Case("threads stored", (100, 1000, 10_000), stored=True),
    "list": Case("threads listed", (10, 100, 1000), lists=True, stored=True),
    "stages": Case("stages", (0, 8, 32), stages=True),
}


def main() -> None:
    """Print a table of the cases that the command line names, or of all."""
    print(f"{'':42}{'size':>8}{'kB':>8}{'steps':>11}{'ms':>9}{'ratio':>8}{'us per unit':>13}")
    for name in sys.argv[1:] or _CASES:
        case = _CASES[name]
        for way in ["AG-UI"] if case.lists else _WAYS:
            for store in (
                _STORES if case.stored or case.continues or name == "history" else ["memory"]
            ):
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    costs = runner.run(_measure(case, way, store))
                _print(f"{way}, {store}: {case.unit}", costs)


@dataclass(frozen=True, slots=True)
class Cost:
    size: int
    kilobytes: float
    steps: float
    ms: float


def _print(title: str, costs: Sequence[Cost]) -> None:
    first, before, slope = costs[0], costs[0], None
    for cost in costs:
        line = f"{title:42}{cost.size:8,}{cost.kilobytes:8,.0f}{cost.steps:11,.0f}{cost.ms:9.2f}"
        line += f"{cost.ms / first.ms:8.1f}"
        if cost is not first:
            grown = cost.ms - before.ms
            last, slope = slope, 1000 * grown / (cost.size - before.size)
            rises = last is not None and grown > _LEAST_MS and slope > _RISE * max(last, 0)
            line += f"{slope:13.2f}{'  rises' if rises else ''}"
        print(line, flush=True)
        title, before = "", cost


async def _measure(case: Case, way: str, store: str) -> Sequence[Cost]:
    async with AsyncExitStack() as stack:
        loads = {
            size: await stack.enter_async_context(_prepare(case, way, store, size))
            for size in case.sizes
        }
        times: dict[int, list[float]] = {size: [] for size in case.sizes}
        for number in range(_ROUNDS):
            for size, load in loads.items():  # in turns, so that each has the same disturbances
                seconds = await load.measure(_AT_A_TIME)
                if number:  # what is made once, is made in the first round
                    times[size].append(seconds)
        return [
            Cost(
                size, load.kilobytes, await load.count_steps(_AT_A_TIME), 1000 * median(times[size])
            )
            for size, load in loads.items()
        ]


@asynccontextmanager
async def _prepare(case: Case, way: str, name: str, size: int) -> "AsyncGenerator[_Load]":
    with TemporaryDirectory() as folder:
        store = _STORES[name](Path(folder))
        if case.stored:
            await _fill(store, size)
        stages = [_pass_on] * size if case.stages else []
        async with serve_in_process(store, stages) as served:
            yield _Load(served, case, way, size)


async def _fill(store: ThreadStore, count: int) -> None:
    now = datetime.now(UTC)
    for at in range(count):
        thread = Thread(
            key=ThreadKey("", f"stored{at}"),
            agent="default",
            name=None,
            archived=False,
            created_at=now,
            updated_at=now,
            last_run_at=now,
        )
        await store.put(thread, [])


async def _pass_on(events: Events, run: RunInput) -> Events:  # noqa: ARG001
    async for event in events:
        yield event


class _Load:
    """Requests of one size to a server."""

    def __init__(self, served: InProcess, case: Case, way: str, size: int) -> None:
        self._served = served
        self._case = case
        self._way = way
        self._client, self._path = _WAYS[way]
        self._size = size
        self._thread_id = str(uuid.uuid4())
        self.kilobytes = 0.0

    async def measure(self, count: int) -> float:
        """Return the CPU seconds of a request."""
        bodies = [self._build_body() for _ in range(count)]
        began = self._served.read_cpu_clock()
        await self._send(bodies)
        return (self._served.read_cpu_clock() - began) / count

    async def count_steps(self, count: int) -> float:
        """Return the steps of a request."""
        bodies = [self._build_body() for _ in range(count)]
        return (await count_files(self._send(bodies))).total() / count

    async def _send(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            if self._case.lists:
                await self._list()
            else:
                await self._served.request(self._path, body, self._client.accept)

    async def _list(self) -> None:
        """Read all pages."""
        query = "limit=200"
        while query:
            page = await self._served.request(_THREADS, query=query)
            self.kilobytes = len(page) / 1000
            cursor = page.rpartition(b'"nextCursor":"')[2].partition(b'"')[0]
            query = f"limit=200&cursor={cursor.decode()}" if b'"nextCursor":"' in page else ""

    def _build_body(self) -> bytes:
        body: Body = self._client.body((), "1", "")
        request = body["variables"]["data"] if self._way == "v1" else body
        if self._case.continues:
            request["threadId"] = self._thread_id
        if self._case.add is not None:
            self._case.add(self._way, request, self._size)
        encoded = json.dumps(body, separators=(",", ":")).encode()
        self.kilobytes = len(encoded) / 1000
        return encoded


if __name__ == "__main__":
    main()
