"""The playground: operators change an agent for one question, and nobody else does."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import ChatRequest, Settings, action
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.extensions.access.audit.log import AuditLog
from copilot_runtime.extensions.tracing.store import MemoryTraceStore
from copilot_runtime.telemetry import LocalTelemetry
from tests.extensions.access.credentials import entering, issue_key, settings_of
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Answer, Browser, text_of, user
from tests.wire_agui.server import Parrot, browsing

pytestmark = pytest.mark.anyio

CHANGES = {
    "instructions": "Answer as a pirate.",
    "parameters": {"model": "gpt-5", "temperature": 0.5},
    "tools": ["get_time"],
}
OPERATORS = Settings.model_validate({"threads": "memory", "telemetry": {"operators": ["ann"]}})


@action
def get_time() -> str:
    """Tell the time."""
    return "12:00"


@action
def delete_all() -> str:
    """Delete everything."""
    return "gone"


def read_login(connection: HTTPConnection) -> str | None:
    return connection.headers.get("authorization", "").removeprefix("Bearer ") or None


def read_request(request: ChatRequest) -> dict[str, Any]:
    """Return what the playground can change, as the model got it."""
    system = [
        m.content for m in request.messages if isinstance(m, TextMessage) and m.role == "system"
    ]
    found = request.parameters
    tools = sorted(it.name for it in request.actions if not it.name.startswith("AGUI"))
    return {
        "instructions": system,
        "parameters": {"model": found.model, "temperature": found.temperature},
        "tools": tools,
    }


async def test_an_operator_changes_the_agent_for_one_question_and_not_for_the_next() -> None:
    parrot = Parrot("Arr.")
    async with browsing(
        parrot, instructions="Be polite.", actions=[get_time, delete_all]
    ) as browser:
        changed = await browser.run(overrides=CHANGES)
        plain = await browser.run(run="r2", messages=[user(), user("And now?", "user-2")])

    assert (text_of(changed.events()), text_of(plain.events())) == ("Arr.", "Arr.")
    assert [read_request(request) for request in parrot.requests] == [
        {**CHANGES, "instructions": ["Answer as a pirate."]},
        {
            "instructions": ["Be polite."],
            "parameters": {"model": None, "temperature": None},
            "tools": ["delete_all", "get_time"],
        },
    ]


async def test_the_thread_keeps_what_was_changed_and_no_instructions() -> None:
    async with browsing(Parrot("Arr."), actions=[get_time]) as browser:
        await browser.run(overrides=CHANGES)
        again = await browser.connect()
        stored = await browser.ask("GET", "/threads/t/events")

    (mark,) = [event for event in again.events() if event["type"] == "CUSTOM"]
    assert (mark["name"], mark["value"]) == (
        "playground",
        {"instructions": True, "model": "gpt-5", "temperature": 0.5, "tools": ["get_time"]},
    )
    assert b"pirate" not in again.body + stored.body


@in_one_test(
    ("login", "headers"),
    [
        ("bob", {}),
        ("", {}),
        ("ann", {"origin": "https://shop.example"}),
        ("ann", {"origin": "https://shop.example", "sec-fetch-site": "cross-site"}),
        ("ann", {"sec-fetch-site": "same-site"}),
    ],
)
async def test_whoever_is_no_operator_and_whose_page_is_not_ours_changes_no_agent(
    login: str, headers: dict[str, str]
) -> None:
    parrot = Parrot()
    settings = OPERATORS.model_copy(update={"cors_origins": ["https://shop.example"]})
    async with browsing(parrot, settings=settings, authenticate=read_login) as browser:
        asker = Browser(browser.where, headers={**headers, "authorization": f"Bearer {login}"})
        body = {"threadId": "t", "runId": "r", "messages": [user()], "overrides": CHANGES}
        answers: list[Answer] = [
            await asker.ask("POST", "/agent/default/run", body),
            await asker.ask("POST", "/agent/default/ask", body),
            await asker.envelope("agent/run", body, agentId="default"),
            await asker.ask("GET", "/playground/default"),
        ]

    assert [answer.status for answer in answers] == [403] * 4
    assert parrot.requests == []


async def test_properties_of_a_page_are_no_changes() -> None:
    parrot = Parrot()
    async with browsing(parrot, settings=OPERATORS, authenticate=read_login) as browser:
        bob = browser.signed_in("bob")
        answer = await bob.run(forwardedProps={"overrides": CHANGES})

    assert text_of(answer.events()) == "You said Hi"
    assert read_request(parrot.requests[0])["instructions"] == []


@pytest.mark.parametrize(("keeps_content", "shown"), [(True, "Be polite."), (False, None)])
async def test_instructions_are_shown_where_traces_have_them_anyway(
    keeps_content: bool, shown: str | None
) -> None:
    telemetry = LocalTelemetry(MemoryTraceStore(), keeps_content=keeps_content)
    async with browsing(
        instructions="Be polite.", telemetry=telemetry, actions=[get_time]
    ) as browser:
        found = await browser.ask("GET", "/playground/default")

    assert found.json() == {
        "has_instructions": True,
        "instructions": shown,
        "is_secret": not keeps_content,
        "tools": [{"name": "get_time", "description": "Tell the time."}],
    }


async def test_an_agent_that_is_not_there_is_not_found() -> None:
    async with browsing() as browser:
        found = await browser.ask("GET", "/playground/nope")

    assert (found.status, found.json()["error"]) == (404, "agent_not_found")


async def test_an_assistant_gets_another_template(tmp_path: Path) -> None:
    (tmp_path / "writer.agent.md").write_text(
        "---\ndescription: Writes.\n---\nYou are {{ assistant.name }}."
    )
    parrot = Parrot()
    settings = Settings.model_validate(
        {"threads": "memory", "assistants": {"folder": str(tmp_path)}}
    )
    async with browsing(parrot, settings=settings) as browser:
        known = await browser.ask("GET", "/playground/writer")
        changes = {"instructions": "Be brief, {{ assistant.name }}."}
        await browser.run(agent="writer", overrides=changes)

    assert known.json()["has_instructions"] is True
    assert read_request(parrot.requests[0])["instructions"] == ["Be brief, writer."]


async def test_an_analyst_gets_other_instructions_beside_its_data(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("region,total\nnorth,1\n")
    parrot = Parrot("Deux.")
    analyst = {"name": "analyst", "data": [str(tmp_path / "sales.csv")], "instructions": "Be kind."}
    settings = {"threads": "memory", "analyst": {**analyst, "store": str(tmp_path / "store")}}
    async with browsing(parrot, settings=Settings.model_validate(settings)) as browser:
        question = [user("How many rows of sales are there?")]
        changes = {"instructions": "Answer in French."}
        await browser.run(agent="analyst", messages=question, overrides=changes)

    (system,) = read_request(parrot.requests[0])["instructions"]
    assert ("Answer in French." in system, "Be kind." in system) == (True, False)
    assert "sales" in system


async def test_an_agent_that_is_a_program_has_other_tools_alone() -> None:
    async def echo(run: Any) -> str:
        return f"{[it.name for it in run.actions]}"

    async with browsing(agents={"echo": echo}, actions=[get_time, delete_all]) as browser:
        less = await browser.run(agent="echo", overrides={"tools": ["get_time"]})
        refused = await browser.run(agent="echo", run="r2", overrides={"instructions": "Be brief."})

    assert text_of(less.events()) == "['get_time']"
    assert "its instructions cannot be changed here" in refused.events()[-1]["message"]


@in_one_test(
    ("changes", "field"),
    [
        ({"prompt": "x"}, "overrides has 'prompt', and may have"),
        ({"instructions": 5}, "overrides.instructions"),
        ({"tools": "get_time"}, "overrides.tools"),
        ({"tools": ["get_time", 5]}, "overrides.tools must be a list of texts."),
        ({"parameters": ["gpt-5"]}, "overrides.parameters"),
        ({"parameters": False}, "overrides.parameters"),
        ({"parameters": {"modle": "x"}}, "overrides.parameters has 'modle', and may have"),
        ({"parameters": {"model": 5}}, "overrides.parameters.model must be a non-empty text."),
        ({"parameters": {"temperature": "hot"}}, "parameters.temperature must be a number."),
        ({"parameters": {"maxTokens": 1.5}}, "parameters.maxTokens must be a whole number."),
        ({"parameters": {"stop": ["a", 5]}}, "parameters.stop must be a non-empty list of texts."),
        ("Be brief.", "overrides"),
        ([], "overrides"),
    ],
)
async def test_changes_that_are_malformed_are_refused_and_named(changes: Any, field: str) -> None:
    async with browsing() as browser:
        answer = await browser.run(overrides=changes)

    assert (answer.status, field in answer.json()["details"]) == (400, True), answer.body


async def test_the_audit_log_says_what_an_operator_changed(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, audit={"file": str(tmp_path / "audit.jsonl")})
    async with entering(tmp_path, settings=settings) as server:
        ada = server.bearer(await issue_key(server.keys, "ada", roles=["operator"]))
        await ada.run(overrides=CHANGES)
        await server.runtime.get(AuditLog).flush()
    start = json.loads((tmp_path / "audit.jsonl").read_bytes().splitlines()[0])

    assert (start["action"], start["user"], start["reason"]) == (
        "run.start",
        "ada",
        "playground: instructions, model, temperature, tools",
    )
