"""The server that is killed: each question says what is answered, and when the answer pauses.

A question is a JSON object, an `Order`. Every text and every call of the answer follows from it, so
a reader can tell at each moment whether what came is a beginning of what should have come.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.actions.functions import action
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import ChatRequest, RunInput
from copilot_runtime.api.events import Event, Events, Interrupt, RunFinished
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.config.console import ConsoleSettings

PATH = "/copilotkit"

TALKER, ASKER = "default", "asker"
"""The agents: one that talks and pays, and one that asks a person before it pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a run answers: texts of so many words, with a payment between each two."""

    run: str
    words: int
    payments: int = 0
    pause: float = 0.004
    """Seconds after each word, and before and after each payment."""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    def text(self, number: int) -> Sequence[str]:
        """Return the pieces of a text."""
        return [f"{self.run}-{number}:{word} " for word in range(self.words)]

    def message_id(self, number: int) -> str:
        return f"{self.run}-{number}"

    def call_id(self, number: int) -> str:
        return f"{self.run}-pay-{number}"

    def expected_texts(self) -> Mapping[str, str]:
        """Return all that the answer says, by the ids of its messages."""
        numbers = range(self.payments + 1)
        return {self.message_id(number): "".join(self.text(number)) for number in numbers}


class Effects:
    """A file with a line for each payment: its id, the process, and when it was made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, id: str) -> None:
        line = f"{id} {os.getpid()} {monotonic()}\n".encode()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)

    def read(self) -> Iterator[tuple[str, float]]:
        """Yield the id of each payment, and when it was made."""
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                id, _, moment = line.split(" ")
                yield id, float(moment)


def build_app(settings: Mapping[str, Any], effects: Effects) -> Any:
    """Return an application whose agents do as they are ordered."""

    @action(name="pay")
    async def pay(id: str, pause: float) -> str:
        """Pay once."""
        await asyncio.sleep(pause)
        effects.add(id)
        await asyncio.sleep(pause)
        return f"paid {id}"

    runtime = CopilotRuntime(
        agents={TALKER: DirectAgent(_Model()), ASKER: _Asker(effects)},
        actions=[pay],
        settings=Settings(log_level="warning", console=ConsoleSettings(enabled=False), **settings),
    )
    return runtime.app(path=PATH)


class _Model:
    """Says the next text of an order, and then asks for the next payment."""

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Event, None]:
        order, done = _read_order(request.messages)
        for event in say(order.text(done), id=order.message_id(done)):
            yield event
            await asyncio.sleep(order.pause)
        if done < order.payments:
            id = order.call_id(done)
            for event in call("pay", {"id": id, "pause": order.pause}, id=id):
                yield event


class _Asker:
    """Asks whether to pay, and pays when it is answered."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    async def run(self, run: RunInput) -> Events:
        order, _ = _read_order(run.messages)
        if not run.resume:
            for event in say(order.text(0), id=order.message_id(0)):
                yield event
            yield Interrupt(interrupt_id=order.call_id(0), message="Pay?")
            yield RunFinished()
            return
        await asyncio.sleep(order.pause)
        self._effects.add(run.resume[0].interrupt_id or "")
        order = replace(order, run=run.run_id)
        for event in say(order.text(1), id=order.message_id(1)):
            yield event
            await asyncio.sleep(order.pause)


def _read_order(messages: Sequence[Message]) -> tuple[Order, int]:
    """Return the last order of a conversation, and how many payments were made for it."""
    done = 0
    for message in reversed(messages):
        match message:
            case TextMessage(role="user", content=text):
                return Order(**json.loads(text)), done
            case ResultMessage():
                done += 1
            case _:
                pass
    raise ValueError("no order")
