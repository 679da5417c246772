"""Detects state that several processes should share, but each keeps for itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from copilot_runtime.extensions.operations.places import WORKERS_EVENTS, WORKERS_TRACES
from copilot_runtime.extensions.settings import Settings


class PrivateState(NamedTuple):
    """State that is private to each process: its name, the effect, and the setting to change."""

    name: str
    text: str
    hint: str


def list_private_state(settings: Settings) -> Sequence[PrivateState]:
    """Return the private state of processes, if several may form one service.

    That is the case with several `workers`, or with threads in PostgreSQL.
    """
    is_shared = settings.threads.startswith("postgres")
    if settings.workers == 1 and not is_shared:
        return []
    return [*_find_limits(settings), *_find_plans(settings, is_shared=is_shared)]


def list_worker_variables(settings: Settings) -> Mapping[str, str]:
    """Return variables that replace in-memory stores by files that all workers share."""
    stores: dict[str, str] = {}
    if settings.telemetry.store == "memory":
        stores["COPILOT_TELEMETRY_STORE"] = f"sqlite:{WORKERS_TRACES}"
    has_events = settings.knowledge.address or settings.planner.name
    if settings.events.store == "memory" or (has_events and not settings.events.store):
        stores["COPILOT_EVENTS_STORE"] = f"sqlite:{WORKERS_EVENTS}"
    return stores


def _find_limits(settings: Settings) -> Iterator[PrivateState]:
    own = {"store", "thread_streams_per_user"}  # the latter is meant for each process
    names = [name for name, value in settings.limits.model_dump(exclude=own).items() if value]
    if settings.limits.store != "memory" or not names:
        return
    limits = ", ".join(f"limits.{name}" for name in names)
    text = (
        f"Each of {settings.workers} workers counts for itself, so {settings.workers} times as "
        f"much gets through: {limits}."
        if settings.workers > 1
        else "Servers that share these threads in PostgreSQL count each for itself, so as many "
        f"times as much gets through: {limits}."
    )
    yield PrivateState("limits", text, "Set limits.store to redis://..., where all count together.")


def _find_plans(settings: Settings, *, is_shared: bool) -> Iterator[PrivateState]:
    kind = settings.planner.store.partition(":")[0]
    if not settings.planner.name or kind not in ("sqlite", "memory"):
        return
    if kind == "sqlite" and not is_shared:  # workers of one machine share a file
        return
    place = "in a file of this machine" if kind == "sqlite" else "in the memory of each process"
    hint = "Set planner.store to postgresql://..., such as the database of the threads."
    if not is_shared:
        hint = "Set planner.store to sqlite:PATH or postgresql://..."
    yield PrivateState("plans", f"Plans are {place}: other servers cannot go on with them.", hint)
