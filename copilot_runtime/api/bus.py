"""The event bus (an append-only log per run), and the broker between server processes."""

from abc import ABC, abstractmethod
from asyncio import Future, get_running_loop
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError

Cursor = str
"""A position in a run's log. Opaque: only the bus that created it can read it."""

START: Cursor = "0"
"""The position before the first event; every bus accepts it."""


class Batch(NamedTuple):
    """A batch of events, and the cursor after the last of them."""

    cursor: Cursor
    events: Sequence[Event]


Sink = Callable[[Event], bool]
"""Takes an event at once, or returns `False` to get it from `__anext__` with the next batch."""


class LogReader(AsyncGenerator[Batch, None]):
    """The batches of a log. Its reader may set a `sink` for events that arrive while it waits."""

    sink: Sink | None = None


class LogWriter:
    """Adds the events of one run to its log."""

    def __init__(self, bus: "Bus", log_id: str, messages: Sequence[Message] = ()) -> None:
        self.append: Callable[[Event], Awaitable[None]] = partial(bus.append, log_id)
        """Add an event, as `Bus.append` does."""
        self.messages = messages
        """The messages of the request that are new in its thread."""
        self.failed: Future[Exception] = get_running_loop().create_future()
        """Resolves with the error once the log accepts only a last event."""
        self.is_lost = False
        """Whether another process has ended the run, because this process seemed dead."""


class Bus:
    """Stores each run as an append-only log that any number of readers follow from any point."""

    @property
    def drops_at_once(self) -> bool:
        """Whether `drop` waits for nothing, so that it needs no task."""
        return False

    async def begin(self, run: RunInput) -> LogWriter:
        """Open the log of a run. A bus that stores threads may raise `ThreadBusy`."""
        return LogWriter(self, run.log_id)

    async def append(self, log_id: str, event: Event) -> None:
        """Add an event to a log, create the log if necessary, and wake its readers.

        A log has one writer, which adds one event at a time; `events.LAST` ends the log. Raises
        `LimitExceeded` for a log that is full (a last event is always taken), and `Misuse` for
        one that has ended. A cancelled call may have added the event.
        """
        raise NotImplementedError

    def reserve(self, log_id: str, events: Sequence[Event]) -> bool:  # noqa: ARG002
        """Return whether a log has capacity for events that `append_all` adds next.

        The caller stores the events in between, so that readers see only stored events. A bus
        without limits returns True.
        """
        return True

    def append_all(self, log_id: str, events: Sequence[Event]) -> bool:  # noqa: ARG002
        """Add events atomically and return whether they were added. Raises as `append` does.

        A bus without bulk insertion returns False; the caller then uses `append`.
        """
        return False

    async def wait_for_storage(self, log_id: str) -> None:
        """Wait until the events appended so far are durable, if the log is stored.

        Raises the error of the store; the caller must not perform side effects then.
        """

    def read(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Return a generator of the batches after a cursor, up to the last event of the log.

        The call itself raises `NotFound` for an unknown log, and `Misuse` for an invalid cursor. A
        reader may close the generator at any time.
        """
        raise NotImplementedError

    def count_readers(self) -> int:
        """Return the number of current readers, for metrics; 0 if unknown."""
        return 0

    async def drop(self, log_id: str) -> None:
        """Delete a log, if it exists. Its current readers may continue."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release the resources of the bus at shutdown."""


Receive = Callable[[str, bytes], None]
"""Callback for a message, with the sender's address. Must not block or raise."""

Lose = Callable[[str], None]
"""Callback for a lost connection, with the address of the peer: messages may be lost."""


class PeerLost(CopilotError):
    """Another server process is unreachable: it ended, or the connection is broken."""

    code = "PEER_LOST"
    status_code = 503
    is_hint_public = True

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            hint="Send the request again in a moment: if that process has ended, its answers are "
            "ended within 15 seconds. If it goes on, the operator finds the cause by "
            "`copilot-runtime doctor`, and by `carrier` in /health/ready.",
        )


class Carrier(ABC):
    """A message broker between processes, each of which has an address.

    Messages from one process to another arrive in order, or are lost. A sender that needs a reply
    waits for it with a deadline; a sender that needs a complete sequence numbers its messages.
    """

    @abstractmethod
    async def open(self, address: str, receive: Receive, lose: Lose) -> None:
        """Start to receive messages for this process."""

    @abstractmethod
    async def send(self, to: str, message: bytes) -> None:
        """Send a message; wait while too many are in flight. Raises `PeerLost`."""

    @property
    def is_reachable(self) -> bool:
        """Whether messages can be sent, as of the last attempt."""
        return True

    @abstractmethod
    async def aclose(self) -> None:
        """Stop receiving messages and close the connections."""
