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
        description="Where events are kept: sqlite:PATH, memory, where they end with the server, "
        "or none. Empty: memory if there is knowledge or an agent that plans, else none.",
    )
    max_events: Count = Field(
        default=100_000,
        description="Most events that are kept, the newest; in memory 10000 at most.",
    )
    max_bytes: Count = Field(
        default=64 * 1024 * 1024,
        description="Largest size of all events that are kept, in bytes: the oldest go first.",
    )

    def choose_store(self, *, has_publisher: bool) -> str:
        """Return `store`, or its default on a server with or without parts that publish events."""
        return self.store or ("memory" if has_publisher else "none")
