"""The health of a provider, derived from the requests of users: there are no probes."""

from collections.abc import Callable
from time import monotonic

from copilot_runtime.base.errors import AuthenticationFailed, NetworkError, RateLimited

_MANY = 3
"""Consecutive failed requests that count as an outage."""

_MEMORY = 60.0
"""Seconds after the last failure for which an outage is reported."""


class ProviderHealth:
    """Counts the latest requests that failed by the provider's fault, or for a wrong key."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._failed_at = 0.0

    @property
    def is_failing(self) -> bool:
        """Whether the latest requests have all failed, the last one in the past minute."""
        return self._failures >= _MANY and self._clock() < self._failed_at + _MEMORY

    def record_success(self) -> None:
        """Record a successful request."""
        self._failures = 0

    def record_failure(self, error: Exception) -> None:
        """Record a failed request. Errors of the request itself and rate limits do not count."""
        if isinstance(error, RateLimited):
            return
        if isinstance(error, NetworkError | AuthenticationFailed):
            self._failures += 1
            self._failed_at = self._clock()
