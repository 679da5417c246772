"""Converts the events of runs into a task, and into updates for clients."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import ParseDict

from copilot_runtime.adapters.attachments import IMAGE
from copilot_runtime.api.events import (
    Activity,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    RunFailed,
    RunFinished,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    is_question,
)
from copilot_runtime.api.messages import TextMessage, new_id
from copilot_runtime.base.errors import AuthenticationFailed, Cancelled, Refused
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_object,
    as_text,
    drop_none,
    get_text,
    to_text,
)
from copilot_runtime.extensions.generative_ui.a2ui.operations import OPERATIONS, SURFACE

Update = TaskStatusUpdateEvent | TaskArtifactUpdateEvent

A2UI_TYPE = "application/json+a2ui"
RESULT = "result"
"""The artifact for a run's return value, beside its texts."""

ENDED = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
"""Final states of tasks."""

_FAILURES: Mapping[str, TaskState] = {
    Cancelled.code: TaskState.TASK_STATE_CANCELED,
    Refused.code: TaskState.TASK_STATE_REJECTED,
    AuthenticationFailed.code: TaskState.TASK_STATE_FAILED,
}


@dataclass(slots=True)
class _Artifact:
    """An artifact: a growing text, or parts that replace each other."""

    pieces: list[str] = field(default_factory=list[str])
    parts: Sequence[Part] = ()
    has_content: bool = False
    """True if the artifact has content."""


class TaskLog:
    """A task, built from the events of its runs."""

    def __init__(self, task_id: str, context_id: str) -> None:
        self.task_id = task_id
        self.context_id = context_id
        self.status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        self._artifacts: dict[str, _Artifact] = {}
        self._history: list[Message] = []
        self._questions: list[Part] = []
        self._time: datetime | None = None

    @property
    def is_ended(self) -> bool:
        """True if the task is in a final state."""
        return self.status.state in ENDED

    @property
    def is_over(self) -> bool:
        """True if the task is in a final state or waits for input."""
        return self.is_ended or self.status.state == TaskState.TASK_STATE_INPUT_REQUIRED

    def build_task(self, history_length: int | None = None) -> Task:
        """Return the task with the last `history_length` messages, or all of them for `None`."""
        count = len(self._history) if history_length is None else max(0, history_length)
        return Task(
            id=self.task_id,
            context_id=self.context_id,
            status=self.status,
            artifacts=[_build(id, it) for id, it in self._artifacts.items() if it.has_content],
            history=self._history[-count:] if count else [],
        )

    def fold(self, events: Iterable[Event], time: datetime) -> None:
        """Process the events of an earlier run, which started at that time."""
        self._time = time
        for event in events:
            for _ in self.feed(event):
                pass
        self._time = None

    def feed(self, event: Event) -> Iterator[Update]:
        """Process an event, and yield the updates for clients."""
        match event:
            case RunStarted(messages=messages):
                self._questions = []
                self._history += [
                    Message(
                        message_id=it.id,
                        role=Role.ROLE_USER,
                        parts=[Part(text=it.content)],
                        task_id=self.task_id,
                        context_id=self.context_id,
                    )
                    for it in messages
                    if isinstance(it, TextMessage) and it.role == "user"
                ]
                yield self._change(TaskState.TASK_STATE_WORKING)
            case TextMessageStart(message_id=id, role="assistant"):
                self._artifacts[id] = _Artifact()
            case TextMessageContent(message_id=id, content=piece) if id in self._artifacts:
                yield self._append(id, piece)
            case TextMessageEnd(message_id=id) if id in self._artifacts:
                if self._artifacts[id].has_content:
                    yield self._update(id, [Part(text="")], append=True, last=True)
            case Activity(message_id=id):
                if parts := encode_activity(event):
                    yield self._replace(id, parts)
            case MessagesSnapshot():
                yield from self._take_snapshot(event)
            case Interrupt() | Custom() if is_question(event):
                self._questions += _encode_question(event)
            case RunFinished(result=result):
                if result is not None:
                    yield self._replace(RESULT, [_data(result)])
                waits = bool(self._questions)
                state = TaskState.TASK_STATE_COMPLETED
                state = TaskState.TASK_STATE_INPUT_REQUIRED if waits else state
                yield self._change(state, self._questions)
            case RunFailed(error=error):
                state = _FAILURES.get(error.code, TaskState.TASK_STATE_FAILED)
                yield self._change(state, [Part(text=error.message)])
            case _:
                pass

    def _take_snapshot(self, event: MessagesSnapshot) -> Iterator[Update]:
        """Add the texts since the last user message, unless they were streamed."""
        texts: list[TextMessage] = []
        for message in event.messages:
            if isinstance(message, TextMessage) and message.role == "user":
                texts = []
            elif isinstance(message, TextMessage) and message.role == "assistant":
                texts.append(message)
        for text in texts:
            if text.content and text.id not in self._artifacts:
                yield self._replace(text.id, [Part(text=text.content)])

    def _append(self, id: str, piece: str) -> TaskArtifactUpdateEvent:
        artifact = self._artifacts[id]
        artifact.pieces.append(piece)
        return self._update(id, [Part(text=piece)], append=len(artifact.pieces) > 1)

    def _replace(self, id: str, parts: Sequence[Part]) -> TaskArtifactUpdateEvent:
        self._artifacts[id] = _Artifact(parts=parts)
        return self._update(id, parts, last=True)

    def _update(
        self, id: str, parts: Sequence[Part], *, append: bool = False, last: bool = False
    ) -> TaskArtifactUpdateEvent:
        self._artifacts[id].has_content = True
        return TaskArtifactUpdateEvent(
            task_id=self.task_id,
            context_id=self.context_id,
            artifact=Artifact(artifact_id=id, parts=parts),
            append=append,
            last_chunk=last,
        )

    def _change(self, state: TaskState, parts: Sequence[Part] = ()) -> TaskStatusUpdateEvent:
        self.status = TaskStatus(state=state, timestamp=self._time or datetime.now(UTC))
        if parts:
            self.status.message.CopyFrom(
                Message(
                    message_id=new_id(),
                    role=Role.ROLE_AGENT,
                    parts=parts,
                    task_id=self.task_id,
                    context_id=self.context_id,
                )
            )
        return TaskStatusUpdateEvent(
            task_id=self.task_id, context_id=self.context_id, status=self.status
        )


def encode_activity(event: Activity) -> Sequence[Part]:
    """Return the parts of an activity; none if it only reports progress."""
    content: JsonObject = as_object(event.content)
    match event.activity_type:
        case type if type == SURFACE:
            operations = as_list(content.get(OPERATIONS))
            return [_data(it, A2UI_TYPE) for it in operations]
        case type if type == IMAGE:
            return _file(get_text(content, "mimeType"), content)
        case "a2a-file":
            return _file(get_text(content, "mediaType"), content)
        case "a2a-data":
            return [_data(content.get("data"), get_text(content, "mediaType"))]
        case type:
            return [_data({"activityType": type, "content": event.content})]


def _file(media_type: str, content: JsonObject) -> Sequence[Part]:
    part = Part(media_type=media_type, filename=get_text(content, "name"))
    if url := get_text(content, "url"):
        part.url = url
        return [part]
    try:
        part.raw = base64.b64decode(get_text(content, "data"), validate=True)
    except (binascii.Error, ValueError):
        return []
    return [part] if part.raw else []


def _data(value: Any, media_type: str = "") -> Part:
    part = Part(media_type=media_type)
    ParseDict(value, part.data)
    if media_type:
        part.metadata["mimeType"] = media_type  # clients before version 1.0 read it here
    return part


def _encode_question(event: Interrupt | Custom) -> list[Part]:
    """Return an interrupt as text for people and as data for programs."""
    if isinstance(event, Custom):
        return [Part(text=to_text(event.value))]
    texts = [it.content for it in event.messages if isinstance(it, TextMessage) and it.content]
    text = event.message or as_text(event.value) or f"The agent needs an answer: {event.reason}."
    text = "\n\n".join([*texts, text])
    fields = {
        "interruptId": event.interrupt_id,
        "reason": event.reason,
        "value": event.value,
        "responseSchema": event.response_schema,
    }
    return [Part(text=text), _data(drop_none(fields))]


def _build(id: str, artifact: _Artifact) -> Artifact:
    text = "".join(artifact.pieces)
    return Artifact(artifact_id=id, parts=[Part(text=text)] if text else artifact.parts)
