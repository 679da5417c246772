"""What a client reads: the events of an answer, and what they amount to for each run."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from tests.extensions.cluster.kills.server import Order
from tests.extensions.cluster.kills.world import Server

Frame = Mapping[str, Any]
"""An event of AG-UI, as a client gets it."""

INTERRUPTED = "RUN_INTERRUPTED"
"""The code of a run that was cut off."""

_WITHOUT_RESULT = ('{"status":"error","reason":"missing_terminal', '{"status":"stopped"')
"""How the result begins that a call gets when its run was cut off or stopped."""

_NOT_STORED = ("STORE_FAILED", INTERRUPTED)
"""How a run ends for its reader, and for the others that took its server for dead meanwhile."""


@dataclass(slots=True)
class Reading:
    """One answer of one server, as far as it came."""

    operation: str
    server: int
    frames: list[Frame] = field(default_factory=list[Frame])
    times: list[float] = field(default_factory=list[float])
    status: int = 0
    is_whole: bool = False
    """Whether the answer came to its end."""
    error: str = ""
    progress: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is more of it, or its end."""

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, or the answer is over."""
        while not (condition() or self.is_whole or self.error):
            self.progress.clear()
            await self.progress.wait()

    def describe(self) -> Mapping[str, Any]:
        names = ("operation", "server", "status", "is_whole", "error", "frames", "times")
        return {name: getattr(self, name) for name in names}

    def answers(self) -> "dict[str, Answer]":
        """Return what was seen of each run, in order."""
        answers: dict[str, Answer] = {}
        run = ""
        for frame in self.frames:
            if frame["type"] == "RUN_STARTED":
                run = frame["runId"]
            answer = answers.setdefault(run, Answer(run))
            answer.feed(frame)
        return answers

    def has_end(self, run: str) -> bool:
        answer = self.answers().get(run)
        return answer is not None and answer.last is not None


async def read(
    server: Server, operation: str, body: Mapping[str, Any], agent: str, reading: Reading
) -> None:
    """Read an answer as far as it comes."""
    try:
        path = f"/agent/{agent}/{operation}"
        async with server.browser.open("POST", path, dict(body)) as exchange:
            reading.status = exchange.status
            exchange.seen = reading.frames  # pyright: ignore[reportAttributeAccessIssue]
            while await exchange.next() is not None:
                reading.times.append(monotonic())
                reading.progress.set()
            reading.is_whole = True
    except (OSError, EOFError) as error:
        reading.error = type(error).__name__
    finally:
        reading.progress.set()


@dataclass(slots=True)
class Answer:
    """What the events of one run amount to: the same for every way to cut its texts into pieces."""

    run: str
    order: list[str] = field(default_factory=list[str])
    """What began, in order."""
    texts: dict[str, str] = field(default_factory=dict[str, str])
    results: dict[str, str] = field(default_factory=dict[str, str])
    last: str | None = None
    code: str = ""
    wrong: list[str] = field(default_factory=list[str])
    """What no order of events allows: what came twice, for instance."""

    def feed(self, frame: Frame) -> None:
        if self.last is not None:
            self.wrong.append(f"{frame['type']} after the end")
        match frame["type"]:
            case "RUN_STARTED":
                self._begin("run")
            case "TEXT_MESSAGE_START":
                self._begin(frame["messageId"])
                self.texts[frame["messageId"]] = ""
            case "TOOL_CALL_START":
                self._begin(frame["toolCallId"])
                self.texts[frame["toolCallId"]] = ""
            case "TEXT_MESSAGE_CONTENT":
                self.texts[frame["messageId"]] += frame["delta"]
            case "TOOL_CALL_ARGS":
                self.texts[frame["toolCallId"]] += frame["delta"]
            case "TOOL_CALL_RESULT":
                self._begin(f"result {frame['toolCallId']}")
                self.results[frame["toolCallId"]] = frame["content"]
            case "RUN_FINISHED" | "RUN_ERROR":
                self.last = frame["type"]
                self.code = frame.get("code") or ""
            case _:
                pass

    def _begin(self, name: str) -> None:
        if name in self.order:
            self.wrong.append(f"{name} twice")
        self.order.append(name)

    def check(self, order: Order) -> Iterator[str]:
        """Yield what is wrong with this as a part of what was ordered."""
        yield from self.wrong
        expected = order.expected_texts()
        for id, text in self.texts.items():
            if id in expected and not expected[id].startswith(text):
                yield f"{id} is {text!r}"
            if self.last == "RUN_FINISHED" and id in expected and text != expected[id]:
                yield f"{id} ends early: {text!r}"
        for id, result in self.results.items():
            is_cut = self.last == "RUN_ERROR" and result.startswith(_WITHOUT_RESULT)
            if result != f"paid {id}" and not is_cut:
                yield f"the result of {id} is {result!r}"

    def list_payments(self) -> Iterator[str]:
        """Yield the calls that say they have paid."""
        return (id for id, result in self.results.items() if result == f"paid {id}")

    def lacks(self, other: "Answer") -> Iterator[str]:
        """Yield what is not here of what a reader saw."""
        if self.order[: len(other.order)] != other.order:
            yield f"{other.order} seen, {self.order} kept"
        for id, text in other.texts.items():
            if not self.texts.get(id, "").startswith(text):
                yield f"{id}: {text!r} seen, {self.texts.get(id)!r} kept"
        codes = (other.code, self.code)
        is_same = other.last == self.last and (other.code == self.code or codes == _NOT_STORED)
        if other.last is not None and not is_same:
            yield f"{other.last} {other.code} seen, {self.last} {self.code} kept"
