"""What an operator may get wrong, and the sentence that says so."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import pytest

from copilot_runtime.api import RunInput
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    RunStalled,
)
from copilot_runtime.extensions.tools.catalog.grpc import endpoint
from copilot_runtime.extensions.tools.catalog.grpc.options import Address
from copilot_runtime.extensions.tools.catalog.grpc.protos import Protos
from tests.extensions.tools.catalog.grpc.conftest import PROTO, Context, MakeTool, serve
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


TOOL = "order: {endpoint: {grpc: {address: '127.0.0.1:1', %s}}}"
ORDER = "method: shop.Shop.Order, proto: shop.proto"


@in_one_test(
    ("fields", "words"),
    [
        ("method: x.y", "Invalid endpoint method format: x.y"),
        ("method: a..b", "Invalid endpoint method format: a..b"),
        ("method: a/b/c", "Invalid endpoint method format: a/b/c"),
        ("method: a.B.C, request: a", "Invalid endpoint request format: a"),
        ("method: a.B.C, request: .a", "Invalid endpoint request format: .a"),
        (f"{ORDER}, tls: {{ca: none.pem}}", "none.pem cannot be read: No such file"),
        (f"{ORDER}, metadata: {{a: '${{secret:NONE}}'}}", "The secret 'NONE' is not set"),
        (f"{ORDER}, token: {{service: a}}", "The secret 'SERVICE_SECRET' is not set"),
        (f"{ORDER}, llm_token: '${{NONE}}'", "variable 'NONE' is not set"),
        ("method: a.B.C, reflection: false", "Nothing describes the service 'a.B'"),
    ],
)
async def test_what_can_never_work_is_an_error_at_once(
    make_tool: MakeTool, fields: str, words: str
) -> None:
    with pytest.raises(ConfigurationFailed) as raised:
        make_tool(TOOL % fields)
    assert words in raised.value.message


@in_one_test(
    ("fields", "words"),
    [
        ("method: shop.Shop.Upload, proto: shop.proto", "takes a stream of requests"),
        ("method: shop.Shop.Sell, proto: shop.proto", "Method Sell not found in service shop.Shop"),
        ("method: shop.Bank.Pay, proto: shop.proto", "Client class not found: BankClient"),
        (f"{ORDER}, request: shop.Nothing", "Request type not found: shop.Nothing"),
        (f"{ORDER}, request: shop.Query", "takes a shop.OrderRequest, and no shop.Query"),
        ("method: shop.Shop.Order, proto: none.proto", "There is no"),
        ("method: shop.Shop.Order, descriptors: none.pb", "cannot be read: No such file"),
        ("method: shop.Shop.Order, descriptors: shop.proto", "is no descriptor set"),
        ("method: shop.Shop.Order, descriptors: common", "cannot be read: Is a directory"),
    ],
)
async def test_what_does_not_fit_the_description_is_an_error_of_the_tool(
    make_tool: MakeTool, fields: str, words: str
) -> None:
    tool = make_tool(TOOL % fields)
    with pytest.raises(ConfigurationFailed) as raised:
        await tool.load()
    assert words in raised.value.message


@in_one_test(
    ("services", "words"),
    [
        ({"shop": {"adress": "a:1"}}, "services.shop.adress: Extra inputs are not permitted"),
        ({"shop": 5}, "services.shop: "),
        ({"shop": {"address": "a:1", "port": 2}}, "write an address, or a host and a port"),
        ({"shop": {"proto": "a", "reflection": True}}, "one of proto, descriptors and reflection"),
        ({"shop": {"tls": {"key": "a"}}}, "a certificate needs its key"),
        ({"shop": "nonsense"}, "'nonsense' has no port"),
        ({"shop": "ftp://a:1"}, "'ftp://a:1' is no address of a gRPC server"),
        ({"shop": "a b:1"}, "'a b:1' is no address of a gRPC server"),
    ],
)
async def test_what_is_wrong_with_a_service_says_its_name(
    make_tool: MakeTool, services: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationFailed) as raised:
        make_tool("order: {method: shop.Shop.Order}", services=services)
    assert words in raised.value.message


async def test_mistakes_of_a_proto_name_its_line_and_the_last_one_counts(
    make_tool: MakeTool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(endpoint, "FILES_TTL", 0)
    monkeypatch.setattr(endpoint, "FAILURE_TTL", 0)
    text = (
        'syntax = "proto3"; package my_tool;\n'
        "message Request { string text = 1; }\n"
        "service MyTool { rpc Execute(Request) returns (Request); }\n"
    )
    file = tmp_path / "my-tool.proto"
    (tmp_path / "tools").mkdir()
    file = tmp_path / "tools" / "my-tool.proto"
    file.write_text(text)
    # the seed's example has a hyphen, which no package can have
    tool = make_tool(
        "mine: {method: my-tool.MyTool.Execute, request: my-tool.Request}", folder=tmp_path
    )
    first = await tool.load()
    assert [*first.parameters["properties"]] == ["text"]
    assert await tool.load() is first

    file.write_text(text.replace("string text", "strang text"))
    assert await tool.load() is first
    assert 'my-tool.proto:2:19: "strang" is not defined' in caplog.text

    file.write_text(text.replace("text = 1", "words = 1"))
    assert [*(await tool.load()).parameters["properties"]] == ["words"]
    file.unlink()
    assert [*(await tool.load()).parameters["properties"]] == ["words"]


async def test_a_descriptor_set_describes_a_service(make_tool: MakeTool, tmp_path: Path) -> None:
    output = tmp_path / "shop.pb"
    _run(
        *(sys.executable, "-m", "grpc_tools.protoc", "--include_imports"),
        *(f"-I{PROTO}", f"--descriptor_set_out={output}", "shop.proto"),
    )
    tool = make_tool(TOOL % f"method: shop.Shop/Order, descriptors: '{output}'")
    assert len((await tool.load()).parameters["properties"]) == 21

    output.write_bytes(b"")
    with pytest.raises(ConfigurationFailed, match="describes nothing"):
        await make_tool(TOOL % f"method: shop.Shop.Order, descriptors: '{output}'").load()
    with output.open("wb") as file:
        file.truncate(9 * 1024 * 1024)
    with pytest.raises(ConfigurationFailed, match="larger than 8 MB"):
        await make_tool(TOOL % f"method: shop.Shop.Order, descriptors: '{output}'").load()


async def test_check_reports_an_unreachable_server(
    make_tool: MakeTool, run: RunInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_CONNECT_TIMEOUT", 0.01)
    with pytest.raises(NetworkError, match=r"'127\.0\.0\.1:1' cannot be reached"):
        await make_tool(TOOL % ORDER).endpoint.check(run)


@in_one_test(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ('{"service": {"shop": {"url": "ftp://x"}}}', "which is no address"),
        ('{"service": {"shop": {"url": "grpc://h:x"}}}', "is no URL of a service"),
        ('{"service": {"shop": {"port": "many"}}}', "which is no address"),
    ],
)
async def test_a_file_of_copilot_ld_with_mistakes_is_refused(
    make_tool: MakeTool, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigurationFailed, match=words):
        make_tool("order: {method: shop.Shop.Order}", folder=tmp_path)


async def test_a_service_without_an_address_says_how_to_give_one(
    make_tool: MakeTool, tmp_path: Path
) -> None:
    tool = make_tool("order: {method: shop.Shop.Order}", folder=tmp_path)
    with pytest.raises(CopilotError, match="Client class not found: ShopClient") as raised:
        await tool.load()
    assert "SERVICE_SHOP_URL" in (raised.value.hint or "")
    tool = make_tool("order: {endpoint: {grpc: {method: shop.Shop.Order, proto: shop.proto}}}")
    with pytest.raises(CopilotError, match=r"No address is known of the service 'shop\.Shop'"):
        await tool.call()


@in_one_test(
    ("text", "target", "has_tls"),
    [
        ("grpc://a.example:80/", "a.example:80", False),
        ("a.example:80", "a.example:80", False),
        ("grpcs://a.example", "a.example:443", True),
        ("https://[::1]:8443", "[::1]:8443", True),
        ("unix:/run/shop.sock", "unix:/run/shop.sock", False),
    ],
)
def test_addresses_have_several_forms(text: str, target: str, has_tls: bool) -> None:
    address = Address(text, has_tls=False)
    assert (address.target, address.has_tls) == (target, has_tls)


async def test_a_service_listening_everywhere_is_called_by_its_name(make_tool: MakeTool) -> None:
    tool = make_tool(
        "order: {method: shop.Shop.Order}",
        services={"shop": {"host": "0.0.0.0", "proto": "shop.proto"}},
    )
    await tool.load()
    address = tool.endpoint._address  # pyright: ignore[reportPrivateUsage]
    assert address is not None
    assert address.target == "shop.copilot-ld.local:3000"


async def test_a_server_with_tls_is_believed_by_its_authority(
    make_tool: MakeTool, tmp_path: Path
) -> None:
    _run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=shop.example", "-addext", "subjectAltName=DNS:shop.example"),
        *("-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "ca.pem")),
    )
    key, certificate = (tmp_path / "key.pem").read_bytes(), (tmp_path / "ca.pem").read_bytes()

    async def sell(request: dict[str, Any], context: Context) -> Any:
        return {"number": "n1"}

    credentials = grpc.ssl_server_credentials([(key, certificate)])
    async with serve({"Order": sell}, credentials=credentials) as shop:
        text = (
            f"order: {{endpoint: {{grpc: {{address: 'grpcs://{shop.address}',"
            f" {ORDER}, tls: %s}}}}}}"
        )
        own = f"{{ca: '{tmp_path}/ca.pem', server_name: shop.example}}"
        assert (await make_tool(text % own).call())["number"] == "n1"
        with pytest.raises(NetworkError, match="cannot be reached"):
            await make_tool(text % "true").call()


def test_protos_of_nothing_have_nothing() -> None:
    with pytest.raises(ConfigurationFailed, match=r"Request type not found: a\.B"):
        Protos([]).find_message("a.B")


ORDER_FIELD = (
    "order: {endpoint: {grpc: {address: '%s', method: shop.Shop.Order, proto: shop.proto}}%s}"
)
WATCH = ORDER_FIELD.replace("Order", "Watch")


async def find(request: dict[str, Any], context: Context) -> Any:
    return {"content": "Still there."}


async def test_a_server_that_hangs_is_skipped_with_a_warning(make_tool: MakeTool) -> None:
    ended = asyncio.Event()

    async def hang(request: Any, context: Context) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serve({"Order": hang, "Find": find}) as shop:
        tool = make_tool(ORDER_FIELD % (shop.address, ", timeout: 0.1"))
        with pytest.raises(RunStalled, match=r"did not answer within 0\.1 s"):
            await tool.call()
        await ended.wait()
        other = make_tool((ORDER_FIELD % (shop.address, "")).replace("Order", "Find"))
        assert (await other.call())["content"] == "Still there."


async def test_a_call_that_is_cancelled_is_cancelled_there(make_tool: MakeTool) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def hang(request: Any, context: Context) -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serve({"Order": hang}) as shop:
        task = asyncio.create_task(make_tool(ORDER_FIELD % (shop.address, "")).call())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()


@pytest.mark.stalls(reason="The server of the test writes them.")
async def test_fifty_megabytes_are_refused(make_tool: MakeTool) -> None:
    async def flood(request: Any, context: Context) -> Any:
        return {"number": "x" * 50_000_000}

    async with serve({"Order": flood, "Find": find}) as shop:
        with pytest.raises(LimitExceeded, match="larger than max"):
            await make_tool(ORDER_FIELD % (shop.address, "")).call()
        other = make_tool((ORDER_FIELD % (shop.address, "")).replace("Order", "Find"))
        assert (await other.call())["content"] == "Still there."


async def test_a_stream_without_end_is_left(make_tool: MakeTool) -> None:
    ended = asyncio.Event()

    async def flood(request: Any, context: Context) -> Any:
        async def numbers() -> AsyncGenerator[Any]:
            try:
                while True:
                    yield {"number": "x" * 1000}
            finally:
                ended.set()

        return numbers()

    async with serve({"Watch": flood}) as shop:
        with pytest.raises(LimitExceeded, match="more than 1000 messages"):
            await make_tool(WATCH % (shop.address, "")).call()


async def test_a_request_that_is_too_large_is_not_sent(make_tool: MakeTool) -> None:
    async with serve({"Order": find}) as shop:
        with pytest.raises(LimitExceeded, match="Sent message larger than max"):
            await make_tool(ORDER_FIELD % (shop.address, "")).call(card="x" * 2_000_000)
        assert shop.requests == []


@in_one_test("answer", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\xfa\x07\x01x", b"\x08\x01"])
async def test_an_answer_that_is_none_says_so(make_tool: MakeTool, answer: bytes) -> None:
    async def lie(request: Any, context: Context) -> Any:
        return answer

    async with serve({"Order": lie}) as shop:
        with pytest.raises(CopilotError, match=r"response is not a shop\.OrderReply: "):
            await make_tool(ORDER_FIELD % (shop.address, "")).call()


async def test_a_long_answer_is_read_whole(make_tool: MakeTool) -> None:
    async def tell(request: Any, context: Context) -> Any:
        return {"number": "x" * 200_000}

    async with serve({"Order": tell}) as shop:
        answer = await make_tool(ORDER_FIELD % (shop.address, "")).call()
        assert answer["number"] == "x" * 200_000


async def test_a_stream_that_breaks_off_is_an_error(make_tool: MakeTool) -> None:
    async def stop(request: Any, context: Context) -> Any:
        async def numbers() -> AsyncGenerator[Any]:
            yield {"number": "1"}
            await context.abort(grpc.StatusCode.DATA_LOSS, "gone")

        return numbers()

    async with serve({"Watch": stop}) as shop:
        with pytest.raises(CopilotError, match="says DATA_LOSS: gone"):
            await make_tool(WATCH % (shop.address, "")).call()


async def test_a_connection_that_closes_half_way_is_an_error(make_tool: MakeTool) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00")  # half of HTTP/2's greeting
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NetworkError, match="cannot be reached"):
            await make_tool(ORDER_FIELD % (f"127.0.0.1:{port}", "")).call()
