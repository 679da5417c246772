"""The runtime's own model loop, for any adapter."""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.adapter import Adapter, ChatRequest, ModelEndpoint
from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import Parameters, RunInput
from copilot_runtime.extensions.analyst.loops import LoopRequest


def run_loop(request: LoopRequest) -> Events:
    """Yield the events of the model and its tools. Raises the errors of `DirectAgent`."""
    agent = DirectAgent(
        request.adapter,
        instructions=request.instructions,
        parameters=Parameters(model=request.model) if isinstance(request.model, str) else None,
        max_turns=request.max_turns,
        action_timeout=request.timeout,
        shared_state=False,
    )
    return agent.run(replace(request.run, follow_up="server"))


class TurnAdapter(Adapter):
    """An adapter that reports the start and the end of each model response."""

    def __init__(self, adapter: Adapter, on_turn: Callable[[bool], None]) -> None:
        self._adapter = adapter
        self._on_turn = on_turn

    async def stream(self, request: ChatRequest) -> Events:
        """Yield the adapter's events."""
        self._on_turn(True)
        try:
            async with aclosing(self._adapter.stream(request)) as events:
                async for event in events:
                    yield event
        finally:
            self._on_turn(False)

    def check(self, run: RunInput) -> None:
        self._adapter.check(run)

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        return self._adapter.endpoint(request)
