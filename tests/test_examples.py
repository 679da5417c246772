import hmac
import json
import sys
import time
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.settings import Settings, load_settings
from tests.adapters.provider import serving as serving_provider
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Browser, run_input, text_of, user
from tests.wire_agui.server import serving

EXAMPLES = Path(__file__).parent.parent / "examples"

ASK = """
mutation generateCopilotResponse($data: GenerateCopilotResponseInput!, $properties: JSONObject) {
  generateCopilotResponse(data: $data, properties: $properties) {
    status { ... on BaseResponseStatus { code } }
    messages {
      ... on TextMessageOutput { content }
      ... on ActionExecutionMessageOutput { name }
      ... on ResultMessageOutput { result }
    }
  }
}
"""


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("EXAMPLE_TOKEN", "open-sesame")


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no example find the threads of an earlier test in `.copilot`."""
    monkeypatch.chdir(tmp_path)


def loaded(example: str, file: str = "app") -> Any:
    """Return the application in a file of an example."""
    return load_example(example, file).app


def load_example(example: str, file: str = "app") -> Any:
    """Return a file of an example as a module."""
    spec = spec_from_file_location(f"example_{example}_{file}", EXAMPLES / example / f"{file}.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES / example)
        patch.delitem(sys.modules, "pretend", raising=False)  # that of another example
        try:
            spec.loader.exec_module(module)
        finally:
            sys.modules.pop("pretend", None)
    return module


def app_of(example: str) -> TestClient:
    return TestClient(loaded(example))


def ask(
    client: TestClient,
    text: str,
    *,
    path: str = "/graphql",
    properties: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    message = {
        "id": "m1",
        "createdAt": "2026-01-01T00:00:00Z",
        "textMessage": {"role": "user", "content": text},
    }
    data: dict[str, Any] = {
        "messages": [message],
        "frontend": {"actions": []},
        "metadata": {"requestType": "Chat"},
    }
    answer = client.post(
        path,
        json={"query": ASK, "variables": {"data": data, "properties": properties or {}}},
        headers=headers or {},
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert "errors" not in body, body
    assert body["data"]["generateCopilotResponse"]["status"] == {"code": "Success"}
    return body["data"]["generateCopilotResponse"]["messages"]


@in_one_test("file", [EXAMPLES / "demo.yml", *sorted(EXAMPLES.rglob("copilot.yml"))])
def test_the_settings_of_an_example_can_be_loaded(file: Path) -> None:
    assert load_settings(file, {}) != Settings()


@in_one_test("example", ["hello", "actions", "mounted", "threads"])
def test_an_example_without_a_key_says_that_the_demo_model_answers(
    example: str, capsys: pytest.CaptureFixture[str]
):
    app_of(example)

    assert "not a language model" in capsys.readouterr().out


def test_hello_thinks_and_serves_a_page():
    with app_of("hello") as client:
        [text] = ask(client, "think")

        assert "".join(text["content"]) == "I have thought about it. (I cannot really think.)"
        assert 'data-endpoint="/graphql"' in client.get("/").text


def test_widget_serves_a_page_with_the_program_beside_it():
    with app_of("widget") as client:
        assert '<script src="/widget.js"' in client.get("/").text
        assert '"endpoint": "/copilotkit"' in client.get("/widget.js").text


def test_actions_runs_two_calls_of_one_turn_and_keeps_their_order():
    with app_of("actions") as client:
        messages = ask(client, "weather in Oslo and open the vault")

    assert [message["name"] for message in messages if "name" in message] == [
        "get_weather",
        "open_vault",
    ]
    weather, vault = [message["result"] for message in messages if "result" in message]
    assert '"city":"Oslo"' in weather.replace(" ", "")
    assert "The vault stays closed at night." in vault


def test_actions_fills_a_pydantic_model():
    with app_of("actions") as client:
        messages = ask(client, "book a table for 2 people on 2030-05-01")

    assert messages[-1] == {"result": "A table for 2 on 2030-05-01 is booked."}


def test_actions_offers_some_to_administrators_only():
    with app_of("actions") as client:
        assert "name" not in ask(client, "reset everything")[0]
        messages = ask(client, "reset everything", properties={"role": "admin"})

    assert messages == [{"name": "reset_everything"}, {"result": "Everything is as new."}]


def test_custom_transport_answers_beside_the_others():
    with app_of("custom-transport") as client:
        answer = client.post("/graphql/ask", json={"question": "Hello!"})
        chat = ask(client, "Hello!")
        refused = client.post("/graphql/ask", json={})
        wrong = client.get("/graphql/ask")

    assert (answer.status_code, bool(answer.json()["answer"])) == (200, True)
    assert chat
    assert (refused.status_code, refused.json()["message"]) == (
        400,
        "The body must have a question, which is a string.",
    )
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


def test_mounted_lets_nobody_in_without_the_token():
    with app_of("mounted") as client:
        assert client.get("/hello").status_code == 200
        assert client.post("/api/copilotkit", json={"query": "{hello}"}).status_code == 401
        wrong = {"authorization": "Bearer pst"}
        assert client.post("/api/copilotkit", json={}, headers=wrong).status_code == 401


def test_mounted_answers_with_the_token():
    with app_of("mounted") as client:
        token = {"authorization": "Bearer open-sesame"}

        assert ask(client, "think", path="/api/copilotkit", headers=token)


def test_two_people_with_a_login_share_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_TOKEN", "ann:open-sesame,bob:open-barley")
    with app_of("mounted") as client:
        people = [{"authorization": f"Bearer open-{word}"} for word in ("sesame", "barley")]
        run = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": []}
        url = "/api/copilotkit"
        client.post(f"{url}/agent/default/run", json={**run, "state": {}}, headers=people[0])
        ann, bob = (client.get(f"{url}/threads", headers=who).json() for who in people)

    assert [thread["id"] for thread in ann["threads"]] == ["t"]
    assert bob["threads"] == []


@pytest.fixture
def in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_THREADS", f"sqlite:{tmp_path / 'threads.db'}")


def talk(client: TestClient, who: str, text: str) -> None:
    answer = client.post(
        "/graphql/agent/default/run",
        json=run_input(thread="first", messages=[user(text)]),
        headers={"authorization": f"Bearer {who}"},
    )
    assert '"RUN_FINISHED"' in answer.text


def heard(client: TestClient, who: str, thread: str = "first") -> list[str]:
    """Return what somebody said in a thread."""
    answer = client.get(
        f"/graphql/threads/{thread}/messages", headers={"authorization": f"Bearer {who}"}
    )
    return [it["content"] for it in answer.json()["messages"] if it["role"] == "user"]


@pytest.mark.usefixtures("in_a_file")
def test_threads_are_there_after_a_restart():
    with app_of("threads") as client:
        talk(client, "ann", "think")
    with app_of("threads") as client:
        assert heard(client, "ann") == ["think"]


@pytest.mark.usefixtures("in_a_file")
def test_threads_of_the_same_id_are_each_persons_own():
    with app_of("threads") as client:
        talk(client, "ann", "think")
        assert heard(client, "bob") == []
        talk(client, "bob", "hello")

        assert (heard(client, "ann"), heard(client, "bob")) == (["think"], ["hello"])
        assert client.get("/graphql/threads").status_code == 401


@pytest.mark.anyio
async def test_agui_passes_on_what_the_remote_agent_says_and_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
):
    async with serving(loaded("agui", "agent")) as port:
        monkeypatch.setenv("AGENT_URL", f"http://127.0.0.1:{port}/")
        async with serving(loaded("agui")) as here:
            browser = Browser(here, "/graphql")
            await browser.run(messages=[user("Hi")], run="first")
            again = await browser.run(
                messages=[user("And now?", "user-2")], run="second", state={"questions": 1}
            )
            kept = await browser.connect()

    assert text_of(again.events()) == "Question 2. You said: And now?"
    assert text_of(kept.events()) == "Question 1. You said: HiQuestion 2. You said: And now?"


@pytest.mark.anyio
async def test_a2a_asks_the_remote_agent_which_asks_for_the_city(
    monkeypatch: pytest.MonkeyPatch,
):
    agent = load_example("a2a", "agent")
    async with serving(agent.app) as port:
        agent.card.supported_interfaces[0].url = f"http://127.0.0.1:{port}/a2a"
        monkeypatch.setenv("AGENT_URL", f"http://127.0.0.1:{port}")
        async with serving(loaded("a2a")) as here:
            browser = Browser(here, "/graphql")
            asked = await browser.run(agent="weather", messages=[user("Weather?")])
            answered = await browser.run(agent="weather", messages=[user("Bonn", "u-2")], run="r2")
            handed = await browser.run(messages=[user("Ask weather")], thread="other", run="r3")

    assert text_of(asked.events()) == "In which city?"
    assert text_of(answered.events()) == "It is sunny in Bonn."
    assert text_of(handed.events()).endswith("In which city?")


@pytest.mark.anyio
async def test_crew_passes_on_what_is_said_where_the_crew_should_be(
    monkeypatch: pytest.MonkeyPatch,
):
    async with serving(loaded("agui", "agent")) as port:
        monkeypatch.setenv("CREW_URL", f"http://127.0.0.1:{port}/")
        async with serving(loaded("crew")) as here:
            answer = await Browser(here, "/graphql").run(messages=[user("Hi")])

    assert text_of(answer.events()) == "Question 1. You said: Hi"


def test_mcp_lends_what_is_there_and_says_what_is_not():
    with app_of("mcp") as client:
        found = ask(client, "find the book Momo")
        lent = ask(client, "lend the book Dracula")

    assert found[0] == {"name": "library_find_book"}
    assert json.loads(found[-1]["result"])["author"] == "Michael Ende"
    assert "Dracula is lent already." in lent[-1]["result"]


@pytest.mark.anyio
async def test_assistants_hand_over_and_ask_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    storage, base = f"local:{tmp_path}", "https://skerryline.example/"
    knowledge = Knowledge(storage, sources=[EXAMPLES / "knowledge" / "pages"], base=base)
    await knowledge.ingest()
    await knowledge.aclose()
    monkeypatch.setenv("COPILOT_KNOWLEDGE_STORAGE", storage)
    engine, lead = "Why did the engine of MV Gannet stop", "do dogs travel on a lead"
    async with serving(loaded("assistants", "server")) as port:
        browser = Browser(port, "/graphql")
        one = await browser.run(agent="desk", messages=[user(f"{engine}?")])
        both = await browser.run(
            agent="desk", messages=[user(f"{engine}, and {lead}?")], thread="other", run="other"
        )

    assert '"agent_id":"common.Agent.sailings"' in str(one.events())
    assert "the starboard main engine of MV Gannet lost power" in text_of(one.events())
    assert "Dogs travel on a lead" in text_of(both.events())
    assert both.types().count("SUBAGENT_STARTED") == both.types().count("SUBAGENT_FINISHED") == 2


@pytest.mark.anyio
async def test_a_planner_corrects_a_task_and_asks_before_it_publishes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)  # threads and plans are in files below it
    module = load_example("planner", "server")

    module.model.pause = take_no_break
    async with serving(module.app) as port:
        browser = Browser(port, "/graphql")
        messages = [user("Plan an extra sailing to St Brannoc on Saturday.")]
        asked = (await browser.run(agent="planner", messages=messages)).events()
        [question] = asked[-1]["outcome"]["interrupts"]
        answer = {
            "interruptId": question["id"],
            "status": "resolved",
            "payload": {"approved": True},
        }
        outcome = await browser.run(agent="planner", run="r2", messages=messages, resume=[answer])

    assert question["message"].startswith("May the task 'publish' begin?")
    assert '"is_correction"' in json.dumps(asked)
    assert text_of(outcome.events()).startswith("The notice is published: https://")


@pytest.mark.anyio
async def test_generative_ui_draws_a_surface_and_shows_the_app_of_an_mcp_server(
    monkeypatch: pytest.MonkeyPatch,
):
    async with serving(load_example("generative-ui", "seats").server.streamable_http_app()) as port:
        monkeypatch.setenv("SEATS_URL", f"http://127.0.0.1:{port}/mcp")
        module = load_example("generative-ui", "server")
        module.model.pause = take_no_break
        async with serving(module.app) as port:
            browser = Browser(port, "/graphql")
            catalog = {"a2uiCatalogAvailable": True}
            trips = await browser.run(messages=[user("Which trips?")], forwardedProps=catalog)
            seats = await browser.run(messages=[user("Which seats?")], thread="other")

    drawn = [event for event in trips.events() if event["type"] == "ACTIVITY_SNAPSHOT"]
    assert [event["activityType"] for event in drawn] == ["a2ui-surface"] * len(drawn)
    assert "MV Petrel" in json.dumps(trips.events())
    [app] = [event for event in seats.events() if event["type"] == "ACTIVITY_SNAPSHOT"]
    assert app["activityType"] == "mcp-apps"
    assert app["content"]["resourceUri"] == "ui://seats/plan.html"
    assert text_of(seats.events()).startswith("Take a seat")


async def take_no_break(step: str) -> None:
    """Answer at once."""


def slack_event(text: str, **fields: Any) -> dict[str, Any]:
    event = {"type": "app_mention", "user": "U1", "text": f"<@U0> {text}", "ts": "1.5", **fields}
    id = f"Ev-{text}-{event['ts']}"
    return {
        "type": "event_callback",
        "team_id": "T1",
        "event_id": id,
        "event": {"channel": "C1", **event},
    }


@pytest.mark.anyio
async def test_slack_answers_a_question_once_in_its_thread(monkeypatch: pytest.MonkeyPatch):
    body = b'{"ok":true}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    async with serving_provider() as slack:
        slack.answer([head % len(body), body])
        monkeypatch.setenv("SLACK_API", slack.url)
        monkeypatch.setenv("SLACK_SIGNING_SECRET", "of the tests")
        monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
        async with serving(loaded("slack")) as port:
            browser = Browser(port, "/graphql")

            async def send(message: Mapping[str, Any], secret: bytes = b"of the tests") -> Any:
                content, now = json.dumps(message).encode(), f"{time.time():.0f}"
                signed = hmac.new(secret, b"v0:%b:%b" % (now.encode(), content), "sha256")
                headers = {
                    "x-slack-request-timestamp": now,
                    "x-slack-signature": f"v0={signed.hexdigest()}",
                }
                return await browser.ask("POST", "/slack", content, headers)

            challenge = await send({"type": "url_verification", "challenge": "c1"})
            forged = await send(slack_event("think"), b"another")
            own = await send(slack_event("think", bot_id="B1", ts="1.0"))
            for _ in range(2):
                await send(slack_event("think"))
            await slack.until_asked(1)
            await send(slack_event("hello", ts="2.5", thread_ts="1.5", user="U2"))
            await slack.until_asked(2)

    assert (challenge.json(), forged.status, own.status) == ({"challenge": "c1"}, 401, 200)
    thread = {"channel": "C1", "thread_ts": "1.5"}
    assert slack.requests[0].body == {
        **thread,
        "markdown_text": "I have thought about it. (I cannot really think.)",
    }
    assert {**slack.requests[1].body, **thread} == slack.requests[1].body
    assert slack.requests[0].line == "POST /chat.postMessage HTTP/1.1"
    assert len(slack.requests) == 2
