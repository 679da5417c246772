"""The current state of a plan, rebuilt from its events."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, assert_never, get_args

from copilot_runtime.base.jsonvalue import JsonValue
from copilot_runtime.extensions.planner.events import (
    ROOT,
    CallFinished,
    CallStarted,
    Outcome,
    PlanCreated,
    PlanEntry,
    PlanEvent,
    QuestionAnswered,
    QuestionAsked,
    StopRequested,
    TaskAssigned,
    TaskEnded,
    TaskEvaluated,
    TaskOutput,
    TaskPaused,
    TaskReopened,
    TasksAdded,
    TaskStarted,
    UsageAdded,
)
from copilot_runtime.extensions.planner.tasks import PlanLimits, Task

Status = Literal["pending", "running", "waiting", Outcome]
"""The status of a task or plan; `waiting` means for a person."""

FINAL_STATUSES: frozenset[Status] = frozenset(get_args(Outcome))
"""The final statuses of a task or plan."""


@dataclass(slots=True)
class Call:
    """A tool call. Without a result, it is unknown whether the call took effect."""

    id: str
    tool: str
    arguments: str
    is_idempotent: bool
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A person's answer to a question of a task's assistant."""

    question: QuestionAsked
    answer: QuestionAnswered


@dataclass(slots=True)
class TaskState:
    """A task and its current state."""

    id: str
    task: Task
    parent: "TaskState | None"
    level: int
    """Depth in the tree: 0 is the plan itself, 1 the top-level tasks."""
    children: "list[TaskState]" = field(default_factory=list["TaskState"])
    round: int = 0
    """The round of corrections that added it; 0 if it was planned."""
    status: Status = "pending"
    assistant: str = ""
    score: float | None = None
    is_opaque: bool = False
    attempts: int = 0
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    requests: int = 0
    """Requests to models, those of its subtasks and of the planning included."""
    tokens: int = 0
    dollars: float = 0.0
    output: str | None = None
    sources: tuple[str, ...] = ()
    evaluations: list[TaskEvaluated] = field(default_factory=list[TaskEvaluated])
    verdict: TaskEvaluated | None = None
    """The last evaluation, as long as it has had no consequence."""
    rounds: int = 0
    """Rounds of corrections since the last retry by a person."""
    reason: str = ""
    questions: dict[str, QuestionAsked] = field(default_factory=dict[str, QuestionAsked])
    """Open questions by id."""
    question_count: int = 0
    """Number of questions about it, those that are closed included."""
    is_approved: bool = False
    refusal: str | None = None
    """The comment of the person who rejected or gave up the task, else `None`."""
    may_repeat: bool = False
    """`True` if a person allowed an opaque assistant to repeat an interrupted task."""
    fresh_starts: int = 0
    """How often its assistant started from scratch, each time in a thread of its own."""
    is_paused: bool = False
    """`True` while its assistant waits for people to answer its questions."""
    messages: JsonValue = None
    """The conversation of the paused assistant, as AG-UI messages."""
    replies: list[Reply] = field(default_factory=list[Reply])
    """Answers for the paused assistant."""
    decision: QuestionAnswered | None = None
    """The last answer of a person to a question about it."""
    is_stopping: bool = False
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def is_over(self) -> bool:
        """`True` if its status is final."""
        return self.status in FINAL_STATUSES

    def walk(self) -> "Iterator[TaskState]":
        """Yield the task and all its descendants, each parent before its children."""
        stack: list[TaskState] = [self]
        while stack:
            state = stack.pop()
            yield state
            stack.extend(reversed(state.children))

    def path(self) -> "Iterator[TaskState]":
        """Yield the task, its parent, and so on up to the plan."""
        state: TaskState | None = self
        while state is not None:
            yield state
            state = state.parent

    def list_dependencies(self) -> "Sequence[TaskState]":
        """Return the tasks that its ancestors depend on, then those that it depends on itself."""
        return [
            other
            for one in reversed([*self.path()])
            for other in (one.parent.children if one.parent else ())
            if other.task.name in one.task.depends_on and other.round == one.round
        ]


class Plan:
    """The state of a plan. Only `apply` changes it."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.number = 0
        """Number of the last event."""
        self.created: PlanCreated
        self.created_at = 0.0
        self.tasks: dict[str, TaskState] = {}
        """All tasks by id, including the plan itself as `ROOT`."""
        self.worked_seconds = 0.0
        """Seconds in which the plan did not wait for people, up to its last event."""
        self.waiting_seconds = 0.0
        """Seconds in which the plan waited for people and no task could run."""
        self.is_waiting = False
        self._updated_at = 0.0
        self._questions: dict[str, TaskState] = {}
        self._working = 0
        """Number of running tasks that have no subtasks."""

    @property
    def root(self) -> TaskState:
        """The plan itself as a task."""
        return self.tasks[ROOT]

    @property
    def limits(self) -> PlanLimits:
        return self.created.limits

    @property
    def is_over(self) -> bool:
        return self.root.is_over

    @property
    def questions(self) -> Mapping[str, QuestionAsked]:
        """Open questions by id."""
        return {id: state.questions[id] for id, state in self._questions.items()}

    @property
    def status(self) -> Status:
        """The status; `waiting` if no task can continue before a person answers."""
        if self.root.is_over or not self._questions:
            return self.root.status
        return "running" if self._working or _can_progress(self.root) else "waiting"

    def apply(self, entry: PlanEntry) -> None:
        """Apply the next event. An entry that was applied before changes nothing."""
        if entry.number <= self.number:
            return
        if self.number:
            self._count_seconds(entry.time - self._updated_at)
        self.number, self._updated_at = entry.number, entry.time
        self._apply(entry.event, entry.time)
        self.is_waiting = not self.is_over and self.status == "waiting"

    def _count_seconds(self, passed: float) -> None:
        """Count the time since the last event, unless the clock was set meanwhile.

        A plan never works for longer than its limit without an event: more means that the clock was
        set, that no server was there, or that the plan was over before.
        """
        if self.is_waiting:
            self.waiting_seconds += max(0.0, passed)
        elif not self.is_over and passed <= (self.limits.seconds or inf):
            self.worked_seconds += max(0.0, passed)

    def _apply(self, event: PlanEvent, time: float) -> None:
        match event:
            case PlanCreated():
                self.created, self.created_at = event, time
                task = Task(
                    name="plan",
                    purpose=event.request,
                    evaluation=event.evaluation,
                    needs_approval=event.needs_approval,
                    tokens=event.limits.tokens,
                )
                root = TaskState(ROOT, task, None, 0, status="running", started_at=time)
                root.requests, root.tokens, root.dollars = (
                    event.requests,
                    event.tokens,
                    event.dollars,
                )
                self.tasks[ROOT] = root
                self._add(root, event.tasks, 0)
            case TaskAssigned():
                state = self.tasks[event.task_id]
                state.assistant, state.score = event.assistant, event.score
                state.is_opaque = event.is_opaque
            case TaskStarted():
                state = self.tasks[event.task_id]
                self._set_status(state, "running")
                state.attempts += 1
                state.may_repeat = False
                if not state.is_paused:
                    state.fresh_starts += 1
                    state.messages = None
                    state.replies.clear()
                state.is_paused = False
                state.started_at = state.started_at or time
            case CallStarted():
                self.tasks[event.task_id].calls[event.call_id] = Call(
                    event.call_id, event.tool, event.arguments, event.is_idempotent
                )
            case CallFinished():
                self.tasks[event.task_id].calls[event.call_id].result = event.result
            case UsageAdded():
                for state in self.tasks[event.task_id].path():
                    state.requests += 1
                    state.tokens += event.tokens
                    state.dollars += event.dollars
            case TaskEvaluated():
                state = self.tasks[event.task_id]
                state.evaluations.append(event)
                state.verdict = event
            case TasksAdded():
                parent = self.tasks[event.task_id]
                if not parent.children:
                    self._working -= parent.status == "running"
                parent.rounds += 1
                parent.verdict = None
                self._add(parent, event.tasks, parent.rounds)
            case TaskOutput():
                state = self.tasks[event.task_id]
                state.output, state.sources = event.output, event.sources
                state.verdict = None
            case TaskEnded():
                state = self.tasks[event.task_id]
                self._set_status(state, event.outcome)
                state.reason, state.ended_at = event.reason, time
                for question_id in state.questions:
                    del self._questions[question_id]
                state.questions.clear()
                if event.outcome != "finished":
                    self._skip_rest(state)
            case TaskPaused():
                state = self.tasks[event.task_id]
                state.is_paused, state.messages = True, event.messages
                state.replies.clear()
            case TaskReopened():
                self._reopen(self.tasks[event.task_id])
            case QuestionAsked():
                state = self.tasks[event.task_id]
                state.questions[event.question_id] = event
                state.question_count += 1
                self._set_status(state, "waiting")
                self._questions[event.question_id] = state
            case QuestionAnswered():
                self._answer(event)
            case StopRequested():
                self.tasks[event.task_id].is_stopping = True
            case _:
                assert_never(event)

    def _add(self, parent: TaskState, tasks: Iterable[Task], round: int) -> None:
        for task in tasks:
            place = len(parent.children) + 1
            id = str(place) if parent.id == ROOT else f"{parent.id}.{place}"
            state = TaskState(id, task, parent, parent.level + 1, round=round)
            parent.children.append(state)
            self.tasks[id] = state
            self._add(state, task.subtasks, 0)

    def _answer(self, event: QuestionAnswered) -> None:
        state = self._questions.pop(event.question_id, None)
        if state is None:  # its task ended before the answer was stored
            return
        question = state.questions.pop(event.question_id)
        state.decision = event
        if not state.questions:
            self._set_status(state, "running" if state.attempts else "pending")
        match event.answer:
            case "approve":
                state.is_approved = True
            case "reject" | "fail":
                state.refusal = event.note
            case "done" if question.call_id:
                state.calls[question.call_id].result = event.note
            case "done":
                state.output = event.note
            case "retry" if question.call_id:
                del state.calls[question.call_id]
            case "retry":
                state.may_repeat = True
                state.calls = {  # the next attempt makes the others again
                    id: call
                    for id, call in state.calls.items()
                    if call.result is not None or call.is_idempotent
                }
            case "resolve" | "cancel":
                state.replies.append(Reply(question, event))
            case _:
                assert_never(event.answer)

    def _skip_rest(self, state: TaskState) -> None:
        """Mark all descendants that have not ended as skipped."""
        for one in state.walk():
            if not one.is_over:
                self._set_status(one, "skipped")

    def _reopen(self, state: TaskState) -> None:
        """Reset a task and the tasks skipped for it to pending, and its ancestors to running.

        Stored calls stay, so they are not repeated.
        """
        for ancestor in state.path():
            self._renew(
                ancestor, "running" if ancestor.attempts or ancestor.children else "pending"
            )
            for sibling in ancestor.parent.children if ancestor.parent else ():
                if sibling.status == "skipped":
                    for one in sibling.walk():
                        self._renew(one, "pending")
        for one in state.walk():
            if one is not state and one.status != "finished":
                self._renew(one, "running" if one.attempts else "pending")

    def _renew(self, state: TaskState, status: Status) -> None:
        self._set_status(state, status)
        state.reason, state.ended_at, state.verdict = "", None, None
        state.is_stopping = state.is_paused = False
        state.rounds = 0
        state.refusal = None
        if not state.children or not state.children[0].round:  # else the output is its own
            state.output = None

    def _set_status(self, state: TaskState, status: Status) -> None:
        if not state.children:
            self._working += (status == "running") - (state.status == "running")
        state.status = status


def _can_progress(state: TaskState) -> bool:
    """Return `True` if a task that has not ended can continue before a person answers."""
    if state.questions:
        return False
    left = [child for child in state.children if not child.is_over]
    if not left:
        return True  # it runs, or is about to be evaluated
    return any(_can_progress(child) and not _needs_other(child, left) for child in left)


def _needs_other(state: TaskState, left: Sequence[TaskState]) -> bool:
    """Return `True` if a task depends on one of the given siblings, which have not ended."""
    return any(
        other.task.name in state.task.depends_on and other.round == state.round for other in left
    )
