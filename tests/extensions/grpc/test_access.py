"""Who may call: tokens for one method, one message, once; users, scopes, limits, TLS."""

import asyncio
import json
import logging
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc.aio import AioRpcError
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings, action
from copilot_runtime.adapters.scripted import say
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.access.service_tokens import ServiceTokenSigner
from copilot_runtime.extensions.grpc.client import ServiceChannel, Tls, connect
from copilot_runtime.extensions.grpc.names import CODE, name_operation
from copilot_runtime.extensions.grpc.protos import event_pb2, tool_pb2
from copilot_runtime.extensions.grpc.protos.event_pb2_grpc import EventStub
from copilot_runtime.extensions.grpc.protos.tool_pb2_grpc import ToolStub
from copilot_runtime.extensions.grpc.service import Call, RpcMethod, RpcService
from copilot_runtime.transports.transport import Services
from tests.extensions.grpc.servers import SECRET, Served, build_settings, serve
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

LIST = "/copilot.tool.v1.Tool/ListTools"
CALL = "/copilot.tool.v1.Tool/CallTool"
OTHER_SECRET = SECRET[::-1]
FOR_ANOTHER = "signed with another secret, or for another method than"
NOTHING = tool_pb2.ListToolsRequest()


@action
def whoami() -> str:
    """Say hello."""
    return "Hello"


async def call(
    served: Served, token: str, path: str = LIST, body: bytes = b"", **metadata: str
) -> tuple[grpc.StatusCode, str]:
    """Return the status of a call with any token."""
    every = [(name.replace("_", "-"), value) for name, value in metadata.items()]
    if token:
        every.append(("authorization", f"Bearer {token}"))
    target = served.server.address.removeprefix("grpc://")
    async with grpc.aio.insecure_channel(target) as channel:
        try:
            await channel.unary_unary(path)(body, metadata=every, timeout=10)
        except AioRpcError as error:
            return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


def sign(
    path: str = LIST, body: bytes = b"", secret: str = SECRET, ago: float = 0, form: Any = "bound"
) -> str:
    clock = lambda: time.time() - ago  # noqa: E731
    return ServiceTokenSigner("shop", [secret], form=form, clock=clock).sign(path, body)


def tamper(token: str) -> str:
    text = b64decode(token).decode()
    return b64encode(text.replace("shop:", "bank:", 1).encode()).decode()


@in_one_test(
    ("build", "words"),
    [
        (lambda: "", "Sign in to use this server."),
        (lambda: "nonsense", "This token is of no kind that is accepted here."),
        (lambda: tamper(sign()), "Invalid token signature"),
        (lambda: sign(secret=OTHER_SECRET), "Invalid token signature"),
        (lambda: sign(path=CALL), f"Invalid token signature: {FOR_ANOTHER} '{LIST}'"),
        (lambda: sign(path=LIST[1:]), f"Invalid token signature: {FOR_ANOTHER} '{LIST}'"),
        (lambda: sign(body=b"another"), "Token is for another body"),
        (lambda: sign(ago=61), "Token has expired"),
        (lambda: sign(ago=-60), "Token is from the future"),
        (lambda: sign(form="simple"), "Invalid token format"),
    ],
)
async def test_a_token_that_is_missing_or_wrong_is_refused(
    build: Callable[[], str], words: str
) -> None:
    async with serve(build_settings("tool")) as served:
        code, details = await call(served, build())

    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert words in details


async def test_a_token_is_good_once() -> None:
    async with serve(build_settings("tool")) as served:
        token = sign()
        results = [await call(served, token) for _ in range(2)]

    refused = (grpc.StatusCode.UNAUTHENTICATED, "Token was used before")
    assert results == [(grpc.StatusCode.OK, ""), refused]


async def test_of_many_calls_with_the_same_token_one_is_answered() -> None:
    async with serve(build_settings("tool")) as served:
        token = sign()
        results = await asyncio.gather(*(call(served, token) for _ in range(8)))

    assert sorted(code.name for code, _ in results) == ["OK"] + ["UNAUTHENTICATED"] * 7


async def test_a_token_for_one_user_is_none_for_another() -> None:
    async with serve(build_settings("tool", roles=["operator"])) as served:
        code, details = await call(served, sign(), copilot_user="ann")

    assert (code, details) == (
        grpc.StatusCode.UNAUTHENTICATED,
        f"Invalid token signature: {FOR_ANOTHER} '{LIST}?user=ann&tenant='",
    )


async def test_a_token_that_is_sent_without_its_scheme_says_so() -> None:
    async with serve(build_settings("tool")) as served:
        code, details = await call(served, "", authorization=sign())

    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert details == (
        "This token is of no kind that is accepted here: the header authorization has to begin "
        "with 'Bearer '."
    )


async def test_the_form_of_copilot_ld_is_a_setting() -> None:
    settings = build_settings("tool", service_tokens={"form": "simple"})
    token = sign(form="simple")
    async with serve(settings) as served:
        results = [await call(served, token) for _ in range(2)]

    assert [code for code, _ in results] == [grpc.StatusCode.OK] * 2


async def test_keys_rotate_while_both_are_accepted() -> None:
    settings = build_settings("tool", service_tokens={"secrets": [OTHER_SECRET, SECRET]})
    async with serve(settings) as served:
        results = [await call(served, sign(secret=one)) for one in (SECRET, OTHER_SECRET)]

    assert [code for code, _ in results] == [grpc.StatusCode.OK] * 2


async def test_a_service_without_the_scope_cannot_act_for_other_users() -> None:
    settings = build_settings("tool", roles=["user"])
    async with serve(settings) as served, served.connect(user="ann") as channel:
        with pytest.raises(AioRpcError) as caught:
            await ToolStub(channel).ListTools(NOTHING)

    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert caught.value.details() == (
        "'service:shop' may not ask for a user: it needs the scope 'operate'. "
        "Services have it by service_tokens.roles: [operator] at this server."
    )


@in_one_test("user", ["service:shop", "tenant:acme/ann", "key:k1", "a" * 2000, "ann\ufffd"])
async def test_a_reserved_user_name_is_refused(user: str) -> None:
    settings = build_settings("tool", roles=["operator"])
    async with serve(settings) as served, served.connect(user=user) as channel:
        with pytest.raises(AioRpcError) as caught:
            await ToolStub(channel).ListTools(NOTHING)

    assert caught.value.code() in (
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.INVALID_ARGUMENT,
    )


async def test_a_reader_calls_no_tools() -> None:
    async with serve(build_settings("tool", roles=["reader"])) as served:
        code, details = await call(served, sign(CALL), CALL)

    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "it needs the scope 'runs:start'" in details


async def test_the_hook_of_the_application_sees_metadata_as_headers() -> None:
    def authenticate(connection: HTTPConnection) -> str | None:
        return connection.headers.get("x-user")

    settings = build_settings("tool", access={})
    async with serve(settings, authenticate=authenticate) as served:
        code, _ = await call(served, "", x_user="ann")
        refused, details = await call(served, "", x_user="bob", copilot_user="ann")

    assert code is grpc.StatusCode.OK
    assert refused is grpc.StatusCode.PERMISSION_DENIED
    assert details == (
        "'bob' may not ask for 'ann': only a service may that signs its calls by service tokens. "
        "Leave the metadata copilot-user and copilot-tenant out."
    )


async def test_limited_calls_get_a_retry_delay() -> None:
    settings = build_settings("tool", limits={"requests_per_user": "2/minute"})
    async with serve(settings) as served, served.connect() as channel:
        tool = ToolStub(channel)
        await tool.ListTools(NOTHING)
        await tool.ListTools(NOTHING)
        with pytest.raises(AioRpcError) as caught:
            await tool.ListTools(NOTHING)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailer = dict(caught.value.trailing_metadata() or ())
    assert trailer[CODE] == "LIMIT_EXCEEDED"
    assert 0 < int(str(trailer["retry-after"])) <= 60


async def test_a_call_on_behalf_of_a_user_records_the_service_in_the_audit_log(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit.jsonl"
    settings = build_settings("tool", roles=["operator"], audit={"file": str(file)})
    async with (
        serve(settings, actions=[whoami]) as served,
        served.connect(user="jörg %") as channel,
    ):
        await ToolStub(channel).CallTool(tool_pb2.CallToolRequest(name="whoami"))

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["user"], line["actor"], line["method"]) for line in lines] == [
        ("jörg %", "service:shop", "service_token")
    ] * 2


class SlowEvents(RpcService):
    """A service that has done what it is asked for before it answers."""

    descriptor = event_pb2.DESCRIPTOR.services_by_name["Event"]
    published: asyncio.Event

    def __init__(self, services: Services) -> None:
        del services

    def list_methods(self) -> Mapping[str, RpcMethod]:
        return {"Publish": RpcMethod(run=self.publish, scope="data:write")}

    async def publish(self, request: Any, call: Call) -> event_pb2.PublishResponse:
        self.published.set()
        await asyncio.Event().wait()
        return event_pb2.PublishResponse()


async def test_a_call_whose_client_has_left_is_in_the_audit_log(tmp_path: Path) -> None:
    file, SlowEvents.published = tmp_path / "audit.jsonl", asyncio.Event()
    settings = build_settings(f"{__name__}:SlowEvents", audit={"file": str(file)})
    async with serve(settings) as served, served.connect() as channel:
        publishing = EventStub(channel).Publish(event_pb2.PublishRequest())
        left = asyncio.ensure_future(publishing)
        await SlowEvents.published.wait()
        publishing.cancel()
        await asyncio.wait((left,))

    (line,) = map(json.loads, file.read_text().splitlines())
    assert (line["action"], line["outcome"]) == ("/copilot.event.v1.Event/Publish", "allowed")
    assert line["user"] == "service:shop"


async def test_refused_calls_are_in_the_audit_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with serve(build_settings("tool", audit={"file": str(file)})) as served:
        await call(served, sign(ago=61))

    text = file.read_text()
    assert f'"{LIST}"' in text
    assert "Token has expired" in text


def test_services_that_strangers_could_call_are_not_offered() -> None:
    settings = build_settings("tool", access={}, grpc={"address": "0.0.0.0:0"})
    with pytest.raises(ConfigurationFailed, match="calls would not be authenticated"):
        CopilotRuntime(ScriptedAdapter(say("")), settings=settings)


def test_services_in_the_clear_are_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        settings = build_settings("tool", grpc={"address": "0.0.0.0:0"})
        CopilotRuntime(ScriptedAdapter(say("")), settings=settings)

    assert "without TLS: set grpc.certificate and grpc.key" in caplog.text


def make_certificates(folder: Path) -> None:
    """Write an authority, and certificates of a server and of a client that it has signed."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in ("localhost", "client"):
        openssl(
            *("req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem"),
            *("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"),
            *("-CA", "ca.pem", "-CAkey", "ca.key"),
        )


async def test_a_client_without_a_certificate_does_not_come_in(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    files = {"certificate": "localhost.pem", "key": "localhost.key", "client_ca": "ca.pem"}
    grpc_settings = {name: str(tmp_path / file) for name, file in files.items()}
    good = Tls(*(str(tmp_path / name) for name in ("ca.pem", "client.pem", "client.key")))
    bare = Tls(str(tmp_path / "ca.pem"))

    def reach(served: Served, tls: Tls) -> ServiceChannel:
        address = f"grpcs://localhost:{served.server.port}"
        return connect(address, service="shop", secrets=[SECRET], tls=tls, timeout=5)

    async with serve(build_settings("tool", grpc=grpc_settings)) as served:
        async with reach(served, good) as channel:
            await ToolStub(channel).ListTools(NOTHING)
        async with reach(served, bare) as channel:
            with pytest.raises(AioRpcError) as caught:
                await ToolStub(channel).ListTools(NOTHING)

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_socket_of_this_machine_needs_no_login(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/rpc.sock"
    settings = build_settings("tool", access={}, grpc={"address": address})
    async with serve(settings, actions=[whoami]) as served:
        assert served.server.address == address
        async with connect(address) as channel:
            found = await ToolStub(channel).ListTools(NOTHING)

    assert [one.function.name for one in found.tools] == ["whoami"]


async def test_health_needs_no_token() -> None:
    async with serve(build_settings("tool")) as served:
        target = served.server.address.removeprefix("grpc://")
        async with grpc.aio.insecure_channel(target) as channel:
            health: Any = HealthStub(channel)
            names = ("", "copilot.tool.v1.Tool")
            found = [
                await health.Check(health_pb2.HealthCheckRequest(service=name)) for name in names
            ]
            with pytest.raises(AioRpcError) as caught:
                await health.Check(health_pb2.HealthCheckRequest(service="none"))

            with pytest.raises(AioRpcError) as watched:
                await health.Watch(health_pb2.HealthCheckRequest()).read()

    assert watched.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert {one.status for one in found} == {health_pb2.HealthCheckResponse.SERVING}
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_the_package_brings_no_grpc_along() -> None:
    code = (
        "import sys; from copilot_runtime import CopilotRuntime; "
        "sys.exit(any(name.split('.')[0] == 'grpc' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_settings_say_what_is_wrong() -> None:
    for grpc_section, words in [
        ({"address": "nowhere"}, "host:port"),
        ({"address": "h:99999"}, "host:port"),
        ({"certificate": "a.pem"}, "a certificate needs its key"),
        ({"client_ca": "a.pem"}, "needs grpc.certificate"),
    ]:
        with pytest.raises(ConfigurationFailed, match=words):
            Settings(grpc=grpc_section)  # type: ignore[arg-type]


async def test_an_occupied_port_is_not_shared() -> None:
    async with serve(build_settings("tool")) as served:
        address = f"127.0.0.1:{served.server.port}"
        other = CopilotRuntime(
            ScriptedAdapter(say("")), settings=build_settings("tool", grpc={"address": address})
        )
        with pytest.raises(ConfigurationFailed, match="Cannot listen on"):
            async with other.running():
                pass


def test_addresses_that_are_none_are_refused() -> None:
    for address in ("vectors", "http://vectors:1", "grpc://vectors"):
        with pytest.raises(ConfigurationFailed, match="is no address of a gRPC server"):
            connect(address)
    with pytest.raises(ConfigurationFailed, match="cannot be read"):
        connect("grpcs://vectors:1", tls=Tls("/nowhere/ca.pem"))


def test_services_that_there_are_not_are_named() -> None:
    for name, words in [
        ("vectors", "Did you mean 'vector'"),
        ("vector", "there is no knowledge"),
        ("plan", "no agent plans"),
        ("nowhere:Service", "cannot be imported: No module .* and in "),
    ]:
        with pytest.raises(ConfigurationFailed, match=words):
            CopilotRuntime(ScriptedAdapter(say("")), settings=build_settings(name))


def test_the_name_of_a_user_is_signed_with_the_method() -> None:
    assert name_operation(LIST) == LIST
    assert name_operation(LIST, "a&b", "x") == f"{LIST}?user=a%26b&tenant=x"
