"""Decodes the messages of A2A clients, and the identifiers of tasks."""

import base64
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from a2a.types import Message, Part
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict

from copilot_runtime.api.events import Custom, Event, Interrupt, is_question
from copilot_runtime.api.messages import MediaPart, TextMessage, TextPart, new_id
from copilot_runtime.api.messages import Part as OurPart
from copilot_runtime.api.run_input import Resume
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_object,
    get_object,
    get_text,
    parse_text,
    to_text,
)

_A2UI = "a2ui"

_YES = frozenset({"yes", "y", "ok", "okay", "approve", "approved", "true", "ja"})
_NO = frozenset({"no", "n", "deny", "denied", "reject", "rejected", "false", "nein"})

Kind = Literal["image", "audio", "video", "document"]
_KINDS: dict[str, Kind] = {"image": "image", "audio": "audio", "video": "video"}


def decode_message(message: Message) -> TextMessage | None:
    """Return a user message, or None if it is empty. Data parts become JSON text."""
    parts = [found for part in message.parts if (found := _decode_part(part)) is not None]
    if not parts:
        return None
    text = "\n\n".join(it.text for it in parts if isinstance(it, TextPart))
    is_plain = all(isinstance(it, TextPart) for it in parts)
    return TextMessage(
        id=new_id(), role="user", content=text, parts=() if is_plain else tuple(parts)
    )


def find_click(message: Message) -> JsonObject | None:
    """Return the click in a surface that a message contains, as pages send it, or None."""
    for part in message.parts:
        if _is_a2ui(part):
            data = as_object(MessageToDict(part.data))
            if action := get_object(data, "action") or get_object(data, "userAction"):
                return {"userAction": action}
    return None


def decode_answers(message: Message, events: Sequence[Event]) -> Sequence[Resume]:
    """Return a message's answers to the interrupts among the events of a run.

    A data part `{interruptId, payload}` answers one interrupt; other content answers the only one
    there is. Raises `InvalidParamsError` if an answer is missing.
    """
    questions = [it for it in events if isinstance(it, Interrupt | Custom) and is_question(it)]
    data = [MessageToDict(it.data) for it in message.parts if it.WhichOneof("content") == "data"]
    named = {get_text(as_object(it), "interruptId"): it for it in data}
    text = "\n\n".join(it.text for it in message.parts if it.text)
    answers: list[Resume] = []
    for question in questions:
        if isinstance(question, Custom):
            value = to_text(question.value)
            answers.append(Resume(value, text, payload=parse_text(text)))
        elif question.interrupt_id in named:
            fields = as_object(named[question.interrupt_id])
            answers.append(_answer(question, fields.get("payload"), text))
        elif len(questions) == 1 and (data or text):
            answers.append(_answer(question, data[0] if data else _decide(question, text), text))
        else:
            raise InvalidParamsError(
                message=f"The task asks {len(questions)} questions: answer each of them with a "
                "data part {interruptId, payload}."
            )
    return answers


def _answer(question: Interrupt, payload: Any, text: str) -> Resume:
    return Resume(
        value=to_text(question.value),
        response=text or to_text(payload),
        interrupt_id=question.interrupt_id,
        payload=payload,
    )


def _decide(question: Interrupt, text: str) -> Any:
    """Return the payload for a text answer; an approval accepts yes and no."""
    schema = question.response_schema or {}
    word = text.strip().strip(".!").lower()
    if "approved" in as_object(schema.get("properties")) and word in _YES | _NO:
        return {"approved": word in _YES}
    return text


def _decode_part(part: Part) -> OurPart | None:
    match part.WhichOneof("content"):
        case "text":
            return TextPart(text=part.text) if part.text else None
        case "data":
            return None if _is_a2ui(part) else TextPart(text=to_text(MessageToDict(part.data)))
        case "raw" if part.raw:
            return _media(part, "data", base64.b64encode(part.raw).decode())
        case "url" if part.url:
            return _media(part, "url", part.url)
        case _:
            return None


def _media(part: Part, source: Literal["data", "url"], value: str) -> MediaPart:
    return MediaPart(
        kind=_KINDS.get(part.media_type.partition("/")[0], "document"),
        source=source,
        value=value,
        mime_type=part.media_type or None,
        filename=part.filename or None,
    )


def _is_a2ui(part: Part) -> bool:
    types = (part.media_type, str(MessageToDict(part.metadata).get("mimeType", "")))
    return part.WhichOneof("content") == "data" and any(_A2UI in it for it in types)


_RUN_BYTES = 16


class TaskKey(NamedTuple):
    """The thread of a task, and the identifier that all its runs share.

    A task that waits for input continues with another run of the same identifier.
    """

    thread_id: str
    run_id: str

    @property
    def task_id(self) -> str:
        """The public identifier.

        Knowing it does not grant access: the caller must own the thread.
        """
        data = bytes.fromhex(self.run_id) + self.thread_id.encode()
        return urlsafe_b64encode(data).decode().rstrip("=")


def derive_id(*source: str | None) -> str:
    """Return a run identifier for tasks that is the same for the same source."""
    return blake2b(dumps(source), digest_size=_RUN_BYTES).hexdigest()


def parse_task_id(task_id: str) -> TaskKey | None:
    """Return the key in a task identifier, or None if it is malformed."""
    try:
        data = urlsafe_b64decode(f"{task_id}{'=' * (-len(task_id) % 4)}")
        thread_id = data[_RUN_BYTES:].decode()
    except (Error, ValueError):
        return None
    if not thread_id:
        return None
    return TaskKey(thread_id, data[:_RUN_BYTES].hex())
