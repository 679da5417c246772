"""Questions of a graph to a person (`interrupt()`), and the answers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from copilot_runtime.agents.langgraph.messages import decode
from copilot_runtime.errors import Misuse
from copilot_runtime.events import Interrupt
from copilot_runtime.interfaces import Resume
from copilot_runtime.jsontext import dumps, loads
from copilot_runtime.jsonvalue import as_object, as_objects, as_optional_text
from copilot_runtime.messages import new_id

_REASON = "langgraph:interrupt"
_VALUE, _MESSAGES = "__copilotkit_interrupt_value__", "__copilotkit_messages__"
_CANCELLED = "__agui_cancelled__"
_ID = re.compile(r"[0-9a-f]{32}")


def interrupts_in(state: Mapping[str, Any]) -> list[Interrupt]:
    """Return the questions that a thread waits with."""
    return read(
        question
        for task in as_objects(state.get("tasks"))
        for question in task.get("interrupts") or ()
    )


def read(questions: Iterable[Any]) -> list[Interrupt]:
    """Return questions as the server writes them, each once."""
    found = [_interrupt(question) for question in questions if isinstance(question, dict)]
    return [*{interrupt.interrupt_id: interrupt for interrupt in found}.values()]


def answer(resumes: Sequence[Resume], waiting: Sequence[Interrupt]) -> Any:
    """Return what the graph goes on with. Raises `Misuse` for an answer to no question.

    Answers go by the ids of their questions, so that none is taken for another's; servers before
    LangGraph 0.4 have no ids, and one question.
    """
    if not waiting:
        raise Misuse(
            "The agent does not wait for this answer.",
            hint="It has been given before, or the thread has gone on without it.",
        )
    left = [*waiting]
    given: dict[str, Any] = {}
    for resume in resumes:
        question = _asked(resume, left)
        left.remove(question)
        given[question.interrupt_id] = _value(resume, question)
    return given if all(map(_ID.fullmatch, given)) else next(iter(given.values()))


def _interrupt(question: Mapping[str, Any]) -> Interrupt:
    raw = question.get("value")
    fields: Mapping[str, Any] = as_object(raw)
    id = question.get("id") or question.get("interrupt_id")
    value, messages = raw, []
    if _VALUE in fields:
        value = fields[_VALUE]
        messages = decode(
            # the message of an action has none
            [
                {**said, "id": said.get("id") or new_id()}
                for said in as_objects(fields.get(_MESSAGES))
            ]
        )
    schema = fields.get("responseSchema", fields.get("response_schema"))
    return Interrupt(
        interrupt_id=id if isinstance(id, str) else new_id(),
        value=value,
        messages=messages,
        reason=as_optional_text(fields.get("reason")) or _REASON,
        message=value if isinstance(value, str) else as_optional_text(fields.get("message")),
        call_id=as_optional_text(fields.get("toolCallId", fields.get("tool_call_id"))),
        response_schema=schema if isinstance(schema, dict) else None,
        expires_at=as_optional_text(fields.get("expiresAt", fields.get("expires_at"))),
        metadata={"langgraph": {"raw": raw}},
    )


def _asked(resume: Resume, waiting: Sequence[Interrupt]) -> Interrupt:
    """Return the question that an answer is for: by its id, by its value, or the next one."""
    if resume.interrupt_id is not None:
        for interrupt in waiting:
            if interrupt.interrupt_id == resume.interrupt_id:
                return interrupt
    elif waiting:
        for interrupt in waiting:
            if resume.value in (interrupt.value, dumps(interrupt.value).decode()):
                return interrupt
        return waiting[0]
    raise Misuse(
        "The agent does not wait for this answer.",
        hint=f"There is no open interrupt {resume.interrupt_id!r}. Was it answered twice?",
    )


def _value(resume: Resume, question: Interrupt) -> Any:
    """Return an answer for the graph. A text that is JSON is read as such, as on Node."""
    if resume.status == "cancelled":
        return {_CANCELLED: True, "interrupt_id": question.interrupt_id}
    if resume.interrupt_id is not None:
        return resume.payload
    value = resume.response or "" if resume.payload is None else resume.payload
    if not isinstance(value, str):
        return value
    try:
        return loads(value.encode(errors="replace"))
    except ValueError:
        return value
