"""Limit the number of concurrent thread subscriptions."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from copilot_runtime.api.identity import Identity
from copilot_runtime.security.quota import QuotaExceeded

_MOST = 10_000
"""Maximum number of streams in one process: each costs some kilobytes."""

_RETRY = 30.0


def find_subject(identity: Identity) -> str:
    """Return the subject of the limit: the authenticated user, or the client's address."""
    return identity.owner or f"address:{identity.address}"


class OpenStreams:
    """Counts open streams. A `most_per_user` of 0 removes the limit per user."""

    def __init__(self, most_per_user: int) -> None:
        self._most_per_user = most_per_user
        self._open: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def enter(self, subject: str) -> Generator[None]:
        """Count a stream while the context is open. Raises `QuotaExceeded`."""
        if self._most_per_user and self._open[subject] >= self._most_per_user:
            raise QuotaExceeded(
                f"You have {self._most_per_user} pages open that are told of changes, and no more "
                "are allowed at one time. Close some of them.",
                retry_after=_RETRY,
                hint="The setting is limits.thread_streams_per_user.",
            )
        if self._total >= _MOST:
            raise QuotaExceeded(
                "The server tells as many pages of changes as it can. Please try again later.",
                retry_after=_RETRY,
                hint=f"There are {_MOST} in this process.",
            )
        self._open[subject] += 1
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1
            self._open[subject] -= 1
            if not self._open[subject]:
                del self._open[subject]
