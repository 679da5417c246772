"""Let a function answer: what it yields, or returns, is the answer."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, get_args

from copilot_runtime.agents.agui_inprocess import closing, fields_of, name_of, state_of
from copilot_runtime.agui.event_decoder import EventDecoder
from copilot_runtime.concurrency import call
from copilot_runtime.errors import ConfigurationFailed, CopilotError, Misuse
from copilot_runtime.events import (
    Activity,
    AgentState,
    Custom,
    Event,
    RunFinished,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.interfaces import Events, RunInput
from copilot_runtime.messages import new_id

Answering = Callable[[RunInput], AsyncIterable[Any] | Awaitable[Any] | str | None]
"""A function of the run that yields or returns text and events."""

_EVENTS = get_args(Event)
_BESIDE = (Activity, AgentState, Custom, Usage)
"""Events in the middle of a text that are no end of it."""


class FunctionAgent:
    """Answers with what a function says: `async def echo(run: RunInput)`.

    It may yield pieces of text, which become one message; events of ours; and events of AG-UI, as
    dicts or objects. Or it returns its whole answer. A plain function runs in a thread of its own.
    Without a `description`, it is what the function's docstring begins with.
    """

    def __init__(self, function: Answering, *, description: str | None = None) -> None:
        _check(function)
        self.function = function
        self.description = _described(function) if description is None else description

    async def run(self, run: RunInput) -> Events:
        """Call the function; yield what it says."""
        answer = _Answer(run, _named(self.function))
        async with aclosing(_pieces(self.function, run)) as pieces:
            async for piece in pieces:
                for event in answer.take(piece):
                    yield event
                if answer.ended:
                    break
        if answer.failure is not None:
            raise answer.failure
        for event in answer.end():
            yield event


async def _pieces(function: Answering, run: RunInput) -> AsyncGenerator[Any, None]:
    """Yield what a function yields, or else what it returns."""
    makes_generator = inspect.isasyncgenfunction(function)
    returned: Any = function(run) if makes_generator else await call(function, run)
    if not hasattr(returned, "__aiter__"):
        yield returned
        return
    iterator = aiter(returned)
    async with closing(iterator):
        async for piece in iterator:
            yield piece


class _Answer:
    """What was said in one run."""

    def __init__(self, run: RunInput, function: str) -> None:
        self.ended = False
        self._function = function
        self._incoming = EventDecoder(name_of(run), state_of(run), run)
        self._text: str | None = None

    @property
    def failure(self) -> CopilotError | None:
        return self._incoming.failure

    def take(self, piece: Any) -> Sequence[Event]:
        """Return what a piece means. Raises `Misuse` for one that means nothing."""
        if isinstance(piece, str):
            return self._write(piece) if piece else []
        if piece is None:
            return []
        if isinstance(piece, _EVENTS):
            events: Sequence[Event] = [piece]
            self.ended = isinstance(piece, RunFinished)
        elif isinstance(fields := fields_of(piece), dict) and isinstance(fields.get("type"), str):
            events = self._incoming.take(fields)
            self.ended = self._incoming.ended
        else:
            raise Misuse(
                f"The agent {self._function!r} said something of the type "
                f"{type(piece).__name__!r}, which is no part of an answer.",
                hint="Yield text, events of copilot_runtime.events, or events of AG-UI.",
            )
        goes_on = all(isinstance(event, _BESIDE) for event in events)
        return events if goes_on else [*self.end(), *events]

    def end(self) -> Sequence[Event]:
        """Return the end of the text, if there is one."""
        if self._text is None:
            return []
        ended, self._text = self._text, None
        return [TextMessageEnd(message_id=ended)]

    def _write(self, text: str) -> Sequence[Event]:
        start: list[Event] = []
        if self._text is None:
            self._text = new_id()
            start = [TextMessageStart(message_id=self._text)]
        return [*start, TextMessageContent(message_id=self._text, content=text)]


def _check(function: Answering) -> None:
    """Raise `ConfigurationFailed` for what can be no answer to a run."""
    name, called = _named(function), getattr(function, "__call__", None)  # noqa: B004  # to look at
    if inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(called):
        raise ConfigurationFailed(
            f"The function {name!r} cannot be an agent: it is no async generator.",
            hint="Write async def in front of it.",
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some that are written in C have none
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigurationFailed(
            f"The function {name!r} cannot be an agent: it does not take a run.",
            hint=f"Python says: {error}. An agent is called with one RunInput.",
        ) from None


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _described(function: Answering) -> str:
    """Return the first paragraph of a docstring, in one line."""
    text = inspect.getdoc(function) if inspect.isroutine(function) else None
    return " ".join((text or "").partition("\n\n")[0].split())
