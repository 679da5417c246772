"""A word that people, models and files say through every door of a server leaves by no exporter."""

import asyncio
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import AguiAgent, CopilotRuntime, RunInput, ScriptedAdapter, Settings, action
from copilot_runtime.adapters.embeddings.hashing import HashingEmbedder
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Action
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.election import Candidate, SimilarityElector
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.log import MemoryPlanLog
from copilot_runtime.extensions.planner.supervisor import ModelSupervisor
from copilot_runtime.extensions.planner.worker import AgentWorker, PlanRequests
from copilot_runtime.extensions.tracing.build import build_telemetry
from copilot_runtime.extensions.tracing.dialects import clean_value, drop_secrets, has_content
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.extensions.tracing.store import MemoryTraceStore
from copilot_runtime.storage import MemoryStorage
from copilot_runtime.telemetry import LocalTelemetry, find_current_span, semconv
from tests.extensions.knowledge.library import WordCounter
from tests.extensions.knowledge.test_served import sign_in, wait_until_ready
from tests.extensions.knowledge.uploads.chat import ask, attach, question
from tests.extensions.planner.crew import always
from tests.extensions.tracing.otel.receivers import serve_grpc, serve_http
from tests.in_one_test import in_one_test

CANARY = "canary6e41"
HEADERS = {"x-user": "ann", "x-word": CANARY, "baggage": f"word={CANARY}", "cookie": CANARY}
BODY = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
TURNS = (
    call("repeat", {"text": CANARY}),
    call("fail", {"text": CANARY}),
    call("show", {"color": CANARY}),
    [*say(f"I heard {CANARY}")[:2], NetworkError(f"{CANARY} is out of credit")],
    *[say(f"I heard {CANARY}")] * 8,
)


class Word(Exception):
    """An error of an application that quotes what it was given."""


@action
async def repeat(text: str) -> str:
    """Return what was said, and log it, and say it as the conventions call it."""
    logging.getLogger("shop").error("Somebody said %s", text, extra={"said": text})
    find_current_span().set_attributes({semconv.INPUT_MESSAGES: text, "shop.size": len(text)})
    find_current_span().add_event("shop.sold", {semconv.EXCEPTION_MESSAGE: text})
    return text


@action
async def fail(text: str) -> str:
    """Fail with what was said, and with a cause that says it too."""
    try:
        raise Word(text)
    except Word as error:
        raise ValueError(f"wrong: {text}") from error


def check(run: RunInput) -> RunInput:
    """Refuse a run that is for a person who is refused, in words that name what was said."""
    if run.thread_id == "refused":
        raise Word(CANARY)
    return run


def build_planner(telemetry: LocalTelemetry) -> PlannerAgent:
    """Return a planner whose model and whose only worker say the canary wherever they can."""
    task = {
        "name": CANARY,
        **dict.fromkeys(("purpose", "instructions", "applicability", "evaluation"), CANARY),
        "needs_approval": True,
    }
    verdict = {"passed": False, "missing": CANARY, "tasks": [{"name": CANARY, "purpose": CANARY}]}
    judge = ScriptedAdapter(call("report_evaluation", verdict), call("report_evaluation", verdict))
    worker = DirectAgent(
        ScriptedAdapter(call("repeat", {"text": CANARY}), say(CANARY), Word(CANARY))
    )
    requests = PlanRequests(list_actions)
    engine = PlanEngine(
        MemoryPlanLog(),
        SimilarityElector(
            always([Candidate(name="worker", description=f"Says {CANARY}.")]),
            HashingEmbedder(),
            floor=-1,
        ),
        AgentWorker(always({"worker": worker}), requests.get),
        ModelSupervisor(judge),
        telemetry=telemetry,
    )
    planning = ScriptedAdapter(call("create_plan", {"tasks": [task]}))
    return PlannerAgent(planning, engine, requests)


async def list_actions(run: RunInput) -> Sequence[Action]:
    """Return the tools of a plan."""
    return run.actions


def talk(telemetry: LocalTelemetry) -> None:
    """Let people, models, tools and files say the canary to a server that is traced."""
    runtime = CopilotRuntime(
        ScriptedAdapter(*TURNS),
        actions=[repeat, fail],
        instructions=f"The password is {CANARY}.",
        agents={
            "far": AguiAgent(f"http://127.0.0.1:9/run?key={CANARY}"),
            "planner": build_planner(telemetry),
        },
        knowledge=Knowledge(MemoryStorage(), settings=KnowledgeSettings(), embedder=WordCounter()),
        settings=Settings(threads="memory"),
        authenticate=sign_in,
        hooks=Hooks(before_request=check),
        telemetry=telemetry,
    )
    said = question(f"Say {CANARY}.")
    file = attach(f"{CANARY} is 41 crowns".encode(), f"{CANARY}.txt")
    with TestClient(runtime.app(), headers=HEADERS) as client:
        wait_until_ready(client)
        ask(
            client,
            said,
            tools=[{"name": "show", "description": f"Show {CANARY}.", "parameters": {}}],
            context=[{"description": CANARY, "value": CANARY}],
            state={"note": CANARY},
            forwardedProps={"note": CANARY},
        )
        ask(client, said, thread="broken", run="r2")
        ask(client, question(f"What is {CANARY}?", file), thread="files", run="r3")
        client.get("/graphql/threads", params={"word": CANARY})
        body = {**BODY, "threadId": "plan", "runId": "p1", "messages": [said]}
        answer = client.post("/graphql/agent/planner/run", json=body).text
        (asked,) = re.findall(r'"id":"([^"]+/[^"]+)"', answer)
        note = {"approved": True, "note": CANARY}
        resume = {"resume": [{"interruptId": asked, "status": "resolved", "payload": note}]}
        answer = client.post(
            "/graphql/agent/planner/run", json={**body, "runId": "p2", **resume}
        ).text
        assert "could not be carried out" in answer
        for agent, thread in (("far", "far"), ("default", "refused")):
            client.post(
                f"/graphql/agent/{agent}/run?word={CANARY}",
                json={**BODY, "threadId": thread, "runId": thread, "messages": [said]},
            )


EXPORTED = {
    *("execute_tool repeat", "execute_tool fail", "invoke_agent far", "chat"),
    *("plan planner", "invoke_workflow planner", "execute_task worker"),
}


@in_one_test(
    ("exporter", "serve", "content"),
    [("otlp-http", serve_http, "none"), ("otlp-grpc", serve_grpc, "local")],
)
def test_no_exporter_and_no_metric_says_it(
    exporter: str,
    serve: Any,
    content: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "telemetry.jsonl"
    with serve() as inbox:
        options = TelemetryOptions(
            exporters=(exporter, "file", "console"),
            endpoint=inbox.url,
            file=str(path),
            content=content,
            inference_events=True,
        )
        telemetry = build_telemetry(options)
        assert isinstance(telemetry, LocalTelemetry)
        talk(telemetry)
    assert {span.name for span in inbox.spans} >= EXPORTED
    assert CANARY.encode() not in inbox.body
    assert CANARY not in str(inbox.headers)
    assert CANARY not in path.read_text()
    assert CANARY not in capsys.readouterr().err
    labels = [point.attributes for it in telemetry.metrics.collect() for point in it.points]
    assert labels
    assert CANARY not in str(labels)
    assert isinstance(telemetry.store, MemoryTraceStore)
    kept = asyncio.run(telemetry.store.query_spans())
    assert (CANARY in str(kept)) is (content == "local")


@in_one_test(
    "name",
    [
        *("ai.toolCall.args", "ai.response.toolCalls", "gcp.vertex.agent.llm_request", "metadata"),
        *("http.request.header.authorization", "langfuse.trace.metadata.note", "my.own.prompt"),
        *(
            "llm.prompt_template.variables",
            "traceloop.association.properties.note",
            "db.query.text",
        ),
        *("crewai.agent.backstory", "smolagents.task", "message.contents.0.audio.transcript"),
        *(
            "crewai.task.description",
            "crew_agents",
            "crew_tasks",
            "task_description",
            "lk.chat_ctx",
        ),
        *("formatted_description", "db.query.parameter.id", "ai.settings.context.q", "payload"),
        *("description", "sql", "exception.notes", "authorization", "password", "api_key"),
    ],
)
def test_an_attribute_of_a_framework_that_is_called_like_content_is_content(name: str) -> None:
    assert has_content(name, "…")


def test_an_id_is_one_word() -> None:
    assert not has_content("crew_id", "c-1")
    assert has_content("crew_id", "the crew that looks for flights")


@in_one_test(
    "name",
    [
        *("authorization", "password", "api_key", "token", "db.password", "my.accessToken"),
        *("http.request.header.cookie", "client_secret", "X-Api-Key", "openai.api_key"),
    ],
)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    attributes = {name: "…", "tool": {name: "…", "count": 5}, "list": [{name: "…"}]}
    assert drop_secrets(attributes) == {"tool": {"count": 5}, "list": [{}]}


@in_one_test("name", ["llm.token_count.prompt", "gen_ai.token.type", "tokens", "key"])
def test_a_number_of_tokens_is_no_secret(name: str) -> None:
    assert drop_secrets({name: "5", "token": 5}) == {name: "5", "token": 5}


def test_the_parts_of_an_attribute_have_names_as_well() -> None:
    assert has_content("state", [{"step": {"input": "…"}}])
    assert has_content("state", [{"step": {"node_id": "…", "count": 5}}, "…"])
    assert not has_content("state", [{"step": {"node_id": "…", "count": 5}}, 5])


@in_one_test(
    "name",
    [
        *("http.request.method", "url.full", "openinference.span.kind", "llm.model_name"),
        *("gen_ai.request.model", "gen_ai.tool.description", "db.query.summary", "code.function"),
    ],
)
def test_what_is_called_like_a_fact_is_none(name: str) -> None:
    assert not has_content(name, "…")
    assert not has_content("llm.token_count.prompt", 12)


@in_one_test(
    "name", ["user.name", "enduser.id", "langfuse.user.id", "ai.userId", "my.user_name", "email"]
)
def test_who_somebody_is_has_many_names(name: str) -> None:
    assert semconv.is_identity(name)


@in_one_test(
    ("name", "url", "found"),
    [
        ("url.full", "https://me:secret@host:1/path?q=word#part", "https://host:1/path"),
        ("http.target", "/path?q=word\nmore", "/path"),
        ("http.url", "https://host/@me", "https://host/@me"),
        ("my.url", "https://host/?q=1", "https://host/?q=1"),
    ],
)
def test_an_address_leaves_without_its_password_and_query(name: str, url: str, found: str) -> None:
    assert clean_value(name, url) == found
    assert clean_value(name, 5) == 5
