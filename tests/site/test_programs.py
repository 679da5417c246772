"""The programs of the documents run and answer, and do what the pages say of them."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from copilot_runtime import Caller, CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters import ADAPTERS
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import RateLimited
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.extensions.webhooks.sender import sign
from tests.documents import DOCS, ROOT, Block, blocks
from tests.site.conftest import Names, Run
from tests.wire.client import PLAIN, browser_action, chat, user
from tests.wire_agui.http import Answer, run_input
from tests.wire_agui.http import text_of as said

PROGRAMS = blocks("python")
TOKEN = {"authorization": "Bearer open-sesame"}


def program(page: str, number: int = 0) -> Block:
    """Return a program of a page: the first one, or the one after so many others."""
    return blocks("python", page)[number]


def path_in(app: Starlette) -> str:
    """Return the URL of the runtime: the programs that mount it do so below /api."""
    paths = {getattr(route, "path", "") for route in app.routes}
    return "/api/copilotkit" if "/api/copilotkit" in paths else "/graphql"


def post(names: Names, text: str, headers: Mapping[str, str] = TOKEN, **more: Any) -> Any:
    """Ask what a program made, and return the body of the answer."""
    app = names["app"] if "app" in names else names["runtime"].app()
    path = path_in(app)
    with TestClient(app) as client:
        client.post("/login", data={"user": "ann", "password": "open-sesame"})  # where there is one
        answer = client.post(path, json=chat(user(text), query=PLAIN, **more), headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ask(names: Names, text: str, headers: Mapping[str, str] = TOKEN, **more: Any) -> Any:
    """Ask what a program made, and return its response."""
    return post(names, text, headers, **more)["data"]["generateCopilotResponse"]


@contextmanager
def talking(names: Names) -> Generator[Callable[..., Answer], None, None]:
    """Serve what a program made; yield what asks it as a client of 1.50 and later does."""
    app = names["app"] if "app" in names else names["runtime"].app()
    path = path_in(app)

    with TestClient(app) as client:

        def request(
            at: str, body: Any = None, method: str = "POST", headers: Mapping[str, str] = TOKEN
        ) -> Answer:
            answer = client.request(method, f"{path}{at}", json=body, headers=headers)
            return Answer(answer.status_code, answer.headers, answer.content)

        yield request


def text_of(response: Any) -> str:
    return "".join(
        piece for message in response["messages"] for piece in message.get("content", ())
    )


def result_of(response: Any) -> str:
    return response["messages"][-1]["result"]


# --- programs

ELSEWHERE = {
    "agents/crewai",
    "agents/langgraph-platform",
    "agents/openai-agents",
    "models/anthropic",
    "models/bedrock",
    "models/google",
    "models/parameters",
}
"""Pages whose programs need a server of another maker; other tests hold the adapters to theirs."""


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_every_program_runs_and_what_it_makes_answers(block: Block, run: Run) -> None:
    names = run(block)
    if "runtime" not in names or block.page in ELSEWHERE:
        return
    agents = list(asyncio.run(names["runtime"].runtime.agents_for(Caller(user="ann"))))
    session = {"agentSession": {"agentName": agents[0]}} if agents else {}
    response = ask(names, "think", **session)
    assert response["status"]["code"] == "Success"
    assert text_of(response)


def test_a_program_searches_and_asks_the_graph_over_grpc(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    [block] = [it for it in blocks("python", "run/services") if "VectorStub" in it.code]
    run(block)
    said = capsys.readouterr().out

    assert "Mill Library: Mill Library\nThe library opens at nine." in said
    assert '<https://schema.org/openingHours> "Mo-Fr 09:00"' in said


def test_the_policy_for_a_folder_hides_its_files_from_others(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    [block] = [it for it in blocks("python", "knowledge/policies") if "pages/salaries" in it.code]
    run(block)
    ann, helen = capsys.readouterr().out.splitlines()
    assert ann == "ann [] ['pages/hours.md']"
    assert helen.startswith(r"helen ['Salaries\nAnn earns 100 pounds a day.'")
    assert "'pages/salaries/2026.md'" in helen


def test_the_smallest_program_serves_a_page(run: Run) -> None:
    with TestClient(run(program("start/quickstart"))["app"]) as client:
        assert "data-endpoint" in client.get("/").text
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("page", "number"),
    [
        ("models/index", 0),
        ("models/openai", 1),
        ("models/openai-compatible", 0),
        ("models/langchain", 0),
        ("models/several", 0),
    ],
)
def test_each_kind_of_model_is_asked(run: Run, page: str, number: int) -> None:
    assert text_of(ask(run(program(page, number)), "Hi")) == "You said: Hi"


def test_instructions_that_a_function_makes_are_asked_of_the_model(run: Run) -> None:
    names = run(program("learn/instructions", 1))
    model = names["runtime"].runtime.chat.adapter = ScriptedAdapter(say("Hello"))
    ask(names, "Hi")
    instructions = model.requests[0].messages[0]
    assert isinstance(instructions, TextMessage)
    assert "Today is 20" in instructions.content
    assert "You serve a guest." in instructions.content


def test_a_chain_that_langserve_serves_is_an_action(run: Run) -> None:
    answer = ask(run(program("models/langchain", 1)), 'call joke {"topic": "horse"}')
    assert result_of(answer) == "A horse walks into a bar."


def test_every_adapter_has_a_page_that_names_it() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("models/*.md"))
    targets = [target.partition(":") for target in ADAPTERS.values()]
    ours = [name for _, _, name in targets if name not in {"DemoAdapter", "ScriptedAdapter"}]
    assert [name for name in ours if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ('get_weather {"city": "Oslo"}', '{"city":"Oslo","degrees":21.0}'),
        ('find_order {"number": 7}', "Order 7 is on its way. Thread thread-1."),
        (
            'find_order {"number": 0}',
            "Orders are numbered from 1.",
        ),
    ],
)
def test_an_action_runs_and_its_error_is_a_result(run: Run, call: str, result: str) -> None:
    assert result in result_of(ask(run(program("learn/actions", 1)), f"call {call}"))


def test_wrong_arguments_are_a_result_that_says_what_is_wrong(run: Run) -> None:
    result = json.loads(
        result_of(ask(run(program("learn/actions", 1)), 'call get_weather {"unit": "kelvin"}'))
    )
    assert result["error"]["code"] == "INVALID_ARGUMENTS"
    assert "unit" in result["error"]["message"]


def test_the_result_of_a_direct_action_is_the_answer(run: Run) -> None:
    response = ask(run(program("learn/actions", 1)), "call opening_hours {}")
    assert response["messages"][-1]["content"] == ["Monday to Friday, 9 to 17."]


def test_an_action_is_offered_to_administrators_only(run: Run) -> None:
    names = run(program("learn/actions", 2))
    wish = "call reset_everything {}"
    assert text_of(ask(names, wish)) == f"You said: {wish}"
    assert result_of(ask(names, wish, {"x-role": "admin"})) == "Everything is as new."


@pytest.mark.parametrize(("available", "called"), [("enabled", True), ("remote", False)])
def test_a_browser_action_is_offered_by_its_availability(
    run: Run, available: str, called: bool
) -> None:
    names = run(program("models/index"))
    frontend = {"actions": [browser_action() | {"available": available}], "url": None}
    [message] = ask(names, 'call setColor {"color": "teal"}', frontend=frontend)["messages"]
    assert ("arguments" in message) is called


def test_the_mounted_runtime_lets_nobody_in_without_a_login(run: Run) -> None:
    with TestClient(run(program("start/fastapi"))["app"]) as client:
        page = client.get("/", headers={"accept": "text/html"}, follow_redirects=False)
        assert (page.status_code, page.headers["location"]) == (303, "/login")
        assert client.get("/login").status_code == 200
        assert client.post("/login", data={"user": "ann", "password": "a"}).status_code == 401
        assert client.post("/api/copilotkit", json=chat()).status_code == 401
        assert client.get("/api/copilotkit/health").status_code == 200
        preflight = {"origin": "http://a.example", "access-control-request-method": "POST"}
        assert client.options("/api/copilotkit", headers=preflight).status_code == 204


def test_two_people_who_sign_in_to_the_mounted_runtime_share_no_threads(run: Run) -> None:
    threads: list[Any] = []
    with TestClient(run(program("start/fastapi"))["app"], base_url="http://localhost") as client:
        for user, word in (("ann", "sesame"), ("bob", "barley")):
            page = client.post("/login", data={"user": user, "password": f"open-{word}"})
            assert "data-endpoint" in page.text
            client.post("/api/copilotkit/agent/default/run", json=run_input())
            threads.append(client.get("/api/copilotkit/threads").json()["threads"])

    assert [[thread["createdById"] for thread in found] for found in threads] == [["ann"], ["bob"]]


def test_a_hook_refuses_strangers_and_names_the_others(run: Run) -> None:
    names = run(program("learn/hooks"))
    [error] = post(names, "Hi", {})["errors"]
    assert error["message"] == "Please sign in."
    assert error["extensions"]["code"] == "AUTHENTICATION_ERROR"
    assert result_of(ask(names, "call who_am_i {}")) == "ali"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("What of POLITICS?", "Let us talk about your order."),
        ("Tell me of Project  Falcon!", "I cannot talk about that."),
    ],
)
def test_guardrails_refuse(run: Run, text: str, reason: str) -> None:
    status = ask(run(program("learn/guardrails")), text)["status"]
    assert status["reason"] == "GUARDRAILS_VALIDATION_FAILED"
    assert reason in json.dumps(status["details"])


def test_the_agent_shows_its_state_and_speaks(run: Run) -> None:
    session = {"agentSession": {"agentName": "researcher"}}
    messages = ask(run(program("learn/agents")), "Hi", **session)["messages"]
    states = [message for message in messages if "state" in message]
    assert [json.loads(state["state"])["sources"] for state in states] == [0, 1, 2, 2]
    assert [state["running"] for state in states] == [True, True, False, False]
    [text] = [message for message in messages if "content" in message]
    assert text["content"] == ["I ", "read ", "two ", "books."]


def test_a_thread_can_be_read_renamed_listed_and_forgotten(run: Run, tmp_path: Path) -> None:
    with talking(run(program("learn/threads"))) as request:
        request("/agent/default/run", run_input(thread="t1"))
        renamed = request("/threads/t1", {"name": "Greetings"}, "PATCH").json()
        request("/threads/t1/archive")
        listed = [
            len(request(f"/threads{query}", method="GET").json()["threads"])
            for query in ("?agentId=default&limit=9", "?includeArchived=true")
        ]
        messages = request("/threads/t1/messages", method="GET").json()["messages"]
        request("/threads/t1", method="DELETE")
        gone = request("/threads/t1/events", method="GET").json()

    assert (renamed["name"], listed, gone) == ("Greetings", [0, 1], {"events": []})
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert (tmp_path / "threads.db").is_file()


def test_threads_belong_to_whom_the_hook_found(run: Run) -> None:
    with talking(run(program("learn/owners"))) as request:
        request("/agent/default/run", run_input(thread="t1"))
        [thread] = request("/threads", method="GET").json()["threads"]
        stranger = request("/threads", method="GET", headers={})

    assert thread["createdById"] == "ann"
    assert (stranger.status, "Please sign in." in stranger.body.decode()) == (401, True)


def test_agents_depend_on_who_asks(run: Run) -> None:
    with talking(run(program("learn/agents", 1))) as request:
        mine = request("/info", method="GET").json()["agents"]
        nobodys = request("/info", method="GET", headers={}).json()["agents"]

    assert (list(mine), list(nobodys)) == (["sales"], [])


def test_a_remote_agent_gets_its_own_key_and_not_the_persons(run: Run) -> None:
    with talking(run(program("agents/ag-ui"))) as request:
        info = request("/info", method="GET").json()["agents"]["default"]
        answer = request("/agent/default/run", run_input())

    assert info["description"] == "Knows the weather."
    assert said(answer.events()) == "My key: Bearer key-of-the-agent"


def test_a_remote_agent_of_a2a_gets_its_own_key(run: Run) -> None:
    with talking(run(program("agents/a2a"))) as request:
        answer = request("/agent/default/run", run_input())

    assert said(answer.events()) == "My key: Bearer key-of-the-agent"


def test_a_model_hands_over_to_an_agent_of_a2a(run: Run) -> None:
    question = {"id": "1", "role": "user", "content": "weather"}
    with talking(run(program("agents/a2a", 1))) as request:
        answer = request("/agent/default/run", run_input(messages=[question]))

    assert "My key: Bearer open-sesame" in str(answer.events())


def test_a_graph_on_a_langgraph_server_is_listed(run: Run) -> None:
    with talking(run(program("agents/langgraph-platform"))) as request:
        info = request("/info", method="GET").json()["agents"]["planner"]

    assert info["description"] == "Plans trips."


def test_a_remote_endpoint_that_is_down_fails_no_chat(run: Run) -> None:
    names = run(program("agents/remote-endpoints"))

    assert ask(names, "think")["status"]["code"] == "Success"


@pytest.mark.parametrize("agent", ["echo", "desk", "planner"])
def test_objects_of_frameworks_answer(run: Run, agent: str) -> None:
    with talking(run(program("agents/index"))) as request:
        events = request(f"/agent/{agent}/run", run_input()).events()

    assert events[-1]["type"] == "RUN_FINISHED"


def test_other_programs_use_actions_and_agents(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPILOT_SERVE_REMOTE", "true")
    with talking(run(program("agents/other-programs"))) as request:
        info = request("/info", {}).json()
        price = request("/actions/execute", {"name": "get_price", "arguments": {"item": "cup"}})

    assert [agent["name"] for agent in info["agents"]] == ["advisor"]
    assert price.json() == {"result": "A cup costs 3 euros."}


def test_page_and_agent_share_a_state(run: Run) -> None:
    with talking(run(program("learn/state"))) as request:
        answer = request("/agent/planner/run", run_input(state={"stops": ["Bergen"]}))

    [state] = [event for event in answer.events() if event["type"] == "STATE_SNAPSHOT"]
    assert state["snapshot"] == {"stops": ["Bergen", "Oslo"]}
    assert said(answer.events()) == "Your plan has 2 stops."


@pytest.mark.parametrize(
    ("status", "approved", "words"),
    [
        ("resolved", True, "It is booked."),
        ("resolved", False, "It is not booked."),
        ("cancelled", None, "It is not booked."),
    ],
)
def test_an_interrupted_run_goes_on_with_the_answer(
    run: Run, status: str, approved: bool | None, words: str
) -> None:
    with talking(run(program("learn/interrupts"))) as request:
        first = request("/agent/booker/run", run_input(run="r1")).events()
        [asked] = first[-1]["outcome"]["interrupts"]
        answer = {"interruptId": asked["id"], "status": status, "payload": {"approved": approved}}
        second = request("/agent/booker/run", run_input(run="r2", resume=[answer])).events()

    assert asked["message"] == "Book it?"
    assert said(second) == words


def test_the_stage_sees_the_first_token(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "shop"):
        ask(run(program("learn/hooks", 1)), "think")
    assert len(re.findall("first token after", caplog.text)) == 1


def test_an_extension_adds_a_route_a_field_a_page_and_an_action(run: Run) -> None:
    block = program("learn/extensions")
    app = run(block)["runtime"].app()
    with TestClient(app, base_url="http://localhost:8000") as client:
        before = client.get("/graphql/weather").json()
        asked = client.post("/graphql/agent/default/run", json=run_input())
        after = client.get("/graphql/weather").json()
        field = client.post("/graphql", json={"query": "{ weather }"}).json()
        page = client.get("/weather").text

    report = "Bergen: 14 degrees, rain"
    assert asked.status_code == 200
    assert [before, after] == [{"report": report, "runs": runs} for runs in (0, 1)]
    assert field == {"data": {"weather": report}}
    assert page == f"<h1>{report}</h1>"
    assert len([line for line in block.code.splitlines() if line]) <= 80


def test_an_installed_extension_has_settings(tmp_path: Path) -> None:
    result = run_installed(tmp_path, "settings", COPILOT_WEATHER_STATION="Oslo")

    assert re.search(r"weather\.station +COPILOT_WEATHER_STATION +Oslo", result), result


def test_an_installed_extension_has_a_command(tmp_path: Path) -> None:
    (tmp_path / "copilot.yml").write_text(blocks("text", "learn/extensions")[0].code)
    help_text = run_installed(tmp_path, "station", "--help")

    assert "Print the name of the weather station." in help_text
    assert run_command(tmp_path, "station") == "Oslo\n"


def run_installed(folder: Path, *arguments: str, **variables: str) -> str:
    """Install the extension of the page in a folder, and return what a command prints there."""
    (folder / "acme_weather.py").write_text(program("learn/extensions").code)
    metadata = folder / "acme_weather-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-weather\nVersion: 1\n")
    [block] = blocks("toml", "learn/extensions")
    group = block.code.replace('project.entry-points."', "").replace('"', "")
    (metadata / "entry_points.txt").write_text(group)
    return run_command(folder, *arguments, **variables)


def run_command(folder: Path, *arguments: str, **variables: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "copilot_runtime", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_an_extension_that_is_not_open_fails_the_health_check(run: Run) -> None:
    names = run(program("learn/extensions"))
    with TestClient(names["runtime"].app()) as client:
        names["runtime"].get(names["Weather"]).report = ""
        failing = client.get("/health/ready").json()["failing"]

    assert failing == ["weather"]


def test_a_transport_answers_a_run_that_fails_with_its_status(run: Run) -> None:
    runtime = CopilotRuntime(
        ScriptedAdapter(RateLimited("The model is busy.")),
        transports=[run(program("extend/transport"))["AskTransport"]],
        settings=Settings(threads="memory"),
    )
    with TestClient(runtime.app()) as client:
        answer = client.post("/graphql/ask", json={"question": "Hello"})

    assert (answer.status_code, answer.json()) == (429, {"error": "The model is busy."})


def test_an_adapter_of_a_package_is_found_by_its_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from copilot_runtime.api.registry import Registry

    [points] = blocks("toml", "extend/adapter")
    block = program("extend/adapter")
    (tmp_path / "acme_copilot.py").write_text(block.code)
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    section = points.code.replace("project.entry-points.", "").replace('"', "")
    (info / "entry_points.txt").write_text(section)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COPILOT_ADAPTER_NAME", "acme")

    adapter = Registry("copilot_runtime.adapters", ADAPTERS)[load_settings().adapter.name]

    assert adapter().model == "acme-1"


def test_a_receiver_of_webhooks_takes_a_signed_message_once(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run(program("learn/webhooks"))
    body = b'{"type": "run.finished", "data": {"answer": "Done."}}'
    now = int(time.time())
    head = {"webhook-id": "msg_1", "webhook-timestamp": str(now)}
    signed = {**head, "webhook-signature": sign(names["KEY"], "msg_1", now, body)}
    with TestClient(names["app"]) as client:
        statuses = [
            client.post("/answers", content=content, headers=signed).status_code
            for content in (body, body, body.replace(b"Done", b"None"))
        ]

    assert statuses == [200, 200, 401]
    assert capsys.readouterr().out == "run.finished Done.\n"
