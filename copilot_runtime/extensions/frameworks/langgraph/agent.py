"""Runs a graph on a LangGraph server: LangGraph Platform, or `langgraph dev`."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from copilot_runtime.agents.agui_inprocess import select_conversation
from copilot_runtime.agents.forwarding import Cancellations
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import Event, Events
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsontext import loads, mark_halves
from copilot_runtime.base.jsonvalue import JsonObject, get_object
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.extensions.frameworks.langgraph.call_names import CallNames
from copilot_runtime.extensions.frameworks.langgraph.client import LangGraphServer
from copilot_runtime.extensions.frameworks.langgraph.errors import invalid_response_error
from copilot_runtime.extensions.frameworks.langgraph.messages import (
    encode_langchain,
    normalize_messages,
)
from copilot_runtime.extensions.frameworks.langgraph.request import (
    CAPABILITIES,
    STREAM_MODES,
    Assistant,
    build_headers,
    merge_config,
    read_interrupts,
    select_state,
    should_stream_subgraphs,
)
from copilot_runtime.extensions.frameworks.langgraph.run_stream import Frame, RunStream
from copilot_runtime.extensions.frameworks.langgraph.thread_sync import (
    GraphThread,
    Plan,
    drop_instructions,
    plan_run,
)
from copilot_runtime.extensions.frameworks.langgraph.translate import Translator
from copilot_runtime.http.client import Upstream
from copilot_runtime.http.errors import parse_url
from copilot_runtime.http.sse import PAYLOADS_AT_ONCE
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import inject_context

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

_ASSISTANT_TTL = 10.0
"""Lifetime of a cached assistant, in seconds: a server may reload its graphs."""
_CANCEL_TIMEOUT = 5.0
"""Seconds that the server may take to stop a run."""


class LangGraphAgent(Agent):
    """Runs the `graph`, or the assistant of that id, on the LangGraph server at `url`.

    Requests carry the headers that may be forwarded, and the property `authorization` of a page as
    a bearer token; `headers` and `api_key` replace them. The `x-*` headers are also in
    `configurable["copilotkit_forwarded_headers"]`, from where CopilotKit's Python SDK sends them to
    the models of the graph. `config` is LangGraph's (`configurable`, `recursion_limit`): a page may
    add to `configurable` without replacing a value, and lower the limit. `if_busy` is LangGraph's
    `multitask_strategy`, for a run in a thread that has one under way. With `stream_subgraphs`,
    states of subgraphs are shown while they work. Times are in seconds; `idle_timeout` is the
    longest silence of the server. `http_client` is an `httpx.AsyncClient` of the application for
    all but the streams of runs; it is not closed here. Raises `ConfigurationFailed` for a wrong
    `url` or no `graph`, and `MissingPackage` without the extra `langgraph`.
    """

    provider = "langgraph"
    capabilities = CAPABILITIES

    def __init__(
        self,
        url: str,
        *,
        graph: str,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        description: str = "",
        if_busy: Literal["enqueue", "reject", "interrupt", "rollback"] = "enqueue",
        stream_subgraphs: bool = True,
        connect_timeout: float = 10.0,
        idle_timeout: float = 60.0,
        http_client: "httpx.AsyncClient | None" = None,
    ) -> None:
        parse_url(url, "LangGraph server's URL", "It looks like http://localhost:2024.")
        if not graph:
            raise ConfigurationFailed(
                "A LangGraphAgent needs the name of its graph.",
                hint="It is a name in the server's langgraph.json, or an assistant's id.",
            )
        self.url = url.rstrip("/")
        self.graph = graph
        self.description = description
        self.if_busy = if_busy
        self.stream_subgraphs = stream_subgraphs
        self._config = dict(config or {})
        REDACTOR.learn({"url": url, "headers": headers})
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        if api_key is not None:
            self._headers["x-api-key"] = api_key
            REDACTOR.add(api_key)
        self._server = LangGraphServer(self.url, graph, connect_timeout, http_client)
        self._upstream = Upstream(
            "Agent", connect_timeout=connect_timeout, idle_timeout=idle_timeout, max_retries=0
        )
        self._assistant: Assistant | None = None
        self._assistant_time = 0.0
        self._cancellations = Cancellations()

    async def run(self, run: RunInput) -> Events:
        """Run the graph in its thread and yield our events.

        A broken connection is resumed. On cancellation or early close, the run is cancelled on the
        server, too. Raises `AgentFailed` if the graph fails, `AuthenticationFailed`, `NotFound`,
        `ThreadBusy`, `RateLimited`, `ConfigurationFailed`, `NetworkError`, `RunStalled` after
        `idle_timeout`, `IncompleteStream`, and `Misuse` for an answer to no interrupt.
        """
        ours = {**inject_context(run.span), **self._headers}
        headers = build_headers(run, run.properties, ours)
        thread = await self._load_thread(run, headers)
        run.span.set_attributes({semconv.AGENT_ID: thread.assistant.id})
        page = select_conversation(run)
        client = drop_instructions(encode_langchain(run.messages))
        plan = await plan_run(run, thread, client, _Backend(self._server, headers))
        if plan is None:
            for interrupt in thread.pending:  # the graph cannot go on without the answer
                yield interrupt
            return
        translator = Translator(run, thread, page, plan.question)
        body = self._build_body(run, thread, plan)
        async with aclosing(self._stream(thread, headers, body, translator)) as events:
            async for event in events:
                yield event
        for kind in sorted(translator.unknown_types):
            logger.warning("Agent %r: events of type %.50r are left out", self.graph, kind)
        if translator.failure is not None:
            raise translator.failure
        for event in translator.finish():
            yield event

    async def load_state(
        self, thread_id: str, caller: Caller
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Return the state and the messages of a thread, None if it has none. Raises as `run`."""
        headers = build_headers(caller, {}, self._headers)
        assistant = await self._find_assistant(headers)
        _, state = await self._server.thread(thread_id, headers)
        return select_state(_read_values(state), assistant)

    async def aclose(self) -> None:
        """Wait for cancellations under way, at most 5 seconds, and close the connections."""
        await self._cancellations.wait()
        await self._upstream.aclose()
        await self._server.aclose()

    async def _find_assistant(self, headers: Mapping[str, str]) -> Assistant:
        now = monotonic()
        if self._assistant is None or now - self._assistant_time > _ASSISTANT_TTL:
            self._assistant = await self._server.assistant(self.graph, headers)
            self._assistant_time = now
        return self._assistant

    async def _load_thread(self, run: RunInput, headers: Mapping[str, str]) -> GraphThread:
        """Return the thread. One that does not exist is created by its first run."""
        assistant = await self._find_assistant(headers)
        private_id = run.private_thread_id
        id, state = await self._server.thread(private_id, headers)
        metadata = run.properties.get("threadMetadata")
        if state is None and isinstance(metadata, dict):
            await self._server.create_thread(id, metadata, headers)
        values, pending = _read_values(state), read_interrupts(state or {})
        names = CallNames(run.messages, normalize_messages(values.get("messages")))
        return GraphThread(id, assistant, values, pending, names)

    def _build_body(self, run: RunInput, thread: GraphThread, plan: Plan) -> JsonObject:
        start: JsonObject = {"input": plan.input}
        if plan.input is None:
            start = {"command": {"resume": plan.resume}}
        elif plan.checkpoint is not None:
            start["checkpoint"] = plan.checkpoint
        return {
            **start,
            "assistant_id": thread.assistant.id,
            "config": merge_config(self._config, run, replaced=self._headers),
            "stream_mode": STREAM_MODES,
            "stream_subgraphs": should_stream_subgraphs(run, self.stream_subgraphs),
            "stream_resumable": True,
            "on_disconnect": "continue",  # a broken connection does not mean to stop
            "multitask_strategy": self.if_busy,
            "if_not_exists": "create",
        }

    async def _stream(
        self,
        thread: GraphThread,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        translator: Translator,
    ) -> Events:
        """Yield the events of a run; cancel the run if it is left before its end."""

        def status(run_id: str) -> Awaitable[str]:
            return self._server.status(thread.id, run_id, headers)

        stream = RunStream(self._upstream, self.graph, self.url, thread.id, headers, status)
        try:
            async with aclosing(stream.events(body)) as batches:
                async for frames in batches:
                    for number, frame in enumerate(frames, 1):
                        for event in self._translate(frame, translator):
                            yield event
                        if number % PAYLOADS_AT_ONCE == 0:
                            await asyncio.sleep(0)  # let other tasks run, and allow cancellation
                    if translator.ended:
                        stream.finished = True
                        break
            stream.finished = True
        finally:
            if stream.run_id is not None and not stream.finished:
                await self._cancel(thread, headers, stream.run_id)

    def _translate(self, frame: Frame, translator: Translator) -> Sequence[Event]:
        """Return our events for one of the stream; one that is not JSON is left out if possible."""
        try:
            data = loads(frame.data, mark_halves)
        except ValueError:
            if not translator.can_lose(frame.name):
                raise invalid_response_error(self.graph) from None
            logger.warning("Agent %r: an event is left out: it is not valid JSON", self.graph)
            return ()
        return translator.feed(frame.name, data)

    async def _cancel(self, thread: GraphThread, headers: Mapping[str, str], run_id: str) -> None:
        """Cancel a run on its server, in a task that survives the caller's own cancellation."""

        async def cancel() -> None:
            try:
                async with asyncio.timeout(_CANCEL_TIMEOUT):
                    await self._server.cancel(thread.id, run_id, headers)
            except (CopilotError, TimeoutError) as error:
                logger.warning("The run %s of %r was not cancelled: %r", run_id, self.graph, error)

        await self._cancellations.run(cancel(), run_id)


class _Backend:
    """Threads on a server, for the caller with these headers."""

    def __init__(self, server: LangGraphServer, headers: Mapping[str, str]) -> None:
        self._server = server
        self._headers = headers

    async def history(self, thread: GraphThread) -> AsyncGenerator[tuple[JsonObject, Any], None]:
        async with aclosing(self._server.history(thread.id, self._headers)) as states:
            async for state in states:
                yield _read_values(state), state.get("checkpoint")

    async def is_busy(self, thread: GraphThread) -> bool:
        return await self._server.is_busy(thread.id, self._headers)


def _read_values(state: Mapping[str, Any] | None) -> JsonObject:
    return get_object(state, "values")
