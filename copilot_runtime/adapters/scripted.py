"""A model whose answers a test has written: the public test double."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import orjson

from copilot_runtime.api.adapter import Adapter, ChatRequest, ModelEndpoint
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
    Events,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.base.errors import Misuse

Turn = (
    Sequence[Event | Exception] | Callable[[ChatRequest], Sequence[Event | Exception]] | Exception
)
"""The answer to one request. An exception is raised at its position."""


class Gate:
    """Holds back events until a test releases them, which proves progress without a clock."""

    def __init__(self) -> None:
        self._open = asyncio.Semaphore(0)
        self._waiting = asyncio.Event()

    def release(self, events: int = 1) -> None:
        """Release that many events."""
        self._waiting.clear()
        for _ in range(events):
            self._open.release()

    async def wait_for_event(self) -> None:
        """Return once an event waits at the gate: all before it have been delivered."""
        await self._waiting.wait()

    async def wait(self) -> None:
        """Wait until one more event is released."""
        if self._open.locked():
            self._waiting.set()
        await self._open.acquire()


Request = TypeVar("Request")


class Script(Generic[Request]):
    """Plays one turn per request, in order, and records the requests.

    Args:
        player: The name of the class that plays it, for error messages.
        turns: The turns, as of a `ScriptedAdapter`.
        gate: Each event waits until the test releases it here; None: no event waits.

    Raises:
        Misuse: A turn is not a list of events.
    """

    def __init__(
        self,
        player: str,
        turns: Sequence[
            Sequence[Event | Exception]
            | Callable[[Request], Sequence[Event | Exception]]
            | Exception
        ],
        gate: Gate | None = None,
    ) -> None:
        for number, turn in enumerate(turns, 1):
            if not callable(turn) and not isinstance(turn, Exception):
                _check_turn(player, number, turn)
        self.requests: list[Request] = []
        self._player = player
        self._turns = turns
        self._gate = gate

    async def play(self, request: Request) -> Events:
        """Yield the events of the next turn.

        Raises:
            Misuse: There is no turn left, or it is not a list of events.
            Exception: The exception that stands in the turn.
        """
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._turns):
            raise Misuse(
                f"The script has {len(self._turns)} turns and was asked for turn {number + 1}. "
                f"Give {self._player} another turn, or look why it is asked again."
            )
        turn = self._turns[number]
        if isinstance(turn, Exception):
            turn = [turn]
        elif callable(turn):
            turn = turn(request)
            _check_turn(self._player, number + 1, turn)
        for event in turn:
            if self._gate is not None:
                await self._gate.wait()
            if isinstance(event, Exception):
                raise event
            yield event


def _check_turn(player: str, number: int, turn: object) -> None:
    """Raise `Misuse` if a turn is not a list of events, but for example a string."""
    wrong = [turn]
    if isinstance(turn, Sequence) and not isinstance(turn, str):
        wrong = [item for item in turn if isinstance(item, str | Sequence)]
    if wrong:
        raise Misuse(
            f"Turn {number} of {player} is no list of events, but "
            f"{'has' if wrong[0] is not turn else 'is'} a {type(wrong[0]).__name__}. "
            f"Write {player}(say('Hello'), say('Bye')): each turn is what `say` or `call` returns."
        )


class ScriptedAdapter(Adapter):
    """Yields one turn per request, in order, and records the requests.

    >>> adapter = ScriptedAdapter(call("get_time", {"city": "Oslo"}), say(["It is ", "noon."]))

    Args:
        turns: The turns: events, an exception that is raised where it stands, or a function that
            gets the request and returns them. See `say` and `call`.
        gate: Each event waits until the test releases it here; None: no event waits.
    """

    def __init__(self, *turns: Turn, gate: Gate | None = None) -> None:
        self.closed = False
        self._script = Script[ChatRequest]("ScriptedAdapter", turns, gate)

    @property
    def requests(self) -> list[ChatRequest]:
        """The requests up to now."""
        return self._script.requests

    def stream(self, request: ChatRequest) -> Events:
        """Yield the events of the next turn.

        Raises:
            Misuse: There is no turn left.
            Exception: The exception that stands in the turn.
        """
        return self._script.play(request)

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        """Return `scripted` as the provider, and the model of the request."""
        return ModelEndpoint("scripted", request.parameters.model or "", in_process=True)

    async def aclose(self) -> None:
        """Set `closed`."""
        self.closed = True


def say(text: str | Iterable[str], *, id: str = "message-1") -> list[Event]:
    """Return the events of a text.

    Args:
        text: The text, whole or in pieces.
        id: The id of the message.
    """
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
    """Return the events of a call.

    Args:
        name: The name of the action.
        arguments: The arguments; a string is sent as it is, even if it is not JSON.
        id: The id of the call; by default, `call-` and the name.
        parent_id: The id of the answer that the call is a part of.
    """
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    call_id = id or f"call-{name}"
    return [
        ActionExecutionStart(call_id=call_id, name=name, parent_id=parent_id),
        ActionExecutionArgs(call_id=call_id, delta=text),
        ActionExecutionEnd(call_id=call_id),
    ]
