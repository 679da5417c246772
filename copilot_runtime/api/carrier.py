"""Messages between the server processes that share a store of threads."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from copilot_runtime.base.errors import CopilotError

Receive = Callable[[str, bytes], None]
"""Gets the address of the sender and a message. It neither waits nor raises."""

Lose = Callable[[str], None]
"""Gets the address of a process to which the connection broke: messages may be lost."""


class PeerLost(CopilotError):
    """Another server process cannot be reached: it ended, or the way to it is broken."""

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
    """Carries messages between processes, each of which has an address.

    Messages of one process to another arrive in their order, or not at all: who needs an answer
    waits for it with a deadline, and who needs all of a sequence numbers it.
    """

    @abstractmethod
    async def open(self, address: str, receive: Receive, lose: Lose) -> None:
        """Take messages for this process from now on."""

    @abstractmethod
    async def send(self, to: str, message: bytes) -> None:
        """Send a message, and wait while too many are under way. Raises `PeerLost`."""

    @property
    def is_reachable(self) -> bool:
        """Whether messages can be sent, as far as is known."""
        return True

    @abstractmethod
    async def aclose(self) -> None:
        """Take no more messages."""
