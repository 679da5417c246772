"""The settings section `events`."""

from typing import Annotated

from pydantic import Field

from copilot_runtime.config.section import Count, Section, check_match

WORKERS_EVENTS = ".copilot/events.db"
"""File that several workers share instead of events in memory."""


class EventSettings(Section):
    """The retained events about resources, plans and runs, replayed to clients that reconnect."""

    store: Annotated[
        str, check_match(r"^(none|memory|sqlite:.+)?$", "sqlite:PATH, memory or none")
    ] = Field(
        default="",
        description="Store of events: sqlite:PATH, memory, or none. Empty: memory with "
        "knowledge or a planner, else none.",
    )
    max_events: Count = Field(
        default=100_000,
        description="Most stored events; in memory, at most 10000.",
    )
    max_bytes: Count = Field(
        default=64 * 1024 * 1024,
        description="Largest size of stored events; the oldest are deleted first.",
    )

    def choose_store(self, *, has_publisher: bool) -> str:
        """Return `store`, or its default on a server with or without parts that publish events."""
        return self.store or ("memory" if has_publisher else "none")
