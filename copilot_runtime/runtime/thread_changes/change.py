"""Change events of thread lists."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from copilot_runtime.threads.store import Thread, ThreadKey

Operation = Literal["created", "updated", "renamed", "archived", "unarchived", "deleted"]
RunEvent = Literal["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"]


class Notice(NamedTuple):
    """A message that a thread has changed; its current state is in the store.

    With an `event`, a run of that thread has started or ended.
    """

    thread: str
    event: RunEvent | None = None
    run_id: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadChange:
    """A thread's new state, or `None` if it was deleted."""

    key: ThreadKey
    operation: Operation
    thread: Thread | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunActivity:
    """The start or end of a run in a thread. `run_id` is empty if it is unknown."""

    key: ThreadKey
    event: RunEvent
    run_id: str
    agent: str


Change: TypeAlias = ThreadChange | RunActivity


def find_operation(before: Thread | None, after: Thread) -> Operation | None:
    """Return the operation that turns the old state of a thread into the new one, or `None`."""
    if before is None:
        return "created"
    if before == after:
        return None
    if before.archived != after.archived:
        return "archived" if after.archived else "unarchived"
    return "updated" if before.name == after.name else "renamed"
