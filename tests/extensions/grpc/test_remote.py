"""A runtime that uses the knowledge of another one: by tools, and for the questions of a chat."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import yaml

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings, __version__
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Caller, RunInput
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.extensions.grpc.client import connect
from copilot_runtime.extensions.grpc.protos import vector_pb2
from copilot_runtime.extensions.grpc.protos.vector_pb2_grpc import VectorStub
from copilot_runtime.extensions.grpc.retriever import RemoteRetriever
from copilot_runtime.extensions.grpc.runs import collect_run
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource
from tests.documents import blocks
from tests.extensions.grpc.servers import SECRET, Served, build_settings, serve
from tests.extensions.knowledge.library import library, write_pages
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

OF_ANN = Identifier("common.Note", "safe", "common.User.ann")
TOOLS = """
services:
  copilot.vector.v1:
    address: {address}
    token: {{service: chat, secret: "{secret}", form: bound, act_for_user: true}}

search:
  purpose: Find what is known.
  method: copilot.vector.v1.Vector.SearchContent
  request: copilot.vector.v1.SearchContentRequest
"""


@pytest.fixture
async def vectors(tmp_path: Path) -> AsyncGenerator[Served]:
    """Serve the pages of a library, and a note of Ann's."""
    knowledge = library(write_pages(tmp_path))
    page, *_ = blocks("yaml", "run/services")
    roles = yaml.safe_load(page.code)["service_tokens"]["roles"]
    async with serve(build_settings("vector", roles=roles), knowledge=knowledge) as served:
        await knowledge.resources.put(Resource(OF_ANN, "Ann keeps the key under the mat."))
        await knowledge.update()
        yield served


async def ask(runtime: CopilotRuntime, user: str | None, question: str) -> None:
    message = TextMessage(id="q", role="user", content=question)
    runs = runtime.program_runs
    run: RunInput = runs.build_run(Caller(user=user), messages=[message])
    async with runtime.running():
        await collect_run(runtime.conversations, run)


@in_one_test(("user", "finds"), [("ann", True), ("bob", False)])
async def test_a_tool_searches_elsewhere_for_the_user(
    vectors: Served, tmp_path: Path, user: str, *, finds: bool
) -> None:
    file = tmp_path / "tools.yml"
    file.write_text(TOOLS.format(address=vectors.server.address, secret=SECRET))
    adapter = ScriptedAdapter(call("search", {"input": ["key under the mat"]}), say("Found."))
    runtime = CopilotRuntime(adapter, settings=Settings(threads="memory", tools=str(file)))
    await ask(runtime, user, "Where is the key?")

    (result,) = (
        message.result
        for message in adapter.requests[1].messages
        if isinstance(message, ResultMessage)
    )
    assert ("under the mat." in result) is finds
    assert "passages" in result


@in_one_test(("user", "finds"), [("ann", True), ("bob", False)])
async def test_a_chat_is_answered_from_knowledge_elsewhere(
    vectors: Served, user: str, *, finds: bool
) -> None:
    adapter = ScriptedAdapter(say("Under the mat."))
    async with vectors.connect("chat") as channel:
        agent = DirectAgent(adapter, retriever=RemoteRetriever(channel))
        runtime = CopilotRuntime(agents={"only": agent}, settings=Settings(threads="memory"))
        await ask(runtime, user, "Where is the key under the mat?")

    passages = [passage.id for passage in adapter.requests[0].passages]
    assert (str(OF_ANN) in passages) is finds


async def test_a_service_that_may_not_ask_for_users_is_named_in_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = ScriptedAdapter(say("I do not know."))
    settings = build_settings("vector", roles=["user"])
    knowledge = library(write_pages(tmp_path))
    async with serve(settings, knowledge=knowledge) as served, served.connect("chat") as channel:
        agent = DirectAgent(adapter, retriever=RemoteRetriever(channel))
        runtime = CopilotRuntime(agents={"only": agent}, settings=Settings(threads="memory"))
        await ask(runtime, "ann", "Where is the key?")

    [record] = [one for one in caplog.records if "nothing was retrieved" in one.message]
    assert record.exc_info is None
    assert record.message.endswith(
        "The knowledge elsewhere says PERMISSION_DENIED: 'service:chat' may not ask for a user: it "
        "needs the scope 'operate'. Services have it by service_tokens.roles: [operator] at this "
        "server."
    )


@in_one_test(("user", "finds"), [(None, True), ("ann", False)])
async def test_a_service_with_the_role_user_cannot_search_for_other_users(
    tmp_path: Path, user: str | None, *, finds: bool
) -> None:
    adapter = ScriptedAdapter(say("At nine."))
    knowledge = library(write_pages(tmp_path))
    settings = build_settings("vector", roles=["user"])
    async with serve(settings, knowledge=knowledge) as served, served.connect("chat") as channel:
        await knowledge.update()
        agent = DirectAgent(adapter, retriever=RemoteRetriever(channel))
        runtime = CopilotRuntime(agents={"only": agent}, settings=Settings(threads="memory"))
        await ask(runtime, user, "When does the library open?")

    assert bool(adapter.requests[0].passages) is finds


async def test_a_chat_goes_on_without_a_machine_that_is_gone(vectors: Served) -> None:
    adapter = ScriptedAdapter(say("I do not know."))
    channel = vectors.connect("chat")
    await vectors.server.aclose()
    agent = DirectAgent(adapter, retriever=RemoteRetriever(channel, timeout=1))
    runtime = CopilotRuntime(agents={"only": agent}, settings=Settings(threads="memory"))
    await ask(runtime, "ann", "Where is the key?")
    await channel.aclose()

    assert len(adapter.requests) == 1
    assert adapter.requests[0].passages == ()


CONFIG = f"""
threads: memory
grpc: {{address: "127.0.0.1:0"}}
access: {{authenticate: [service_tokens]}}
service_tokens: {{secrets: [{SECRET}]}}
knowledge: {{storage: memory, sources: [pages]}}
"""


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "copilot_runtime", "serve", *words],
        cwd=folder,
        env={**os.environ, "COPILOT_LOG_LEVEL": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_a_machine_serves_vectors_and_a_graph_alone(tmp_path: Path) -> None:
    (tmp_path / "copilot.yml").write_text(CONFIG)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "hours.md").write_text("# Hours\n\nThe library opens at nine.\n")
    with start(tmp_path, "--services", "vector,graph") as process:
        assert process.stdout is not None
        banner = [process.stdout.readline() for _ in range(7)]
        address = banner[2].split()[1]
        async with connect(address, service="chat", secrets=[SECRET]) as channel:
            request = vector_pb2.SearchContentRequest(input=["when does the library open"])
            found = await VectorStub(channel).SearchContent(request)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, process.stderr and process.stderr.read()

    assert [passage.title for passage in found.passages] == ["Hours"]
    assert banner[0] == f"copilot-runtime {__version__} serves over gRPC\n"  # and no model
    assert [line.split()[-1] for line in banner[3:5]] == [
        "copilot.vector.v1.Vector",
        "copilot.graph.v1.Graph",
    ]


@in_one_test(
    ("words", "sentence"),
    [
        (["--services", "vector"], "grpc.services names 'vector', and there is no knowledge."),
        (["--services", "vectr"], "Did you mean 'vector'?"),
        (["--services", "tool", "--port", "80"], "--port is for HTTP"),
        (["--services", ""], "name no services"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    (tmp_path / "copilot.yml").write_text("threads: memory\n")
    with start(tmp_path, *words) as process:
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 1
    assert sentence in errors
    assert "Traceback" not in errors
