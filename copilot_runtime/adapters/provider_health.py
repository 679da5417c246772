"""Whether a provider answers, as the requests of users show: nobody is asked for it."""

from collections.abc import Callable
from time import monotonic

from copilot_runtime.base.errors import AuthenticationFailed, NetworkError, RateLimited

_MANY = 3
"""Requests one after the other that failed: one alone is no outage."""

_MEMORY = 60.0
"""Seconds for which failures count: nobody may have asked since."""


class ProviderHealth:
    """Counts the latest requests that failed by the provider's fault, or for a wrong key."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._failed_at = 0.0

    @property
    def is_failing(self) -> bool:
        """Whether the latest requests have all failed, the last of them not long ago."""
        return self._failures >= _MANY and self._clock() < self._failed_at + _MEMORY

    def record_success(self) -> None:
        """A request was answered."""
        self._failures = 0

    def record_failure(self, error: Exception) -> None:
        """A request failed. What was wrong with itself says nothing of the provider."""
        if isinstance(error, RateLimited):
            return
        if isinstance(error, NetworkError | AuthenticationFailed):
            self._failures += 1
            self._failed_at = self._clock()
