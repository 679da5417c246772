"""Who may ask in the name of another user: services that sign their calls, and nobody else."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc.aio import AioRpcError
from starlette.requests import HTTPConnection

from copilot_runtime import ScriptedAdapter, action
from copilot_runtime.adapters import scripted
from copilot_runtime.api import ActionContext
from copilot_runtime.api.identity import Identity
from copilot_runtime.api.transcript import fold_thread
from copilot_runtime.extensions.access.api_keys.store import build_key_store
from copilot_runtime.extensions.grpc.client import ServiceChannel
from copilot_runtime.extensions.grpc.protos import agent_pb2, trace_pb2, vector_pb2
from copilot_runtime.extensions.grpc.protos.agent_pb2_grpc import AgentStub
from copilot_runtime.extensions.grpc.protos.trace_pb2_grpc import TraceStub
from copilot_runtime.extensions.grpc.protos.vector_pb2_grpc import VectorStub
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies.ownership import user_identifier
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.threads.store import ThreadKey
from tests.extensions.access.credentials import AUDIENCE, ISSUER, issue_key, make_key, write_jwks
from tests.extensions.grpc.servers import Served, build_settings, serve
from tests.extensions.grpc.test_access import call
from tests.extensions.knowledge.library import WordCounter
from tests.extensions.planner.test_agent import build_planner
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

KEY = make_key("k1")
SERVICES = (
    *("agent", "context", "event", "graph", "llm"),
    *("memory", "plan", "tool", "trace", "vector"),
)
ANN = "tenant:acme/ann"
OF_ANN = {"copilot_user": "ann", "copilot_tenant": "acme"}
SEARCH = vector_pb2.SearchContentRequest(input=["key under the mat"])
QUESTION = agent_pb2.ProcessRequestRequest(
    thread_id="t1", messages=[agent_pb2.Message(role="user", content="Pay.")]
)
PROCESS = "/copilot.agent.v1.Agent/ProcessRequest"
SEARCH_CONTENT = "/copilot.vector.v1.Vector/SearchContent"

payers: list[str | None] = []


@action
def pay(context: ActionContext) -> str:
    """Pay the bill."""
    payers.append(context.user)
    return "It is paid."


def sign_in(connection: HTTPConnection) -> Identity | None:
    """Return an operator of the application."""
    name = connection.headers.get("x-session")
    return Identity(user=name, tenant="evil", roles=["operator"]) if name else None


@dataclass
class World:
    """A server with every service and every way to sign in; Ann has a note of her own."""

    served: Served
    path: Path

    @property
    def methods(self) -> list[str]:
        return [
            f"/{service.descriptor.full_name}/{name}"
            for service in self.served.server.services
            for name in service.list_methods()
        ]

    async def issue_key(self, tenant: str = "evil", **fields: Any) -> Mapping[str, str]:
        keys = build_key_store(f"sqlite:{self.path}/access.db")
        text = await issue_key(keys, "op", tenant, roles=["operator"], **fields)
        await keys.aclose()
        return {"authorization": f"Bearer {text}"}

    def read_audit(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "audit.jsonl").read_text().splitlines()]

    async def read_thread(self, owner: str) -> list[str]:
        """Return what was said in a thread."""
        conversations = self.served.runtime.conversations
        runs = await conversations.runs(ThreadKey.of(owner, "t1"))
        messages: list[Any] = fold_thread(run.events for run in runs)
        return [message.content for message in messages if hasattr(message, "content")]


@asynccontextmanager
async def build_world(
    path: Path, *, role: str = "operator", **access: Any
) -> AsyncGenerator[World]:
    settings = build_settings(
        *SERVICES,
        roles=[role],
        access={"authenticate": ["service_tokens", "api_keys", "jwt", "proxy"], **access},
        api_keys={"store": f"sqlite:{path}/access.db"},
        jwt={
            "issuer": ISSUER,
            "audience": [AUDIENCE],
            "jwks": write_jwks(path / "jwks.json", KEY),
            "tenant_claim": "org",
        },
        proxy={
            "sign_in_addresses": ["127.0.0.1"],
            "tenant_header": "x-tenant",
            "roles_header": "x-roles",
        },
        audit={"file": str(path / "audit.jsonl"), "reads": True},
        events={"store": "memory"},
        telemetry={"enabled": True, "store": "memory", "operators": ["tenant:evil/named"]},
    )
    knowledge = Knowledge("memory", embedder=WordCounter())
    adapter = ScriptedAdapter(*(it for _ in range(3) for it in PAYMENT))
    async with serve(
        settings,
        adapter,
        actions=[pay],
        agents={"planner": build_planner([], [])},
        knowledge=knowledge,
        authenticate=sign_in,
    ) as served:
        note = Identifier("common.Note", "safe", str(user_identifier(ANN)))
        await knowledge.resources.put(Resource(note, "Ann keeps the key under the mat."))
        await knowledge.update()
        payers.clear()
        yield World(served, path)


PAYMENT = (scripted.call("pay"), scripted.say("Done."))


def bring_jwt(name: str, tenant: str, *roles: str) -> Mapping[str, str]:
    token = KEY.sign(sub=name, org=tenant, roles=[*roles])
    return {"authorization": f"Bearer {token}"}


async def bring(metadata: Mapping[str, str]) -> Mapping[str, str]:
    return metadata


PROXY = {"x_forwarded_user": "op", "x_tenant": "evil", "x_roles": "operator"}
CREDENTIALS: Mapping[str, tuple[str, Callable[[World], Awaitable[Mapping[str, str]]]]] = {
    "JWT": ("jwt", lambda _: bring(bring_jwt("op", "evil", "operator"))),
    "JWT of the same tenant": ("jwt", lambda _: bring(bring_jwt("op", "acme", "operator"))),
    "JWT of the user who is named": ("jwt", lambda _: bring(bring_jwt("ann", "acme", "operator"))),
    "JWT of a user": ("jwt", lambda _: bring(bring_jwt("op", "evil", "user"))),
    "JWT of telemetry.operators": ("jwt", lambda _: bring(bring_jwt("named", "evil", "user"))),
    "API key": ("api_key", lambda world: world.issue_key()),
    "API key without a tenant": ("api_key", lambda world: world.issue_key("")),
    "API key with all scopes": ("api_key", lambda world: world.issue_key(scopes=["*"])),
    "hook": ("hook", lambda _: bring({"x_session": "op"})),
    "proxy": ("proxy", lambda _: bring(PROXY)),
    "nobody": ("", lambda _: bring({})),
}


@in_one_test("kind", CREDENTIALS)
async def test_only_services_may_name_a_user_or_a_tenant_at_any_method(
    tmp_path: Path, kind: str
) -> None:
    _, credential = CREDENTIALS[kind]
    async with build_world(tmp_path, anonymous=True, default_roles=["operator"]) as world:
        metadata = await credential(world)
        answers = {
            (path, *named): await call(world.served, "", path, b"", **metadata, **named)
            for path in world.methods
            for named in (OF_ANN, {"copilot_user": "ann"}, {"copilot_tenant": "acme"})
        }

    assert len({path.split("/")[1] for path, *_ in answers}) == len(SERVICES)
    let_in = {
        place: (code.name, words)
        for place, (code, words) in answers.items()
        if code is not grpc.StatusCode.PERMISSION_DENIED
        or "only a service may that signs its calls by service tokens" not in words
    }
    assert let_in == {}


@in_one_test("kind", CREDENTIALS)
async def test_a_refused_call_for_another_user_is_audited_as_the_caller(
    tmp_path: Path, kind: str
) -> None:
    method, credential = CREDENTIALS[kind]
    async with build_world(tmp_path, anonymous=True, default_roles=["operator"]) as world:
        await call(world.served, "", SEARCH_CONTENT, b"", **await credential(world), **OF_ANN)

    (line,) = world.read_audit()
    assert (line["outcome"], line["action"]) == ("refused", SEARCH_CONTENT)
    assert line.get("method", "") == method
    assert f"may not ask for '{ANN}'" in line["reason"]
    assert "actor" not in line
    assert line.get("user") != ANN or kind == "JWT of the user who is named"


async def test_an_operator_of_another_tenant_neither_reads_nor_acts_as_its_user(
    tmp_path: Path,
) -> None:
    evil = bring_jwt("op", "evil", "operator")
    search, question = SEARCH.SerializeToString(), QUESTION.SerializeToString()
    async with build_world(tmp_path) as world, world.served.connect() as channel:
        await AgentStub(channel.act_for("ann", "acme")).ProcessRequest(QUESTION)
        before = await world.read_thread(ANN)
        read, _ = await call(world.served, "", SEARCH_CONTENT, search, **evil, **OF_ANN)
        acted, _ = await call(world.served, "", PROCESS, question, **evil, **OF_ANN)
        after = await world.read_thread(ANN)

    assert {read, acted} == {grpc.StatusCode.PERMISSION_DENIED}
    assert payers == [ANN]
    assert before == after != []


async def find_notes(channel: ServiceChannel) -> list[str]:
    found = await VectorStub(channel).SearchContent(SEARCH)
    return [passage.text for passage in found.passages]


async def test_a_service_finds_what_is_of_the_user_whom_it_names_in_that_tenant_alone(
    tmp_path: Path,
) -> None:
    async with build_world(tmp_path) as world, world.served.connect() as channel:
        of_ann = await find_notes(channel.act_for("ann", "acme"))
        others = [
            await find_notes(it)
            for it in (
                channel,
                channel.act_for("ann"),
                channel.act_for("ann", "evil"),
                channel.act_for("bob", "acme"),
            )
        ]

    assert of_ann == ["Ann keeps the key under the mat."]
    assert others == [[]] * 4


async def test_a_service_without_the_role_cannot_name_a_user_at_any_method(tmp_path: Path) -> None:
    answers: dict[str, str] = {}
    async with (
        build_world(tmp_path, role="user") as world,
        world.served.connect(user="ann", tenant="acme") as channel,
    ):
        for path in world.methods:
            with pytest.raises(AioRpcError) as caught:
                await channel.unary_unary(path)(trace_pb2.FlushTracesRequest())
            answers[path] = caught.value.details() or ""

    assert [words for words in answers.values() if "needs the scope 'operate'" not in words] == []


async def test_lines_of_a_run_for_a_user_name_the_service_too(tmp_path: Path) -> None:
    async with (
        build_world(tmp_path) as world,
        world.served.connect(user="ann", tenant="acme") as channel,
    ):
        await AgentStub(channel).ProcessRequest(QUESTION)
        await VectorStub(channel).SearchContent(SEARCH)

    lines = world.read_audit()
    assert [line["action"] for line in lines] == ["run.start", "run.end", SEARCH_CONTENT]
    assert {(line["user"], line["actor"], line["method"]) for line in lines} == {
        (ANN, "service:shop", "service_token")
    }


async def test_a_service_sends_spans_as_itself_alone(tmp_path: Path) -> None:
    async with build_world(tmp_path) as world, world.served.connect() as channel:
        await TraceStub(channel).FlushTraces(trace_pb2.FlushTracesRequest())
        with pytest.raises(AioRpcError) as caught:
            await TraceStub(channel.act_for("ann")).FlushTraces(trace_pb2.FlushTracesRequest())

    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
