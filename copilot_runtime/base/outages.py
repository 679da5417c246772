"""Times in which a service that is used cannot be reached."""

from collections.abc import Callable
from logging import Logger
from time import monotonic


class Outage:
    """Says once in the log that a service cannot be reached, and once that it is back.

    `reason` is what was the matter last, empty while the service can be reached. `begins` and
    `ends` say what happens to the service, where that is something else.
    """

    def __init__(
        self,
        logger: Logger,
        service: str,
        *,
        begins: str = "cannot be reached",
        ends: str = "can be reached again",
    ) -> None:
        self._logger = logger
        self._service = service
        self._begins = begins
        self._ends = ends
        self.goes_on = False
        self.reason = ""

    def begin(self, error: BaseException) -> None:
        """Note that the service could not be reached; whoever calls this tries again."""
        self.reason = str(error) or type(error).__name__
        if not self.goes_on:
            self.goes_on = True
            self._logger.warning("%s %s: %s", self._service, self._begins, self.reason)

    def end(self) -> None:
        """Note that the service answered."""
        self.reason = ""
        if self.goes_on:
            self.goes_on = False
            self._logger.warning("%s %s", self._service, self._ends)


class LineLimit:
    """Bounds how often something is written to the log that many requests find at one time."""

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next_at = float("-inf")

    def take(self) -> bool:
        """Return whether a line may be written now: once in so many seconds."""
        now = self._clock()
        if now < self._next_at:
            return False
        self._next_at = now + self._seconds
        return True
