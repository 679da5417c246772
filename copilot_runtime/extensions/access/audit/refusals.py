"""How much of an audit log refusals may take, so that nobody pushes out what others did."""

import time
from collections.abc import Callable
from http import HTTPStatus

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.access.audit.entry import AuditRecord
from copilot_runtime.security.addresses import find_network

_PER_MINUTE = 20
"""Lines about refusals of one user, or of one address where nobody has signed in."""
_LIMITS_PER_MINUTE = 1
"""Those about requests that were too many: they say nothing that the first does not."""
_MOST_SUBJECTS = 10_000
"""Users and addresses of one minute; all further ones share their lines."""


def is_refusal(record: AuditRecord) -> bool:
    """Return whether a request was refused, or has failed: what anybody may cause at any rate."""
    return record.outcome == "refused" or (record.outcome == "failed" and record.status is not None)


class RefusalCounter:
    """Counts refusals by who was refused."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._minute = 0
        self._counts: dict[str, int] = {}
        self._skipped: dict[str, int] = {}

    def count(self, record: AuditRecord) -> int:
        """Return how many refusals were left out before this one; -1 to leave it out as well."""
        if (minute := int(self._clock() // 60)) != self._minute:
            self._minute, self._counts = minute, {}
        is_limit = record.status == 429 or record.reason.startswith(LimitExceeded.code)
        kind, most = ("limit", _LIMITS_PER_MINUTE) if is_limit else ("", _PER_MINUTE)
        has_signed_in = record.user and record.status != HTTPStatus.UNAUTHORIZED
        name = f"user {record.user}" if has_signed_in else find_network(record.address)
        subject = f"{kind}:{name}"
        if subject not in self._counts and len(self._counts) >= _MOST_SUBJECTS:
            subject = kind
        number = self._counts[subject] = self._counts.get(subject, 0) + 1
        if number <= most:
            return self._skipped.pop(subject, 0)
        if len(self._skipped) >= _MOST_SUBJECTS and subject not in self._skipped:
            del self._skipped[next(iter(self._skipped))]
        self._skipped[subject] = self._skipped.get(subject, 0) + 1
        return -1
