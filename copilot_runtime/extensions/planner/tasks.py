"""Tasks as a planner writes them: a tree, nested as deep as it needs, within limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonList, JsonObject, JsonValue, drop_none

PROPERTIES = ("purpose", "instructions", "applicability", "evaluation")
"""What describes a task, as it describes an assistant: the two are compared by it."""

MAX_TEXT = 20_000
"""Characters of one property."""

MAX_NAME = 200
"""Characters of the name of a task, or of an assistant."""


class PlanRejected(CopilotError):
    """A plan is not one, or is larger than the limits allow. The model may write a better one."""

    code = "LIMIT_EXCEEDED"
    status_code = 422
    visibility = "banner"
    severity = "warning"
    is_hint_public = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """How large a plan may become, its corrections included."""

    depth: int = 5
    """Levels of tasks."""
    width: int = 20
    """Tasks below one task, or at the top."""
    tasks: int = 200
    """Tasks in all."""
    rounds: int = 2
    """Rounds of corrective tasks below one task."""
    concurrency: int = 8
    """Tasks that work at the same time."""
    tokens: int | None = None
    """Tokens that all its requests to models may use together."""
    dollars: float | None = None
    """What they may cost."""
    seconds: float | None = 3600.0
    """How long it may work. Time in which it waits for a person does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be done, and how one knows that it was."""

    name: str
    """Unique among the tasks beside it, which may depend on it."""
    purpose: str
    instructions: str = ""
    applicability: str = ""
    evaluation: str = ""
    """What a good outcome looks like. A task with subtasks, or with this, is evaluated."""
    depends_on: tuple[str, ...] = ()
    """Names of tasks beside it that come first."""
    assistant: str = ""
    """Who does it; empty, whoever is elected."""
    needs_approval: bool = False
    """Whether a person is asked before it begins."""
    tokens: int | None = None
    """Tokens that it and its subtasks may use."""
    subtasks: tuple["Task", ...] = ()

    def count(self) -> int:
        """Return how many tasks there are: this one and all below it."""
        return 1 + sum(task.count() for task in self.subtasks)


def describe_task_schema(limits: PlanLimits) -> Mapping[str, Any]:
    """Return the JSON schema of the arguments with which a model writes a plan."""
    task: JsonObject = {
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "description": "A short name, unique among the tasks beside it.",
            },
            "purpose": {"type": "string", "description": "What the task is to accomplish."},
            "instructions": {"type": "string", "description": "How to do it."},
            "applicability": {
                "type": "string",
                "description": "Which kind of assistant it is for, and which not.",
            },
            "evaluation": {
                "type": "string",
                "description": "What a good outcome looks like, so that it can be checked.",
            },
            "depends_on": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names of tasks beside it whose outcome it needs.",
            },
            "assistant": {
                "type": "string",
                "description": "The assistant that does it; leave it out to have one elected.",
            },
            "needs_approval": {
                "type": "boolean",
                "description": "Whether a person has to agree before it begins.",
            },
            "subtasks": {
                "type": "array",
                "items": {"$ref": "#/$defs/task"},
                "description": "Smaller tasks that together do this one.",
            },
        },
        "required": ["name", "purpose"],
    }
    return {
        "type": "object",
        "properties": {
            "tasks": {
                "type": "array",
                "items": {"$ref": "#/$defs/task"},
                "description": f"The tasks: at most {limits.tasks} in all, {limits.width} side by "
                f"side, {limits.depth} levels deep. Tasks run at the same time unless one depends "
                "on another.",
            }
        },
        "required": ["tasks"],
        "$defs": {"task": task},
    }


def parse_tasks(value: JsonValue, limits: PlanLimits, *, level: int = 1) -> tuple[Task, ...]:
    """Read the tasks of a plan, or corrective ones that begin at a level of it.

    Raises `PlanRejected`, which names the place of what is wrong.
    """
    total = _count_tasks(value)
    if total > limits.tasks:
        raise PlanRejected(
            f"The plan has {total} tasks; at most {limits.tasks} are allowed in all, by "
            "`planner.tasks`.",
            hint="Plan fewer, larger tasks.",
        )
    tasks = _parse_list(value, limits, level, "tasks")
    if not tasks:
        raise PlanRejected("A plan needs at least one task, in the list `tasks`.")
    return tasks


def encode_task(task: Task) -> JsonObject:
    """Return a task as JSON, without what it does not have."""
    encoded: JsonObject = {"name": task.name}
    encoded |= {name: text for name in PROPERTIES if (text := getattr(task, name))}
    if task.depends_on:
        encoded["depends_on"] = [*task.depends_on]
    if task.assistant:
        encoded["assistant"] = task.assistant
    if task.needs_approval:
        encoded["needs_approval"] = True
    if task.subtasks:
        encoded["subtasks"] = [encode_task(subtask) for subtask in task.subtasks]
    return drop_none({**encoded, "tokens": task.tokens})


def decode_task(fields: JsonObject) -> Task:
    """Return the task that `encode_task` was given."""
    depends_on: JsonList = fields.get("depends_on", [])
    subtasks: JsonList = fields.get("subtasks", [])
    others = {name: fields[name] for name in fields.keys() - {"depends_on", "subtasks"}}
    return Task(**others, depends_on=tuple(depends_on), subtasks=tuple(map(decode_task, subtasks)))


def _count_tasks(value: JsonValue) -> int:
    """Return how many tasks a list seems to have, with those below them."""
    count, lists = 0, [value]
    while lists:
        tasks = lists.pop()
        if isinstance(tasks, list):
            count += len(tasks)
            lists += [task.get("subtasks") for task in tasks if isinstance(task, dict)]
    return count


def _parse_list(value: JsonValue, limits: PlanLimits, level: int, where: str) -> tuple[Task, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise PlanRejected(f"{where} must be a list of tasks.")
    if not value:
        return ()
    if level > limits.depth:
        raise PlanRejected(
            f"{where} would be level {level} of the plan; at most {limits.depth} are allowed, by "
            "`planner.depth`.",
            hint="Plan with fewer levels.",
        )
    if len(value) > limits.width:
        raise PlanRejected(
            f"{where} has {len(value)} tasks side by side; at most {limits.width} are allowed, by "
            "`planner.width`.",
            hint="Put tasks that belong together below one task.",
        )
    tasks = tuple(
        _parse_task(item, limits, level, f"{where}[{at}]") for at, item in enumerate(value)
    )
    _check_dependencies(tasks, where)
    return tasks


def _parse_task(value: JsonValue, limits: PlanLimits, level: int, where: str) -> Task:
    if not isinstance(value, dict):
        raise PlanRejected(f"{where} must be an object with name and purpose.")
    texts = {name: _parse_text(value, name, where) for name in ("name", *PROPERTIES, "assistant")}
    for name in ("name", "purpose"):
        if not texts[name]:
            raise PlanRejected(f"{where} has no {name}.")
    depends_on = value.get("depends_on") or []
    if not isinstance(depends_on, list) or not all(isinstance(name, str) for name in depends_on):
        raise PlanRejected(f"{where}.depends_on must be a list of names.")
    needs_approval = value.get("needs_approval") or False
    if not isinstance(needs_approval, bool):
        raise PlanRejected(f"{where}.needs_approval must be true or false.")
    return Task(
        **texts,
        depends_on=tuple(dict.fromkeys(depends_on)),
        needs_approval=needs_approval,
        tokens=_parse_tokens(value, where),
        subtasks=_parse_list(value.get("subtasks"), limits, level + 1, f"{where}.subtasks"),
    )


def _parse_text(fields: JsonObject, name: str, where: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PlanRejected(f"{where}.{name} must be a text.")
    most = MAX_NAME if name in ("name", "assistant") else MAX_TEXT
    if len(value) > most:
        raise PlanRejected(f"{where}.{name} has {len(value)} characters; at most {most} fit.")
    return value.strip()


def _parse_tokens(fields: JsonObject, where: str) -> int | None:
    value = fields.get("tokens")
    if value is not None and (type(value) is not int or value <= 0):
        raise PlanRejected(f"{where}.tokens must be a whole number above zero.")
    return value


def _check_dependencies(tasks: Sequence[Task], where: str) -> None:
    """Raise `PlanRejected` for names that are not unique or not there, and for circles."""
    by_name = {task.name: task for task in tasks}
    if len(by_name) < len(tasks):
        names = [task.name for task in tasks]
        twice = next(name for name in names if names.count(name) > 1)
        raise PlanRejected(f"{where} has two tasks with the name {twice!r}.")
    for task in tasks:
        for name in task.depends_on:
            if name not in by_name:
                raise PlanRejected(
                    f"The task {task.name!r} in {where} depends on {name[:MAX_NAME]!r}, which is "
                    "not beside it.",
                    hint=f"There are: {', '.join(by_name)}.",
                )
    ready: set[str] = set()
    waiting = dict(by_name)
    while waiting:
        free = [name for name, task in waiting.items() if ready.issuperset(task.depends_on)]
        if not free:
            raise PlanRejected(f"The tasks {', '.join(waiting)} in {where} wait for each other.")
        ready.update(free)
        for name in free:
            del waiting[name]
