"""Count what one short chat of a model creates in this process, and where.

    .venv/bin/python -m benchmarks.created

Counts do not depend on how busy the machine is, as times do.
"""

import asyncio
import sys
from collections import Counter
from types import FrameType
from typing import Any

from benchmarks.in_process import serve_in_process
from benchmarks.streaming.clients import AGUI

_CHATS = 96
_PATH = "/graphql/agent/default/run"
_LOOP_METHODS = {
    "create_task": "tasks",
    "call_at": "timers",
    "call_soon": "callbacks",
    "create_future": "futures of Python code",
}


def main() -> None:
    """Print the counts of one chat, and the places that make them."""
    counts = asyncio.run(_count())
    totals: Counter[str] = Counter()
    for (kind, _), count in counts.items():
        totals[kind] += count
    for kind, total in totals.most_common():
        print(f"{total / _CHATS:6.1f}  {kind}")
        for (other, place), count in counts.most_common():
            if other == kind and count >= _CHATS // 2:
                print(f"{'':10}{count / _CHATS:6.1f}  {place}")


async def _count() -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    async with serve_in_process() as served:
        await served.chat_many(AGUI, _PATH, _CHATS)  # what is made once, is made now
        _watch(counts)
        await served.chat_many(AGUI, _PATH, _CHATS)
        sys.setprofile(None)
    return counts


def _watch(counts: Counter[tuple[str, str]]) -> None:
    """Count from now on what is made in this thread."""
    loop: Any = asyncio.get_running_loop()
    for name, kind in _LOOP_METHODS.items():
        setattr(loop, name, _count_calls(getattr(loop, name), kind, counts))

    def count_generator(generator: Any) -> None:
        code = generator.ag_code
        counts["async generators", f"{code.co_filename.rpartition('/')[2]} {code.co_qualname}"] += 1

    def count_dataclass(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname == "__create_fn__.<locals>.__init__":
            counts["dataclasses", type(frame.f_locals["self"]).__name__] += 1

    sys.set_asyncgen_hooks(firstiter=count_generator)
    sys.setprofile(count_dataclass)


def _count_calls(make: Any, kind: str, counts: Counter[tuple[str, str]]) -> Any:
    def count(*args: Any, **options: Any) -> Any:
        counts[kind, _place(sys._getframe(1))] += 1  # pyright: ignore[reportPrivateUsage]
        return make(*args, **options)

    return count


def _place(frame: FrameType | None) -> str:
    """Return the function of ours that made something, or `asyncio`."""
    while frame is not None and "copilot_runtime" not in frame.f_code.co_filename:
        frame = frame.f_back
    if frame is None:
        return "asyncio"
    return f"{frame.f_code.co_filename.partition('copilot_runtime/')[2]} {frame.f_code.co_qualname}"


if __name__ == "__main__":
    main()
