"""What is known of the conversations with a remote agent: the task that waits, and surfaces."""

from collections import OrderedDict
from dataclasses import dataclass, field

from copilot_runtime.extensions.a2a.client.surfaces import SurfaceBook

_MOST_CONTEXTS = 4_096
_MOST_BYTES = 32 * 1024 * 1024
"""Of the surfaces of all of them."""


@dataclass(slots=True)
class Context:
    """One conversation, as the agent knows it."""

    id: str
    """The `contextId`: ours, unless the agent gave another."""
    task_id: str = ""
    """The task that waits for the next message; empty if none does."""
    is_new: bool = True
    """Whether the agent was not asked in it since this server began."""
    surfaces: SurfaceBook = field(default_factory=SurfaceBook)


class ContextLog:
    """Has the last conversations; the oldest are forgotten first.

    What it does not know any more of one is in the checkpoint of its thread, or the agent can be
    asked which of its tasks waits.
    """

    def __init__(self) -> None:
        self._contexts: OrderedDict[tuple[str | None, str], Context] = OrderedDict()

    def find(self, user: str | None, thread: str) -> Context:
        """Return the conversation of a user in a thread, a new one if there is none."""
        key = (user, thread)
        context = self._contexts.setdefault(key, Context(thread))
        self._contexts.move_to_end(key)
        return context

    def trim(self) -> None:
        """Forget what is too much; to be called after a run."""
        while len(self._contexts) > _MOST_CONTEXTS or (
            len(self._contexts) > 1
            and sum(it.surfaces.size for it in self._contexts.values()) > _MOST_BYTES
        ):
            self._contexts.popitem(last=False)
