"""Traces a plan while this server carries it out: a span for it, and one for each of its tasks."""

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
    note_answer,
    note_correction,
    note_evaluation,
    note_question,
    start_task_span,
    start_workflow_span,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import parse_traceparent
from copilot_runtime.telemetry.span import NO_SPAN, Span
from copilot_runtime.telemetry.telemetry import Telemetry

_INTERRUPTED = "interrupted"


class PlanTracer:
    """Begins and ends spans by the entries of a plan, which it gets once they are stored.

    The span of a task begins with the first that is done for it on this server, be it a question,
    and that of a task above it at the latest then. All are below the span under which the plan was
    made, whichever server goes on with it.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._root: Span = NO_SPAN
        self._spans: dict[str, Span] = {}
        """The open spans by the ids of their tasks, each parent before its children."""
        self._errors: dict[str, BaseException] = {}
        self._questions: dict[str, tuple[QuestionAsked, float]] = {}
        """What people have been asked since this server carries the plan out, and when."""
        self._waiting: dict[str, float] = {}
        """For how long tasks have waited for people."""

    def open(self, telemetry: Telemetry, epoch: int) -> None:
        """Begin the span of the plan: what is fed before has none."""
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
        """Return the span of a task, which begins now if it has none."""
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
        """Take what a task has failed with; its end comes as an entry."""
        if self._root.is_recording:
            self._errors[state.id] = error

    def feed(self, entry: PlanEntry) -> None:
        """Take an entry that the plan has taken in."""
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
                note_evaluation(span, passed=event.passed, missing=event.missing)
            case TasksAdded(task_id=id):
                note_correction(self.find_span(tasks[id]), len(event.tasks), tasks[id].rounds)
            case TaskOutput(task_id=id):
                self.find_span(tasks[id]).set_content({semconv.TASK_OUTPUT: event.output})
            case QuestionAsked(task_id=id):
                self._questions[event.question_id] = (event, entry.time)
                note_question(self.find_span(tasks[id]), event.kind, event.text)
            case QuestionAnswered():
                self._note_answer(event, entry.time)
            case TaskEnded(task_id=id):
                self._end(tasks[id], event)
            case _:
                pass

    def close(self) -> None:
        """End what is open, the innermost first: this server does not go on with the plan."""
        for id, span in reversed([*self._spans.items()]):
            end_task_span(span, _INTERRUPTED, attributes=self._describe(self._plan.tasks[id]))
        self._spans.clear()

    def _note_answer(self, event: QuestionAnswered, time: float) -> None:
        question, began = self._questions.pop(event.question_id, (None, 0.0))
        if question is None:  # an earlier server has asked
            self._root.add_event(semconv.EVENT_ANSWER, {semconv.QUESTION_ANSWER: event.answer})
            return
        id = question.task_id
        self._waiting[id] = self._waiting.get(id, 0.0) + time - began
        note_answer(self.find_span(self._plan.tasks[id]), question.kind, event.answer, event.note)

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
        """Return what a task or the plan took."""
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
