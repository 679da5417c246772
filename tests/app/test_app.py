"""The application a runtime makes: its routes, its settings, its end."""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.app.lazy_app import LazyApp
from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed
from copilot_runtime.testing import ScriptedAgent
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import Thread, ThreadKey
from tests.in_one_test import in_one_test
from tests.runs import Says, forever
from tests.wire.client import Client, chat, merge

pytestmark = pytest.mark.anyio
HELLO = {"query": "{ hello }"}
ANSWER = {"data": {"hello": "Hello World"}}


class Seen:
    """Middleware that remembers the paths it was asked for."""

    def __init__(self, app: ASGIApp, made: list["Seen"]) -> None:
        self.app = app
        self.paths: list[str] = []
        made.append(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await self.app(scope, receive, send)


@asynccontextmanager
async def no_lifespan(_: object) -> AsyncGenerator[None, None]:
    yield


def runtime(**settings: object) -> CopilotRuntime:
    return CopilotRuntime(
        ScriptedAdapter(say("Hello")),
        settings=Settings.model_validate({"threads": "memory", **settings}),
    )


@in_one_test(
    ("path", "url"),
    [
        (None, "/graphql"),
        (None, "/graphql/"),
        ("/api/copilot", "/api/copilot"),
        ("/api/copilot/", "/api/copilot"),
        ("/", "/"),
    ],
)
def test_the_endpoint_is_at_its_path_with_and_without_a_slash(path: str | None, url: str) -> None:
    answer = TestClient(runtime().app(path, console=False)).post(
        url, json=HELLO, follow_redirects=False
    )

    assert (answer.status_code, answer.json()) == (200, ANSWER)


def test_the_path_may_come_from_the_settings() -> None:
    client = TestClient(runtime(path="/elsewhere").app())

    assert client.post("/elsewhere", json=HELLO).json() == ANSWER
    assert client.post("/graphql", json=HELLO).status_code == 404


@in_one_test("url", ["/health", "/graphql/health"])
def test_its_health_can_be_asked(url: str) -> None:
    answer = TestClient(runtime().app()).get(url)

    assert (answer.status_code, answer.content) == (200, b"")


class Unreachable(MemoryThreads):
    """A store whose database is gone; or that never answers, with `hangs`."""

    hangs = False

    async def get(self, key: ThreadKey) -> Thread | None:
        if self.hangs:
            await asyncio.Event().wait()
        raise StoreFailed("PostgreSQL (db.internal/app) cannot be used: [Errno 111] refused")


READY = {"status": "ready", "threads": "reachable"}


@in_one_test("url", ["/health/ready", "/graphql/health/ready"])
def test_a_server_that_reaches_its_threads_is_ready(url: str) -> None:
    client = TestClient(runtime().app())

    assert (client.get(url).status_code, client.get(url).json()) == (200, READY)
    assert client.head(url).status_code == 200


@in_one_test("hangs", [False, True])
def test_a_server_whose_threads_cannot_be_reached_is_not_ready(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.app.maintenance._HEALTH_TIMEOUT", 0.01)
    threads = Unreachable()
    threads.hangs = hangs
    client = TestClient(CopilotRuntime(ScriptedAdapter(), threads=threads).app())
    answer = client.get("/health/ready")

    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "threads": "unreachable"}
    assert client.get("/health").status_code == 200


async def test_a_server_that_takes_no_more_questions_is_not_healthy() -> None:
    served = runtime()
    app = served.app()
    await served.aclose()
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        statuses = [(await client.get(url)).status_code for url in ("/health", "/health/ready")]

    assert statuses == [503, 503]


@in_one_test(("path", "url"), [(None, "/graphql"), ("/api", "/api"), ("/", "/")])
def test_the_lazy_application_has_all_routes_of_the_other(path: str | None, url: str) -> None:
    below = url.rstrip("/")
    urls = ["/", "/docs", "/health", "/health/ready", f"{below}/health", f"{below}/info", "/no"]
    with TestClient(runtime().lazy_app(path)) as lazy:
        for client in (lazy, TestClient(runtime().app(path))):
            assert client.post(url, json=HELLO).json() == ANSWER
            statuses = [client.get(url).status_code for url in urls]
            assert statuses[:-1] == [200] * 6
            assert statuses[-1] == 404


async def test_the_lazy_application_is_made_once_for_all_who_ask() -> None:
    made: list[ASGIApp] = []

    def make() -> ASGIApp:
        made.append(PlainTextResponse("made"))
        return made[-1]

    app = LazyApp("/api", PlainTextResponse("chat"), make=make, lifespan=no_lifespan)
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        answers = await asyncio.gather(*(client.get("/docs") for _ in range(20)))
        chat = await client.get("/api")

    assert {answer.text for answer in answers} == {"made"}
    assert (chat.text, len(made)) == ("chat", 1)


def test_who_traces_gets_fastapi_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")

    assert isinstance(runtime().lazy_app(), FastAPI)


def test_there_is_a_page_to_try_it_at_the_root() -> None:
    page = TestClient(runtime().app(path="/api")).get("/")

    assert page.headers["content-type"].startswith("text/html")
    assert 'data-endpoint="/api"' in page.text


@in_one_test("lazy", [True, False])
def test_the_page_is_there_for_browsers_where_clients_are_at_the_root(lazy: bool) -> None:
    made = runtime(path="/")
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    with TestClient(made.lazy_app() if lazy else made.app()) as client:
        page = client.get("/", headers=browser)
        query = client.get("/", params={"query": "{ hello }"}, headers=browser)
        answer = client.post("/", json=HELLO, headers=browser)

    assert 'data-endpoint="/"' in page.text
    assert query.json() == {"data": {"hello": "Hello World"}}
    assert answer.json() == ANSWER


def test_a_runtime_is_an_application_itself() -> None:
    with TestClient(runtime(path="/api")) as client:
        answer = client.post("/api", json=HELLO)
        health = client.get("/health")

    assert (answer.json(), health.status_code) == (ANSWER, 200)


def test_the_page_can_be_left_out() -> None:
    silent = runtime(console=False)

    assert TestClient(silent.app()).get("/").status_code == 404
    assert TestClient(runtime().app(console=False)).get("/").status_code == 404
    assert TestClient(silent.app(console=True)).get("/").status_code == 200


def test_routes_of_ones_own_stand_beside_it_and_all_are_described() -> None:
    app = runtime().app()

    @app.get("/mine")
    def mine(number: int) -> int:
        return number + 1

    client = TestClient(app)
    paths = client.get("/openapi.json").json()["paths"]
    page = client.get("/docs")

    assert client.get("/mine", params={"number": 1}).json() == 2
    assert client.get("/mine").status_code == 422
    assert {"/mine", "/graphql/threads", "/graphql/agent/{agent}/run"} <= paths.keys()
    assert page.headers["content-type"].startswith("text/html")
    assert "/mine" in page.text
    assert "A trip to Paris" in page.text
    assert "<script" not in page.text
    assert "://" not in page.text


@in_one_test(("path", "url"), [("/", "/mine"), ("/api", "/api/mine")])
def test_a_route_of_ones_own_may_stand_below_the_path(path: str, url: str) -> None:
    app = runtime().app(path)

    @app.get(url)
    def mine() -> str:
        return "mine"

    client = TestClient(app)

    assert client.get(url).json() == "mine"
    assert url in client.get("/openapi.json").json()["paths"]
    assert client.get(f"{path.rstrip('/')}/info").status_code == 200


def test_beside_a_route_of_ones_own_a_chat_still_passes_no_middleware(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths: list[str] = []
    handle_errors = ServerErrorMiddleware.__call__

    async def record(
        self: ServerErrorMiddleware, scope: Scope, receive: Receive, send: Send
    ) -> None:
        paths.append(scope["path"])
        await handle_errors(self, scope, receive, send)

    monkeypatch.setattr(ServerErrorMiddleware, "__call__", record)
    app = runtime().app()

    @app.get("/mine")
    def mine() -> str:
        return "mine"

    client = TestClient(app)
    client.get("/mine")
    client.post("/graphql", json=HELLO)
    client.post("/graphql/agent/default/run", json={})

    assert paths == ["/mine"]


def test_without_the_console_nothing_is_described() -> None:
    client = TestClient(runtime(console=False).app())

    assert client.get("/docs").status_code == 404
    assert client.get("/openapi.json").status_code == 404


@in_one_test("path", ["graphql", "http://x/graphql", " "])
def test_a_path_without_a_slash_at_its_head_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationFailed, match="must begin with a slash"):
        runtime().app(path)


class Grumpy(MemoryThreads):
    """A store of somebody's that cannot forget the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[datetime] = []
        self.again = asyncio.Event()

    async def expire(self, before: datetime) -> int:
        self.asked.append(before)
        if len(self.asked) == 1:
            raise KeyError("no such table")
        self.again.set()
        return 0


async def test_threads_are_forgotten_later_when_their_store_fails_once() -> None:
    store = Grumpy()
    settings = Settings(threads="memory", thread_retention=0.01)
    app = CopilotRuntime(ScriptedAdapter(), threads=store, settings=settings).app("/copilotkit")
    async with app.router.lifespan_context(app):
        await store.again.wait()

    assert len(store.asked) >= 2


class ExpiryStore(MemoryThreads):
    """Deletes so many threads each time, and then says that it is asked again."""

    def __init__(self, *counts: int) -> None:
        super().__init__()
        self.counts = [*counts]
        self.again = asyncio.Event()

    async def expire(self, before: datetime) -> int:
        del before
        if not self.counts:
            self.again.set()
            return 0
        return self.counts.pop(0)


async def test_the_log_has_a_line_only_for_old_threads_that_were_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = ExpiryStore(0, 1, 2)
    settings = Settings(threads="memory", thread_retention=0.0216)
    app = CopilotRuntime(ScriptedAdapter(), threads=store, settings=settings).app("/copilotkit")
    with caplog.at_level(logging.INFO, "copilot_runtime.app.maintenance"):
        async with app.router.lifespan_context(app):
            await store.again.wait()

    lines = [
        one.getMessage() for one in caplog.records if one.name == "copilot_runtime.app.maintenance"
    ]
    first, second = lines
    assert first == "Deleted 1 thread unused for 2.5e-07 days"
    assert second == "Deleted 2 threads unused for 2.5e-07 days"


async def test_an_age_beyond_the_calendar_is_a_long_one() -> None:
    store = Grumpy()
    settings = Settings(threads="memory", thread_retention=1e300)
    app = CopilotRuntime(ScriptedAdapter(), threads=store, settings=settings).app("/copilotkit")
    async with app.router.lifespan_context(app):
        await asyncio.sleep(0)

    assert [before.year for before in store.asked] == [datetime.now(UTC).year - 100]


def test_an_action_nobody_can_call_is_an_error_at_the_start() -> None:
    with pytest.raises(ConfigurationFailed):
        CopilotRuntime(actions=[5], settings=Settings(threads="memory"))  # type: ignore[list-item]


async def test_the_limits_of_the_settings_are_those_of_the_endpoint() -> None:
    small = runtime(max_body_bytes=10)
    answer = await Client(small.app("/copilotkit")).ask(HELLO)

    assert answer.status == 413


async def test_the_limits_of_the_settings_are_those_of_its_runs() -> None:
    brief = CopilotRuntime(
        agents={"slow": Says(forever)},
        settings=Settings(threads="memory", run_timeout=0.01, log_ttl=0),
    )
    answer = await Client(brief.app("/copilotkit")).ask(chat(agentSession={"agentName": "slow"}))

    status = merge(answer.payloads())["generateCopilotResponse"]["status"]
    assert status["details"]["description"] == "The answer took longer than 0.01 seconds."


async def test_a_bus_of_ones_own_is_used() -> None:
    bus = MemoryBus(max_events=1)
    answer = await Client(
        CopilotRuntime(
            ScriptedAdapter(say("Hi")), bus=bus, settings=Settings(threads="memory")
        ).app("/copilotkit")
    ).ask(chat())

    status = merge(answer.payloads())["generateCopilotResponse"]["status"]
    assert status["details"]["originalError"]["code"] == "LIMIT_EXCEEDED"


async def test_the_end_of_the_application_ends_its_runs_and_closes_its_adapter() -> None:
    adapter, begun = ScriptedAdapter(), asyncio.Event()

    async def begin() -> None:
        begun.set()
        await forever()

    agent = Says(begin)
    app = CopilotRuntime(adapter, agents={"slow": agent}, settings=Settings(threads="memory")).app(
        "/copilotkit"
    )
    async with app.router.lifespan_context(app):
        request = asyncio.create_task(Client(app).ask(chat(agentSession={"agentName": "slow"})))
        await begun.wait()
        assert not adapter.closed
    status = merge((await request).payloads())["generateCopilotResponse"]["status"]

    assert adapter.closed
    assert agent.ended.is_set()
    assert status["details"]["originalError"]["code"] == "RUN_INTERRUPTED"


@in_one_test("is_mount", [True, False], ids=["mounted at /", "a route for every path"])
def test_a_page_that_takes_every_path_leaves_ours_alone(tmp_path: Path, is_mount: bool) -> None:
    (tmp_path / "index.html").write_text("the page")
    app = runtime().app(console=False)
    if is_mount:
        app.mount("/", StaticFiles(directory=tmp_path, html=True))
    else:

        @app.get("/{path:path}")
        def page(path: str) -> PlainTextResponse:
            return PlainTextResponse(f"the page {path}")

    with TestClient(app) as client:
        threads = client.get("/graphql/threads")
        health = client.get("/health")
        page_text = client.get("/").text

    assert threads.json() == {"threads": [], "nextCursor": None}
    assert (health.status_code, health.text) == (200, "")
    assert page_text.startswith("the page")


def test_middleware_of_an_operator_is_made_once_and_sees_every_request() -> None:
    made: list[Seen] = []
    app = runtime().app()
    app.add_middleware(Seen, made)
    client = TestClient(app)

    assert client.post("/graphql", json=HELLO).json() == ANSWER
    assert client.get("/health").status_code == 200
    assert [each.paths for each in made] == [["/graphql", "/health"]]


async def test_garbage_is_collected_less_while_it_serves_and_as_before_afterwards() -> None:
    app, before = runtime().app(), gc.get_threshold()
    async with app.router.lifespan_context(app):
        while_serving = gc.get_threshold()

    assert while_serving[0] > before[0]
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


async def test_without_an_adapter_a_chat_is_told_so() -> None:
    answer = await Client(
        CopilotRuntime(settings=Settings(threads="memory")).app("/copilotkit")
    ).ask(chat())

    assert answer.json()["errors"][0]["message"]


async def test_an_application_that_does_not_start_leaves_nothing_open(tmp_path: Path) -> None:
    class Unopened(ScriptedAgent):
        async def open(self) -> None:
            raise ConfigurationFailed("It cannot be opened.")

    settings = Settings(threads=f"sqlite:{tmp_path / 'threads.db'}")
    runtime = CopilotRuntime(agents={"a": Unopened()}, settings=settings)
    with pytest.raises(ConfigurationFailed, match="cannot be opened"):
        async with runtime.running():
            raise AssertionError("it has started")

    assert list_names(tmp_path) == ["threads.db", "threads.db-reserve"]  # no lock, and no socket


def list_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]
