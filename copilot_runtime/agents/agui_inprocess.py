"""Translates AG-UI of an agent in this process, as objects or dicts, and prepares its input."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import replace
from typing import Any, Literal

from copilot_runtime.agui.event_decoder import EventDecoder
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import Message, Part, TextMessage, TextPart
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.jsonvalue import parse_text

_KINDS: dict[str, Literal["image", "audio", "video"]] = {
    "image": "image",
    "audio": "audio",
    "video": "video",
}
"""First part of a media type → the kind of part."""


def select_conversation(run: RunInput) -> Sequence[Message]:
    """Return the messages without the instructions of a v1 page for a model that has no agent."""
    first = run.messages[0] if run.messages else None
    if run.is_v1 and isinstance(first, TextMessage) and first.role == "system":
        return run.messages[1:]
    return run.messages


def upgrade_parts(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages with the part kinds of AG-UI 1.0, whose package refuses `binary`."""
    return [
        replace(message, parts=[_upgrade_part(part) for part in message.parts])
        if isinstance(message, TextMessage) and message.parts
        else message
        for message in messages
    ]


def _upgrade_part(part: Part) -> Part:
    if isinstance(part, TextPart):
        return part
    if part.source == "id":  # of a file at one provider of models
        return TextPart(text=f"(An attached file: {part.filename or part.value})")
    if part.kind != "binary":
        return part
    kind = _KINDS.get((part.mime_type or "").partition("/")[0], "document")
    return replace(part, kind=kind)


def serialize_event(event: Any) -> Any:
    """Return an event of the package ag-ui-protocol as JSON; anything else as it is."""
    if hasattr(event, "model_dump"):
        # a state may hold what JSON has no word for
        return event.model_dump(mode="json", by_alias=True, exclude_none=True, fallback=str)
    return event


def parse_decision(payload: Any) -> Any:
    """Return a person's answer to a call as an object; pages may send just `true`."""
    payload = parse_text(payload)
    return {"approved": payload} if isinstance(payload, bool) else payload


async def resolve(value: Any, run: RunInput) -> Any:
    """Return a value, or the result of a function of the run."""
    return await call(value, run) if callable(value) else value


def closing(iterator: AsyncIterator[Any]) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    """Return a context manager that closes an iterator, if it has `aclose`."""
    if hasattr(iterator, "aclose"):
        return aclosing(iterator)  # pyright: ignore[reportArgumentType]  # hasattr narrows no protocol
    return nullcontext(iterator)


async def translate_agui_events(stream: AsyncIterator[Any], run: RunInput) -> Events:
    """Yield our events for those of AG-UI, up to the end of the runs. Raises a failure."""
    incoming = EventDecoder(run.agent_name, run.agent_input.state, run)
    async with closing(stream):
        async for item in stream:
            for event in incoming.take(serialize_event(item)):
                yield event
            if incoming.ended:
                break
    for event in incoming.finish():
        yield event
    if incoming.failure is not None:
        raise incoming.failure
