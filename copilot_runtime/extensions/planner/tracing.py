"""Traces a plan that runs on this server: one span for it, and one for each task."""

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
from copilot_runtime.extensions.planner.spans import (
    end_task_span,
    name_assistant,
    record_answer,
    record_correction,
    record_evaluation,
    record_question,
    start_task_span,
    start_workflow_span,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import parse_traceparent
from copilot_runtime.telemetry.span import NO_SPAN, Span
from copilot_runtime.telemetry.telemetry import Telemetry

_INTERRUPTED = "interrupted"


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
        self._root = start_workflow_span(
            telemetry,
            agent=created.agent,
            plan_id=self._plan.id,
            epoch=epoch,
            thread_id=created.thread_id,
            user=created.user,
            parent=parse_traceparent(created.traceparent),
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
            span = start_task_span(self.find_span(state.parent), state.id, round=state.round)
            if state.assistant:
                name_assistant(span, state.assistant, state.score)
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
                name_assistant(self.find_span(tasks[id]), event.assistant, event.score)
            case TaskEvaluated(task_id=id):
                span = self.find_span(tasks[id])
                record_evaluation(span, passed=event.passed, missing=event.missing)
            case TasksAdded(task_id=id):
                record_correction(self.find_span(tasks[id]), len(event.tasks), tasks[id].rounds)
            case TaskOutput(task_id=id):
                self.find_span(tasks[id]).set_content({semconv.TASK_OUTPUT: event.output})
            case QuestionAsked(task_id=id):
                self._questions[event.question_id] = (event, entry.time)
                record_question(self.find_span(tasks[id]), event.kind, event.text)
            case QuestionAnswered():
                self._record_answer(event, entry.time)
            case TaskEnded(task_id=id):
                self._end(tasks[id], event)
            case _:
                pass

    def close(self) -> None:
        """End all open spans as interrupted, innermost first, when the plan no longer runs here."""
        for id, span in reversed([*self._spans.items()]):
            end_task_span(span, _INTERRUPTED, attributes=self._describe(self._plan.tasks[id]))
        self._spans.clear()

    def _record_answer(self, event: QuestionAnswered, time: float) -> None:
        question, began = self._questions.pop(event.question_id, (None, 0.0))
        if question is None:  # it was asked while an earlier server ran the plan
            self._root.add_event(semconv.EVENT_ANSWER, {semconv.QUESTION_ANSWER: event.answer})
            return
        id = question.task_id
        self._waiting[id] = self._waiting.get(id, 0.0) + time - began
        record_answer(self.find_span(self._plan.tasks[id]), question.kind, event.answer, event.note)

    def _end(self, state: TaskState, event: TaskEnded) -> None:
        span = self.find_span(state)
        if state.parent is None:
            del self._spans[ROOT]
            self.close()
        last = state.evaluations[-1] if state.evaluations else None
        is_bad = last is not None and not last.passed
        end_task_span(
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
