"""What may change in a list of threads."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from copilot_runtime.threads.store import Thread, ThreadKey

Operation = Literal["created", "updated", "renamed", "archived", "unarchived", "deleted"]
RunEvent = Literal["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"]


class Notice(NamedTuple):
    """What a process says of a thread that it has changed: the store knows what it is like now.

    With an `event`, a run of that thread has begun or ended.
    """

    thread: str
    event: RunEvent | None = None
    run_id: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadChange:
    """A thread as it is now; None for one that is gone."""

    key: ThreadKey
    operation: Operation
    thread: Thread | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunActivity:
    """A run of a thread has begun or ended. `run_id` is empty where it is not known."""

    key: ThreadKey
    event: RunEvent
    run_id: str
    agent: str


Change: TypeAlias = ThreadChange | RunActivity


def find_operation(before: Thread | None, after: Thread) -> Operation | None:
    """Return what has happened to a thread; None for nothing."""
    if before is None:
        return "created"
    if before == after:
        return None
    if before.archived != after.archived:
        return "archived" if after.archived else "unarchived"
    return "updated" if before.name == after.name else "renamed"
