"""What becomes of the system messages of a page, and of the order in which a model reads."""

from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Events, RunInput, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import ContextItem
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import ConfigurationFailed
from tests.in_one_test import in_one_test
from tests.wire.client import PLAIN, WHEN, chat, user
from tests.wire_agui.http import run_input

PROMPT = "You are the clerk of a bookshop."
PAGE = "Answer in verse."
CONTEXT = {"description": "page", "value": "cart"}
doors = pytest.mark.parametrize("door", ["agui", "graphql"])


def post(client: TestClient, door: str, role: str = "system", agent: str = "default") -> str:
    """Ask in the thread `t`, with an instruction of the page and something it shows."""
    if door == "agui":
        instruction = {"id": "p", "role": role, "content": PAGE}
        question = {"id": "user-1", "role": "user", "content": "Hi"}
        body = run_input(messages=[instruction, question], context=[CONTEXT])
        answer = client.post(f"/graphql/agent/{agent}/run", json=body)
    else:
        text = {"role": role, "content": PAGE}
        instruction = {"id": "p", "createdAt": WHEN, "textMessage": text}
        session = {} if agent == "default" else {"agentSession": {"agentName": agent}}
        body = chat(instruction, user(), query=PLAIN, threadId="t", context=[CONTEXT], **session)
        answer = client.post("/graphql", json=body)
    assert "Hello" in answer.text
    return answer.text


def read_by_model(door: str, role: str = "system", **settings: Any) -> list[tuple[str, str]]:
    """Return role and text of all that the model reads."""
    model = ScriptedAdapter(say("Hello"))
    runtime = CopilotRuntime(
        adapter=model,
        instructions=PROMPT,
        settings=Settings(threads="memory", shared_state=False, **settings),
    )
    with TestClient(runtime.app()) as client:
        post(client, door, role)
    messages = model.requests[0].messages
    return [(m.role, m.content) for m in messages if isinstance(m, TextMessage)]


SHOWN = f"{PROMPT}\n\n## Context from the application\n\npage:\ncart"


@in_one_test("role", ["system", "developer"])
@in_one_test(("door", "first"), [("agui", SHOWN), ("graphql", PROMPT)])
def test_a_page_instructs_after_the_server_by_default(door: str, first: str, role: str) -> None:
    assert read_by_model(door, role) == [("system", first), (role, PAGE), ("user", "Hi")]


HEADING = "## Context from the application"


@in_one_test("role", ["system", "developer"])
@in_one_test(
    ("door", "before"),  # what a page of v1 shows is in its instructions already
    [("agui", SHOWN), ("graphql", f"{PROMPT}\n\n{HEADING}")],
)
def test_instructions_of_a_page_can_be_context(door: str, before: str, role: str) -> None:
    shown = f"{before}\n\nInstructions of the page:\n{PAGE}"
    assert read_by_model(door, role, page_instructions="context") == [
        ("system", shown),
        ("user", "Hi"),
    ]


@doors
@in_one_test("role", ["system", "developer"])
def test_instructions_of_a_page_can_be_left_out(door: str, role: str) -> None:
    assert read_by_model(door, role, page_instructions="drop") == [
        ("system", SHOWN),
        ("user", "Hi"),
    ]


class Witness:
    """An agent that keeps the runs it gets."""

    def __init__(self) -> None:
        self.runs: list[RunInput] = []

    async def run(self, run: RunInput) -> Events:
        self.runs.append(run)
        for event in say("Hello"):
            yield event


@doors
@in_one_test("policy", ["keep", "context", "drop"])
def test_agents_of_every_kind_get_them_by_the_same_rule(door: str, policy: Any) -> None:
    agent = Witness()
    settings = Settings(threads="memory", page_instructions=policy)
    runtime = CopilotRuntime(agents={"clerk": agent}, settings=settings)
    with TestClient(runtime.app()) as client:
        post(client, door, agent="clerk")

    (run,) = agent.runs
    shown = [ContextItem("page", "cart")]
    demoted = [*shown, ContextItem("Instructions of the page", PAGE)]
    assert [m.role for m in run.messages if isinstance(m, TextMessage)] == (
        ["system", "user"] if policy == "keep" else ["user"]
    )
    assert run.context == (demoted if policy == "context" else shown)


@in_one_test("policy", ["context", "drop"])
def test_what_a_hook_instructs_is_the_servers_and_stays(policy: Any) -> None:
    def add(run: RunInput) -> RunInput:
        message = TextMessage(id="h", role="system", content="The hook says so.")
        return replace(run, messages=[message, *run.messages])

    model = ScriptedAdapter(say("Hello"))
    runtime = CopilotRuntime(
        adapter=model,
        hooks=Hooks(before_request=add),
        settings=Settings(threads="memory", shared_state=False, page_instructions=policy),
    )
    with TestClient(runtime.app()) as client:
        post(client, "agui")
    assert [m.content for m in model.requests[0].messages if isinstance(m, TextMessage)][1:] == [
        "The hook says so.",
        "Hi",
    ]


@doors
def test_what_is_left_out_is_not_stored_either(door: str) -> None:
    settings = Settings(threads="memory", page_instructions="drop")
    runtime = CopilotRuntime(adapter=ScriptedAdapter(say("Hello")), settings=settings)
    with TestClient(runtime.app()) as client:
        shown = post(client, door)
        stored = client.get("/graphql/threads/t/messages?agentId=default").text
    assert "Hello" in stored
    assert PAGE not in shown
    assert PAGE not in stored


@in_one_test(
    ("given", "words"),
    [
        ({"instructions": PROMPT}, "instructions, but no adapter"),
        ({"parameters": {"seed": 7}}, "parameters, but no adapter"),
        ({"instructions": PROMPT, "parameters": {}}, "instructions and parameters, but no adapter"),
    ],
)
def test_instructions_for_a_model_that_is_not_there_are_an_error(given: Any, words: str) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        CopilotRuntime(agents={"clerk": Witness()}, settings=Settings(threads="memory"), **given)
    assert words in caught.value.message
    assert "DirectAgent(adapter, instructions=" in str(caught.value.hint)


def test_a_setting_for_a_model_that_is_not_there_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = Settings(threads="memory", instructions=PROMPT)
    CopilotRuntime(agents={"clerk": Witness()}, settings=settings)
    assert "The setting instructions is for the plain chat" in caplog.text
    assert PROMPT not in caplog.text


def name_thread(run: RunInput) -> str:
    return run.thread_id


@in_one_test(
    ("given", "asked"),
    [(None, PROMPT), ("Be brief.", "Be brief."), ("", None), (name_thread, "t")],
)
def test_instructions_of_the_constructor_count_more_than_the_setting(
    given: Any, asked: str | None
) -> None:
    model = ScriptedAdapter(say("Hello"))
    runtime = CopilotRuntime(
        adapter=model,
        instructions=given,
        settings=Settings(threads="memory", shared_state=False, instructions=PROMPT),
    )
    with TestClient(runtime.app()) as client:
        client.post("/graphql/agent/default/run", json=run_input())
    texts = [m.content for m in model.requests[0].messages if isinstance(m, TextMessage)]
    assert texts == ([asked, "Hi"] if asked else ["Hi"])
