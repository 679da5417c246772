"""The interface by which extensions refuse requests, or record them."""

from copilot_runtime.transports.request import Request


class RequestPolicy:
    """Sees every request that a transport answers. Override the methods you need."""

    async def before(self, request: Request) -> None:
        """Called when the caller is known. Raise `LimitExceeded` to refuse one request too many."""

    def after(self, request: Request, error: BaseException | None) -> None:
        """Called when a request has been answered, or refused or failed with `error`."""
