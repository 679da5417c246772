"""Pages may name servers, and only those that the operator allows."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from mcp.server.transport_security import TransportSecuritySettings

from copilot_runtime.api import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, LimitExceeded, Misuse
from copilot_runtime.extensions.mcp.client import connect
from copilot_runtime.extensions.mcp.client.source import McpActions, McpAllowlist, McpServer
from tests.extensions.mcp.client.conftest import Asked
from tests.extensions.mcp.client.servers import serve
from tests.in_one_test import in_one_test

OURS = McpServer("https://ours.example/mcp", headers={"x-key": "operator"}, prefix="our_")
TEMPLATE = McpServer("http://10.0.0.7/mcp", tools=["get_*"])
ALLOWED = ["https://open.example", "https://strict.example:8443/mcp?v=1", TEMPLATE]


def named(*servers: Any, name: str = "mcpServers") -> RunInput:
    return RunInput(thread_id="t", run_id="r", messages=[], properties={name: [*servers]})


def of(*servers: Any) -> Sequence[McpServer]:
    return McpAllowlist(ALLOWED, [OURS]).resolve(named(*servers))


def test_without_a_word_of_the_page_the_operators_servers_count() -> None:
    run = RunInput(thread_id="t", run_id="r", messages=[], properties={"mcpServers": []})

    assert McpAllowlist(ALLOWED, [OURS]).resolve(run) == (OURS,)


@in_one_test("name", ["mcpServers", "mcpEndpoints"])
def test_a_server_that_the_page_names_comes_after_ours_with_its_own_key(name: str) -> None:
    entry = {"endpoint": "https://open.example/any", "apiKey": "k1"}

    found = McpAllowlist(ALLOWED, [OURS]).resolve(named(entry, name=name))

    mine = McpServer(
        "https://open.example/any", headers={"authorization": "Bearer k1"}, public_only=True
    )
    assert found == [OURS, mine]


def test_a_key_for_a_server_of_ours_takes_the_place_of_all_our_headers() -> None:
    (found,) = of({"endpoint": OURS.url, "apiKey": "mine"})

    assert (found.headers, found.prefix) == ({"authorization": "Bearer mine"}, "our_")


def test_a_server_of_ours_named_without_a_key_stays_as_it_is() -> None:
    assert of({"endpoint": OURS.url}) == [OURS]


def test_a_server_allowed_as_such_is_as_the_operator_wrote_it() -> None:
    assert of({"endpoint": TEMPLATE.url}) == [OURS, TEMPLATE]


def test_of_two_entries_of_one_endpoint_the_last_counts() -> None:
    url = "https://open.example/mcp"

    found = of({"endpoint": url, "apiKey": "a"}, {"endpoint": url, "apiKey": "b"})

    assert [server.headers for server in found[1:]] == [{"authorization": "Bearer b"}]


@in_one_test(
    "endpoint",
    [
        "https://strict.example:8443/mcp?v=1",
        "https://OPEN.example/",
        "https://open.example:443/x?y=z",
    ],
)
def test_these_are_allowed(endpoint: str) -> None:
    assert [server.url for server in of({"endpoint": endpoint})] == [OURS.url, endpoint]


@in_one_test(
    "endpoint",
    [
        "https://evil.example/mcp",
        "http://open.example/",
        "https://open.example:8443/",
        "https://open.example.evil.example/",
        "https://open.example@evil.example/",
        "https://evil.example\\@open.example/",
        "https://open.example\\.evil.example/",
        "https://open.example /",
        "https://open.example\n.evil.example/",
        " https://open.example/",
        "https://open.example:99999/",
        "https://open.example:0443/\u2025",
        "https://strict.example:8443/mcp",
        "https://strict.example:8443/mcp?v=1&admin=1",
        "https://strict.example:8443/mcp/../admin?v=1",
        "https://strict.example:8443/",
        "http://10.0.0.7/mcp/",
        "http://167772167/mcp",
        "HTTPS://open.example/",
        "//open.example/",
        "file:///etc/passwd",
        "python",
    ],
)
def test_all_else_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigurationFailed, match="is not one that this runtime allows"):
        of({"endpoint": endpoint})


def test_by_default_none_is_allowed() -> None:
    with pytest.raises(ConfigurationFailed, match=r"'https://open\.example/mcp' is not one"):
        McpAllowlist().check(named({"endpoint": "https://open.example/mcp?key=hush"}))


def test_a_function_may_decide() -> None:
    servers = McpAllowlist(lambda url: url.startswith("https://open.example/"))

    assert servers.resolve(named({"endpoint": "https://open.example/mcp"}))
    with pytest.raises(ConfigurationFailed):
        servers.check(named({"endpoint": "https://user@open.example/mcp"}))


@in_one_test(
    ("given", "error", "words"),
    [
        ("https://open.example", Misuse, "is a list, not a str"),
        ({"endpoint": "https://open.example"}, Misuse, "is a list, not a dict"),
        (["https://open.example"], Misuse, "needs an endpoint"),
        ([{"apiKey": "k"}], Misuse, "needs an endpoint"),
        ([{"endpoint": 7}], Misuse, "needs an endpoint"),
        ([{"endpoint": "https://open.example", "apiKey": "a\r\nb"}], Misuse, "apiKey"),
        ([{"endpoint": "https://open.example", "apiKey": ["a"]}], Misuse, "apiKey"),
        ([{"endpoint": f"https://open.example/{n}"} for n in range(11)], LimitExceeded, "10"),
    ],
)
def test_what_is_no_list_of_servers_is_refused(
    given: Any, error: type[CopilotError], words: str
) -> None:
    run = RunInput(thread_id="t", run_id="r", messages=[], properties={"mcpServers": given})

    with pytest.raises(error, match=words):
        McpAllowlist(ALLOWED).check(run)


@in_one_test("allowed", ["https://open.example", ["open.example"], ["https://a@b/"]])
def test_a_list_of_allowed_servers_that_cannot_be_is_an_error_at_once(allowed: Any) -> None:
    with pytest.raises(ConfigurationFailed):
        McpAllowlist(allowed)


@pytest.fixture
async def asked(anyio_backend: str) -> AsyncGenerator[Asked, None]:
    """Return a source that asks every server which a page names, if its address is public."""
    del anyio_backend
    source = McpActions(McpAllowlist(bool))
    yield Asked(source)
    await source.aclose()


@pytest.mark.anyio
@in_one_test("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"])
async def test_a_private_address_is_not_contacted(
    host: str, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve() as served:
        entry = {"endpoint": f"http://{host}:{served.port}/mcp"}

        assert await asked.actions(named(entry)) == {}
        assert "is not a public server" in caplog.text
        assert served.headers == []


@in_one_test(
    ("listed", "public_only"),
    [
        ("http://127.0.0.1:9000", False),
        ("http://[fd00::7]/mcp", False),
        ("http://localhost:9000", False),
        ("http://8.8.8.8", True),
        ("http://127.1", True),
        ("http://mcp.example", True),
    ],
)
def test_an_address_of_his_own_network_the_operator_may_list(
    listed: str, public_only: bool
) -> None:
    (found,) = McpAllowlist([listed]).resolve(named({"endpoint": listed}))

    assert found.public_only is public_only


@pytest.mark.anyio
async def test_an_allowed_server_on_this_machine_is_contacted() -> None:
    async with serve() as served:
        source = McpActions(McpAllowlist([f"http://127.0.0.1:{served.port}"]))

        assert "mcpEcho" in await Asked(source).actions(named({"endpoint": served.url}))
        await source.aclose()


@pytest.mark.anyio
async def test_the_validated_address_is_the_one_that_is_contacted(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[str, int]] = []

    async def resolve_public_addresses(host: str, port: int) -> Sequence[str]:
        looked.append((host, port))
        return ["::1", "127.0.0.1"]  # the first of which does not answer

    monkeypatch.setattr(connect, "resolve_public_addresses", resolve_public_addresses)
    open_to_all = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    async with serve(transport_security=open_to_all) as served:
        entry = {"endpoint": f"http://mcp.example:{served.port}/mcp"}

        assert "mcpEcho" in await asked.actions(named(entry))
        assert {it["host"] for it in served.headers} == {f"mcp.example:{served.port}"}
        assert {*looked} == {("mcp.example", served.port)}
        await asked.source.aclose()


@pytest.mark.anyio
@in_one_test("status", [302, 307, 308])
async def test_a_redirect_to_elsewhere_is_not_followed(status: int) -> None:
    async with serve() as inside, serve() as outside:
        outside.refuse, outside.location = status, inside.url
        source = McpActions(McpAllowlist(servers=[McpServer(outside.url)]))

        assert await Asked(source).actions() == {}
        assert (len(outside.headers) > 0, inside.headers) == (True, [])
        await source.aclose()


@pytest.mark.anyio
async def test_an_answer_that_is_packed_is_not_unpacked(caplog: pytest.LogCaptureFixture) -> None:
    async with serve(json_response=True) as served:
        source = McpActions(McpAllowlist(servers=[McpServer(served.url)]))

        served.packs = True
        assert await Asked(source).actions() == {}
        served.packs = False
        assert "mcpEcho" in await Asked(source).actions()

        await source.aclose()
    assert "It is compressed, so its size is unknown." in caplog.text
