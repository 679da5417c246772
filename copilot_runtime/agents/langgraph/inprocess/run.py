"""One run of a compiled graph: that of `ag_ui_langgraph`, which can be left and says why it failed.

Imported only where there is a graph: it needs the package.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

# the package has types, but says so nowhere
from ag_ui_langgraph import LangGraphAgent  # pyright: ignore[reportMissingTypeStubs]
from ag_ui_langgraph.agent import PreparedStream  # pyright: ignore[reportMissingTypeStubs]

from copilot_runtime.agents.agui_inprocess import closing
from copilot_runtime.agents.langgraph.inprocess.events import parted, reworded


class GraphRun(LangGraphAgent):
    """Made for each run: it remembers where it is.

    Once it has ended, `error` is what the graph raised; in AG-UI, that is but a sentence.
    """

    def __init__(self, *, name: str, graph: Any, config: Mapping[str, Any]) -> None:
        super().__init__(
            name=name,
            graph=graph,
            config=dict(config),
            enable_legacy_on_interrupt_event=False,
            emit_interrupt_outcome=True,
            emit_raw_events=False,
            subagent_visibility="attributed",
        )
        self.error: Exception | None = None
        self._stream: AsyncGenerator[Any, None] | None = None

    def get_schema_keys(self, config: Any) -> Any:  # noqa: ARG002  # the library's signature
        """Return the keys that go in and come out.

        The library's own way makes JSON schemas for each run, by a function that LangGraph has
        deprecated, and fails for types that have none.
        """
        builder = self.graph.builder
        fixed = self.constant_schema_keys
        return {
            "input": [*builder.schemas[builder.input_schema], *fixed],
            "output": [*builder.schemas[builder.output_schema], *fixed],
            "config": [],
            "context": [],
        }

    async def prepare_stream(self, *args: Any, **kwargs: Any) -> PreparedStream:
        prepared = await super().prepare_stream(*args, **kwargs)
        if prepared["stream"] is not None:
            prepared["stream"] = self._stream = self._noted(prepared["stream"])
        return prepared

    def get_stream_kwargs(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return what to run the graph with; of the configuration, its context is what it knows."""
        given = super().get_stream_kwargs(*args, **kwargs)
        schema = self.graph.context_schema
        if schema is not None and "context" in given:
            known = {
                name for kind in schema.__mro__ for name in vars(kind).get("__annotations__", ())
            }
            given["context"] = {key: v for key, v in given["context"].items() if key in known}
        return given

    def get_state_snapshot(self, state: Any) -> Any:
        run = self.active_run or {}
        if state is run.get("manually_emitted_state"):  # shown on purpose, whatever is in it
            return state
        return super().get_state_snapshot(state)

    async def aclose(self) -> None:
        """Stop the graph: whoever closes only `run` leaves that to the garbage collector."""
        if self._stream is not None:
            await self._stream.aclose()

    async def _noted(self, stream: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        async with closing(stream):
            try:
                async for event in stream:
                    for one in parted(reworded(event)):
                        yield one
            except Exception as error:
                self.error = error
                raise
