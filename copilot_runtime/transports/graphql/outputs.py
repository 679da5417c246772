"""The output types of the v1 schema, and their mapping from events.

Each streamed field follows the log of the run with a cursor of its own, so that no field waits for
another. `encode.py` writes the same objects without resolvers.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar, NamedTuple

import strawberry

from copilot_runtime.api.bus import START, Cursor
from copilot_runtime.api.events import (
    LAST,
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Custom,
    Event,
    Interrupt,
    Raw,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    TextMessage,
    new_id,
)
from copilot_runtime.api.transcript import result_message
from copilot_runtime.base.jsonvalue import to_text
from copilot_runtime.runtime.run import Run
from copilot_runtime.transports.graphql.types import (
    DateTimeISO,
    MessageRole,
    MessageStatus,
    MetaEventName,
    ResponseStatus,
    message_status,
    response_status,
)


class Place(NamedTuple):
    """A position in the log of one run: an offset in events after a cursor."""

    run: Run
    cursor: Cursor = START
    skip: int = 0

    async def events(self) -> "AsyncGenerator[tuple[Place, Event], None]":
        """Yield the following events, each with the position before it."""
        before, skip = self.cursor, self.skip
        async with aclosing(self.run.follow(self.cursor)) as batches:
            async for cursor, events in batches:
                for number in range(skip, len(events)):
                    yield Place(self.run, before, number), events[number]
                before, skip = cursor, max(0, skip - len(events))

    async def pieces(self, message_id: str) -> AsyncGenerator[str, None]:
        """Yield the chunks of a message that begins here, until it ends."""
        async with aclosing(self.events()) as events:
            async for _, event in events:
                if (delta := read_delta(event)) is not None and delta.message_id == message_id:
                    yield delta.content
                if isinstance(event, LAST) or _ends(event, message_id):
                    return

    async def end(self, message_id: str = "") -> Event:
        """Wait for the end of a message, or of the run; return the event that ended it."""
        async with aclosing(self.events()) as events:
            async for _, event in events:
                if isinstance(event, LAST) or _ends(event, message_id):
                    return event
        raise AssertionError("a log ends with its run's last event")


@strawberry.type(description="A piece of the text or of the arguments of one message.")
class MessageDelta:
    message_id: str
    content: str


def read_delta(event: Event) -> MessageDelta | None:
    """Return the delta in an event, or `None`."""
    match event:
        case TextMessageContent():
            return MessageDelta(message_id=event.message_id, content=event.content)
        case ActionExecutionArgs():
            return MessageDelta(message_id=event.call_id, content=event.delta)
        case _:
            return None


def ended_id(event: Event) -> str | None:
    """Return the id of the message that an event ends, or `None`."""
    match event:
        case TextMessageEnd():
            return event.message_id
        case ActionExecutionEnd():
            return event.call_id
        case _:
            return None


def _ends(event: Event, message_id: str) -> bool:
    """Return whether an event ends a message. So does the result of a call that was cut off."""
    if isinstance(event, ActionExecutionResult):
        return event.call_id == message_id
    return ended_id(event) == message_id


def _now() -> DateTimeISO:
    return DateTimeISO(datetime.now(UTC))


@strawberry.interface
class BaseMessageOutput:
    """A message that grows from its `place` in a log, or one that is complete in `whole`."""

    id: str
    created_at: DateTimeISO = strawberry.field(default_factory=_now)
    place: strawberry.Private[Place | None] = None
    whole: strawberry.Private[str] = ""
    failure: ClassVar[str] = ""
    """The reason in its failed status if its run fails before its end."""

    @strawberry.field
    async def status(self) -> MessageStatus:
        end = None if self.place is None else await self.place.end(self.id)
        return message_status(end, self.failure)


async def _stream(self: BaseMessageOutput) -> strawberry.Streamable[str]:
    if self.place is None:
        yield self.whole
        return
    async with aclosing(self.place.pieces(self.id)) as pieces:
        async for piece in pieces:
            yield piece


@strawberry.type
class TextMessageOutput(BaseMessageOutput):
    role: MessageRole = MessageRole.assistant
    parent_message_id: str | None = None
    content: strawberry.Streamable[str] = strawberry.field(resolver=_stream)
    failure = "Error streaming message content"


@strawberry.type
class ImageMessageOutput(BaseMessageOutput):
    format: str = ""
    bytes: str = ""
    role: MessageRole = MessageRole.assistant
    parent_message_id: str | None = None


@strawberry.type
class ActionExecutionMessageOutput(BaseMessageOutput):
    name: str = ""
    scope: str | None = strawberry.field(
        default=None, deprecation_reason="This field will be removed in a future version"
    )
    parent_message_id: str | None = None
    arguments: strawberry.Streamable[str] = strawberry.field(resolver=_stream)
    failure = "An unknown error has occurred in the action execution argument stream"


@strawberry.type
class ResultMessageOutput(BaseMessageOutput):
    action_execution_id: str = ""
    action_name: str = ""
    result: str = ""


@strawberry.type
class AgentStateMessageOutput(BaseMessageOutput):
    thread_id: str = ""
    agent_name: str = ""
    node_name: str = ""
    run_id: str = ""
    active: bool = False
    role: MessageRole = MessageRole.assistant
    state: str = "{}"
    running: bool = False


@strawberry.interface
class BaseMetaEvent:
    type: str
    name: MetaEventName


@strawberry.type
class LangGraphInterruptEvent(BaseMetaEvent):
    type: str = "MetaEvent"
    name: MetaEventName = MetaEventName.LangGraphInterruptEvent
    value: str = ""
    response: str | None = None


@strawberry.type
class CopilotKitLangGraphInterruptEventData:
    value: str
    messages: list[BaseMessageOutput]


@strawberry.type
class CopilotKitLangGraphInterruptEvent(BaseMetaEvent):
    data: CopilotKitLangGraphInterruptEventData
    type: str = "MetaEvent"
    name: MetaEventName = MetaEventName.CopilotKitLangGraphInterruptEvent
    response: str | None = None


@strawberry.type(name="OpenAIApiAssistantAPIResponse")
class OpenAIApiAssistantAPIResponse:
    run_id: str | None = None
    thread_id: str | None = None


@strawberry.type
class ExtensionsResponse:
    openai_assistant_api: OpenAIApiAssistantAPIResponse | None = None


ASSISTANT = "openaiAssistantAPI"
"""Name of the custom event with the thread and run ids of an assistant's conversation, and of
the extension in which the client gets these ids and returns them with its next request."""

_BEFORE_WORDS = (RunStarted, Custom, Raw, Usage)


@strawberry.type
class CopilotResponse:
    thread_id: str
    run_id: str | None = None
    extensions: ExtensionsResponse | None = None
    place: strawberry.Private[Place]

    async def load_extensions(self) -> "CopilotResponse":
        """Return the response with the extensions that its run sends before the first message."""
        async with aclosing(self.place.events()) as events:
            async for _, event in events:
                if (found := self.read_extensions(event)) is not None:
                    return found
                if not isinstance(event, _BEFORE_WORDS):
                    break
        return self

    def read_extensions(self, event: Event) -> "CopilotResponse | None":
        """Return the response with the assistant's ids in an event, or `None` without them."""
        match event:
            case Custom(name=name, value={"threadId": str(thread), "runId": str(run)}) if (
                name == ASSISTANT
            ):
                assistant = OpenAIApiAssistantAPIResponse(run_id=run, thread_id=thread)
                extensions = ExtensionsResponse(openai_assistant_api=assistant)
                return replace(self, run_id=run, extensions=extensions)
            case _:
                return None

    @strawberry.field
    async def status(self) -> ResponseStatus:
        return response_status(await self.place.end())

    @strawberry.field
    async def messages(self) -> strawberry.Streamable[BaseMessageOutput]:
        async with aclosing(self.place.events()) as events:
            async for place, event in events:
                if (message := build_message(event, place)) is not None:
                    yield message

    @strawberry.field
    async def meta_events(self) -> strawberry.Streamable[BaseMetaEvent] | None:
        async with aclosing(self.place.events()) as events:
            async for _, event in events:
                if isinstance(event, Interrupt):
                    yield build_meta_event(event)


TYPES = (
    TextMessageOutput,
    ImageMessageOutput,
    ActionExecutionMessageOutput,
    ResultMessageOutput,
    AgentStateMessageOutput,
    LangGraphInterruptEvent,
    CopilotKitLangGraphInterruptEvent,
)
"""Types that are only reachable through an interface."""


def build_message(event: Event, place: Place | None = None) -> BaseMessageOutput | None:
    """Return the message that an event starts, or `None`."""
    match event:
        case TextMessageStart():
            return TextMessageOutput(
                id=event.message_id,
                role=MessageRole(event.role),
                parent_message_id=event.parent_id,
                place=place,
            )
        case ActionExecutionStart():
            return ActionExecutionMessageOutput(
                id=event.call_id, name=event.name, parent_message_id=event.parent_id, place=place
            )
        case ActionExecutionResult():
            return _build_whole_message(result_message(event))
        case AgentState():
            return AgentStateMessageOutput(
                id=new_id(),
                thread_id=event.thread_id,
                agent_name=event.agent,
                node_name=event.node,
                run_id=event.run_id,
                active=event.active,
                state=to_text(event.state),
                running=event.running,
            )
        case _:
            return None


def build_meta_event(event: Interrupt) -> BaseMetaEvent:
    """Return an interrupt in one of the two forms of v1: with messages, or with a value only."""
    value = to_text(event.value)
    if not event.messages:
        return LangGraphInterruptEvent(value=value)
    messages = [
        output for item in event.messages if (output := _build_whole_message(item)) is not None
    ]
    return CopilotKitLangGraphInterruptEvent(
        data=CopilotKitLangGraphInterruptEventData(value=value, messages=messages)
    )


def _build_whole_message(message: Message) -> BaseMessageOutput | None:
    match message:
        case TextMessage():
            return TextMessageOutput(
                id=message.id,
                role=MessageRole(message.role),
                parent_message_id=message.parent_id,
                whole=message.content,
            )
        case ActionExecutionMessage():
            return ActionExecutionMessageOutput(
                id=message.id,
                name=message.name,
                parent_message_id=message.parent_id,
                whole=message.arguments,
            )
        case ResultMessage():
            return ResultMessageOutput(
                id=message.id,
                action_execution_id=message.call_id,
                action_name=message.name,
                result=message.result,
            )
        case _:
            return None
