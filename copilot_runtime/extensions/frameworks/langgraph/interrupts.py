"""Interrupts of a graph (`interrupt()`), and the values that resume it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime.agui.outcome import encode_langgraph_value
from copilot_runtime.api.events import Interrupt
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import Resume
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import (
    as_list,
    as_object,
    as_objects,
    as_optional_text,
    parse_text,
)
from copilot_runtime.extensions.frameworks.langgraph.messages import decode_langchain

_REASON = "langgraph:interrupt"
_VALUE, _MESSAGES = "__copilotkit_interrupt_value__", "__copilotkit_messages__"
_CANCELLED = "__agui_cancelled__"
_ID = re.compile(r"[0-9a-f]{32}")


def read_interrupts(state: Mapping[str, Any]) -> list[Interrupt]:
    """Return the open interrupts in the state of a thread."""
    tasks = as_objects(state.get("tasks"))
    return parse_interrupts([item for task in tasks for item in as_list(task.get("interrupts"))])


def parse_interrupts(items: Any) -> list[Interrupt]:
    """Return interrupts for LangGraph's JSON, each once."""
    interrupts = [_parse_interrupt(item) for item in as_objects(items)]
    return [*{interrupt.interrupt_id: interrupt for interrupt in interrupts}.values()]


def build_resume(resumes: Sequence[Resume], pending: Sequence[Interrupt]) -> Any:
    """Return the value of `Command(resume=…)`. Raises `Misuse` for an answer without an interrupt.

    Values are keyed by the ids of their interrupts. Servers before LangGraph 0.4 have no ids, and
    one interrupt at a time.
    """
    if not pending:
        raise Misuse(
            "The agent does not wait for this answer.",
            hint="It has been given before, or the thread has gone on without it.",
        )
    left = [*pending]
    values: dict[str, Any] = {}
    for resume in resumes:
        interrupt = _find_interrupt(resume, left)
        left.remove(interrupt)
        values[interrupt.interrupt_id] = _resume_value(resume, interrupt)
    return values if all(map(_ID.fullmatch, values)) else next(iter(values.values()))


def _parse_interrupt(item: Mapping[str, Any]) -> Interrupt:
    raw = item.get("value")
    fields = as_object(raw)
    id = item.get("id") or item.get("interrupt_id")
    value, messages = raw, []
    if _VALUE in fields:
        value = fields[_VALUE]
        messages = decode_langchain(
            # the message of an action has no id
            [{**one, "id": one.get("id") or new_id()} for one in as_objects(fields.get(_MESSAGES))]
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


def _find_interrupt(resume: Resume, pending: Sequence[Interrupt]) -> Interrupt:
    """Return the interrupt that is resumed: by its id, by its value, or the next one."""
    if resume.interrupt_id is not None:
        for interrupt in pending:
            if interrupt.interrupt_id == resume.interrupt_id:
                return interrupt
    elif pending:
        for interrupt in pending:
            if resume.value in (
                interrupt.value,
                dumps(interrupt.value).decode(),
                encode_langgraph_value(interrupt),
            ):
                return interrupt
        return pending[0]
    raise Misuse(
        "The agent does not wait for this answer.",
        hint=f"There is no open interrupt {resume.interrupt_id!r}. Was it answered twice?",
    )


def _resume_value(resume: Resume, interrupt: Interrupt) -> Any:
    """Return the value for the graph. JSON in the text of a v1 client is decoded, as on Node."""
    if resume.status == "cancelled":
        return {_CANCELLED: True, "interrupt_id": interrupt.interrupt_id}
    if resume.interrupt_id is not None:
        return resume.payload
    return parse_text(resume.response or "" if resume.payload is None else resume.payload)
