"""Runs a compiled graph of LangGraph in this process."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic_core import ValidationError, to_jsonable_python

from copilot_runtime.agents.agui_inprocess import select_conversation
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import Events
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.frameworks.langgraph.call_names import CallNames
from copilot_runtime.extensions.frameworks.langgraph.errors import explain_failure
from copilot_runtime.extensions.frameworks.langgraph.messages import (
    encode_langchain,
    normalize_messages,
)
from copilot_runtime.extensions.frameworks.langgraph.request import (
    CAPABILITIES,
    Assistant,
    merge_config,
    read_interrupts,
    select_state,
    should_stream_subgraphs,
)
from copilot_runtime.extensions.frameworks.langgraph.thread_sync import (
    GraphThread,
    Plan,
    find_missing_inputs,
    plan_run,
)
from copilot_runtime.extensions.frameworks.langgraph.translate import Translator
from copilot_runtime.telemetry.span import work_under

if TYPE_CHECKING:
    # the package has types, but no py.typed
    from langgraph.graph.state import CompiledStateGraph  # pyright: ignore[reportMissingTypeStubs]


class LangGraphInProcessAgent(Agent):
    """Runs a graph, whose checkpointer stores its threads.

    `config` is LangGraph's (`configurable`, `recursion_limit`): a page may add to `configurable`
    without replacing a value, and lower the limit. Nodes find the caller in
    `configurable["copilotkit"]`: `user`, `headers` and `properties`. Its `x-*` headers are also in
    `configurable["copilotkit_forwarded_headers"]`, from where CopilotKit's Python SDK sends them to
    the models of the graph. A graph may ask a person with `interrupt()`, call actions of the page,
    and go back to a question that was edited. With `stream_subgraphs`, states of subgraphs are
    shown while they work. Raises `MissingPackage` without the extra `langgraph-inprocess`, and
    `ConfigurationFailed` for a graph without a checkpointer.
    """

    capabilities = CAPABILITIES

    def __init__(
        self,
        graph: "CompiledStateGraph[Any, Any, Any, Any]",
        *,
        config: Mapping[str, Any] | None = None,
        description: str = "",
        stream_subgraphs: bool = True,
    ) -> None:
        try:
            from langchain_core.messages import convert_to_messages
            from langgraph.errors import EmptyInputError, GraphRecursionError
            from langgraph.types import Command
        except ImportError as error:
            raise MissingPackage(
                "A LangGraphInProcessAgent", "langgraph", "langgraph-inprocess"
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
        self._command = Command
        self._explicable = (GraphRecursionError, EmptyInputError, ValidationError, KeyError)
        self._decode_messages: Any = convert_to_messages
        schemas = graph.builder.schemas
        self._assistant = Assistant(
            graph.get_name(),
            input_keys=frozenset(schemas[graph.builder.input_schema]),
            output_keys=frozenset(schemas[graph.builder.output_schema]),
            in_process=True,
        )

    async def run(self, run: RunInput) -> Events:
        """Run the graph in its thread and yield our events.

        On cancellation or early close, the graph is stopped, and this waits until it has stopped.
        Raises `LimitExceeded` at the graph's `recursion_limit`, and `Misuse` for a missing input or
        an answer without an open interrupt; other exceptions of the graph are raised unchanged.
        """
        config = self._build_config(run)
        thread = await self._load_thread(config, run.messages)
        page = select_conversation(run)
        client = encode_langchain(page)
        plan = await plan_run(run, thread, client, _Backend(self.graph, config))
        if plan is None:
            for interrupt in thread.pending:  # the graph cannot go on without the answer
                yield interrupt
            return
        translator = Translator(run, thread, page, plan.question)
        try:
            async with aclosing(self._stream(run, plan, config)) as items:
                async for name, data in items:
                    for event in translator.feed(name, data):
                        yield event
        except self._explicable as error:
            kind, missing = type(error).__name__, find_missing_inputs(run, thread)
            explained = explain_failure(run.agent_name, kind, str(error), missing)
            if explained is None:
                raise
            raise explained from error
        for event in translator.finish():
            yield event

    async def load_state(
        self,
        thread_id: str,
        caller: Caller,  # noqa: ARG002  # the interface's signature
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Return the state and the messages of a thread, None if it has none yet."""
        thread = await self._load_thread(_in_thread(self._config, thread_id))
        return select_state(thread.values, self._assistant)

    def _build_config(self, run: RunInput) -> JsonObject:
        config = merge_config(self._config, run)
        caller = {"user": run.user, "headers": run.headers, "properties": run.properties}
        config["configurable"] = {**config.get("configurable", {}), "copilotkit": caller}
        return _in_thread(config, run.private_thread_id)

    async def _load_thread(self, config: Any, page: Sequence[Message] = ()) -> GraphThread:
        state: Any = await self.graph.aget_state(config)
        tasks = [{"interrupts": _to_json(task.interrupts or ())} for task in state.tasks or ()]
        values = _to_json(state.values or {})
        return GraphThread(
            config["configurable"]["thread_id"],
            self._assistant,
            values,
            read_interrupts({"tasks": tasks}),
            CallNames(page, normalize_messages(values.get("messages"))),
        )

    async def _stream(
        self, run: RunInput, plan: Plan, config: JsonObject
    ) -> AsyncGenerator[tuple[str, Any], None]:
        """Yield the stream items that a LangGraph server would send for this run."""
        has_subgraphs = should_stream_subgraphs(run, self.stream_subgraphs)
        run_id = uuid4()
        run_config: Any = {**(plan.checkpoint or config), "run_id": run_id}
        yield "metadata", {"run_id": str(run_id)}
        stream = self.graph.astream_events(
            self._build_input(plan),
            run_config,
            version="v2",
            stream_mode=["values", "updates", "custom"],
            subgraphs=has_subgraphs,
            context=self._build_context(config),
        )
        async with aclosing(stream) as events:  # pyright: ignore[reportArgumentType]  # a generator
            with work_under(run.span):  # the graph runs in a task, which begins here
                event: Any = await anext(events, None)
            while event is not None:
                fields: JsonObject = {**event}
                if fields["run_id"] == str(run_id) and fields["event"] == "on_chain_stream":
                    *path, mode, data = fields["data"]["chunk"]
                    namespace = path[0] if path else ()
                    if mode != "updates" or "__interrupt__" in data:
                        yield "|".join((mode, *namespace)), _to_json(data)
                elif "langsmith:hidden" not in (fields.get("tags") or ()):
                    if fields["event"] == "on_custom_event":
                        fields["data"] = _to_json(fields["data"])
                    yield "events", fields
                event = await anext(events, None)

    def _build_input(self, plan: Plan) -> Any:
        if plan.input is None:
            return self._command(resume=plan.resume)
        if "messages" not in plan.input:
            return plan.input
        # a state without `add_messages` would store them as they are
        return {**plan.input, "messages": self._decode_messages(plan.input["messages"])}

    def _build_context(self, config: JsonObject) -> JsonObject | None:
        """Return the values in `configurable` that the graph's context has a field for."""
        schema = self.graph.context_schema
        if schema is None:
            return None
        fields = {name for kind in schema.__mro__ for name in vars(kind).get("__annotations__", ())}
        return {key: value for key, value in config["configurable"].items() if key in fields}


class _Backend:
    """Threads in the checkpointer of a graph. Its runs do not overlap: the runtime sees to that."""

    def __init__(self, graph: Any, config: JsonObject) -> None:
        self._graph = graph
        self._config = config

    async def history(self, thread: GraphThread) -> AsyncGenerator[tuple[JsonObject, Any], None]:  # noqa: ARG002  # the config names it
        async for state in self._graph.aget_state_history(self._config):
            checkpoint = state.config["configurable"]
            configurable = {**self._config["configurable"], **checkpoint}
            yield _to_json(state.values), {**self._config, "configurable": configurable}

    async def is_busy(self, thread: GraphThread) -> bool:  # noqa: ARG002  # the interface's signature
        return False


def _in_thread(config: Mapping[str, Any], thread_id: str) -> JsonObject:
    return {**config, "configurable": {**config.get("configurable", {}), "thread_id": thread_id}}


def _to_json(value: Any) -> Any:
    """Return a value in JSON types; a value without a JSON form becomes text."""
    try:
        return to_jsonable_python(value, fallback=str, bytes_mode="base64")
    except ValueError:  # it contains itself, or cannot be serialized
        if isinstance(value, dict):
            return {str(key): _to_json_or_text(item) for key, item in value.items()}
        return str(value)


def _to_json_or_text(value: Any) -> Any:
    try:
        return to_jsonable_python(value, fallback=str, bytes_mode="base64")
    except ValueError:
        return str(value)
