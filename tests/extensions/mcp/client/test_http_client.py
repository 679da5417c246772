"""Servers asked by a client of the host application: of httpx, or of httpx2."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, NetworkError
from copilot_runtime.extensions.mcp.client import McpActions, McpServer, connect
from copilot_runtime.extensions.mcp.client.pool import SessionPool
from copilot_runtime.extensions.mcp.client.source import McpAllowlist
from tests.extensions.mcp.client.conftest import CONTEXT, Ask, Asked, tool
from tests.extensions.mcp.client.servers import Served, build, serve
from tests.extensions.mcp.client.test_named import named
from tests.in_one_test import in_one_test
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
async def client(anyio_backend: str, request: pytest.FixtureRequest) -> AsyncGenerator[Any, None]:
    """Return a client with a header, an agent's name and a login of its own."""
    del anyio_backend
    async with open_client(request.param) as client:
        yield client


@asynccontextmanager
async def open_client(library: ModuleType) -> AsyncGenerator[Any, None]:
    async with library.AsyncClient(
        headers={"x-host": "app", "user-agent": "app/1"}, auth=("ann", "secret"), trust_env=False
    ) as client:
        yield client


@pytest.mark.parametrize("sse", [False, True], ids=["http", "sse"])
async def test_every_request_uses_the_applications_client_which_stays_open(
    ask: Ask, client: Any, sse: bool
) -> None:
    async with serve(sse=sse) as served:
        asked = ask(McpServer(served.url, headers={"x-key": "k"}, http_client=client))
        assert await asked.do("mcpEcho", text="hi") == "echo hi"
        await asked.source.aclose()

    sent = {
        (request["x-host"], request["user-agent"], request["x-key"]) for request in served.headers
    }
    assert sent == {("app", "app/1", "k")}
    assert all(request["authorization"].startswith("Basic ") for request in served.headers)
    assert not client.is_closed


async def test_an_authorization_of_the_server_takes_the_place_of_the_clients(
    ask: Ask, served: Served, client: Any
) -> None:
    asked = ask(McpServer(served.url, headers={"authorization": "Bearer k"}, http_client=client))
    await asked.actions()
    assert {request["authorization"] for request in served.headers} == {"Bearer k"}


async def test_the_key_of_a_page_is_not_sent_with_the_login_of_the_application(
    served: Served, client: Any
) -> None:
    source = McpActions(McpAllowlist([McpServer(served.url, http_client=client)]))
    assert "mcpEcho" in await Asked(source).actions(
        named({"endpoint": served.url, "apiKey": "page"})
    )
    await source.aclose()
    assert {request["authorization"] for request in served.headers} == {"Bearer page"}


async def test_one_address_by_two_clients_has_two_sessions(ask: Ask, served: Served) -> None:
    async with open_client(httpx) as one, open_client(httpx2) as other:
        asked = ask(
            McpServer(served.url, http_client=one),
            McpServer(served.url, http_client=other, prefix="other_"),
        )
        assert {"mcpEcho", "other_mcpEcho"} <= {*await asked.actions()}
        await asked.source.aclose()
    assert served.sessions == 2


async def test_a_message_that_is_too_large_is_refused_by_any_client(
    ask: Ask, served: Served, client: Any
) -> None:
    asked = ask(McpServer(served.url, http_client=client))
    with pytest.raises(CopilotError, match=r"4194304 byte"):
        await asked.do("large")
    assert await asked.do("mcpEcho", text="again") == "echo again"


async def test_a_server_that_is_down_is_left_out(
    ask: Ask, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked = ask(McpServer("http://127.0.0.1:9/mcp", http_client=client))
    assert await asked.actions() == {}
    assert "The MCP server '127.0.0.1:9' is left out of this run." in caplog.text


@in_one_test("options", [{"command": ["server"]}, {"url": "http://mcp.test/", "public_only": True}])
async def test_a_client_that_would_not_be_used_is_refused(
    client: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationFailed, match="cannot have an http_client"):
        McpServer(http_client=client, **options)


@dataclass
class Shop:
    """A server whose tool `pay` is slow and says it failed, and whose tool `look` is forgotten.

    It is also slow to say goodbye.
    """

    port: int = 0
    paid: int = 0
    paying: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: Request) -> Response:
        if request.method == "DELETE":
            await self.go_on.wait()
        if request.method != "POST":
            return Response(status_code=405)
        asked = await request.json()
        match asked:
            case {"method": "initialize", "params": {"protocolVersion": version}}:
                info = {"name": "shop", "version": "1"}
                result: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": info}
                return said(asked, result={**result, "protocolVersion": version})
            case {"method": "tools/list"}:
                return said(asked, result={"tools": [tool("pay"), tool("look")]})
            case {"params": {"name": "pay"}}:
                self.paid += 1
                self.paying.set()
                await self.go_on.wait()
                return said(asked, error={"code": -32000, "message": "Paid, without a receipt"})
            case {"params": {"name": "look"}}:
                return Response(status_code=404)
            case _:
                return Response(status_code=202)


def said(asked: dict[str, Any], **answer: Any) -> Response:
    return JSONResponse(
        {"jsonrpc": "2.0", "id": asked["id"], **answer}, headers={"mcp-session-id": "s"}
    )


@asynccontextmanager
async def open_shop() -> AsyncGenerator[Shop, None]:
    shop = Shop()
    routes = [Route("/mcp", shop.answer, methods=["GET", "POST", "DELETE"])]
    async with serving(Starlette(routes=routes)) as shop.port:
        yield shop


async def test_a_call_is_not_repeated_because_another_was_refused(ask: Ask) -> None:
    async with open_shop() as shop:
        asked = ask(McpServer(f"http://127.0.0.1:{shop.port}/mcp"))
        actions = await asked.actions()
        assert actions["pay"].run is not None
        assert actions["look"].run is not None

        paying = asyncio.ensure_future(actions["pay"].run({}, CONTEXT))
        await shop.paying.wait()
        with pytest.raises(NetworkError, match="does not know the session"):
            await actions["look"].run({}, CONTEXT)
        shop.go_on.set()  # also to say goodbye

        with pytest.raises(CopilotError, match="Paid, without a receipt"):
            await paying
        assert shop.paid == 1
        await asked.source.aclose()


@in_one_test("streams", [False, True], ids=["JSON", "events"])
async def test_half_a_character_in_a_result_is_readable(ask: Ask, streams: bool) -> None:
    async def answer(request: Request) -> Response:
        asked = await request.json() if request.method == "POST" else {}
        if asked.get("method") != "tools/call":
            return await Shop().answer(request)
        result = {"content": [{"type": "text", "text": "a\ud83d\ude00\ud83d"}]}
        body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        if streams:
            return Response(f"event: message\ndata: {body}\n\n", media_type="text/event-stream")
        return Response(body, media_type="application/json")

    app = Starlette(routes=[Route("/mcp", answer, methods=["GET", "POST", "DELETE"])])
    async with serving(app) as port:
        asked = ask(McpServer(f"http://127.0.0.1:{port}/mcp"))
        assert await asked.do("look") == "a\N{GRINNING FACE}\ufffd"


async def test_a_session_ends_although_the_server_does_not_say_goodbye(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.mcp.client.session.CLOSE_TIMEOUT", 0.1)
    pool = SessionPool(idle=0.01)
    async with open_shop() as shop:
        async with pool.session(McpServer(f"http://127.0.0.1:{shop.port}/mcp"), {}) as session:
            pass

        await asyncio.wait([session.task])

        assert session.task.done()
        shop.go_on.set()


async def test_a_call_that_an_sse_server_refuses_fails_at_once(ask: Ask) -> None:
    async with serve(sse=True) as served:
        asked = ask(McpServer(served.url))
        echo = (await asked.actions())["mcpEcho"]
        assert echo.run is not None
        served.refuse = 500

        with pytest.raises(NetworkError, match="broke off"):
            await echo.run({"text": "hey"}, CONTEXT)

        served.refuse = 0
        assert await asked.do("mcpEcho", text="again") == "echo again"
        await asked.source.aclose()


NAME = "mcp.example"


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return a key and a certificate for NAME, which is trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, SHA256())
    )
    files = {"ssl_keyfile": tmp_path / "key.pem", "ssl_certfile": tmp_path / "cert.pem"}
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files["ssl_keyfile"].write_bytes(key.private_bytes(*plain))
    files["ssl_certfile"].write_bytes(certificate.public_bytes(Encoding.PEM))
    monkeypatch.setenv("SSL_CERT_FILE", str(files["ssl_certfile"]))
    return files


async def test_a_certificate_is_checked_against_the_name_and_not_the_address(
    certified: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def resolve_public_addresses(host: str, port: int) -> Sequence[str]:
        del host, port
        return ["127.0.0.1"]

    monkeypatch.setattr(connect, "resolve_public_addresses", resolve_public_addresses)
    open_to_all = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = build(Served()).streamable_http_app(transport_security=open_to_all)
    source = McpActions(McpAllowlist(bool))
    async with serving(app, **certified) as port:
        mine = await Asked(source).actions(named({"endpoint": f"https://{NAME}:{port}/mcp"}))
        other = await Asked(source).actions(named({"endpoint": f"https://other.example:{port}/"}))
        await source.aclose()

    assert ("mcpEcho" in mine, other) == (True, {})
    assert "certificate is not valid for 'other.example'" in caplog.text
