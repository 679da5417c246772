"""Which other processes want to know of changes of whose threads."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from time import monotonic

LIFETIME = 20.0
"""Seconds after which a process that says nothing more is told nothing more."""


@dataclass(slots=True)
class _Interest:
    owners: set[str] = field(default_factory=set[str])
    until: float = 0.0
    sent: int = 0
    """Notices that were sent there: whoever has got fewer looks for itself."""


class Interests:
    """What other processes have asked to be told, by their addresses."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._by_server: dict[str, _Interest] = {}

    def __bool__(self) -> bool:
        return bool(self._by_server)

    def renew(
        self, server: str, added: Collection[str], removed: Collection[str]
    ) -> tuple[int, int]:
        """Add and remove owners that a process looks at, and keep the others.

        Returns how many these are now, and how many notices were sent there.
        """
        interest = self._by_server.setdefault(server, _Interest())
        interest.until = self._clock() + LIFETIME
        interest.owners -= set(removed)
        interest.owners |= set(added)
        return len(interest.owners), interest.sent

    def forget(self, server: str) -> None:
        """Tell a process nothing more."""
        self._by_server.pop(server, None)

    def take(self, owner: str) -> Iterator[str]:
        """Yield the processes to which a notice has to be sent, and count it."""
        now = self._clock()
        for server, interest in [*self._by_server.items()]:
            if interest.until < now:
                del self._by_server[server]
            elif owner in interest.owners:
                interest.sent += 1
                yield server
