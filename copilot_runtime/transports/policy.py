"""The interface with which extensions limit or record requests."""

from copilot_runtime.transports.request import Request


class RequestPolicy:
    """Observes every request to a transport. Override the methods you need."""

    async def before(self, request: Request) -> None:
        """Called once the caller is authenticated. Raise `LimitExceeded` to refuse the request."""

    def after(self, request: Request, error: BaseException | None) -> None:
        """Called after a response, or after a refusal or failure with `error`."""
