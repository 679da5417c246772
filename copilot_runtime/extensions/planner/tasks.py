"""The tree of tasks that a planner writes: schema, parsing and limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonList, JsonObject, JsonValue, drop_none

PROPERTIES = ("purpose", "instructions", "applicability", "evaluation")
"""The descriptive properties of a task and of an assistant, which the election compares."""

MAX_TEXT = 20_000
"""Maximum characters of one property."""

MAX_NAME = 200
"""Maximum characters of the name of a task or assistant."""


class PlanRejected(CopilotError):
    """A plan is malformed or exceeds a limit. The model gets another attempt."""

    code = "LIMIT_EXCEEDED"
    status_code = 422
    visibility = "banner"
    severity = "warning"
    is_hint_public = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """Limits on the size of a plan, including corrective tasks."""

    depth: int = 5
    """Maximum levels of tasks."""
    width: int = 20
    """Maximum children of one task, and of top-level tasks."""
    tasks: int = 200
    """Maximum tasks in total."""
    rounds: int = 2
    """Maximum rounds of corrections of one task."""
    concurrency: int = 8
    """Maximum tasks that run at the same time."""
    tokens: int | None = None
    """Maximum tokens of all its model requests, or `None`."""
    dollars: float | None = None
    """Maximum cost of its model requests in US dollars, or `None`."""
    seconds: float | None = 3600.0
    """Maximum run time in seconds, or `None`. Waiting for people does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A unit of work, and the criteria for its output."""

    name: str
    """Unique among its siblings, which may depend on it."""
    purpose: str
    instructions: str = ""
    applicability: str = ""
    evaluation: str = ""
    """Criteria for the output, which is evaluated by them."""
    depends_on: tuple[str, ...] = ()
    """Names of siblings that must finish first."""
    assistant: str = ""
    """Name of its assistant; if empty, one is elected."""
    needs_approval: bool = False
    """`True` if a person must approve it first."""
    tokens: int | None = None
    """Maximum tokens of the task and its subtasks, or `None`."""
    subtasks: tuple["Task", ...] = ()

    def count(self) -> int:
        """Return the number of tasks in this subtree, including itself."""
        return 1 + sum(task.count() for task in self.subtasks)


def describe_task_schema(limits: PlanLimits) -> Mapping[str, Any]:
    """Return the JSON schema of the tool arguments with which a model writes a plan."""
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
    """Parse the tasks of a plan, or corrective tasks at a deeper `level`.

    Raises `PlanRejected`, whose message has the path of the invalid field.
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
    """Encode a task as JSON, without its empty fields."""
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
    """Decode the output of `encode_task`."""
    depends_on: JsonList = fields.get("depends_on", [])
    subtasks: JsonList = fields.get("subtasks", [])
    others = {name: fields[name] for name in fields.keys() - {"depends_on", "subtasks"}}
    return Task(**others, depends_on=tuple(depends_on), subtasks=tuple(map(decode_task, subtasks)))


def _count_tasks(value: JsonValue) -> int:
    """Return the number of tasks in an unvalidated list, including nested ones."""
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
    """Raise `PlanRejected` for duplicate names, unknown dependencies and cycles."""
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
