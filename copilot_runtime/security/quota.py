"""The error of a request beyond a limit per user, key or address."""

from math import ceil

from copilot_runtime.base.errors import LimitExceeded


class QuotaExceeded(LimitExceeded):
    """A limit is exceeded. `retry_after` is in seconds."""

    status_code = 429
    error_type = "RATE_LIMITED"
    is_logged = True

    def __init__(self, message: str, *, retry_after: float, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = max(1, ceil(retry_after))
