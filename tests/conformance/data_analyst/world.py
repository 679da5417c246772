"""The data of a file of cases, in our engine: opened when a case first needs it."""

import shutil
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import duckdb

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import Script
from copilot_runtime.api import Caller, ChatRequest
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import parse_source
from copilot_runtime.extensions.analyst.memory.entries import Turn
from copilot_runtime.extensions.analyst.question import Question
from copilot_runtime.extensions.analyst.session import ResultCache, Session
from copilot_runtime.extensions.analyst.settings import AnalystSettings
from copilot_runtime.extensions.analyst.sql.guard import GuardRules
from copilot_runtime.extensions.analyst.sql.rules import Scope, TableRule, list_safe_functions
from copilot_runtime.extensions.analyst.sql.syntax_tree import list_functions
from copilot_runtime.testing import Response, ScriptedAdapter
from copilot_runtime.testing.connection import AppConnection, connect

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.analyst import Analyst


T = TypeVar("T")

NAME = "data.duckdb"
TABLE = "eval_data"
USER = "ann"

OpenSession = Session


class QueryCount:
    """How often an engine has run something."""

    def __init__(self) -> None:
        self.queries = 0


class World:
    """What handlers work with. All that is opened ends with it."""

    def __init__(self, fixture: Sequence[str]) -> None:
        self.fixture = fixture
        self.folder = Path(mkdtemp(prefix="conformance-"))
        self._count = 0
        self._engine: Engine | None = None
        self._analyst: Analyst | None = None
        self._stack = AsyncExitStack()
        self.server: Any = None
        """The runtime that cases share whose questions leave nothing behind."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Open something that ends with the world."""
        return await self._stack.enter_async_context(context)

    async def open_engine(self) -> Engine:
        """Return the engine with the data of the file, which all cases share."""
        if self._engine is None:
            self._engine = await self._stack.enter_async_context(self.build_engine())
        return self._engine

    @asynccontextmanager
    async def build_engine(
        self, *statements: str, drop: Sequence[str] = ()
    ) -> AsyncGenerator[Engine]:
        """Yield an engine of its own, in whose data other statements ran as well."""
        file = self.write_data(*statements, *(f"DROP TABLE {name}" for name in drop))
        options = EngineOptions(folder=self.new_folder(), memory_limit="128MB")
        engine = Engine(options, [parse_source(str(file))])
        await engine.open()
        try:
            yield engine
        finally:
            await engine.aclose()

    @asynccontextmanager
    async def open_session(
        self, *, drop: Sequence[str] = (), agent_name: str | None = None, is_own: bool = False
    ) -> AsyncGenerator[Session]:
        """Yield what tools work with for one question about the data, with an empty cache.

        Of its own, the data may be changed: nobody else sees it.
        """
        async with AsyncExitStack() as stack:
            if is_own or drop:
                analyst = await stack.enter_async_context(self.build_analyst(drop=drop))
            else:
                if self._analyst is None:
                    self._analyst = await self._stack.enter_async_context(self.build_analyst())
                analyst = self._analyst
            scope = Scope(user=USER, agent_name=agent_name)
            question = Question(message="", dataset_label=TABLE, agent_name=agent_name)
            session = await analyst.open_session(scope, question=question)
            session.cache = ResultCache()
            yield session

    @asynccontextmanager
    async def build_analyst(
        self, *statements: str, drop: Sequence[str] = ()
    ) -> "AsyncGenerator[Analyst]":
        """Yield an analyst of its own, in whose data other statements ran as well."""
        from copilot_runtime.extensions.analyst.analyst import Analyst

        analyst = Analyst(self.build_settings(*statements, drop=drop))
        try:
            await analyst.open()
            yield analyst
        finally:
            await analyst.aclose()

    def build_settings(self, *statements: str, drop: Sequence[str] = ()) -> AnalystSettings:
        """Return the settings of an analyst of the data, with folders of its own."""
        file = self.write_data(*statements, *(f"DROP TABLE {name}" for name in drop))
        return AnalystSettings(
            name="analyst",
            data=(str(file),),
            store=str(self.new_folder()),
            folder=str(self.new_folder()),
        )

    async def record_memory(self, session: Session) -> str:
        """Learn of a question as after an answer, and return what is remembered then."""
        assert self._analyst is not None, "the session is of the analyst that all share"
        memory = self._analyst.memory
        dataset = session.find_dataset()
        key = self._analyst.build_memory_key(dataset, session.scope)
        turn = Turn(sql=session.turn_sql, fixes=session.fixes, columns=dataset.columns)
        await memory.record(key, turn)
        return "\n".join(entry.text for entry in (await memory.recall(key)).entries)

    def count_queries(self, engine: Engine) -> QueryCount:
        """Count what an engine runs from now on."""
        counts = QueryCount()
        execute: Callable[..., Any] = engine._execute  # pyright: ignore[reportPrivateUsage]

        async def count(*arguments: Any) -> Any:
            counts.queries += 1
            return await execute(*arguments)

        setattr(engine, "_execute", count)  # noqa: B010
        return counts

    def write_data(self, *statements: str) -> Path:
        """Return a new DuckDB file with the data, and with what other statements make of it."""
        path = self.new_folder() / NAME
        with duckdb.connect(str(path)) as connection:
            for statement in (*self.fixture, *statements):
                connection.execute(statement)
        return path

    def new_folder(self) -> Path:
        """Return a folder that nobody else uses."""
        self._count += 1
        folder = self.folder / str(self._count)
        folder.mkdir()
        return folder


def build_rules(
    engine: Engine,
    scope: Scope | None = None,
    tables: Sequence[str] | None = None,
    row_filters: Mapping[str, str] | None = None,
) -> GuardRules:
    """Return what SQL may read: some tables, or all of an engine."""
    known = {one.name: one for one in engine.list_datasets(scope or Scope())}
    names = [*known] if tables is None else tables
    rules = {
        name: TableRule(
            physical=known[name].physical if name in known else f'"{name}"',
            columns=known[name].columns if name in known else (),
            row_filter=(row_filters or {}).get(name),
        )
        for name in names
    }
    return GuardRules(tables=rules, functions=list_safe_functions(list_functions()))


PATHS = ("copilot/stream/oai", "copilot/stream", "copilot/chat")
"""Where questions are asked, below the URL of the runtime."""

_TIMEOUT = 30.0


@dataclass(frozen=True)
class Server:
    """A runtime that has started."""

    runtime: CopilotRuntime
    adapter: ScriptedAdapter
    connection: AppConnection
    analyst: Analyst

    async def post(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send JSON to a path below the URL of the runtime."""
        return await self.connection.request(
            "POST",
            f"{self.runtime.settings.path}/{path}",
            dumps(body),
            {"content-type": "application/json", **(headers or {})},
        )


async def open_server(world: World, *turns: Any) -> Server:
    """Return the runtime that cases share, whose model answers with `turns` from now on."""
    if world.server is None:
        world.server = await world.enter(serve(world))
    server: Server = world.server
    script = Script[ChatRequest]("ScriptedAdapter", turns)
    server.adapter._script = script  # pyright: ignore[reportPrivateUsage]
    return server


@asynccontextmanager
async def serve(
    world: World, *turns: Any, name: str = "analyst", **options: Any
) -> AsyncGenerator[Server]:
    """Yield a runtime whose model answers with `turns`. `options` are further settings."""
    adapter = ScriptedAdapter(*turns)
    values: dict[str, Any] = {
        "threads": "memory",
        "telemetry": {"store": "memory", "content": "local", "export": False},
        "analyst": {**world.build_settings().model_dump(), "name": name},
    }
    settings = Settings(**{**values, **options})
    runtime = CopilotRuntime(adapter=adapter, settings=settings)
    async with connect(runtime, _TIMEOUT) as connection:
        assert isinstance(connection, AppConnection)
        analyst = next(
            agent.analyst
            for agent in (await runtime.runtime.agents_for(Caller())).values()
            if isinstance(agent, AnalystAgent)
        )
        await analyst.open()
        yield Server(runtime, adapter, connection, analyst)
