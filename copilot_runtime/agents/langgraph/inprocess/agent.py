"""Let a compiled graph of LangGraph answer, in this process."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copilot_runtime.agents.agui import run_agent_input
from copilot_runtime.agents.agui_inprocess import conversation_of, name_of, spoken, state_of, typed
from copilot_runtime.agents.langgraph.inprocess.settle import settled
from copilot_runtime.agents.langgraph.interrupts import answer, read
from copilot_runtime.agents.langgraph.messages import remembered
from copilot_runtime.agents.langgraph.request import config_of, streams_subgraphs, visible
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.errors import ConfigurationFailed, CopilotError, MissingPackage
from copilot_runtime.events import AgentState, Event, Interrupt
from copilot_runtime.interfaces import AgentInput, Caller, Events, RunInput, private_thread_id
from copilot_runtime.jsonvalue import JsonObject

if TYPE_CHECKING:
    # the package has types, but says so nowhere
    from langgraph.graph.state import CompiledStateGraph  # pyright: ignore[reportMissingTypeStubs]


class LangGraphInProcessAgent:
    """Answers with a graph, whose checkpointer keeps its threads.

    `config` is the graph's; a page may add to its `configurable`, but change nothing in it. Nodes
    find who asks in `configurable["copilotkit"]`: `user`, `headers` and `properties`. A graph may
    ask a person with `interrupt()`, call actions of the page, and go back to a question that was
    edited. With `stream_subgraphs`, the page sees what subgraphs do.
    """

    def __init__(
        self,
        graph: "CompiledStateGraph[Any, Any, Any, Any]",
        *,
        config: Mapping[str, Any] | None = None,
        description: str = "",
        stream_subgraphs: bool = True,
    ) -> None:
        try:
            from copilot_runtime.agents.langgraph.inprocess.run import GraphRun
        except ImportError as error:
            raise MissingPackage(
                "A LangGraphInProcessAgent", "ag-ui-langgraph", "langgraph-inprocess"
            ) from error
        if not graph.checkpointer or graph.checkpointer is True:
            raise ConfigurationFailed(
                f"The graph {graph.get_name()!r} has no checkpointer, so it would forget each "
                "thread, and what it asks a person.",
                hint="Compile it with one: builder.compile(checkpointer=InMemorySaver()).",
            )
        self.graph = graph
        self.description = description
        self.stream_subgraphs = stream_subgraphs
        self._config = dict(config or {})
        self._run = GraphRun
        self._shown = frozenset(graph.builder.schemas[graph.builder.output_schema])

    async def run(self, run: RunInput) -> Events:
        """Run the graph in its thread; yield what it says. Left early, it is stopped."""
        from ag_ui.core import RunAgentInput

        config = self._config_of(run)
        own_id = private_thread_id(run.user, run.thread_id)
        before = await self.graph.aget_state(_in_thread(config, own_id))
        asked = RunAgentInput.model_validate(self._asked(run, before))
        graph_run = self._run(name=name_of(run), graph=self.graph, config=config)
        shown = _Shown(visible(_plain(before.values), self._shown))
        failed: AgentFailed | None = None
        try:
            async with aclosing(spoken(graph_run.run(asked), run)) as events:
                async for event in events:
                    yield shown.seen(event)
        except AgentFailed as error:
            failed = error
        finally:
            await graph_run.aclose()
        if failed is not None:
            raise self._explained(graph_run.error, failed, run)

    async def load_state(
        self,
        thread_id: str,
        caller: Caller,  # noqa: ARG002  # the interface's signature
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Return the state and the messages of a thread, None if it has none yet."""
        found = await self.graph.aget_state(_in_thread(self._config, thread_id))
        values = _plain(found.values)
        if not values:
            return None
        return visible(values, self._shown), remembered(values.get("messages"))

    def _config_of(self, run: RunInput) -> JsonObject:
        page = run.agents.get(name_of(run), AgentInput())
        config = config_of(self._config, page.config or run.properties.get("config"))
        who = {"user": run.user, "headers": run.headers, "properties": run.properties}
        configurable = {**config.get("configurable", {}), "copilotkit": who}
        return {**config, "configurable": configurable}

    def _asked(self, run: RunInput, before: Any) -> JsonObject:
        """Return the RunAgentInput; of the state, what the page has changed.

        A graph that adds what it gets to what it has would add the same again with each request.
        """
        known, state = _plain(before.values), state_of(run)
        own = visible(state) if isinstance(state, dict) else {}
        changed = {key: v for key, v in own.items() if key not in known or known[key] != v}
        body = run_agent_input(replace(run, messages=typed(conversation_of(run))), changed)
        page = run.agents.get(name_of(run), AgentInput())
        subgraphs = streams_subgraphs(run, page.config, self.stream_subgraphs)
        body["state"]["copilotkit"] = {"context": body["context"]}
        body["forwardedProps"] = {"streamSubgraphs": subgraphs}
        body.pop("resume", None)
        waiting = read(_questions(before))
        if not waiting:
            body["messages"] = settled(body["messages"], before.values.get("messages"))
        if run.resume:
            given = answer(run.resume, waiting)
            # all answers by their ids in one: of several, LangGraph would not know which is whose
            body["resume"] = [
                {"interruptId": "all", "status": "resolved", "payload": given},
            ]
        return body

    def _explained(self, error: Exception | None, failed: AgentFailed, run: RunInput) -> Exception:
        """Return what to say of a failure; what it says itself is for the log."""
        if error is not None:
            return error
        return CopilotError(
            f"The agent {name_of(run)!r} failed. The server's log says why.", hint=failed.message
        )


class _Shown:
    """What a page sees: all that the graph puts out, and its questions as it has put them."""

    def __init__(self, state: JsonObject) -> None:
        self._state = state

    def seen(self, event: Event) -> Event:
        match event:
            case AgentState(state=state) if isinstance(state, dict):
                self._state = {**self._state, **visible(state)}  # it may know a part only
                return replace(event, state=self._state)
            case Interrupt(interrupt_id=id, metadata={"langgraph": {"raw": value}}):
                return read([{"id": id, "value": value}])[0]
            case _:
                return event


def _in_thread(config: Mapping[str, Any], thread_id: str) -> Any:
    return {**config, "configurable": {**config.get("configurable", {}), "thread_id": thread_id}}


def _questions(state: Any) -> Sequence[JsonObject]:
    """Return what a thread waits for, as a server would write it."""
    asked = [question for task in state.tasks or () for question in task.interrupts or ()]
    return [{"id": question.id, "value": _plain(question.value)} for question in asked]


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    # the package has types, but says so nowhere
    from ag_ui_langgraph.utils import make_json_safe  # pyright: ignore[reportMissingTypeStubs]

    return make_json_safe(value)
