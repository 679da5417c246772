"""A server on loopback: who may ask, by host and by origin, over HTTP and over WebSockets."""

import logging
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.security.loopback import LISTENER, Listener
from tests.in_one_test import in_one_test, in_sum

LOCAL = "http://127.0.0.1:8000"
PROTOCOL = ["graphql-transport-ws"]
HELLO = {"query": "{ hello }"}
PAGES = ["http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]:80", "https://a.localhost"]
FOREIGN = [
    "https://evil.example",
    "null",
    "http://localhost.evil.example",
    "http://127.0.0.1.nip.io",
    "http://localhost@evil.example",
    "http://192.168.0.7:3000",
    "file://localhost",
    "http://",
    "",
]


def runtime(**settings: Any) -> CopilotRuntime:
    return CopilotRuntime(ScriptedAdapter(), settings=Settings(threads="memory", **settings))


def client_of(url: str = LOCAL, **settings: Any) -> TestClient:
    return TestClient(runtime(**settings).app(), base_url=url)


@in_one_test(
    "host",
    [
        *("localhost", "localhost:3000", "LocalHost:1", "localhost.", "app.localhost:5173"),
        *("127.0.0.1:8000", "127.0.0.1", "[::1]:8000", "[::1]"),
    ],
)
def test_a_dev_proxy_and_every_name_of_this_machine_are_answered(host: str) -> None:
    answer = client_of().post("/graphql", json=HELLO, headers={"host": host})

    assert answer.json()["data"] == {"hello": "Hello World"}


@in_one_test(
    ("host", "door"),
    in_sum(
        (
            *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.nip.io"),
            *("localhost@evil.example", "192.168.0.7:8000", "0.0.0.0:8000", "127.1", ":8000"),
            "a b",
        ),
        (
            *("POST /graphql", "GET /graphql", "OPTIONS /graphql", "GET /graphql/info"),
            *("GET /graphql/threads", "GET /graphql/health", "GET /", "GET /docs"),
            *("GET /openapi.json", "GET /no", "POST /graphql/agent/default/run"),
        ),
    ),
)
def test_another_host_gets_nothing(host: str, door: str) -> None:
    answer = client_of().request(*door.split(), headers={"host": host})

    assert answer.status_code == 421
    assert f"does not answer for the host {host!r}" in answer.json()["message"]
    assert "allowed_hosts" in answer.json()["errors"][0]["message"]


@in_one_test("origin", PAGES)
def test_a_page_of_this_machine_is_answered(origin: str) -> None:
    answer = client_of().post("/graphql", json=HELLO, headers={"origin": origin})

    assert answer.json()["data"] == {"hello": "Hello World"}
    assert answer.headers["access-control-allow-origin"] == origin


@in_one_test(
    ("origin", "door"),
    in_sum(
        FOREIGN,
        (
            *("POST /graphql", "GET /graphql", "OPTIONS /graphql", "GET /graphql/info"),
            *("GET /graphql/threads", "GET /", "POST /graphql/agent/default/run"),
            "PATCH /graphql/threads/t",
        ),
    ),
)
def test_a_page_of_another_origin_gets_nothing(origin: str, door: str) -> None:
    headers = {"origin": origin, "access-control-request-method": "POST", "cookie": "login=ann"}
    answer = client_of().request(*door.split(), headers=headers)

    assert answer.status_code == 403
    assert "cors_origins" in answer.json()["message"]
    assert not [name for name in answer.headers if name.startswith("access-control")]


@in_one_test(
    ("site", "mode", "status"),
    [
        ("cross-site", "no-cors", 403),  # an image or a script, which has no Origin
        ("cross-site", "navigate", 200),  # a link
        ("same-site", "no-cors", 200),  # of a page at another port of this machine
        ("none", "navigate", 200),
    ],
)
def test_a_page_of_another_site_embeds_nothing(site: str, mode: str, status: int) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode}
    client, by_all = client_of(), client_of(cors_origins="*")
    for url in ("/graphql/info", "/graphql?query={hello}", "/health"):
        assert client.get(url, headers=headers).status_code == status
        assert by_all.get(url, headers=headers).status_code == 200


@in_one_test("headers", [{"host": "evil.example"}, {"origin": "null"}])
def test_a_websocket_from_outside_is_refused(headers: dict[str, str]) -> None:
    client = client_of()
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        client.websocket_connect("ws://127.0.0.1:8000/graphql", PROTOCOL, headers=headers),
    ):
        pass

    assert refused.value.code == 1008


@in_one_test("origin", PAGES)
def test_a_websocket_of_a_page_of_this_machine_is_accepted(origin: str) -> None:
    client, headers = client_of(), {"origin": origin}
    with client.websocket_connect("ws://127.0.0.1:8000/graphql", PROTOCOL, headers=headers):
        pass


def test_settings_name_others() -> None:
    client = client_of(
        allowed_hosts="app.example, *.tunnel.example", cors_origins="https://o.example"
    )
    asks = [
        {"host": "app.example"},
        {"host": "a.tunnel.example:443", "origin": "https://a.tunnel.example"},
        {"host": "app.example", "origin": "https://app.example:8443"},
        {"origin": "https://o.example"},
        {"host": "o.example", "origin": "https://o.example"},
        {"host": "tunnel.example"},
        {"origin": "https://o.example:1"},
        {"origin": "https://p.example"},
    ]

    statuses = [client.post("/graphql", json=HELLO, headers=ask).status_code for ask in asks]
    assert statuses == [200, 200, 200, 200, 200, 421, 403, 403]


@in_one_test(
    ("settings", "statuses"),
    [
        ({}, [421, 403]),
        ({"allowed_hosts": "*"}, [200, 403]),
        ({"cors_origins": "*"}, [200, 200]),
    ],
)
def test_a_star_that_somebody_sets_names_all(settings: dict[str, str], statuses: list[int]) -> None:
    client = client_of(**settings)
    asks = [{"host": "evil.example"}, {"origin": "https://evil.example"}]

    assert [
        client.post("/graphql", json=HELLO, headers=ask).status_code for ask in asks
    ] == statuses


@in_one_test("url", ["http://testserver", "http://localhost", "http://10.0.0.7"])
def test_where_it_is_not_known_to_be_loopback_everybody_is_answered(url: str) -> None:
    headers = {"host": "app.example", "origin": "https://page.example"}
    answer = client_of(url).post("/graphql", json=HELLO, headers=headers)

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://page.example"


@in_one_test("address", ["::1", "::ffff:127.0.0.1", "127.0.0.2"])
def test_every_address_of_loopback_is_one(address: str) -> None:
    token = LISTENER.set(Listener(address, "localhost"))
    try:
        with TestClient(runtime().app()) as client:
            status = client.get("/graphql/info", headers={"host": "evil.example"}).status_code
    finally:
        LISTENER.reset(token)

    assert status == 421


def test_the_name_under_which_the_operator_serves_is_one_of_this_machine() -> None:
    token = LISTENER.set(Listener("127.0.1.1", "My-Machine"))
    try:
        with client_of("http://my-machine:8000") as client:
            hosts = ("my-machine:8000", "other-machine:8000")
            asks = [{"host": host, "origin": f"http://{host}"} for host in hosts]
            statuses = [client.get("/graphql/info", headers=ask).status_code for ask in asks]
    finally:
        LISTENER.reset(token)

    assert statuses == [200, 421]


def test_a_server_that_listens_wider_answers_also_what_arrives_on_loopback() -> None:
    token = LISTENER.set(Listener("0.0.0.0", "0.0.0.0"))
    try:
        with client_of() as client:
            status = client.get("/graphql/info", headers={"host": "app.example"}).status_code
    finally:
        LISTENER.reset(token)

    assert status == 200


def test_one_line_of_the_log_names_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    client = client_of()
    for _ in range(3):
        client.get("/graphql/info", headers={"host": "a.example\x1b[2J"})
        client.get("/graphql/info", headers={"origin": "https://evil.example"})

    lines = [record.getMessage() for record in caplog.records if "machine only" in record.message]
    assert [line.rpartition(" ")[2] for line in lines] == ["allowed_hosts.", "cors_origins."]
    assert "\x1b" not in "".join(lines)


def test_a_client_that_invents_names_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = client_of()
    for number in range(150):
        client.get("/graphql/info", headers={"host": f"{number}.{'x' * 5000}"})

    assert len(caplog.records) == 100
    assert max(len(record.getMessage()) for record in caplog.records) < 300


@in_one_test(
    ("ask", "status"),
    [
        ({"origin": "https://page.example"}, 200),
        ({"origin": "https://evil.example"}, 200),  # it cannot read the answer
        ({"origin": "https://evil.example", "content-type": "text/plain"}, 403),
        ({"origin": "http://localhost:3000", "content-type": "text/plain"}, 415),
        ({"host": "evil.example"}, 421),
    ],
)
def test_the_cors_middleware_of_a_host_decides_about_what_it_has_preflighted(
    ask: dict[str, str], status: int
) -> None:
    app = FastAPI()
    app.add_middleware(CORSMiddleware, allow_origins=["https://page.example"])
    runtime().mount(app, "/api")
    client = TestClient(app, base_url=LOCAL)

    answer = client.post("/api", headers={"content-type": "application/json", **ask}, json=HELLO)
    assert answer.status_code == status
    assert answer.headers.get("access-control-allow-origin") in (None, "https://page.example")


@in_one_test("host", ["https://app.example", "app.example:80", "a/b", "a b", "*.*"])
def test_a_host_that_no_request_names_is_refused_at_the_start(host: str) -> None:
    with pytest.raises(ConfigurationFailed, match=r"'allowed_hosts' is .* is not a host"):
        load_settings(environ={"COPILOT_ALLOWED_HOSTS": host})


def test_who_listens_for_others_without_a_login_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with client_of("http://10.0.0.7:8000") as client:
        client.get("/graphql/info")
        client.get("/graphql/info")
        ready = client.get("/health/ready").json()

    (line,) = [record.getMessage() for record in caplog.records]
    assert "No authentication is configured" in line
    assert "Set access.authenticate" in line
    assert "10.0.0.7" in line
    assert "\n" not in line
    assert ready == {"status": "ready", "threads": "reachable"}


def test_with_a_login_there_is_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(threads="memory")
    served = CopilotRuntime(ScriptedAdapter(), authenticate=lambda _: "ann", settings=settings)
    app = served.app()
    with TestClient(app, base_url="http://10.0.0.7:8000") as client:
        client.get("/health/ready")

    assert caplog.records == []


@in_one_test(
    ("settings", "names"),
    [
        ({"allowed_hosts": ["app.example.com"]}, "allowed_hosts"),
        ({"proxy": {"addresses": ["127.0.0.1"]}}, "proxy.addresses"),
        (
            {"allowed_hosts": ["app.example.com"], "proxy": {"addresses": ["127.0.0.1"]}},
            "allowed_hosts and proxy.addresses",
        ),
    ],
)
def test_who_listens_for_a_proxy_without_a_login_is_told(
    caplog: pytest.LogCaptureFixture, settings: dict[str, Any], names: str
) -> None:
    token = LISTENER.set(Listener("127.0.0.1", "127.0.0.1"))
    try:
        with client_of(**settings) as client:
            client.get("/graphql/info")
    finally:
        LISTENER.reset(token)

    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "No authentication is configured, and other machines can reach this server by a proxy, for "
        f"which {names} are set: "
    )


def test_names_of_this_machine_are_no_proxy(caplog: pytest.LogCaptureFixture) -> None:
    with client_of(allowed_hosts=["app.localhost", "127.0.0.2"]) as client:
        client.get("/graphql/info")

    assert caplog.records == []
