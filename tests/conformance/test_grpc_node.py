"""Node calls every service over gRPC, and its tokens are refused when they are wrong."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import action
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import ActionContext, Adapter, ChatRequest
from copilot_runtime.api.events import Events
from copilot_runtime.extensions.grpc import RPC_SERVICES
from copilot_runtime.extensions.knowledge.identifiers import Identifier, escape_name
from copilot_runtime.extensions.knowledge.resources import Resource
from tests import npm
from tests.conformance.v1.node import ROOT, need_node
from tests.extensions.grpc.servers import SECRET, build_settings, serve
from tests.extensions.knowledge.library import library, write_pages
from tests.extensions.planner.test_agent import build_planner, write_plan

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent / "grpc_node"
ALL = tuple(RPC_SERVICES)


class Greeter(Adapter):
    """Says hello to whatever is said."""

    async def stream(self, request: ChatRequest) -> Events:
        for event in say("Hello from the model."):
            yield event


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Return what Node got from a server with all services."""
    need_node()
    npm.install(HERE)

    @action
    def whoami(context: ActionContext) -> str:
        """Say who calls."""
        return f"You are {context.user}."

    task = {"name": "letter", "purpose": "Write a letter."}
    knowledge = library(write_pages(tmp_path_factory.mktemp("grpc")))
    settings = build_settings(
        *ALL,
        roles=["operator"],
        telemetry={"enabled": True, "store": "memory"},
        events={"store": "memory"},
    )
    async with serve(
        settings,
        Greeter(),
        actions=[whoami],
        agents={"planner": build_planner([write_plan(task)], [say("Dear Ann.")])},
        knowledge=knowledge,
    ) as served:
        await knowledge.update()
        words = [served.server.address.removeprefix("grpc://"), _find_protos(), SECRET]
        node = await asyncio.create_subprocess_exec(
            *("node", "drive.mjs", *words),
            cwd=HERE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await node.communicate()
    assert node.returncode == 0, errors.decode()
    return json.loads(output)


def _find_protos() -> str:
    return str(ROOT / "copilot_runtime" / "extensions" / "grpc" / "protos")


async def test_each_method_of_each_service_answers(answers: Mapping[str, Any]) -> None:
    found = answers["found"]

    assert found["Vector.SearchContent"]["passages"][0]["title"] == "Mill Library"
    assert found["Graph.QueryByPattern"]["triples"][0]["object"] == '"head librarian"'
    assert "sh:NodeShape" in found["Graph.GetOntology"]["turtle"]
    assert found["Memory.AppendMemory"]["appended"] == 1
    assert found["Memory.GetWindow"]["tokens"] == 7
    assert found["Context.GetWindow"]["id"] == "common.User.ann/common.Conversation.t1"
    assert found["Context.OptimizeWindow"]["successful"] is True
    assert found["Trace.RecordSpan"]["recorded"] == 1
    assert found["Trace.QuerySpans"]["spans"][0]["name"] == "node.Call"
    tools = [tool["function"]["name"] for tool in found["Tool.ListTools"]["tools"]]
    assert "whoami" in tools
    assert found["Tool.CallTool"]["content"] == "You are ann."
    assert len(found["Llm.CreateEmbeddings"]["data"][0]["embedding"]) == 512
    message = found["Llm.CreateCompletions"]["choices"][0]["message"]
    assert message["content"] == "Hello from the model."
    assert found["Agent.ProcessRequest"]["messages"][0]["content"] == "Hello from the model."
    (event,) = found["Event.Subscribe"]["events"]
    assert event["id"] == found["Event.Publish"]["id"]


async def test_streams_come_to_their_end(answers: Mapping[str, Any]) -> None:
    found = answers["found"]
    events = [json.loads(one) for it in found["Agent.ProcessStream"] for one in it["events"]]
    texts = [message["content"] for it in found["Plan.Process"] for message in it["messages"]]

    assert events[-1]["type"] == "RUN_FINISHED"
    assert "Dear Ann." in texts[-1]


async def test_a_token_that_is_tampered_with_replayed_or_late_is_refused(
    answers: Mapping[str, Any],
) -> None:
    refused = answers["refused"]
    statuses = {name: text.partition(" ")[0] for name, text in refused.items()}

    assert statuses == {
        "tampered": "UNAUTHENTICATED",
        "late": "UNAUTHENTICATED",
        "of another message": "UNAUTHENTICATED",
        "of another method": "UNAUTHENTICATED",
        "first": "OK",
        "replayed": "UNAUTHENTICATED",
    }
    assert refused["late"].endswith("Token has expired")
    assert refused["replayed"].endswith("Token was used before")
    assert refused["of another message"].endswith("Token is for another body")


@pytest.mark.parametrize("user", ["", "ann", "Zoë (it's) 50%"])
async def test_the_example_searches_for_itself_and_for_users(user: str, tmp_path: Path) -> None:
    need_node()
    npm.install(HERE)
    (tmp_path / "search.mjs").write_bytes((ROOT / "examples/grpc-node/search.mjs").read_bytes())
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    knowledge = library(write_pages(tmp_path))
    async with serve(build_settings("vector", roles=["operator"]), knowledge=knowledge) as served:
        await knowledge.update()
        note = Identifier("common.Note", "safe", f"common.User.{escape_name(user or 'nobody')}")
        await knowledge.resources.put(Resource(note, "The library opens at nine for me."))
        address = served.server.address.removeprefix("grpc://")
        node = await asyncio.create_subprocess_exec(
            *("node", "search.mjs", address, _find_protos(), user),
            cwd=tmp_path,
            env={**os.environ, "SERVICE_SECRET": SECRET},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await node.communicate()

    assert node.returncode == 0
    assert "Mill Library" in output.decode()
    assert ("opens at nine for me" in output.decode()) is bool(user)
