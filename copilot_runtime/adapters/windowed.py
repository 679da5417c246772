"""Gives a model what a window leaves of each request."""

from copilot_runtime.api.adapter import Adapter, ChatRequest, MessageWindow, ModelEndpoint
from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.telemetry import semconv


class WindowedAdapter(Adapter):
    """Another adapter whose requests go through a window first."""

    def __init__(self, adapter: Adapter, window: MessageWindow) -> None:
        self.adapter = adapter
        self.window = window
        self.suggestions = adapter.suggestions

    def stream(self, request: ChatRequest) -> Events:
        """Yield what the adapter answers. Raises what the window raises."""
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
