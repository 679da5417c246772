"""A model that says what a test wrote for it: the public test double."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from copilot_runtime.errors import Misuse
from copilot_runtime.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.interfaces import Adapter, ChatRequest, Events

Turn = (
    Sequence[Event | Exception] | Callable[[ChatRequest], Sequence[Event | Exception]] | Exception
)
"""What the model says when it is asked once. An exception is raised where it stands."""


class Gate:
    """Holds events back until a test lets them go: proof of progress without a clock."""

    def __init__(self) -> None:
        self._open = asyncio.Semaphore(0)
        self._waiting = asyncio.Event()

    def release(self, events: int = 1) -> None:
        """Let that many events pass."""
        self._waiting.clear()
        for _ in range(events):
            self._open.release()

    async def wait_for_event(self) -> None:
        """Return once an event waits at the gate: all before it have been delivered."""
        await self._waiting.wait()

    async def wait(self) -> None:
        """Return when one more event may pass."""
        if self._open.locked():
            self._waiting.set()
        await self._open.acquire()


class ScriptedAdapter(Adapter):
    """Says one turn per request, in order, and remembers the requests.

    >>> adapter = ScriptedAdapter(call("get_time", {"city": "Oslo"}), say(["It is ", "noon."]))

    With a `gate`, each event waits until the test releases it.
    """

    def __init__(self, *turns: Turn, gate: Gate | None = None) -> None:
        self.requests: list[ChatRequest] = []
        self.closed = False
        self._turns = turns
        self._gate = gate

    async def stream(self, request: ChatRequest) -> Events:
        """Say the next turn."""
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._turns):
            raise Misuse(
                f"The script has {len(self._turns)} turns and was asked for turn {number + 1}.",
                hint="Give ScriptedAdapter another turn, or look why the model is asked again.",
            )
        turn = self._turns[number]
        if isinstance(turn, Exception):
            turn = [turn]
        for event in turn(request) if callable(turn) else turn:
            if self._gate is not None:
                await self._gate.wait()
            if isinstance(event, Exception):
                raise event
            yield event

    async def aclose(self) -> None:
        """Remember that the adapter was closed."""
        self.closed = True


def say(text: str | Iterable[str], *, id: str = "message-1") -> list[Event]:
    """Return the events of a text, which comes whole or in the given pieces."""
    pieces = [text] if isinstance(text, str) else text
    return [
        TextMessageStart(message_id=id),
        *(TextMessageContent(message_id=id, content=piece) for piece in pieces if piece),
        TextMessageEnd(message_id=id),
    ]


def call(
    name: str,
    arguments: Mapping[str, Any] | str | None = None,
    *,
    id: str | None = None,
    parent_id: str | None = None,
) -> list[Event]:
    """Return the events of a call; `arguments` may be text, to say something unparsable."""
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    call_id = id or f"call-{name}"
    return [
        ActionExecutionStart(call_id=call_id, name=name, parent_id=parent_id),
        ActionExecutionArgs(call_id=call_id, delta=text),
        ActionExecutionEnd(call_id=call_id),
    ]
