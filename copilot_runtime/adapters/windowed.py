"""An adapter that trims each request to a message window."""

from copilot_runtime.api.adapter import Adapter, ChatRequest, MessageWindow, ModelEndpoint
from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.telemetry import semconv


class WindowedAdapter(Adapter):
    """Wraps an adapter: a message window trims its requests."""

    def __init__(self, adapter: Adapter, window: MessageWindow) -> None:
        self.adapter = adapter
        self.window = window
        self.suggestions = adapter.suggestions

    def stream(self, request: ChatRequest) -> Events:
        """Trim the request and yield the events of the adapter. Raises the errors of both."""
        fitted = self.window.fit(request)
        if fitted is not request:
            request.span.set_attributes({semconv.CONVERSATION_COMPACTED: True})
        return self.adapter.stream(fitted)

    def check(self, run: RunInput) -> None:
        self.adapter.check(run)

    async def check_key(self) -> None:
        await self.adapter.check_key()

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        return self.adapter.endpoint(request)

    async def aclose(self) -> None:
        await self.adapter.aclose()
