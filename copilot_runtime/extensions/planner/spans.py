"""Spans of plans: how one is written, how it is carried out, and each of its tasks.

By the conventions, `plan` is the planning alone: the request to the model is below it. What follows
is a workflow beside it, and the conventions have no name for its tasks: `execute_task` is ours.
"""

from typing import Any

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext, parse_traceparent
from copilot_runtime.telemetry.genai import MAX_NAME
from copilot_runtime.telemetry.span import NO_SPAN, Span
from copilot_runtime.telemetry.telemetry import Telemetry

PLAN_OUTCOMES = ("finished", "failed", "stopped", "interrupted")
"""The values of `copilot.plan.outcome`."""


def count_plans_from_zero(telemetry: Telemetry, agent: str) -> None:
    """Let the counter of plans begin at 0: Prometheus sees no rise in what appears with a 1."""
    for outcome in PLAN_OUTCOMES:
        attributes = {semconv.WORKFLOW_NAME: agent, semconv.PLAN_OUTCOME: outcome}
        telemetry.record(semconv.PLAN_COUNT, 0, attributes)


def start_plan_span(parent: Span, agent: str) -> Span:
    """Begin the span of a plan that is being written: `plan {agent}`."""
    if not parent.is_recording:
        return NO_SPAN
    agent = agent[:MAX_NAME]
    return parent.start_child(
        f"{semconv.PLAN} {agent}".rstrip(),
        attributes={
            semconv.OPERATION_NAME: semconv.PLAN,
            semconv.AGENT_NAME: agent or None,
            semconv.CONVERSATION_ID: parent.attributes.get(semconv.CONVERSATION_ID),
        },
    )


def start_workflow_span(
    telemetry: Telemetry,
    *,
    agent: str,
    plan_id: str,
    epoch: int,
    thread_id: str,
    user: str | None,
    parent: Span | SpanContext | None,
) -> Span:
    """Begin the span of a plan that this server carries out: `invoke_workflow {agent}`.

    Without a `parent`, a trace begins with it.
    """
    agent = agent[:MAX_NAME]
    return telemetry.start_span(
        f"{semconv.INVOKE_WORKFLOW} {agent}".rstrip(),
        parent=parent,
        attributes={
            semconv.OPERATION_NAME: semconv.INVOKE_WORKFLOW,
            semconv.WORKFLOW_NAME: agent or None,
            semconv.CONVERSATION_ID: thread_id[:MAX_NAME] or None,
            semconv.USER_NAME: user,
            semconv.PLAN_ID: plan_id,
            semconv.PLAN_EPOCH: epoch,
        },
    )


def start_task_span(parent: Span, task_id: str, *, round: int = 0) -> Span:
    """Begin the span of a task: `execute_task`, and the name of its agent once there is one."""
    if not parent.is_recording:
        return NO_SPAN
    of = parent.attributes
    return parent.start_child(
        semconv.EXECUTE_TASK,
        attributes={
            semconv.OPERATION_NAME: semconv.EXECUTE_TASK,
            semconv.CONVERSATION_ID: of.get(semconv.CONVERSATION_ID),
            semconv.PLAN_ID: of.get(semconv.PLAN_ID),
            semconv.TASK_ID: task_id,
            semconv.TASK_ROUND: round or None,
        },
    )


def link_plan(span: Span, plan_id: str, traceparent: str) -> None:
    """Let the span of a run that follows a plan name it, and lead to its trace if it is another."""
    span.set_attributes({semconv.PLAN_ID: plan_id})
    context = parse_traceparent(traceparent)
    if context is not None and context.trace_id != span.trace_id:
        span.add_link(context, {semconv.PLAN_ID: plan_id})


def name_assistant(span: Span, agent: str, score: float | None) -> None:
    """Set which agent does a task, and how well it fits if it was elected."""
    if not span.is_ended:
        span.name = f"{semconv.EXECUTE_TASK} {agent[:MAX_NAME]}"
        span.set_attributes(
            {
                semconv.AGENT_NAME: agent[:MAX_NAME],
                semconv.TASK_SCORE: None if score is None else float(score),
            }
        )


def note_evaluation(span: Span, *, passed: bool, missing: str) -> None:
    """Note that the outcome of a task, or of a plan, was judged."""
    if span.telemetry is None:
        return
    span.telemetry.log_event(
        semconv.EVENT_EVALUATION_RESULT,
        {
            semconv.EVALUATION_NAME: "task",
            semconv.EVALUATION_SCORE_VALUE: 1.0 if passed else 0.0,
            semconv.EVALUATION_SCORE_LABEL: "passed" if passed else "failed",
        },
        span=span,
        content={semconv.EVALUATION_EXPLANATION: missing} if missing else None,
    )


def note_question(span: Span, kind: str, text: str) -> None:
    """Note that a person is asked."""
    content = {semconv.QUESTION_TEXT: text} if span.keeps_content else {}
    span.add_event(semconv.EVENT_QUESTION, {semconv.QUESTION_KIND: kind, **content})


def note_answer(span: Span, kind: str, answer: str, note: str) -> None:
    """Note that a person has answered."""
    content = {semconv.QUESTION_NOTE: note} if note and span.keeps_content else {}
    names = {semconv.QUESTION_KIND: kind, semconv.QUESTION_ANSWER: answer}
    span.add_event(semconv.EVENT_ANSWER, {**names, **content})


def note_correction(span: Span, tasks: int, round: int) -> None:
    """Note that corrective tasks were added below a task."""
    attributes = {semconv.PLAN_TASKS: tasks, semconv.TASK_ROUND: round}
    span.add_event(semconv.EVENT_CORRECTION, attributes)


def end_task_span(
    span: Span,
    outcome: str,
    *,
    reason: str = "",
    error: BaseException | None = None,
    error_type: str = "",
    attributes: dict[str, Any],
) -> None:
    """End the span of a task or of a whole plan.

    A failed one has the class of its `error`, or else its `error_type`.
    """
    is_plan = span.operation == semconv.INVOKE_WORKFLOW
    name = semconv.PLAN_OUTCOME if is_plan else semconv.TASK_OUTCOME
    span.set_attributes({name: outcome, **attributes})
    span.set_content({semconv.TASK_REASON: reason or None})
    if outcome == "failed":
        if error is not None:
            span.fail(error, reason)
        else:
            span.fail(error_type or semconv.ERROR_TYPE_OTHER, reason)
    span.end()
