"""Thoughts: the analyst's progress on a question, streamed to any number of readers."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from copilot_runtime.api.messages import new_id
from copilot_runtime.base.jsonvalue import JsonObject, drop_none

ThoughtType = Literal[
    "reasoning",
    "tool_use",
    "observation",
    "planning",
    "reflection",
    "decision",
    "error",
    "success",
]

COLORS: Mapping[str, str] = {
    "reasoning": "#3B82F6",
    "tool_use": "#8B5CF6",
    "observation": "#10B981",
    "planning": "#F59E0B",
    "reflection": "#6366F1",
    "decision": "#EC4899",
    "error": "#EF4444",
    "success": "#22C55E",
}
UNKNOWN_COLOR = "#6B7280"

MOST_THOUGHTS = 1_000
"""Maximum number of thoughts per question; later ones are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """A step of the analyst."""

    type: ThoughtType
    content: str
    tool_name: str | None = None
    node_name: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=new_id)
    timestamp: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    @property
    def color(self) -> str:
        """The colour of the type in frontends: `#RRGGBB`."""
        return COLORS.get(self.type, UNKNOWN_COLOR)

    def describe(self) -> JsonObject:
        """Return the thought as JSON. `tool` duplicates `tool_name`."""
        return drop_none(
            {
                "id": self.id,
                "type": self.type,
                "content": self.content,
                "tool_name": self.tool_name,
                "tool": self.tool_name,
                "node_name": self.node_name,
                "metadata": dict(self.metadata) or None,
                "timestamp": self.timestamp,
                "color": self.color,
            }
        )


class ThoughtStream:
    """The thoughts of a question, for any number of readers, each starting at any thought."""

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self.thoughts: list[Thought] = []
        self.on_change = on_change
        """Called after each thought, and at the end."""
        self._is_closed = False
        self._changed = asyncio.Event()

    def emit(self, type: ThoughtType, content: str, **details: Any) -> None:
        """Add a thought; `details` are further fields of `Thought`. Ignored after `close`."""
        if self._is_closed or len(self.thoughts) >= MOST_THOUGHTS:
            return
        self.thoughts.append(Thought(type=type, content=content, **details))
        self._wake()

    def close(self) -> None:
        """End the stream for all readers; idempotent."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self.on_change is not None:
            self.on_change()

    async def subscribe(self, after: int = 0) -> AsyncGenerator[Thought]:
        """Yield the thoughts, skipping the first `after`, until the stream is closed."""
        position = after
        while True:
            changed = self._changed
            while position < len(self.thoughts):
                position += 1
                yield self.thoughts[position - 1]
            if self._is_closed:
                return
            await changed.wait()
