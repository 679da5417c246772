"""A runtime inside somebody's FastAPI application, under its dependencies and middleware."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, WebSocketException
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import Gate, say
from tests.in_one_test import in_one_test
from tests.wire.client import HEADERS, Client, chat, merge

pytestmark = pytest.mark.anyio
PATH = "/api/copilotkit"
HELLO = {"query": "{ hello }"}
PROTOCOL = "graphql-transport-ws"


def runtime(word: str = "Hello", gate: Gate | None = None) -> CopilotRuntime:
    return CopilotRuntime(
        ScriptedAdapter(say([word, "!"]), gate=gate), settings=Settings(threads="memory")
    )


def login(connection: HTTPConnection) -> None:
    """Let in who knows the token; HTTP hears 401, a WebSocket its own kind of no."""
    if connection.headers.get("authorization") == "Bearer good":
        return
    if connection.scope["type"] == "websocket":
        raise WebSocketException(1008, "Who are you?")
    raise HTTPException(401, "Who are you?")


def mounted(where: str) -> FastAPI:
    """Return an application whose login is asked for by the mount or by everything in it."""
    if where == "mount":
        app = FastAPI()
        runtime().mount(app, PATH, dependencies=[Depends(login)])
    else:
        app = FastAPI(dependencies=[Depends(login)])
        runtime().mount(app, PATH)
    return app


guarded = pytest.mark.parametrize("where", ["mount", "application"])


@in_one_test(
    ("where", "hook", "lines"),
    [("mount", None, 1), ("application", None, 1), ("nowhere", None, 0), ("mount", str, 0)],
)
def test_who_mounts_a_login_without_owners_is_told_once(
    where: str, hook: Any, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    app = FastAPI(dependencies=[Depends(login)] if where == "application" else [])
    served = CopilotRuntime(
        ScriptedAdapter(), authenticate=hook, settings=Settings(threads="memory")
    )
    for path in ("/one", "/two"):
        served.mount(app, path, dependencies=[Depends(login)] if where == "mount" else [])

    told = [record.getMessage() for record in caplog.records]
    assert len(told) == lines
    assert all("authenticate" in line and "\n" not in line for line in told)


@guarded
def test_a_dependency_refuses_before_anything_is_read(where: str) -> None:
    answer = TestClient(mounted(where)).post(PATH, content=b"not even JSON")

    assert (answer.status_code, answer.json()) == (401, {"detail": "Who are you?"})


@guarded
@in_one_test("url", [PATH, f"{PATH}/"])
def test_a_dependency_lets_in(where: str, url: str) -> None:
    headers = {"authorization": "Bearer good"}
    answer = TestClient(mounted(where)).post(
        url, json=HELLO, headers=headers, follow_redirects=False
    )

    assert answer.json() == {"data": {"hello": "Hello World"}}


@guarded
def test_a_dependency_refuses_a_websocket(where: str) -> None:
    client = TestClient(mounted(where))

    with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect(PATH):
        pass
    assert refused.value.code == 1008


@guarded
def test_a_dependency_lets_a_websocket_in(where: str) -> None:
    headers = {"authorization": "Bearer good"}
    with TestClient(mounted(where)).websocket_connect(PATH, [PROTOCOL], headers=headers) as socket:
        socket.send_json({"type": "connection_init"})

        assert socket.receive_json() == {"type": "connection_ack"}


@guarded
def test_a_page_that_a_dependency_let_in_opens_the_socket_of_its_threads(where: str) -> None:
    client = TestClient(mounted(where))
    headers = {"authorization": "Bearer good"}
    refused = client.post(f"{PATH}/threads/subscribe", json={})
    token = client.post(f"{PATH}/threads/subscribe", json={}, headers=headers).json()["joinToken"]
    url = f"{PATH}/realtime/websocket?vsn=2.0.0&join_token={token}"
    with client.websocket_connect(url) as socket:  # a browser sends no login there
        socket.send_json([None, "1", "phoenix", "heartbeat", {}])
        answer = socket.receive_json()

    assert refused.status_code == 401
    assert answer[4]["status"] == "ok"


@guarded
def test_a_preflight_needs_no_login(where: str) -> None:
    headers = {"origin": "http://page.example", "access-control-request-method": "POST"}
    answer = TestClient(mounted(where)).options(PATH, headers=headers)

    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "http://page.example"


def test_a_dependency_may_ask_for_a_header_of_its_own() -> None:
    def key(x_key: str = Header()) -> str:
        return x_key

    app = FastAPI()
    runtime().mount(app, PATH, dependencies=[Depends(key)])
    client = TestClient(app)

    assert client.post(PATH, json=HELLO).status_code == 422
    assert client.post(PATH, json=HELLO, headers={"x-key": "k"}).status_code == 200


@in_one_test("below", ["info", "inspector-metadata", "threads"])
@in_one_test("root", ["", "/outside"])
def test_a_last_slash_redirects_nobody(below: str, root: str) -> None:
    app = FastAPI()
    runtime().mount(app, PATH)
    client = TestClient(app, root_path=root)
    plain, slashed = (
        client.get(f"{root}{PATH}/{below}{end}", follow_redirects=False) for end in ("", "/")
    )

    assert (slashed.status_code, slashed.content) == (plain.status_code, plain.content)
    assert plain.status_code in (200, 204)


def test_what_only_the_cloud_has_is_not_found_in_the_words_of_the_endpoint() -> None:
    app = FastAPI()
    runtime().mount(app, PATH)

    assert TestClient(app).get(f"{PATH}/cpk-debug-events").json() == {"error": "Not found"}


def test_the_pages_are_mounted_under_the_login_of_the_application() -> None:
    app = FastAPI()
    app.add_api_route("/plans", lambda: "mine")
    runtime().mount(app, PATH, dependencies=[Depends(login)], console=True)
    client = TestClient(app, headers={"accept": "text/html"})
    known = {"authorization": "Bearer good"}

    assert {client.get(page).status_code for page in ("/", "/traces", "/sandbox")} == {401}
    assert f'data-endpoint="{PATH}"' in client.get("/", headers=known).text
    assert client.get("/traces", headers=known).status_code == 200
    assert client.get("/plans").json() == "mine"


def test_the_chat_is_beside_a_first_page_of_the_application() -> None:
    app = FastAPI()
    app.add_api_route("/", lambda: "home")
    runtime().mount(app, PATH, console=True)
    client = TestClient(app, headers={"accept": "text/html"})

    assert client.get("/").json() == "home"
    assert '<a href="/chat" aria-current="page">Chat</a>' in client.get("/chat").text


def test_the_lives_of_host_and_runtime_are_joined() -> None:
    story: list[str] = []
    adapter = ScriptedAdapter()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[dict[str, Any], None]:
        story.append("host began")
        yield {"database": "open"}
        story.append(f"host ended, adapter closed: {adapter.closed}")

    app = FastAPI(lifespan=lifespan)
    CopilotRuntime(adapter, settings=Settings(threads="memory")).mount(app, PATH)
    with TestClient(app) as client:
        assert client.app_state["database"] == "open"
        assert not adapter.closed

    assert story == ["host began", "host ended, adapter closed: True"]


@in_one_test("middleware", [None, GZipMiddleware, CORSMiddleware])
async def test_words_come_through_the_host_one_by_one(middleware: Any) -> None:
    gate, app = Gate(), FastAPI(dependencies=[Depends(lambda: None)])
    if middleware is not None:
        app.add_middleware(middleware)
    runtime("slowly", gate).mount(app, PATH)
    headers = {**HEADERS, "accept-encoding": "gzip", "origin": "http://page.example"}

    async with Client(app).open(chat(), path=PATH, headers=headers) as exchange:
        await exchange.head()
        gate.release(2)
        early = await exchange.until(b"slowly")
        gate.release(2)
        late = await exchange.until(b'"hasNext":false')

    assert b'"!"' not in early
    assert b'"!"' in late


def test_the_cors_middleware_of_the_host_does_not_double_headers() -> None:
    app = FastAPI()
    app.add_middleware(
        CORSMiddleware, allow_origins=["http://page.example"], allow_credentials=True
    )
    runtime().mount(app, PATH)
    answer = TestClient(app).post(PATH, json=HELLO, headers={"origin": "http://page.example"})

    assert answer.headers.get_list("access-control-allow-origin") == ["http://page.example"]


@guarded
def test_a_page_of_another_origin_reads_a_refusal_by_the_cors_middleware_of_the_host(
    where: str,
) -> None:
    app = mounted(where)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=["http://page.example"],
        allow_credentials=True,
        allow_methods=["*"],
        allow_headers=["*"],
    )
    client = TestClient(app, headers={"origin": "http://page.example"})
    asked = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-copilotkit-any",
    }
    answers = [client.options(PATH, headers=asked), client.post(PATH, json=HELLO)]

    assert [answer.status_code for answer in answers] == [200, 401]
    assert [answer.headers["access-control-allow-origin"] for answer in answers] == [
        "http://page.example",
        "http://page.example",
    ]


def test_the_cors_middleware_of_the_host_decides_alone() -> None:
    app = FastAPI()
    runtime().mount(app, PATH)
    app.add_middleware(
        CORSMiddleware, allow_origins=["http://page.example"], allow_credentials=True
    )
    answer = TestClient(app).post(PATH, json=HELLO, headers={"origin": "http://evil.example"})

    assert "access-control-allow-origin" not in answer.headers


async def test_two_mounts_in_one_application_do_not_mix() -> None:
    app = FastAPI()
    for word in ("one", "two"):
        runtime(word).mount(app, f"/{word}")

    for word in ("one", "two"):
        answer = await Client(app).ask(chat(), path=f"/{word}")
        response = merge(answer.payloads())["generateCopilotResponse"]
        assert response["messages"][0]["content"] == [word, "!"]


def test_the_rest_of_the_host_is_as_it_was() -> None:
    app = FastAPI()

    @app.get("/mine")
    def mine() -> str:
        return "still here"

    runtime().mount(app, PATH)
    client = TestClient(app)

    assert client.get("/mine").json() == "still here"
    assert client.get(f"{PATH}/health").status_code == 200
    assert [*client.get("/openapi.json").json()["paths"]] == ["/mine"]
