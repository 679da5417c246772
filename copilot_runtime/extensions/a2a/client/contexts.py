"""The state of conversations with a remote agent: the waiting task, and A2UI surfaces."""

from collections import OrderedDict
from dataclasses import dataclass, field

from copilot_runtime.extensions.a2a.client.surfaces import SurfaceBook

_MOST_CONTEXTS = 4_096
_MOST_BYTES = 32 * 1024 * 1024
"""Maximum size of the surfaces of all conversations, in bytes."""


@dataclass(slots=True)
class Context:
    """A conversation with a remote agent."""

    id: str
    """The `contextId`: ours, unless the agent assigned another."""
    task_id: str = ""
    """The task that waits for the next message; empty without one."""
    is_new: bool = True
    """True if this server has not sent a message in this conversation yet."""
    surfaces: SurfaceBook = field(default_factory=SurfaceBook)


class ContextLog:
    """A cache of recent conversations; the oldest are evicted first.

    The state of an evicted conversation is restored from its thread's checkpoint, or by asking the
    agent which of its tasks waits.
    """

    def __init__(self) -> None:
        self._contexts: OrderedDict[tuple[str | None, str], Context] = OrderedDict()

    def find(self, user: str | None, thread: str) -> Context:
        """Return a user's conversation in a thread, or a new one."""
        key = (user, thread)
        context = self._contexts.setdefault(key, Context(thread))
        self._contexts.move_to_end(key)
        return context

    def trim(self) -> None:
        """Evict conversations beyond the limits; call it after a run."""
        while len(self._contexts) > _MOST_CONTEXTS or (
            len(self._contexts) > 1
            and sum(it.surfaces.size for it in self._contexts.values()) > _MOST_BYTES
        ):
            self._contexts.popitem(last=False)
