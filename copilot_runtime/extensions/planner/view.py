"""A plan as JSON: for the agent's state, the console and the terminal."""

from copilot_runtime.base.jsonvalue import JsonObject, drop_none
from copilot_runtime.extensions.planner.events import ANSWERS, QuestionAsked
from copilot_runtime.extensions.planner.plan import Plan, TaskState

_MAX_OUTPUT = 2_000
"""Maximum characters of a task's output in the tree; the task's own view has all of it."""


def describe_plan(plan: Plan) -> JsonObject:
    """Return a plan with its tree of tasks; fields of a task without a value are left out."""
    states = [*plan.tasks.values()][1:]
    return {
        "id": plan.id,
        "request": plan.created.request,
        "status": plan.status,
        "reason": plan.root.reason,
        "output": None if plan.root.output is None else _shorten(plan.root.output),
        "evaluation": _describe_evaluation(plan.root),
        "decision": _describe_decision(plan.root),
        "rounds": plan.root.rounds,
        "progress": {
            "over": sum(state.is_over for state in states),
            "finished": sum(state.status == "finished" for state in states),
            "total": len(states),
        },
        "tokens": plan.root.tokens,
        "dollars": round(plan.root.dollars, 6),
        "created_at": plan.created_at,
        "ended_at": plan.root.ended_at,
        "questions": [
            _describe_question(question, plan.tasks[question.task_id])
            for question in plan.questions.values()
        ],
        "tasks": [describe_state(state) for state in plan.root.children],
    }


def describe_state(state: TaskState) -> JsonObject:
    """Return a task with its subtasks; fields without a value are left out."""
    task = state.task
    return drop_none(
        {
            "id": state.id,
            "name": task.name,
            "purpose": task.purpose,
            "status": state.status,
            "assistant": state.assistant or None,
            "score": None if state.score is None else round(state.score, 4),
            "depends_on": [*task.depends_on] or None,
            "needs_approval": task.needs_approval or None,
            "is_correction": state.round > 0 or None,
            "round": state.round or None,
            "attempts": state.attempts if state.attempts > 1 else None,
            "reason": state.reason or None,
            "decision": _describe_decision(state),
            "evaluation": _describe_evaluation(state),
            "rounds": state.rounds or None,
            "calls": len(state.calls) or None,
            "tokens": state.tokens or None,
            "dollars": round(state.dollars, 6) or None,
            "started_at": state.started_at,
            "ended_at": state.ended_at,
            "output": None if state.output is None else _shorten(state.output),
            "tasks": [describe_state(child) for child in state.children] or None,
        }
    )


def describe_task(state: TaskState) -> JsonObject:
    """Return all fields of a task, without its subtasks."""
    task = state.task
    described = describe_state(state)
    described.pop("tasks", None)
    return {
        **described,
        "instructions": task.instructions,
        "applicability": task.applicability,
        "criterion": task.evaluation,
        "output": state.output,
        "attempts": state.attempts,
        "round": state.round,
        "needs_approval": task.needs_approval,
        "max_tokens": task.tokens,
        "sources": [*state.sources],
        "evaluations": [
            {"round": one.round, "passed": one.passed, "missing": one.missing}
            for one in state.evaluations
        ],
        "calls": [
            {
                "id": call.id,
                "tool": call.tool,
                "arguments": call.arguments,
                "is_idempotent": call.is_idempotent,
                "result": call.result,
            }
            for call in state.calls.values()
        ],
        "questions": [_describe_question(one, state) for one in state.questions.values()],
    }


def _describe_evaluation(state: TaskState) -> JsonObject | None:
    """Return the last verdict about a task, or `None` if it was never evaluated."""
    if not state.evaluations:
        return None
    return {"passed": state.evaluations[-1].passed, "missing": state.evaluations[-1].missing}


def _describe_decision(state: TaskState) -> JsonObject | None:
    """Return the last answer of a person about a task, or `None`."""
    if (event := state.decision) is None:
        return None
    fields: JsonObject = {"note": event.note or None, "user": event.user}
    return {"answer": event.answer, **drop_none(fields)}


def describe_context(question: QuestionAsked, state: TaskState) -> list[JsonObject]:
    """Return the outputs that a task depends on, as context for its approval; else nothing."""
    if question.kind != "approval":
        return []
    return [
        {"task_id": one.id, "name": one.task.name, "output": _shorten(one.output)}
        for one in state.list_dependencies()
        if one.output
    ]


def _describe_question(question: QuestionAsked, state: TaskState) -> JsonObject:
    return drop_none(
        {
            "id": question.question_id,
            "task_id": question.task_id,
            "kind": question.kind,
            "text": question.text,
            "call_id": question.call_id or None,
            "interrupt": question.interrupt,
            "answers": [*ANSWERS[question.kind]],
            "context": [*describe_context(question, state)] or None,
        }
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_OUTPUT else f"{text[: _MAX_OUTPUT - 1]}…"
