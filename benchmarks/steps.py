"""Count the steps of our code for a short chat, and for one more chunk of a chat.

    .venv/bin/python -m benchmarks.steps

A step is a bytecode that the thread of the event loop executes. Unlike times, steps are the same on
any machine with the same Python; one costs about 120 instructions (`benchmarks.instructions`).
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import PurePath
from types import FrameType
from typing import Any

import uvloop

from benchmarks.in_process import serve_in_process
from benchmarks.streaming.clients import AGUI, V1

_AGUI_RUN = (AGUI, "/graphql/agent/default/run")
_WAYS = {"v1": (V1, "/graphql"), "AG-UI": _AGUI_RUN, "AG-UI agent": _AGUI_RUN}
"""The clients of a model, and that of an AG-UI agent."""
_CHATS = 48
_CHUNKS = 100


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a unit: in all, in the package, and by part, which is a folder or a library."""

    total: float
    own: float
    by_part: Counter[str]


def main() -> None:
    """Print the steps of each unit, and those of each part."""
    for way in _WAYS:
        for unit, steps in count_steps(way).items():
            print(f"{way}, {unit}: {steps.total:,.0f}, of which {steps.own:,.0f} are ours")
            for part, count in steps.by_part.most_common():
                if count >= steps.total / 100:
                    print(f"{count:10,.0f}  {part}")


def count_steps(way: str) -> dict[str, Steps]:
    """Return the steps of a `chat` of one word, and of one more `chunk`, in one of `_WAYS`."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as `serve` has it
        return runner.run(_count_steps(way))


async def _count_steps(way: str) -> dict[str, Steps]:
    with tempfile.TemporaryDirectory() as folder:
        return await _count_steps_of(way, f"sqlite:///{folder}/threads.db")


async def _count_steps_of(way: str, threads: str) -> dict[str, Steps]:
    client, path = _WAYS[way]
    async with serve_in_process(threads, agent=way == "AG-UI agent") as served:
        await served.chat_many(client, path, 2 * _CHATS)  # what is made once, is made now
        short = await count_files(served.chat_many(client, path, _CHATS))
        long = await count_files(served.chat(client, path, _CHUNKS))
        one = await count_files(served.chat(client, path))
    long.subtract(one)
    return {"chat": _divide(short, _CHATS), "chunk": _divide(long, _CHUNKS - 1)}


async def count_files(work: Coroutine[Any, Any, None]) -> Counter[str]:
    """Do the work in a task of its own, and return its steps by file."""
    files: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            files[frame.f_code.co_filename] += 1
        return trace

    sys.settrace(trace)
    try:
        await asyncio.ensure_future(work)
    finally:
        sys.settrace(None)
    return files


def _divide(files: Counter[str], units: int) -> Steps:
    parts: Counter[str] = Counter()
    for file, count in files.items():
        parts[_find_part(file)] += count / units  # pyright: ignore[reportArgumentType]
    own = sum(count for file, count in files.items() if "copilot_runtime" in PurePath(file).parts)
    return Steps(sum(files.values()) / units, own / units, parts)


def _find_part(file: str) -> str:
    parts = PurePath(file).parts
    if "copilot_runtime" in parts:
        inside = parts[parts.index("copilot_runtime") + 1 :]
        return "/".join(inside[: 2 if inside[0] in ("transports", "extensions") else 1])
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    return "asyncio" if "asyncio" in parts else "the standard library"


if __name__ == "__main__":
    main()
