"""Spans of planning, of a plan's execution, and of each task.

In OpenTelemetry's GenAI conventions, `plan` covers the planning only, with the model request below
it. The execution is an `invoke_workflow` span. The conventions have no name for a task of a plan;
`execute_task` is our own.
"""

from typing import Any

from copilot_runtime.extensions.planner.election import describe_task
from copilot_runtime.extensions.planner.events import (
    ROOT,
    PlanEntry,
    QuestionAnswered,
    QuestionAsked,
    TaskAssigned,
    TaskEnded,
    TaskEvaluated,
    TaskOutput,
    TasksAdded,
    TaskStarted,
)
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import parse_traceparent
from copilot_runtime.telemetry.genai import MAX_NAME
from copilot_runtime.telemetry.span import NO_SPAN, Span
from copilot_runtime.telemetry.telemetry import Telemetry

PLAN_OUTCOMES = ("finished", "failed", "stopped", "interrupted")
"""The values of `copilot.plan.outcome`."""


def count_plans_from_zero(telemetry: Telemetry, agent: str) -> None:
    """Initialise the plan counter with 0, as Prometheus sees no increase in a series that starts at
    1.
    """
    for outcome in PLAN_OUTCOMES:
        attributes = {semconv.WORKFLOW_NAME: agent, semconv.PLAN_OUTCOME: outcome}
        telemetry.record(semconv.PLAN_COUNT, 0, attributes)


def start_plan_span(parent: Span, agent: str) -> Span:
    """Start the span of the planning: `plan {agent}`."""
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


def link_plan(span: Span, plan_id: str, traceparent: str) -> None:
    """Set the plan id on a run's span, and link to the plan's trace if it is a different one."""
    span.set_attributes({semconv.PLAN_ID: plan_id})
    context = parse_traceparent(traceparent)
    if context is not None and context.trace_id != span.trace_id:
        span.add_link(context, {semconv.PLAN_ID: plan_id})


class PlanTracer:
    """Starts and ends spans for the stored entries of a plan.

    The span of a task starts with the first operation for it on this server, which may be a
    question; spans of its parents start at the same time at the latest. All are below the span in
    which the plan was created, whichever server runs it.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._root: Span = NO_SPAN
        self._spans: dict[str, Span] = {}
        """Open spans by task id, each parent before its children."""
        self._errors: dict[str, BaseException] = {}
        self._questions: dict[str, tuple[QuestionAsked, float]] = {}
        """Open questions that were asked while this server ran the plan, with their times."""
        self._waiting: dict[str, float] = {}
        """Seconds that tasks have waited for people, by task id."""

    def open(self, telemetry: Telemetry, epoch: int) -> None:
        """Start the span of the plan; entries before that are not traced."""
        created = self._plan.created
        agent = created.agent[:MAX_NAME]
        self._root = telemetry.start_span(
            f"{semconv.INVOKE_WORKFLOW} {agent}".rstrip(),
            parent=parse_traceparent(created.traceparent),  # without one, it starts a trace
            attributes={
                semconv.OPERATION_NAME: semconv.INVOKE_WORKFLOW,
                semconv.WORKFLOW_NAME: agent or None,
                semconv.CONVERSATION_ID: created.thread_id[:MAX_NAME] or None,
                semconv.USER_NAME: created.user,
                semconv.PLAN_ID: self._plan.id,
                semconv.PLAN_EPOCH: epoch,
            },
        )
        if self._root.is_recording:
            self._spans[ROOT] = self._root

    def find_span(self, state: TaskState) -> Span:
        """Return the span of a task; start it if it has none."""
        if not self._root.is_recording:
            return NO_SPAN
        span = self._spans.get(state.id)
        if span is None:
            assert state.parent is not None
            span = _start_task_span(self.find_span(state.parent), state)
            if state.assistant:
                _name_assistant(span, state.assistant, state.score)
            if span.keeps_content:
                span.set_content(
                    {
                        semconv.TASK_NAME: state.task.name,
                        semconv.TASK_DESCRIPTION: describe_task(state.task),
                    }
                )
            self._spans[state.id] = span
        return span

    def fail(self, state: TaskState, error: BaseException) -> None:
        """Remember the exception of a failed task for its span, which ends with its `TaskEnded`."""
        if self._root.is_recording:
            self._errors[state.id] = error

    def trace_entry(self, entry: PlanEntry) -> None:
        """Start, update or end spans for an entry that the plan has applied."""
        if not self._root.is_recording:
            return
        tasks, event = self._plan.tasks, entry.event
        match event:
            case TaskStarted(task_id=id):
                span = self.find_span(tasks[id])
                span.set_attributes({semconv.TASK_ATTEMPT: tasks[id].attempts})
            case TaskAssigned(task_id=id):
                _name_assistant(self.find_span(tasks[id]), event.assistant, event.score)
            case TaskEvaluated(task_id=id):
                _record_evaluation(self.find_span(tasks[id]), event)
            case TasksAdded(task_id=id):
                added = {semconv.PLAN_TASKS: len(event.tasks), semconv.TASK_ROUND: tasks[id].rounds}
                self.find_span(tasks[id]).add_event(semconv.EVENT_CORRECTION, added)
            case TaskOutput(task_id=id):
                self.find_span(tasks[id]).set_content({semconv.TASK_OUTPUT: event.output})
            case QuestionAsked(task_id=id):
                self._questions[event.question_id] = (event, entry.time)
                span = self.find_span(tasks[id])
                content = {semconv.QUESTION_TEXT: event.text} if span.keeps_content else {}
                attributes = {semconv.QUESTION_KIND: event.kind, **content}
                span.add_event(semconv.EVENT_QUESTION, attributes)
            case QuestionAnswered():
                self._record_answer(event, entry.time)
            case TaskEnded(task_id=id):
                self._end(tasks[id], event)
            case _:
                pass

    def close(self) -> None:
        """End all open spans as interrupted, innermost first, when the plan no longer runs here."""
        for id, span in reversed([*self._spans.items()]):
            _end_task_span(span, "interrupted", attributes=self._describe(self._plan.tasks[id]))
        self._spans.clear()

    def _record_answer(self, event: QuestionAnswered, time: float) -> None:
        question, began = self._questions.pop(event.question_id, (None, 0.0))
        if question is None:  # it was asked while an earlier server ran the plan
            self._root.add_event(semconv.EVENT_ANSWER, {semconv.QUESTION_ANSWER: event.answer})
            return
        id = question.task_id
        self._waiting[id] = self._waiting.get(id, 0.0) + time - began
        span = self.find_span(self._plan.tasks[id])
        has_note = event.note and span.keeps_content
        content = {semconv.QUESTION_NOTE: event.note} if has_note else {}
        names = {semconv.QUESTION_KIND: question.kind, semconv.QUESTION_ANSWER: event.answer}
        span.add_event(semconv.EVENT_ANSWER, {**names, **content})

    def _end(self, state: TaskState, event: TaskEnded) -> None:
        span = self.find_span(state)
        if state.parent is None:
            del self._spans[ROOT]
            self.close()
        last = state.evaluations[-1] if state.evaluations else None
        is_bad = last is not None and not last.passed
        _end_task_span(
            span,
            event.outcome,
            reason=event.reason,
            error=self._errors.pop(state.id, None),
            error_type=semconv.ERROR_TYPE_EVALUATION if is_bad else "",
            attributes=self._describe(state),
        )
        self._spans.pop(state.id, None)

    def _describe(self, state: TaskState) -> dict[str, Any]:
        """Return usage and duration of a task or plan as span attributes."""
        attributes: dict[str, Any] = {
            semconv.TASK_TOKENS: state.tokens or None,
            semconv.TASK_COST: round(float(state.dollars), 6) or None,
        }
        if state.parent is not None:
            return {**attributes, semconv.TASK_WAITING: self._waiting.get(state.id)}
        attributes[semconv.PLAN_TASKS] = len(self._plan.tasks) - 1
        if state.ended_at is not None:
            attributes[semconv.PLAN_SECONDS] = float(state.ended_at - self._plan.created_at)
            attributes[semconv.TASK_WAITING] = float(self._plan.waiting_seconds) or None
        return attributes


def _start_task_span(parent: Span, state: TaskState) -> Span:
    """Start the span of a task: `execute_task`; the agent's name follows when it is elected."""
    if not parent.is_recording:
        return NO_SPAN
    of = parent.attributes
    return parent.start_child(
        semconv.EXECUTE_TASK,
        attributes={
            semconv.OPERATION_NAME: semconv.EXECUTE_TASK,
            semconv.CONVERSATION_ID: of.get(semconv.CONVERSATION_ID),
            semconv.PLAN_ID: of.get(semconv.PLAN_ID),
            semconv.TASK_ID: state.id,
            semconv.TASK_ROUND: state.round or None,
        },
    )


def _name_assistant(span: Span, agent: str, score: float | None) -> None:
    """Set the agent of a task's span, and the score of its election if there was one."""
    if not span.is_ended:
        span.name = f"{semconv.EXECUTE_TASK} {agent[:MAX_NAME]}"
        span.set_attributes(
            {
                semconv.AGENT_NAME: agent[:MAX_NAME],
                semconv.TASK_SCORE: None if score is None else float(score),
            }
        )


def _record_evaluation(span: Span, event: TaskEvaluated) -> None:
    """Log an evaluation event for the output of a task or plan."""
    if span.telemetry is None:
        return
    span.telemetry.log_event(
        semconv.EVENT_EVALUATION_RESULT,
        {
            semconv.EVALUATION_NAME: "task",
            semconv.EVALUATION_SCORE_VALUE: 1.0 if event.passed else 0.0,
            semconv.EVALUATION_SCORE_LABEL: "passed" if event.passed else "failed",
        },
        span=span,
        content={semconv.EVALUATION_EXPLANATION: event.missing} if event.missing else None,
    )


def _end_task_span(
    span: Span,
    outcome: str,
    *,
    reason: str = "",
    error: BaseException | None = None,
    error_type: str = "",
    attributes: dict[str, Any],
) -> None:
    """End the span of a task or plan; if it failed, with the class of `error` or with
    `error_type`.
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
