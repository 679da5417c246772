"""Runs a function as an agent: its return value, or the values it yields, are the answer."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, get_args

from copilot_runtime.agents.agui_inprocess import (
    closing,
    serialize_event,
)
from copilot_runtime.agui.event_decoder import EventDecoder
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import (
    Activity,
    AgentState,
    Custom,
    Event,
    Events,
    RunFinished,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse

AgentFunction = Callable[[RunInput], AsyncIterable[Any] | Awaitable[Any] | str | None]
"""A function of the run that yields or returns text and events."""

_EVENTS = get_args(Event)
_INDEPENDENT = (Activity, AgentState, Custom, Usage)
"""Events that do not end a text."""


class FunctionAgent(Agent):
    """Runs a function of the run: `async def echo(run: RunInput)`.

    It may yield pieces of text, which become one message; events of ours; and events of AG-UI, as
    dicts or objects. Or it returns the whole answer. A plain function runs in a thread of its own.
    The default `description` is the first paragraph of the function's docstring. Raises
    `ConfigurationFailed` for a function that cannot be called with a run.
    """

    def __init__(self, function: AgentFunction, *, description: str | None = None) -> None:
        _check(function)
        self.function = function
        self.description = _read_description(function) if description is None else description

    async def run(self, run: RunInput) -> Events:
        """Call the function and yield its answer as our events.

        On cancellation or early close, an async generator is closed. Raises `Misuse` for a value
        that is neither text nor an event, and the errors of the function.
        """
        translator = _PieceTranslator(run, _get_function_name(self.function))
        async with aclosing(_call_function(self.function, run)) as pieces:
            async for piece in pieces:
                for event in translator.feed(piece):
                    yield event
                if translator.ended:
                    break
        ending = translator.finish()
        if translator.failure is not None:
            raise translator.failure
        for event in ending:
            yield event


async def _call_function(function: AgentFunction, run: RunInput) -> AsyncGenerator[Any, None]:
    """Yield the values of an async generator, or the return value of a function."""
    makes_generator = inspect.isasyncgenfunction(function)
    result: Any = function(run) if makes_generator else await call(function, run)
    if not hasattr(result, "__aiter__"):
        yield result
        return
    iterator = aiter(result)
    async with closing(iterator):
        async for piece in iterator:
            yield piece


class _PieceTranslator:
    """Translates the values of one answer; joins texts into one message."""

    def __init__(self, run: RunInput, function: str) -> None:
        self.ended = False
        self._function = function
        self._incoming = EventDecoder(run.agent_name, run.agent_input.state, run)
        self._text: str | None = None

    @property
    def failure(self) -> CopilotError | None:
        return self._incoming.failure

    def feed(self, piece: Any) -> Sequence[Event]:
        """Return the events of a value. Raises `Misuse` if it is neither text nor an event."""
        if isinstance(piece, str):
            return self._append_text(piece) if piece else []
        if piece is None:
            return []
        if isinstance(piece, _EVENTS):
            events: Sequence[Event] = [piece]
            self.ended = isinstance(piece, RunFinished)
        elif isinstance(fields := serialize_event(piece), dict) and isinstance(
            fields.get("type"), str
        ):
            events = self._incoming.take(fields)
            self.ended = self._incoming.ended or self._incoming.finished
        else:
            raise Misuse(
                f"The agent {self._function!r} yielded a value of the type "
                f"{type(piece).__name__!r}, which cannot be part of an answer.",
                hint="Yield text, events of copilot_runtime.api.events, or events of AG-UI.",
            )
        goes_on = all(isinstance(event, _INDEPENDENT) for event in events)
        return events if goes_on else [*self._close_text(), *events]

    def finish(self) -> Sequence[Event]:
        """Return the events that end the answer."""
        return [*self._close_text(), *self._incoming.finish()]

    def _close_text(self) -> Sequence[Event]:
        """Return the end of the text, if one is open."""
        if self._text is None:
            return []
        id, self._text = self._text, None
        return [TextMessageEnd(message_id=id)]

    def _append_text(self, text: str) -> Sequence[Event]:
        start: list[Event] = []
        if self._text is None:
            self._text = new_id()
            start = [TextMessageStart(message_id=self._text)]
        return [*start, TextMessageContent(message_id=self._text, content=text)]


def _check(function: AgentFunction) -> None:
    """Raise `ConfigurationFailed` if a function cannot be called with a run."""
    name, method = _get_function_name(function), getattr(function, "__call__", None)  # noqa: B004  # to look at
    if inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(method):
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


def _get_function_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _read_description(function: AgentFunction) -> str:
    """Return the first paragraph of a docstring, in one line."""
    text = inspect.getdoc(function) if inspect.isroutine(function) else None
    return " ".join((text or "").partition("\n\n")[0].split())
