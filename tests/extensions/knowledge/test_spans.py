"""Spans of updates of knowledge, of files that users attach, and of searches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.actions.execute import execute
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api import ActionContext, Embedder
from copilot_runtime.base.errors import AuthenticationFailed
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies import build_actor, conversation_identifier
from copilot_runtime.storage import MemoryStorage
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv, work_under
from copilot_runtime.testing import Client
from tests.extensions.knowledge.test_served import sign_in, wait_until_ready
from tests.extensions.knowledge.uploads.chat import CSV, EXE, PNG, ask, attach, question
from tests.telemetry.recorded import Spans, find_gaps, find_violations
from tests.telemetry.test_conventions import draw

pytestmark = pytest.mark.anyio

ANN = build_actor("ann", "t1")
CANARY = "canary-4711"


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def telemetry(spans: Spans) -> LocalTelemetry:
    return LocalTelemetry(spans, keeps_content=True)


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    folder = tmp_path / CANARY
    folder.mkdir()
    for name in ("dogs", "books"):
        (folder / f"{name}.md").write_text(f"# Of {name}\n\nThey wait.", encoding="utf-8")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing else")
    return folder


def serve_knowledge(telemetry: LocalTelemetry, **more: Any) -> tuple[CopilotRuntime, Knowledge]:
    more.setdefault("embedder", "hashing:64")
    knowledge = Knowledge(MemoryStorage(), **more)
    runtime = CopilotRuntime(
        ScriptedAdapter(*[say("Well.") for _ in range(5)]),
        knowledge=knowledge,
        settings=Settings(threads="memory"),
        telemetry=telemetry,
        authenticate=sign_in,
    )
    return runtime, knowledge


def select(spans: Spans, trace_id: str) -> list[Span]:
    return [span for span in spans.spans if span.trace_id == trace_id]


async def test_an_update_is_a_trace_with_its_steps(
    spans: Spans, telemetry: LocalTelemetry, pages: Path
) -> None:
    _, knowledge = serve_knowledge(telemetry, sources=[pages])
    await knowledge.ingest()
    await knowledge.aclose()
    assert draw(spans.spans) == {
        "ingest": {
            "ingest_step read": {},
            "ingest_step store": {},
            "ingest_step embed": {"embeddings hashing:64": {}},
            "ingest_step link": {},
        }
    }
    assert {span.name: find_violations(span) for span in spans.spans if find_violations(span)} == {}
    root = spans.named("ingest")
    assert find_gaps(root) == set()
    counts = (semconv.INGEST_SOURCES, semconv.INGEST_CHANGES, semconv.INGEST_FAILURES)
    assert [root.attributes[name] for name in counts] == [3, 2, 1]
    assert [spans.named("ingest_step read").attributes[name] for name in counts] == [3, 2, 1]
    assert spans.named("ingest_step store").attributes[semconv.INGEST_CHANGES] == 2
    assert spans.named("ingest_step embed").attributes[semconv.INGEST_CHANGES] == 2
    assert CANARY not in repr([(span.name, span.attributes) for span in spans.spans])


async def test_an_update_without_sources_is_about_the_indexes_alone(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    _, knowledge = serve_knowledge(telemetry)
    await knowledge.update()
    await knowledge.aclose()
    assert draw(spans.spans) == {"ingest": {"ingest_step embed": {}, "ingest_step link": {}}}
    assert spans.named("ingest").attributes == {
        semconv.OPERATION_NAME: "ingest",
        semconv.INGEST_FAILURES: 0,
    }


async def test_an_update_that_somebody_asks_for_is_below_what_asks(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    _, knowledge = serve_knowledge(telemetry)
    with work_under(telemetry.start_span("execute_tool refresh")) as call:
        await knowledge.update()
    await knowledge.aclose()
    assert spans.named("ingest").parent_id == call.span_id


async def test_an_update_in_the_background_is_below_nothing(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    runtime, knowledge = serve_knowledge(telemetry)
    with work_under(telemetry.start_span("execute_tool refresh")):
        knowledge.start()
    await knowledge.search("dogs")  # which waits for the first update
    await runtime.aclose()
    assert spans.named("ingest").parent_id == ""


class Refused(Embedder):
    """Has no valid key."""

    @property
    def model(self) -> str:
        return "refused"

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise AuthenticationFailed(f"The key is wrong: {CANARY}.")


async def test_an_update_that_fails_fails_its_step_and_its_span(
    spans: Spans, telemetry: LocalTelemetry, pages: Path
) -> None:
    _, knowledge = serve_knowledge(telemetry, sources=[pages], embedder=Refused())
    with pytest.raises(AuthenticationFailed):
        await knowledge.ingest()
    await knowledge.aclose()
    failed = [span for span in spans.spans if span.status == "error"]
    assert [span.name for span in failed] == ["ingest_step embed", "ingest"]
    assert {span.attributes[semconv.ERROR_TYPE] for span in failed} == {"AUTHENTICATION_ERROR"}
    assert CANARY not in repr([span.attributes for span in spans.spans])


async def test_knowledge_that_no_runtime_serves_makes_no_spans(pages: Path) -> None:
    knowledge = Knowledge(MemoryStorage(), sources=[pages], embedder="hashing:64")
    update = await knowledge.ingest()
    await knowledge.aclose()
    assert update.sources is not None
    assert update.sources.resources == 2


async def upload(knowledge: Knowledge, data: bytes, name: str) -> None:
    conversation = conversation_identifier("ann", "t1")
    job = knowledge.uploads.add(data, name, conversation, actor=ANN, thread=("ann", "t1"))
    await job.task
    await knowledge.aclose()


async def test_a_file_is_a_trace_with_its_steps(spans: Spans, telemetry: LocalTelemetry) -> None:
    def scan(data: bytes, name: str) -> None: ...

    _, knowledge = serve_knowledge(telemetry, scan=scan)
    await upload(knowledge, CSV, f"{CANARY}.csv")
    assert draw(spans.spans) == {
        "upload": {
            "execute_hook scan": {},
            "ingest_step read": {},
            "ingest_step store": {},
            "ingest_step embed": {"embeddings hashing:64": {}},
        }
    }
    assert {span.name: find_violations(span) for span in spans.spans if find_violations(span)} == {}
    span = spans.named("upload")
    assert span.attributes == {
        semconv.OPERATION_NAME: "upload",
        semconv.CONVERSATION_ID: "t1",
        semconv.UPLOAD_BYTES: len(CSV),
        semconv.UPLOAD_STATE: "searchable",
        semconv.UPLOAD_MEDIA_TYPE: "text/csv",
        semconv.UPLOAD_CHUNKS: 1,
    }
    assert span.content == {semconv.UPLOAD_NAME: f"{CANARY}.csv"}
    assert CANARY not in repr([(span.name, span.attributes) for span in spans.spans])


@pytest.mark.parametrize(
    ("data", "name", "state"),
    [
        (PNG, "a.png", "stored"),
        (EXE, "a.exe", "refused"),
        (b"%PDF-1.4 nothing else", "a.pdf", "refused"),
    ],
)
async def test_what_became_of_a_file_is_said(
    spans: Spans, telemetry: LocalTelemetry, data: bytes, name: str, state: str
) -> None:
    _, knowledge = serve_knowledge(telemetry)
    await upload(knowledge, data, name)
    span = spans.named("upload")
    assert (span.attributes[semconv.UPLOAD_STATE], span.status) == (state, "unset")
    assert (semconv.UPLOAD_MESSAGE in span.content) == (state == "refused")


def test_a_file_of_a_chat_is_below_its_run(spans: Spans, telemetry: LocalTelemetry) -> None:
    runtime, _ = serve_knowledge(telemetry)
    with TestClient(runtime.app()) as client:
        wait_until_ready(client)
        ask(client, question("What does a quince cost?", attach(CSV, "prices.csv")))
    run = spans.named("invoke_agent default")
    tree = draw(select(spans, run.trace_id))
    assert [*tree] == ["invoke_agent default"]
    assert "embeddings hashing:64" in tree["invoke_agent default"]["upload"]["ingest_step embed"]
    assert spans.named("upload").attributes[semconv.CONVERSATION_ID] == "t1"


async def test_a_memory_is_named_without_its_owner(spans: Spans, telemetry: LocalTelemetry) -> None:
    _, knowledge = serve_knowledge(telemetry)
    with work_under(telemetry.start_span("root")):
        await knowledge.memory.forget(str(conversation_identifier("ann", "t1")))
    await knowledge.aclose()
    (span,) = spans.spans
    assert span.attributes[semconv.MEMORY_STORE_ID] == "common.Conversation.t1"


async def test_what_is_added_to_a_memory_alone_is_named(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    _, knowledge = serve_knowledge(telemetry)
    conversation = conversation_identifier("ann", "t1")
    first, second, third = (Identifier("common.Message", name) for name in ("m1", "m2", "m3"))
    with work_under(telemetry.start_span("root")):
        await knowledge.memory.append(conversation, first)
        await knowledge.memory.append(conversation, second, third)
    await knowledge.aclose()
    ids = [span.attributes.get(semconv.MEMORY_RECORD_ID) for span in spans.spans]
    assert [find_violations(span) for span in spans.spans] == [[], []]
    assert ids == ["m1", None]


async def test_what_a_tool_recalls_is_content_of_its_search(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    knowledge = Knowledge(MemoryStorage(), embedder="hashing:64")
    runtime = CopilotRuntime(
        ScriptedAdapter(
            say("I see."), call("recall", {"input": ["umbrella"]}), say("In the hall.")
        ),
        knowledge=knowledge,
        settings=Settings(threads="memory"),
        telemetry=telemetry,
    )
    async with Client(runtime) as client:
        await client.say("My umbrella is in the hall.")
        await client.say("Where is it?")
    span = spans.named(semconv.SEARCH_MEMORY)
    assert find_violations(span) == []
    assert span.content[semconv.MEMORY_QUERY_TEXT] == "umbrella"
    assert "in the hall" in span.content[semconv.MEMORY_RECORDS][0]["content"]


async def test_a_search_by_a_tool_is_a_retrieval_below_its_call(
    spans: Spans, telemetry: LocalTelemetry, pages: Path
) -> None:
    _, knowledge = serve_knowledge(telemetry, sources=[pages])
    await knowledge.ingest()
    (search,) = [it for it in knowledge.tools() if it.name == "search_content"]
    root = telemetry.start_span("root")
    context = ActionContext(
        thread_id="t1", run_id="r", call_id="c", properties={}, headers={}, span=root
    )
    await execute(search, '{"input": ["Of dogs"]}', context, timeout=10)
    await knowledge.aclose()
    span = spans.named("retrieval knowledge")
    assert find_violations(span) == []
    assert span.parent_id == spans.named("execute_tool search_content").span_id
    assert span.content[semconv.RETRIEVAL_QUERY_TEXT] == "Of dogs"
    assert "They wait." in span.content[semconv.RETRIEVAL_DOCUMENTS][0]["content"]
    parents = {it.parent_id for it in spans.spans if it.name == "embeddings hashing:64"}
    assert span.span_id in parents
