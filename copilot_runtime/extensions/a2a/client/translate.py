"""Translates the messages, tasks, states and artifacts of a remote agent into events."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import assert_never

from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
)
from google.protobuf.json_format import MessageToDict

from copilot_runtime.adapters.attachments import image_activity
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.events import (
    Activity,
    Event,
    StepFinished,
    StepStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import new_id
from copilot_runtime.base.errors import AuthenticationFailed, Cancelled, CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, as_text
from copilot_runtime.extensions.a2a.client.request import Context
from copilot_runtime.extensions.a2a.client.surfaces import MIME_TYPES

DATA, FILE = "a2a-data", "a2a-file"
"""Activity types for parts other than text: `{data, name?, mediaType?}` and `{name, mediaType?,
size?, url | data}`, with base64 data."""

MAX_FILE_BYTES = 1024 * 1024
"""Maximum size of a file whose content is sent to the page."""

_LONGEST_REASON = 2_000
_LONGEST_DATA = 10_000

_GOES_ON = (
    TaskState.TASK_STATE_UNSPECIFIED,
    TaskState.TASK_STATE_SUBMITTED,
    TaskState.TASK_STATE_WORKING,
)
"""States of active tasks."""

_WAITING = (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED)
"""States of tasks that wait for input."""

_ENDS = (
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_REJECTED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_AUTH_REQUIRED,
)
"""States whose message becomes an error."""


@dataclass(slots=True)
class _Text:
    """The text of an artifact, and the identifier of its message.

    The identifier is empty after the message has ended.
    """

    message_id: str = ""
    pieces: list[str] = field(default_factory=list[str])
    parts: set[bytes] = field(default_factory=set[bytes])
    """Digests of the artifact's other parts."""

    def find_new_parts(self, parts: Sequence[Part], append: bool) -> Sequence[Part]:
        """Return the parts other than text that were not sent before: agents repeat them."""
        others = [part for part in parts if part.WhichOneof("content") != "text"]
        digests = [blake2b(it.SerializeToString(deterministic=True)).digest() for it in others]
        pairs = zip(others, digests, strict=True)
        found = [part for part, digest in pairs if append or digest not in self.parts]
        self.parts.update(digests)
        return found


class Translator:
    """Creates the events of one run. `agent` is its name, `context` the conversation."""

    def __init__(self, agent: str, context: Context, catalog_id: str = "") -> None:
        self.agent = agent
        self.task_id = ""
        self.has_begun = False
        """True if the agent has sent anything."""
        self.failure: CopilotError | None = None
        self.is_answered = False
        """True if the answer is complete: a message, or a task that is no longer active."""
        self._context = context
        self._catalog_id = catalog_id
        self._step = ""
        self._artifacts: dict[str, _Text] = {}
        self._messages: set[str] = set()
        """Identifiers of the messages already displayed."""
        self._texts_displayed: set[str] = set()
        """All texts displayed: agents repeat a message as an artifact, or vice versa."""
        self._data: list[JsonObject] = []
        self._files = 0

    @property
    def is_resumable(self) -> bool:
        """True if there is an active task, which can be polled."""
        return bool(self.task_id) and not self.is_answered

    def feed(self, response: StreamResponse) -> Iterator[Event]:
        """Yield the events of a response, or of one event of a stream."""
        self.has_begun = True
        match response.WhichOneof("payload"):
            case "message":
                self._record_ids(response.message.task_id, response.message.context_id)
                yield from self._show_message(response.message)
                self.is_answered = True
            case "task":
                yield from self._take_task(response.task)
            case "status_update":
                update = response.status_update
                self._record_ids(update.task_id, update.context_id)
                yield from self._take_status(update.status)
            case "artifact_update":
                update = response.artifact_update
                self._record_ids(update.task_id, update.context_id)
                yield from self._take_artifact(
                    update.artifact, append=update.append, last=update.last_chunk
                )
            case _:
                pass

    def finish(self) -> Iterator[Event]:
        """Yield the events that end open messages; without any text, data are shown as text."""
        yield from self._context.surfaces.flush()
        yield from self._close_texts()
        yield from self._enter_step("")
        if self._data and not self._texts_displayed and not self._files and self.failure is None:
            for data in self._data:
                yield from self._emit_text(
                    f"```json\n{dumps(data['data']).decode()[:_LONGEST_DATA]}\n```"
                )

    def _record_ids(self, task_id: str, context_id: str) -> None:
        self.task_id = task_id or self.task_id
        self._context.id = context_id or self._context.id

    def _take_task(self, task: Task) -> Iterator[Event]:
        """Display the current state of a task; parts displayed before are skipped."""
        self._record_ids(task.id, task.context_id)
        for artifact in task.artifacts:
            yield from self._take_artifact(artifact, append=False, last=False)
        yield from self._take_status(task.status)
        if self.is_answered and self.failure is None and not self._has_content:
            # some agents send no artifact, only status messages
            answers = [one for one in task.history if one.role == Role.ROLE_AGENT]
            for message in answers[-1:]:
                yield from self._show_message(message)

    @property
    def _has_content(self) -> bool:
        return bool(self._texts_displayed or self._data or self._files or self._artifacts)

    def _take_status(self, status: TaskStatus) -> Iterator[Event]:
        if status.state not in _GOES_ON:
            yield from self._close_texts()
        is_working = status.state == TaskState.TASK_STATE_WORKING
        yield from self._enter_step("working" if is_working else "")
        if status.state not in _ENDS:
            yield from self._show_message(status.message)
        self.is_answered = status.state not in _GOES_ON
        self._context.task_id = self.task_id if status.state in _WAITING else ""
        self.failure = self._build_failure(status)

    def _build_failure(self, status: TaskStatus) -> CopilotError | None:
        texts = (part.text for part in status.message.parts if part.text)
        reason = " ".join("\n\n".join(texts)[:_LONGEST_REASON].split())
        because = f": {reason}" if reason else "."
        match status.state:
            case TaskState.TASK_STATE_FAILED:
                return AgentFailed(f"The agent {self.agent!r} failed{because}")
            case TaskState.TASK_STATE_REJECTED:
                return AgentFailed(f"The agent {self.agent!r} refused the task{because}")
            case TaskState.TASK_STATE_CANCELED:
                return Cancelled(f"The task of the agent {self.agent!r} was canceled{because}")
            case TaskState.TASK_STATE_AUTH_REQUIRED:
                return AuthenticationFailed(
                    f"The agent {self.agent!r} needs a sign-in before it goes on{because}",
                    hint="The next message continues its task. Forward the header that it needs.",
                )
            case _:
                return None

    def _enter_step(self, name: str) -> Iterator[Event]:
        if name == self._step:
            return
        if self._step:
            yield StepFinished(name=self._step)
        self._step = name
        if name:
            yield StepStarted(name=name)

    def _show_message(self, message: Message) -> Iterator[Event]:
        """Display a message once, with its text parts joined."""
        if not message.parts or (message.message_id and message.message_id in self._messages):
            return
        self._messages.add(message.message_id)
        text = "\n\n".join(part.text for part in message.parts if part.text)
        if not self._has_said(text):
            yield from self._emit_text(text)
        yield from self._show_parts(message.parts, "")

    def _take_artifact(self, artifact: Artifact, *, append: bool, last: bool) -> Iterator[Event]:
        """Display new content of an artifact.

        Without `append`, it replaces the previous content.
        """
        new = "".join(part.text for part in artifact.parts if part.text)
        text = self._artifacts.get(artifact.artifact_id)
        if text is None:
            text = self._artifacts[artifact.artifact_id] = _Text()
            if new in self._texts_displayed:
                text.pieces, new = [new], ""
        elif not append:
            whole = "".join(text.pieces)
            if new.startswith(whole):
                new = new[len(whole) :]
            elif new:
                yield from self._close(text)
                text.pieces = []
        if new:
            if not text.message_id:
                text.message_id = new_id()
                yield TextMessageStart(message_id=text.message_id)
            text.pieces.append(new)
            yield TextMessageContent(message_id=text.message_id, content=new)
        yield from self._show_parts(text.find_new_parts(artifact.parts, append), artifact.name)
        if last:
            yield from self._close(text)

    def _has_said(self, text: str) -> bool:
        artifacts = self._artifacts.values()
        return text in self._texts_displayed or any("".join(it.pieces) == text for it in artifacts)

    def _close_texts(self) -> Iterator[Event]:
        for text in self._artifacts.values():
            yield from self._close(text)

    def _close(self, text: _Text) -> Iterator[Event]:
        if text.message_id:
            self._texts_displayed.add("".join(text.pieces))
            yield TextMessageEnd(message_id=text.message_id)
            text.message_id = ""

    def _emit_text(self, text: str) -> Iterator[Event]:
        if not text:
            return
        self._texts_displayed.add(text)
        id = new_id()
        yield TextMessageStart(message_id=id)
        yield TextMessageContent(message_id=id, content=text)
        yield TextMessageEnd(message_id=id)

    def _show_parts(self, parts: Sequence[Part], name: str) -> Iterator[Event]:
        """Display the parts other than text; A2UI messages are processed together."""
        surfaces: list[JsonValue] = []
        for part in parts:
            kind = part.WhichOneof("content")
            match kind:
                case "data":
                    data = _to_integers(MessageToDict(part.data))
                    if _find_type(part) in MIME_TYPES:
                        surfaces += data if isinstance(data, list) else [data]
                    else:
                        yield self._show_data(data, _find_type(part), name)
                case "raw" | "url":
                    yield from self._show_file(part, name)
                case "text" | None:
                    pass
                case _:
                    assert_never(kind)
        if surfaces:
            yield from self._context.surfaces.feed(surfaces, self._catalog_id)

    def _show_data(self, data: JsonValue, media_type: str, name: str) -> Activity:
        content: JsonObject = {"data": data}
        content |= {"name": name} if name else {}
        content |= {"mediaType": media_type} if media_type else {}
        self._data.append(content)
        return Activity(message_id=new_id(), activity_type=DATA, content=content)

    def _show_file(self, part: Part, name: str) -> Iterator[Event]:
        self._files += 1
        label = part.filename or name or "file"
        content: JsonObject = {"name": label}
        content |= {"mediaType": part.media_type} if part.media_type else {}
        text = f"{label} ({len(part.raw)} bytes)"
        if part.WhichOneof("content") == "url":
            content["url"] = part.url
            is_web = part.url.startswith(("https://", "http://"))
            text = f"[{_escape(label)}](<{_escape(part.url)}>)" if is_web else label
        else:
            content["size"] = len(part.raw)
            if len(part.raw) <= MAX_FILE_BYTES:
                content["data"] = base64.b64encode(part.raw).decode()
        if "data" in content and part.media_type.startswith("image/"):
            yield image_activity(part.media_type, content["data"])
        else:
            yield Activity(message_id=new_id(), activity_type=FILE, content=content)
        yield from self._emit_text(text)


def _find_type(part: Part) -> str:
    """Return the media type of a data part; before version 1.0 it was in the metadata."""
    return part.media_type or as_text(MessageToDict(part.metadata).get("mimeType"))


def _to_integers(value: JsonValue) -> JsonValue:
    """Return a value with whole floats as integers, because protobuf has only doubles."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_to_integers(one) for one in value]
        case dict():
            return {key: _to_integers(one) for key, one in value.items()}
        case _:
            return value


def _escape(text: str) -> str:
    """Return a text that is safe within a Markdown link."""
    return "".join("" if char in "[]<>\r\n" else char for char in text)
