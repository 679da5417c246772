"""What an agent in this process says in AG-UI, in objects or dicts, becomes our events."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import replace
from typing import Any, Literal

from copilot_runtime.agui.event_decoder import EventDecoder
from copilot_runtime.concurrency import call
from copilot_runtime.interfaces import DEFAULT_AGENT, Events, RunInput
from copilot_runtime.jsontext import loads
from copilot_runtime.messages import Message, Part, TextMessage, TextPart

_KINDS: dict[str, Literal["image", "audio", "video"]] = {
    "image": "image",
    "audio": "audio",
    "video": "video",
}
"""What media types begin with → the kind of part."""


def name_of(run: RunInput) -> str:
    """Return what to call the agent of a run."""
    return run.agent or DEFAULT_AGENT


def state_of(run: RunInput) -> Any:
    """Return the state that the client holds for the agent."""
    known = run.agents.get(name_of(run))
    return {} if known is None else known.state


def conversation_of(run: RunInput) -> Sequence[Message]:
    """Return the messages without what a v1 page tells a model that is no agent."""
    first = run.messages[0] if run.messages else None
    if run.is_v1 and isinstance(first, TextMessage) and first.role == "system":
        return run.messages[1:]
    return run.messages


def typed(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages with the parts that AG-UI 1.0 has: its package refuses those of before."""
    return [
        replace(message, parts=[_typed(part) for part in message.parts])
        if isinstance(message, TextMessage) and message.parts
        else message
        for message in messages
    ]


def _typed(part: Part) -> Part:
    if isinstance(part, TextPart):
        return part
    if part.source == "id":  # known to one provider of models only
        return TextPart(text=f"(An attached file: {part.filename or part.value})")
    if part.kind != "binary":
        return part
    kind = _KINDS.get((part.mime_type or "").partition("/")[0], "document")
    return replace(part, kind=kind)


def fields_of(event: Any) -> Any:
    """Return an event as it is on the wire, if it is one of the package ag-ui-protocol."""
    if hasattr(event, "model_dump"):
        # a state may hold what JSON has no word for
        return event.model_dump(mode="json", by_alias=True, exclude_none=True, fallback=str)
    return event


def decision(payload: Any) -> Any:
    """Return a person's answer to a call; pages may say just `true`."""
    if isinstance(payload, str):
        try:
            payload = loads(payload.encode(errors="replace"))
        except ValueError:
            return payload
    return {"approved": payload} if isinstance(payload, bool) else payload


async def given(value: Any, run: RunInput) -> Any:
    """Return a value, or what a function of the run says it is."""
    return await call(value, run) if callable(value) else value


def closing(iterator: AsyncIterator[Any]) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    """Return what closes an iterator, if it is one that can be closed."""
    if hasattr(iterator, "aclose"):
        return aclosing(iterator)  # pyright: ignore[reportArgumentType]  # hasattr narrows no protocol
    return nullcontext(iterator)


async def spoken(said: AsyncIterator[Any], run: RunInput) -> Events:
    """Yield what was said, up to the run's end; raise what it failed with."""
    incoming = EventDecoder(name_of(run), state_of(run), run)
    async with closing(said):
        async for event in said:
            for ours in incoming.take(fields_of(event)):
                yield ours
            if incoming.ended:
                break
    if incoming.failure is not None:
        raise incoming.failure
