"""Targets of scenarios: an application in this process, or a server at a URL."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from starlette.types import ASGIApp

from copilot_runtime.actions.json_schema import list_misfits
from copilot_runtime.actions.sources import gather_actions
from copilot_runtime.agents.registry import AgentRegistry
from copilot_runtime.api.action import Action, ActionContext, ActionSource
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.api.run_input import ContextItem, RunInput
from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import AgentNotFound, CopilotError, Misuse
from copilot_runtime.base.jsonvalue import to_text
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.scenarios.definition import Scenario, ToolStub
from copilot_runtime.extensions.scenarios.models import AttemptModels, ModelRouter, list_adapters
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.extensions.tracing.store.traces import TraceFilter
from copilot_runtime.storage.memory import OverlayStorage
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import Span, find_current_span
from copilot_runtime.telemetry.telemetry import Phase, Telemetry
from copilot_runtime.testing.client import Client

_USER: "ContextVar[str]" = ContextVar("_USER")
"""The authenticated user in the tasks of a scenario."""
_TIMEOUT = 5.0
"""Maximum seconds to wait for the end of spans after an answer, and for a stop."""
_MOST_READS = 20
"""Maximum requests to a server for a trace until it is complete."""
_READ_SECONDS = 0.1


class LocalTarget:
    """An application in this process.

    Args:
        found: The application.
        runtime: Its runtime, or `None` if it is unknown: then models cannot be replaced, and
            traces cannot be read.
        path: The path of the runtime in the application.
        is_offline: Whether only scripted models may be requested.
        signs_in: Whether scenarios name the authenticated user.
        timeout: Timeout of startup, shutdown and each request, in seconds.
    """

    is_local = True
    """Whether it runs in this process, so that scripts can replace its models."""

    def __init__(
        self,
        found: CopilotRuntime | ASGIApp,
        runtime: CopilotRuntime | None,
        *,
        path: str | None = None,
        is_offline: bool = False,
        signs_in: bool = False,
        timeout: float = 300,
    ) -> None:
        self._found = found
        self._path = path
        self._runtime = runtime
        self._signs_in = signs_in
        self._timeout = timeout
        self._client: Client | None = None
        self._spans = _SpanWatch()
        self._tools = StubbedSource([] if runtime is None else [*runtime.runtime.sources])
        self._models = ModelRouter(
            _list_adapters(runtime), self._spans.find_thread, is_offline=is_offline
        )

    @property
    def adapter(self) -> Adapter | None:
        """The adapter of the plain chat, or `None` if the runtime is unknown."""
        return None if self._runtime is None else self._runtime.adapter

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Start the application, and stop it at the end of the block."""
        runtime = self._runtime
        if runtime is not None:
            runtime.runtime.sources[:] = [self._tools]  # in place: the list is shared
            if self._signs_in or (runtime.authenticate and self._found is runtime):
                _sign_in_by_scenario(runtime)
            runtime.conversations.naming.namer = None  # scripts have no answer for thread titles
            if (knowledge := runtime.find(Knowledge)) is not None:
                knowledge.storage = OverlayStorage(knowledge.storage)
        with self._models.open(), self._spans.watch(runtime and runtime.telemetry):
            async with Client(self._found, path=self._path, timeout=self._timeout) as client:
                self._client = client
                knowledge = None if runtime is None else runtime.find(Knowledge)
                if knowledge is not None:
                    await knowledge.update()  # or the first scenarios would find nothing
                yield

    @contextmanager
    def attach(
        self, thread_id: str, models: AttemptModels, stubs: Sequence[ToolStub]
    ) -> Generator[None]:
        """Use the models of an attempt for a conversation, and stubs for its tools."""
        with self._models.attach(thread_id, models), self._tools.attach(thread_id, stubs):
            yield

    def connect(self, scenario: Scenario, thread_id: str) -> Client:
        """Return a conversation. Raises `CopilotError` if the agent does not exist."""
        assert self._client is not None, "the target is open"
        runtime = self._runtime
        if scenario.user is not None:
            if not isinstance(self._found, CopilotRuntime):
                raise Misuse(
                    "The application has its own authentication, so `user` has no effect.",
                    hint="Name a CopilotRuntime as the target, or send `headers` of a login.",
                )
            _USER.set(scenario.user)
        if runtime is not None and not callable(runtime.runtime.agents) and scenario.agent:
            agents = {DEFAULT_AGENT, *runtime.runtime.agents}
            if scenario.agent not in agents:
                raise AgentNotFound(scenario.agent, sorted(agents))
        return _connect(self._client, scenario, thread_id)

    def check_models(self) -> None:
        """Raise `Misuse` if the runtime is unknown."""
        if self._runtime is None:
            raise Misuse(
                "The application's runtime is unknown, so its model cannot be replaced.",
                hint="Name its CopilotRuntime as the target, or play with --live.",
            )

    async def read_spans(self, client: Client) -> Sequence[Record]:
        """Return the spans of a conversation. Raises `Misuse` if traces are not stored."""
        store = getattr(self._runtime and self._runtime.telemetry, "store", None)
        if not isinstance(store, TraceStore):
            raise Misuse(
                "The application stores no traces to check expectations against.",
                hint="Name its CopilotRuntime as the target, with telemetry.store = memory.",
            )
        await self._spans.wait(client.thread_id)
        return await store.query_spans("", TraceFilter(thread_id=client.thread_id))

    async def find_subjects(self, id: str) -> Sequence[str]:
        """Return the IRIs of a resource's subjects; empty if they are unknown."""
        knowledge = None if self._runtime is None else self._runtime.find(Knowledge)
        if knowledge is not None:
            with suppress(CopilotError):
                resource = await knowledge.get(id)
                return () if resource is None else resource.id.subjects
        return ()


class UrlTarget:
    """A running server at a URL."""

    is_local = False

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        adapter: Callable[[], Adapter] | None = None,
        timeout: float = 300,
    ) -> None:
        self._url = url
        self._headers = headers
        self._client: Client | None = None
        self._make_adapter = adapter
        self._timeout = timeout

    @property
    def adapter(self) -> Adapter | None:
        """The model of the local settings for judging: the server's own is not accessible."""
        return self._make_adapter() if self._make_adapter else None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Keep the connections open for the length of the block."""
        async with Client(self._url, headers=self._headers, timeout=self._timeout) as client:
            self._client = client
            yield

    def check_models(self) -> None:
        """Raise `Misuse`: the server chooses its models."""
        raise Misuse(
            "A running server chooses its own models, so `models` has no effect.",
            hint="Leave --url out: the application then runs in this process.",
        )

    def attach(
        self, thread_id: str, models: AttemptModels, stubs: Sequence[ToolStub]
    ) -> AbstractContextManager[None]:
        """Do nothing: the server has its own models and tools."""
        del thread_id, models, stubs
        return nullcontext()

    def connect(self, scenario: Scenario, thread_id: str) -> Client:
        """Return a client for a scenario. Raises `Misuse` if the scenario has a `user`."""
        assert self._client is not None, "the target is open"
        if scenario.user is not None:
            raise Misuse(
                "A running server authenticates its own users, so `user` has no effect.",
                hint="Send `headers` of a login.",
            )
        return _connect(self._client, scenario, thread_id)

    async def read_spans(self, client: Client) -> Sequence[Record]:
        """Return the spans of a conversation. Raises `Misuse` if the server provides none."""
        spans: Sequence[Record] = ()
        for _ in range(_MOST_READS):
            spans = await self._read_spans(client)
            if _is_whole(spans):
                break
            await asyncio.sleep(_READ_SECONDS)  # the last ones end after the answer
        return spans

    async def _read_spans(self, client: Client) -> Sequence[Record]:
        body = {"query": "", "thread_id": client.thread_id, "limit": 100}
        answer = await client.request("POST", f"{client.path}/traces/query", body)
        if answer.status != 200:
            raise Misuse(
                f"The server refuses to return its traces: HTTP {answer.status}.",
                hint="The setting telemetry.operators of the server names who may read them.",
            )
        return [span for trace in answer.json()["traces"] for span in trace["spans"]]

    async def find_subjects(self, id: str) -> Sequence[str]:
        """Return nothing, because servers do not expose the subjects of resources."""
        del id
        return ()


Target = LocalTarget | UrlTarget
"""Provides clients for conversations, and the traces of these."""


def _is_whole(spans: Sequence[Record]) -> bool:
    """Return whether the parents of all spans are present."""
    ids = {"", *(span["span_id"] for span in spans)}
    return all((span["parent_span_id"] or "") in ids for span in spans)


async def stop_run(client: Client) -> None:
    """Stop the runs of a conversation, which do not end with a disconnect."""
    agent = quote(client.agent or DEFAULT_AGENT, safe="")
    path = f"{client.path}/agent/{agent}/stop/{quote(client.thread_id, safe='')}"
    with suppress(Exception):  # it may have ended, or the application does not answer at all
        async with asyncio.timeout(_TIMEOUT):
            await client.request("POST", path, {})


def _connect(client: Client, scenario: Scenario, thread_id: str) -> Client:
    return client.another(
        agent=scenario.agent,
        tools=[build_tool(tool, in_browser=True) for tool in scenario.tools],
        context=[ContextItem(it.description, to_text(it.value)) for it in scenario.context],
        state=scenario.state,
        headers={**client.headers, **scenario.headers},
        properties=scenario.properties,
        thread_id=thread_id,
    )


def _sign_in_by_scenario(runtime: CopilotRuntime) -> None:
    """Authenticate the users of scenarios; without one, only its errors say more."""
    usual = runtime.authenticate

    async def authenticate(connection: Any) -> str | None:
        user = _USER.get(None)
        if user is not None or usual is None:
            return user
        try:
            return await call(usual, connection)
        except (AssertionError, AttributeError, LookupError) as error:  # of a missing middleware
            raise Misuse(
                "The scenario names no `user`, and the `authenticate` hook failed without a login "
                f"({type(error).__name__}: {error}). Add `user: NAME` to the scenario."
            ) from error

    runtime.authenticate = authenticate


def _list_adapters(runtime: CopilotRuntime | None) -> Sequence[Adapter]:
    """Return the adapters of a runtime and of its agents."""
    if runtime is None:
        return ()
    agents = runtime.runtime.agents
    if isinstance(agents, AgentRegistry):
        agents = agents.lasting
    return list_adapters([runtime, *(() if callable(agents) else agents.values())])


class _SpanWatch:
    """Tracks open spans and their threads, because a trace is read when it is complete."""

    def __init__(self) -> None:
        self._open: dict[int, Span] = {}
        self._threads: dict[str, str] = {}
        """Thread identifiers by trace id."""
        self._changed = asyncio.Event()

    @contextmanager
    def watch(self, telemetry: Telemetry | None) -> Generator[None]:
        """Track the spans of a telemetry instance until exit."""
        loop = asyncio.get_running_loop()

        def listen(span: Span, phase: Phase) -> None:
            if phase == "start":
                self._open[id(span)] = span
                if thread := span.attributes.get(semconv.CONVERSATION_ID):
                    self._threads.setdefault(span.trace_id, str(thread))
            elif self._open.pop(id(span), None) is not None:
                loop.call_soon_threadsafe(self._changed.set)

        end = telemetry.listen(listen) if telemetry is not None else lambda: None
        try:
            yield
        finally:
            end()

    def find_thread(self) -> str:
        """Return the thread of the current task's trace; empty if it is unknown."""
        return self._threads.get(find_current_span().trace_id, "")

    def _list_threads(self) -> Sequence[Any]:
        return [it.attributes.get(semconv.CONVERSATION_ID) for it in [*self._open.values()]]

    async def wait(self, thread_id: str) -> None:
        """Wait until the spans of a thread have ended, for at most `_TIMEOUT` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT):
                while thread_id in self._list_threads():
                    self._changed.clear()
                    await self._changed.wait()


def build_tool(stub: ToolStub, *, in_browser: bool) -> Action:
    """Return a tool that returns the results of a stub.

    A tool of the page returns its error, as a page would; one of the server raises it.
    """
    results = [*stub.results] or [stub.result]

    async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
        del values, context
        if stub.error is None:
            return results.pop(0) if len(results) > 1 else results[0]
        if in_browser:
            return {"error": stub.error}
        raise CopilotError(stub.error)

    return Action(name=stub.name, description=stub.description, parameters=stub.parameters, run=run)


class StubbedSource(ActionSource):
    """The actions of other sources, with replacements by thread."""

    def __init__(self, sources: Sequence[ActionSource]) -> None:
        self._sources = sources
        self._stubs: dict[str, Mapping[str, Action]] = {}

    @contextmanager
    def attach(self, thread_id: str, stubs: Sequence[ToolStub]) -> Generator[None]:
        """Replace actions in a thread."""
        self._stubs[thread_id] = {it.name: build_tool(it, in_browser=False) for it in stubs}
        try:
            yield
        finally:
            del self._stubs[thread_id]

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the actions for a run. A stubbed one keeps its description and schema."""
        stubs = self._stubs.get(run.thread_id, {})
        actions = await gather_actions(self._sources, run)
        names = {action.name for action in actions}
        return [
            *(_replace(action, stubs.get(action.name)) for action in actions),
            *(stub for name, stub in stubs.items() if name not in names),
        ]

    async def aclose(self) -> None:
        """Close the other sources."""
        for source in self._sources:
            await source.aclose()


def _replace(action: Action, stub: Action | None) -> Action:
    """Return an action that validates its arguments, and then runs the stub."""
    if stub is None or (answer := stub.run) is None:
        return action

    async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
        if misfits := list_misfits(values, action.parameters):
            raise Misuse(f"The arguments are wrong: {'; '.join(misfits)}")
        return await answer(values, context)

    return replace(action, run=run)
