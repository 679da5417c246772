"""Where the logs of runs are."""

from asyncio import Future, get_running_loop
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import RunInput

Cursor = str
"""A place in a run's log. Opaque: only the bus that made it can read it."""

START: Cursor = "0"
"""The place before the first event; every bus takes it."""


class Batch(NamedTuple):
    """Events that were ready together, and the cursor after the last of them."""

    cursor: Cursor
    events: Sequence[Event]


class LogWriter:
    """Adds the events of one run to its log."""

    def __init__(self, bus: "Bus", log_id: str, messages: Sequence[Message] = ()) -> None:
        self.append: Callable[[Event], Awaitable[None]] = partial(bus.append, log_id)
        """Add an event, as `Bus.append` does."""
        self.messages = messages
        """The messages of the request that are new in its thread."""
        self.failed: Future[Exception] = get_running_loop().create_future()
        """Done, with the reason, once the log takes nothing more but a last event."""
        self.is_lost = False
        """Whether another process has ended the run, because it took this one for dead."""


class Bus:
    """Stores each run as an append-only log that any number of readers follow from any point."""

    async def begin(self, run: RunInput) -> LogWriter:
        """Open the log of a run. A bus that stores threads may raise `ThreadBusy`."""
        return LogWriter(self, run.log_id)

    async def append(self, log_id: str, event: Event) -> None:
        """Add an event to a log, which is created if need be, and wake its readers.

        One writer calls this, one event at a time; one of `events.LAST` ends the log. Raises
        `LimitExceeded` for a log that is full (a last event is always taken), and `Misuse` for
        one that has ended. A cancelled call may have added the event.
        """
        raise NotImplementedError

    async def reserve(self, log_id: str, events: Sequence[Event]) -> bool:  # noqa: ARG002
        """Return whether a log has room for events that `append_all` is to add next.

        They are stored in between, so that what is stored is what is shown. A bus without limits
        returns True.
        """
        return True

    async def append_all(self, log_id: str, events: Sequence[Event]) -> bool:  # noqa: ARG002
        """Add events, all or none, and return whether it did. Raises what `append` raises.

        A bus without a faster way than `append` returns False.
        """
        return False

    async def wait_for_storage(self, log_id: str) -> None:
        """Return once what was appended to a log would outlive the server, if it is to.

        Raises why it could not be stored: what has effects outside must not happen then.
        """

    def read(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Return the batches of a log from a cursor to its last event, as they come.

        Raises at once, and not with the first batch: `NotFound` without such a log, `Misuse` for
        a wrong cursor. A reader that leaves closes the generator; the log does not change.
        """
        raise NotImplementedError

    def count_readers(self) -> int:
        """Return how many follow a log at the moment, for those who watch; 0 if it is unknown."""
        return 0

    async def drop(self, log_id: str) -> None:
        """Delete a log, if there is one. Those who read it at this moment may read on."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release what the bus holds, when the server ends."""
