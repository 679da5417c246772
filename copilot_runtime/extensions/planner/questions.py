"""Questions of plans as AG-UI interrupts, and decoding of the answers that resume a run."""

from collections.abc import Mapping
from typing import cast, get_args

from copilot_runtime.api.events import Interrupt
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonpatch import is_same_json
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    JsonValue,
    as_object,
    as_text,
    drop_none,
    get_text,
    parse_text,
)
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import Answer, QuestionAsked, QuestionKind
from copilot_runtime.extensions.planner.log import PlanQuery, build_missing_error
from copilot_runtime.extensions.planner.plan import Plan

_INTERRUPTION_SCHEMA = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "enum": ["retry", "done", "fail"]},
        "note": {"type": "string"},
    },
    "required": ["answer"],
}
_ANSWER_SCHEMAS: Mapping[str, JsonObject] = {
    "approval": {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "note": {"type": "string"}},
        "required": ["approved"],
    },
    "interrupted_call": _INTERRUPTION_SCHEMA,
    "interrupted_task": _INTERRUPTION_SCHEMA,
}


def build_interrupt(plan: Plan, question: QuestionAsked) -> Interrupt:
    """Return the interrupt for a question; an assistant's own interrupt keeps its fields."""
    id = f"{plan.id}/{question.question_id}"
    place = {"plan_id": plan.id, "task_id": question.task_id}
    if question.kind != "interrupt":
        return Interrupt(
            interrupt_id=id,
            reason=question.kind,
            message=question.text,
            value={**place, "question_id": question.question_id, "message": question.text},
            response_schema=_ANSWER_SCHEMAS[question.kind],
        )
    fields = as_object(question.interrupt)
    value, metadata = fields.get("value"), fields.get("metadata")
    if metadata is None:
        metadata = value if isinstance(value, dict) else drop_none({"value": value})
    return Interrupt(
        interrupt_id=id,
        reason=as_text(fields.get("reason")) or "input",
        message=question.text,
        value=value,
        response_schema=fields.get("response_schema"),
        expires_at=fields.get("expires_at"),
        metadata={**as_object(metadata), **place},
    )


async def find_question(
    engine: PlanEngine, resume: Resume, run: RunInput
) -> tuple[Plan, QuestionAsked | None]:
    """Return the plan that an answer belongs to, and its question, or `None` if it is not open.

    A frontend of v1 sends no id; its question is found by the interrupt's value, and without one
    it is about the last plan of the thread. Raises `NotFound` if the plan does not exist for this
    user, or `Misuse` if more questions have the value than the run has answers.
    """
    if resume.interrupt_id is not None:
        plan_id, _, question_id = resume.interrupt_id.partition("/")
        plan = await engine.get(plan_id)
        if plan.created.user != run.user:
            raise build_missing_error(plan_id)
        return plan, plan.questions.get(question_id)
    value = parse_text(resume.value)
    query = PlanQuery(user=run.user, thread_id=run.thread_id)
    summaries = await engine.log.list_plans(query)
    found = [
        (plan, question)
        for summary in summaries
        if not summary.is_over
        for plan in [await engine.get(summary.id)]
        for question in plan.questions.values()
        if is_same_json(value, parse_text(build_interrupt(plan, question).value))
    ]
    if len(found) > sum(other.value == resume.value for other in run.resume):
        raise Misuse(
            f"{len(found)} questions of plans are equal, and the answer does not say which of "
            "them it is for. Answer it on the page of plans."
        )
    if found:
        return found[0]
    if not summaries:
        raise Misuse("No plan of this conversation waits for this answer.")
    return await engine.get(summaries[0].id), None


def read_answer(resume: Resume, kind: QuestionKind) -> tuple[Answer, str, JsonValue]:
    """Return the answer, the note and the payload for the assistant.

    Raises `Misuse` if the response does not fit the question.
    """
    is_cancelled = resume.status == "cancelled"
    payload = resume.payload
    if payload is None and resume.response is not None:
        payload = parse_text(resume.response)
    if kind == "interrupt":
        return ("cancel" if is_cancelled else "resolve"), "", payload
    if is_cancelled:
        return ("reject" if kind == "approval" else "fail"), "", None
    if isinstance(payload, bool):
        return "approve" if payload else "reject", "", None
    fields = as_object(payload)
    note = get_text(fields, "note")
    if isinstance(approved := fields.get("approved"), bool):
        return "approve" if approved else "reject", note, None
    answer = as_text(fields.get("answer")) or as_text(payload)
    if answer in get_args(Answer):
        return cast("Answer", answer), note, None
    raise Misuse(
        "The plan cannot go on with this answer.",
        hint="An approval is true or false; a call that was interrupted is retry, done or fail.",
    )
