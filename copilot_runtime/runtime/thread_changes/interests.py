"""Subscriptions of other processes to changes of threads, by owner."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from time import monotonic

LIFETIME = 20.0
"""Seconds until a subscription that is not renewed expires."""


@dataclass(slots=True)
class _Interest:
    owners: set[str] = field(default_factory=set[str])
    until: float = 0.0
    sent: int = 0
    """Number of notices sent to the process; on a mismatch the process rereads its lists."""


class Interests:
    """The subscriptions of other processes, by process address."""

    def __init__(self) -> None:
        self._by_server: dict[str, _Interest] = {}

    def __bool__(self) -> bool:
        return bool(self._by_server)

    def renew(
        self, server: str, added: Collection[str], removed: Collection[str]
    ) -> tuple[int, int]:
        """Renew a process's subscription and add or remove owners; keep the others.

        Returns the number of subscribed owners and the number of notices sent to the process.
        """
        interest = self._by_server.setdefault(server, _Interest())
        interest.until = monotonic() + LIFETIME
        interest.owners -= set(removed)
        interest.owners |= set(added)
        return len(interest.owners), interest.sent

    def forget(self, server: str) -> None:
        """Cancel a process's subscription."""
        self._by_server.pop(server, None)

    def take(self, owner: str) -> Iterator[str]:
        """Yield the addresses of an owner's subscribers, and count a notice for each."""
        now = monotonic()
        for server, interest in [*self._by_server.items()]:
            if interest.until < now:
                del self._by_server[server]
            elif owner in interest.owners:
                interest.sent += 1
                yield server
