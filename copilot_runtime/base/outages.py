"""Logging of repeated problems: once each, once per outage, or once per interval."""

from collections.abc import Generator
from contextlib import contextmanager
from logging import Logger
from time import monotonic

from copilot_runtime.base.errors import CopilotError


class Outage:
    """Logs one warning when a service becomes unavailable, and one when it is available again.

    `reason` is the last error, empty while the service is available. `message` and `recovery`
    replace the default texts of the two warnings.
    """

    def __init__(
        self,
        logger: Logger,
        service: str,
        *,
        message: str = "cannot be reached",
        recovery: str = "can be reached again",
    ) -> None:
        self._logger = logger
        self._service = service
        self._message = message
        self._recovery = recovery
        self.is_active = False
        self.reason = ""

    def begin(self, error: BaseException) -> None:
        """Record a failed attempt; log the first one of an outage."""
        self.reason = str(error) or type(error).__name__
        if not self.is_active:
            self.is_active = True
            self._logger.warning("%s %s: %s", self._service, self._message, self.reason)

    def end(self) -> None:
        """Record a successful attempt; log the end of an outage."""
        self.reason = ""
        if self.is_active:
            self.is_active = False
            self._logger.warning("%s %s", self._service, self._recovery)


class OnceLogger:
    """Logs each warning once, and no more than `most`: peers may cause any number of them."""

    def __init__(self, logger: Logger, most: int = 1_000) -> None:
        self._logger = logger
        self._most = most
        self._logged: set[str] = set()

    def warn(self, text: str) -> None:
        """Log a warning, unless it was logged before."""
        if text not in self._logged and len(self._logged) < self._most:
            self._logged.add(text)
            self._logger.warning("%s", text)


_PAUSE = 60.0


class LogRateLimit:
    """Rate limit for log lines that many concurrent requests would repeat."""

    def __init__(self) -> None:
        self._next_at = float("-inf")

    def allows_line(self) -> bool:
        """Return whether a line may be logged now, and start the next interval if so."""
        now = monotonic()
        if now < self._next_at:
            return False
        self._next_at = now + _PAUSE
        return True


@contextmanager
def log_failures(logger: Logger, message: str, *args: object) -> Generator[None]:
    """Log an exception of the block, and go on after it: a `CopilotError` needs no stack."""
    try:
        yield
    except CopilotError as error:
        logger.warning(f"{message}: %s", *args, error.message)
    except Exception:  # of an extension or of the application, which must not harm the rest
        logger.exception(message, *args)
