"""Let a graph on a LangGraph server answer: LangGraph Platform, or `langgraph dev`."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal
from urllib.parse import urlsplit

from copilot_runtime.agents.langgraph.client import LangGraphServer
from copilot_runtime.agents.langgraph.errors import strange
from copilot_runtime.agents.langgraph.interrupts import answer, interrupts_in
from copilot_runtime.agents.langgraph.messages import encode, ids_of, plain, remembered
from copilot_runtime.agents.langgraph.request import (
    STREAMED,
    Assistant,
    config_of,
    headers_of,
    input_of,
    streams_subgraphs,
    visible,
)
from copilot_runtime.agents.langgraph.run_stream import RunStream
from copilot_runtime.agents.langgraph.sse import Frame
from copilot_runtime.agents.langgraph.thread_sync import (
    Sync,
    edited,
    left_open,
    synced,
    without_instructions,
)
from copilot_runtime.agents.langgraph.translate import Told
from copilot_runtime.errors import ConfigurationFailed, CopilotError
from copilot_runtime.events import Interrupt
from copilot_runtime.http.client import Upstream
from copilot_runtime.interfaces import (
    DEFAULT_AGENT,
    AgentInput,
    Caller,
    Events,
    RunInput,
    private_thread_id,
)
from copilot_runtime.jsontext import loads
from copilot_runtime.jsonvalue import JsonObject, as_object

logger = logging.getLogger(__name__)

_FRESH = 10.0
"""Seconds for which a graph is taken to be what it was: a server may load another meanwhile."""
_CANCELLING = 5.0
"""Seconds a stopped run gets to end on its server before we leave it to that."""


class LangGraphAgent:
    """Asks the `graph`, or the assistant of that id, on the LangGraph server at `url`.

    The server gets the headers that may be forwarded, and the property `authorization` of a page
    as a bearer token; `headers` and `api_key` win. `config` is LangGraph's (`configurable`,
    `recursion_limit`): a page may add to it and change nothing in it, and ask for fewer steps.
    `if_busy` says what a question does while a run goes on in its thread. With
    `stream_subgraphs`, states of subgraphs are shown while they work. Times are in seconds;
    `idle_timeout` is how long the server may be silent.
    """

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
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationFailed(
                f"The LangGraph server's URL {url!r} is not an address.",
                hint="It looks like http://localhost:2024.",
            )
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
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        if api_key is not None:
            self._headers["x-api-key"] = api_key
        self._server = LangGraphServer(self.url, graph, connect_timeout)
        self._upstream = Upstream(
            "Agent", connect_timeout=connect_timeout, idle_timeout=idle_timeout, max_retries=0
        )
        self._assistant: Assistant | None = None
        self._found_at = 0.0
        self._cancelling: set[asyncio.Task[None]] = set()

    async def run(self, run: RunInput) -> Events:
        """Run the graph in the thread; yield what it tells. Stopped, it is stopped there, too."""
        thread = await self._thread(run)
        client = without_instructions(encode(run.messages))
        body = await self._body(run, thread, client)
        if body is None:
            for question in thread.waiting:  # still open: a graph cannot go on without the answer
                yield question
            return
        told = Told(run, run.agent or DEFAULT_AGENT, thread.assistant, thread.before, client)
        async with aclosing(self._followed(thread, body, told)) as events:
            async for event in events:
                yield event
        if told.failure is not None:
            raise told.failure
        for event in told.finish():
            yield event

    async def load_state(
        self, thread_id: str, caller: Caller
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Return the state and the messages of a thread, None if it has none yet."""
        headers = headers_of(caller, {}, self._headers)
        assistant = await self._found(headers)
        _, state = await self._server.thread(thread_id, headers)
        values = _values(state)
        if not values:
            return None
        return visible(values, assistant.output_keys), remembered(values.get("messages"))

    async def aclose(self) -> None:
        """Wait for what is being cancelled, a moment, and close the connections."""
        loop = asyncio.get_running_loop()
        if ending := [task for task in self._cancelling if task.get_loop() is loop]:
            await asyncio.wait(ending)
        await self._upstream.aclose()
        await self._server.aclose()

    async def _found(self, headers: Mapping[str, str]) -> Assistant:
        now = monotonic()
        if self._assistant is None or now - self._found_at > _FRESH:
            self._assistant = await self._server.assistant(self.graph, headers)
            self._found_at = now
        return self._assistant

    async def _thread(self, run: RunInput) -> "_Thread":
        """Return the thread as it is. A new one is made by its first run."""
        headers = headers_of(run, run.properties, self._headers)
        assistant = await self._found(headers)
        own_id = private_thread_id(run.user, run.thread_id)
        id, state = await self._server.thread(own_id, headers)
        metadata = run.properties.get("threadMetadata")
        if state is None and isinstance(metadata, dict):
            await self._server.create_thread(id, metadata, headers)
        return _Thread(id, headers, assistant, _values(state), interrupts_in(state or {}))

    async def _body(
        self, run: RunInput, thread: "_Thread", client: Sequence[JsonObject]
    ) -> dict[str, Any] | None:
        """Return what to ask for, None while the thread waits for an answer."""
        page = run.agents.get(run.agent or DEFAULT_AGENT, AgentInput())
        messages = plain(thread.before.get("messages"))
        sync = edited(client, messages)
        if run.resume:
            asked: JsonObject = {"command": {"resume": answer(run.resume, thread.waiting)}}
        elif thread.waiting and sync is None:
            return None
        else:
            sync = sync or await self._synced(thread, client, messages)
            asked = await self._input(run, thread, page.state, sync)
        return {
            **asked,
            "assistant_id": thread.assistant.id,
            "config": config_of(self._config, page.config or run.properties.get("config")),
            "stream_mode": STREAMED,
            "stream_subgraphs": streams_subgraphs(run, page.config, self.stream_subgraphs),
            "stream_resumable": True,
            "on_disconnect": "continue",  # a broken connection is no wish to stop
            "multitask_strategy": self.if_busy,
            "if_not_exists": "create",
        }

    async def _synced(
        self, thread: "_Thread", client: Sequence[JsonObject], messages: Sequence[JsonObject]
    ) -> Sync:
        sync = synced(client, messages)
        left = [] if sync.back_to is not None else left_open(messages, sync.messages)
        if left and not await self._server.is_busy(thread.id, thread.headers):
            return Sync([*left, *sync.messages])
        return sync

    async def _input(self, run: RunInput, thread: "_Thread", state: Any, sync: Sync) -> JsonObject:
        """Return the graph's input; with `back_to`, to the state before that message."""
        if sync.back_to is None:
            given = input_of(run, thread.assistant, state, sync.messages, thread.before)
            return {"input": given}
        # what the page remembers is of the time after that message
        asked: JsonObject = {"input": input_of(run, thread.assistant, {}, sync.messages, {})}
        async with aclosing(self._server.history(thread.id, thread.headers)) as states:
            async for earlier in states:
                if sync.back_to not in ids_of(plain(_values(earlier).get("messages"))):
                    return {**asked, "checkpoint": earlier.get("checkpoint")}
        return asked

    async def _followed(self, thread: "_Thread", body: Mapping[str, Any], told: Told) -> Events:
        """Yield what a run tells, and cancel it if nobody listens to its end."""
        server, headers = self._server, thread.headers

        def status(run_id: str) -> Awaitable[str]:
            return server.status(thread.id, run_id, headers)

        stream = RunStream(self._upstream, self.graph, self.url, thread.id, headers, status)
        try:
            async with aclosing(stream.events(body)) as batches:
                async for frames in batches:
                    for frame in frames:
                        for event in told.take(frame.name, self._read(frame)):
                            yield event
                    if told.ended:
                        stream.finished = True
                        break
            stream.finished = True
        finally:
            if stream.run_id is not None and not stream.finished:
                await self._cancel(thread, stream.run_id)

    def _read(self, frame: Frame) -> Any:
        try:
            return loads(frame.data)
        except ValueError:
            raise strange(self.graph) from None

    async def _cancel(self, thread: "_Thread", run_id: str) -> None:
        """Stop a run on its server; whoever is in a hurry need not wait for it."""

        async def cancel() -> None:
            try:
                async with asyncio.timeout(_CANCELLING):
                    await self._server.cancel(thread.id, run_id, thread.headers)
            except (CopilotError, TimeoutError) as error:
                logger.warning("The run %s of %r was not cancelled: %r", run_id, self.graph, error)

        task = asyncio.create_task(cancel(), name=f"cancel:{run_id}")
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)
        await asyncio.shield(task)


@dataclass(frozen=True, slots=True)
class _Thread:
    """A thread on the server as it is when a run begins, and how this run asks for it."""

    id: str
    headers: Mapping[str, str]
    assistant: Assistant
    before: JsonObject
    waiting: Sequence[Interrupt]


def _values(state: Mapping[str, Any] | None) -> JsonObject:
    values = (state or {}).get("values")
    return as_object(values)
