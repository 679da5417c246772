"""The message broker between server processes that share a thread store."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from copilot_runtime.base.errors import CopilotError

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
