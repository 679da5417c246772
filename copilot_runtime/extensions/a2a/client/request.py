"""Builds the message for a remote agent, and keeps the state of conversations."""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from a2a.types import Message, Part, Role, SendMessageRequest
from google.protobuf.json_format import ParseDict

from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    ResultMessage,
    TextMessage,
    new_id,
)
from copilot_runtime.api.messages import Message as OurMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, parse_object
from copilot_runtime.extensions.a2a.client.surfaces import EXTENSIONS, SurfaceBook
from copilot_runtime.extensions.generative_ui.a2ui.catalog import find_catalog_id
from copilot_runtime.extensions.generative_ui.a2ui.operations import BASIC_CATALOG

_MOST_CONTEXTS = 4_096
_MOST_BYTES = 32 * 1024 * 1024
"""Maximum size of the surfaces of all conversations, in bytes."""


@dataclass(slots=True)
class Context:
    """A conversation with a remote agent."""

    id: str
    """The `contextId`: ours, unless the agent assigned another."""
    task_id: str = ""
    """The task that waits for the next message; empty without one."""
    is_new: bool = True
    """True if this server has not sent a message in this conversation yet."""
    surfaces: SurfaceBook = field(default_factory=SurfaceBook)


class ContextLog:
    """A cache of recent conversations; the oldest are evicted first.

    The state of an evicted conversation is restored from its thread's checkpoint, or by asking the
    agent which of its tasks waits.
    """

    def __init__(self) -> None:
        self._contexts: OrderedDict[tuple[str | None, str], Context] = OrderedDict()

    def find(self, user: str | None, thread: str) -> Context:
        """Return a user's conversation in a thread, or a new one."""
        key = (user, thread)
        context = self._contexts.setdefault(key, Context(thread))
        self._contexts.move_to_end(key)
        return context

    def trim(self) -> None:
        """Evict conversations beyond the limits; call it after a run."""
        while len(self._contexts) > _MOST_CONTEXTS or (
            len(self._contexts) > 1
            and sum(it.surfaces.size for it in self._contexts.values()) > _MOST_BYTES
        ):
            self._contexts.popitem(last=False)


_CLICK_TOOL = "log_a2ui_event"
"""The tool call that represents a click in a surface."""

_CLICK_TYPE = {"v0.8": "application/json+a2ui", "v0.9": "application/a2ui+json"}

_MEDIA: Mapping[str, str] = {"image": "image/*", "audio": "audio/*", "video": "video/*"}


def build_request(run: RunInput, context: Context, extension: str | None) -> SendMessageRequest:
    """Return the request for a run; it has no parts if there is no new input.

    With an `extension`, the URI of A2UI, the request states the client's capabilities and may
    contain a click. Raises `Misuse` if a file cannot be read.
    """
    version = EXTENSIONS.get(extension or "", "")
    click = _find_click(run.messages)
    message = Message(
        message_id=new_id(),
        role=Role.ROLE_USER,
        context_id=context.id,
        task_id=context.task_id,
    )
    if click is not None:
        message.parts.append(_build_click(click, version))
    else:
        for one in _find_question(run.messages):
            message.parts.extend(_build_parts(one))
    if extension:
        message.extensions.append(extension)
        capabilities: JsonObject = {
            "supportedCatalogIds": [find_catalog_id(run.context) or BASIC_CATALOG]
        }
        wrapped = capabilities if version == "v0.8" else {version: capabilities}
        ParseDict({"a2uiClientCapabilities": wrapped}, message.metadata)
    return SendMessageRequest(message=message)


def is_answer(message: OurMessage) -> bool:
    """Return whether a message is an agent's text."""
    return isinstance(message, TextMessage) and message.role == "assistant"


def _find_question(messages: Sequence[OurMessage]) -> Sequence[TextMessage | ImageMessage]:
    """Return the user's messages since the last message of another role."""
    found: list[TextMessage | ImageMessage] = []
    for message in reversed(messages):
        if isinstance(message, TextMessage | ImageMessage) and message.role == "user":
            found.insert(0, message)
        elif found:
            break
    return found


def _find_click(messages: Sequence[OurMessage]) -> JsonObject | None:
    """Return the click at the end of a conversation, or None."""
    for message in reversed(messages):
        if isinstance(message, ActionExecutionMessage) and message.name == _CLICK_TOOL:
            return parse_object(message.arguments)
        if not isinstance(message, ResultMessage):
            return None
    return None


def _build_click(click: JsonObject, version: str) -> Part:
    event: JsonValue = {"version": "v0.9", "action": click}
    if version != "v0.9":
        event = {"userAction": click}
    part = Part(media_type=_CLICK_TYPE.get(version, _CLICK_TYPE["v0.8"]))
    ParseDict(event, part.data)
    part.metadata["mimeType"] = part.media_type  # agents before version 1.0 read it here
    return part


def _build_parts(message: TextMessage | ImageMessage) -> Sequence[Part]:
    if isinstance(message, ImageMessage):
        return [Part(raw=_decode(message.bytes), media_type=f"image/{message.format}")]
    if not message.parts:
        return [Part(text=message.content)] if message.content else []
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, MediaPart):
            parts.append(_build_file(part))
        elif part.text:
            parts.append(Part(text=part.text))
    return parts


def _build_file(media: MediaPart) -> Part:
    part = Part(
        filename=media.filename or "",
        media_type=media.mime_type or _MEDIA.get(media.kind, "application/octet-stream"),
    )
    match media.source:
        case "data":
            part.raw = _decode(media.value)
        case "url":
            part.url = media.value
        case "id":
            raise Misuse(
                "The agent cannot get this file: it is only known by an id.",
                hint="An agent elsewhere needs the content of a file, or its address.",
            )
        case _:
            assert_never(media.source)
    return part


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text.rpartition(";base64,")[2], validate=False)
    except (binascii.Error, ValueError) as error:
        raise Misuse("A file of the message cannot be read.", hint=f"base64: {error}") from error
