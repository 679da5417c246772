"""The README keeps its word: its programs run and answer, its commands and settings exist."""

import asyncio
import json
import os
import re
import shlex
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from websockets.asyncio.client import unix_connect
from websockets.typing import Subprotocol

from copilot_runtime import Caller, CopilotRuntime, DemoAdapter, Settings, __version__
from copilot_runtime.adapters import ADAPTERS
from copilot_runtime.adapters.capabilities import LACKING, SILENT
from copilot_runtime.config import load_settings
from tests.documents import (
    COLUMNS,
    EXAMPLE,
    PARTS,
    README,
    ROOT,
    Block,
    between,
    blocks,
    example_settings,
)
from tests.wire import test_nginx as proxy
from tests.wire.client import PATH
from tests.wire.documents import PLAIN, browser_action, chat, user
from tests.wire.server import listening as serving
from tests.wire_agui.http import Answer, run_input
from tests.wire_agui.http import text_of as said

PROGRAMS = blocks(README, "python")
PROTOCOL = Subprotocol("graphql-transport-ws")
TOKEN = {"authorization": "Bearer open-sesame"}
Names = dict[str, Any]
Run = Callable[[Block], Names]


class Model(BaseHTTPRequestHandler):
    """Speaks OpenAI's bytes: repeats what it hears, or makes the call it is told to make.

    At /agent it is an AG-UI agent, which tells its key; at /joke a chain that LangServe serves.
    """

    def do_GET(self) -> None:
        assert self.path == "/joke/input_schema"
        self._speak_json({"type": "object", "properties": {"topic": {"type": "string"}}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/agent":
            self._speak_agui(body)
            return
        if self.path == "/joke/invoke":
            self._speak_json({"output": f"A {body['input']['topic']} walks into a bar."})
            return
        heard = body["messages"][-1]["content"]
        offered = [tool["function"]["name"] for tool in body.get("tools", ())]
        delta: dict[str, Any] = {"content": f"You said: {heard}"}
        if heard.startswith("call ") and (words := heard.split(" ", 2))[1] in offered:
            function = {"name": words[1], "arguments": words[2]}
            delta = {"tool_calls": [{"index": 0, "id": "call-1", "function": function}]}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for choice in ({"delta": delta}, {"delta": {}, "finish_reason": "stop"}):
            chunk = {"id": "chatcmpl-1", "choices": [{"index": 0, **choice}]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def _speak_json(self, value: Any) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def _speak_agui(self, body: Any) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        ids = {"threadId": body["threadId"], "runId": body["runId"]}
        said = {"messageId": "a1", "delta": f"My key: {self.headers['authorization']}"}
        for event in (
            {"type": "RUN_STARTED", **ids},
            {"type": "TEXT_MESSAGE_CHUNK", **said},
            {"type": "RUN_FINISHED", **ids},
        ):
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Generator[str, None, None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with listening(Model) as url:
        yield url


@pytest.fixture
def run(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what executes a program, in a folder of its own, with a model on loopback."""
    for name in os.environ:
        if name.startswith(("COPILOT_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model}/v1")
    monkeypatch.chdir(tmp_path)

    def execute(block: Block) -> Names:
        code = block.code.replace("http://localhost:11434", model)
        code = code.replace("http://localhost:9000", model)
        names: Names = {"__name__": "readme"}
        exec(compile("\n" * (block.line - 1) + code, str(README), "exec"), names)
        return names

    return execute


def program(heading: str, number: int = 0) -> Block:
    return [block for block in PROGRAMS if block.heading == heading][number]


def post(names: Names, text: str, headers: Mapping[str, str] = TOKEN, **more: Any) -> Any:
    """Ask what a program made, and return the body of the answer."""
    app = names["app"] if "app" in names else names["runtime"].app()
    path = "/api/copilotkit" if isinstance(app, FastAPI) else "/graphql"
    with TestClient(app) as client:
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
    path = "/api/copilotkit" if isinstance(app, FastAPI) else "/graphql"

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

ELSEWHERE = {"LangGraph Platform"}
"""What needs a server of another maker, which tests of its own start."""


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: f"{block.heading}-{block.line}")
def test_every_program_runs_and_what_it_makes_answers(block: Block, run: Run) -> None:
    names = run(block)
    if "runtime" not in names or block.heading in ELSEWHERE:
        return
    agents = list(asyncio.run(names["runtime"].runtime.agents_for(Caller(user="ann"))))
    session = {"agentSession": {"agentName": agents[0]}} if agents else {}
    response = ask(names, "think", **session)
    assert response["status"]["code"] == "Success"
    assert text_of(response)


def test_the_smallest_program_serves_a_page(run: Run) -> None:
    with TestClient(run(program("Start"))["app"]) as client:
        assert "data-endpoint" in client.get("/").text
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("heading", "number"),
    [
        ("Models", 0),
        ("OpenAI", 1),
        ("Services that speak as OpenAI does", 0),
        ("LangChain", 0),
        ("Several models", 0),
    ],
)
def test_each_kind_of_model_is_asked(run: Run, heading: str, number: int) -> None:
    assert text_of(ask(run(program(heading, number)), "Hi")) == "You said: Hi"


def test_a_chain_that_langserve_serves_is_an_action(run: Run) -> None:
    answer = ask(run(program("LangChain", 1)), 'call joke {"topic": "horse"}')
    assert result_of(answer) == "A horse walks into a bar."


def test_every_adapter_is_told_of_and_every_preset_shown() -> None:
    told = README.read_text(encoding="utf-8").partition("## Models\n")[2].partition("## Actions")[0]
    targets = [target.partition(":") for target in ADAPTERS.values()]
    ours = [name for _, _, name in targets if name not in {"DemoAdapter", "ScriptedAdapter"}]
    assert [name for name in ours if not re.search(rf"\b{name}\b", told)] == []


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
    assert result in result_of(ask(run(program("Actions")), f"call {call}"))


def test_wrong_arguments_are_a_result_that_says_what_is_wrong(run: Run) -> None:
    result = json.loads(
        result_of(ask(run(program("Actions")), 'call get_weather {"unit": "kelvin"}'))
    )
    assert result["error"]["code"] == "INVALID_ARGUMENTS"
    assert "unit" in result["error"]["message"]


def test_the_result_of_a_direct_action_is_the_answer(run: Run) -> None:
    response = ask(run(program("Actions")), "call opening_hours {}")
    assert response["messages"][-1]["content"] == ["Monday to Friday, 9 to 17."]


def test_an_action_is_offered_to_administrators_only(run: Run) -> None:
    names = run(program("Actions", 1))
    wish = "call reset_everything {}"
    assert text_of(ask(names, wish)) == f"You said: {wish}"
    assert result_of(ask(names, wish, {"x-role": "admin"})) == "Everything is as new."


@pytest.mark.parametrize(("available", "called"), [("enabled", True), ("remote", False)])
def test_a_browser_action_is_offered_by_its_availability(
    run: Run, available: str, called: bool
) -> None:
    names = run(program("Models"))
    frontend = {"actions": [browser_action() | {"available": available}], "url": None}
    [message] = ask(names, 'call setColor {"color": "teal"}', frontend=frontend)["messages"]
    assert ("arguments" in message) is called


def test_the_mounted_runtime_lets_nobody_in_without_a_token(run: Run) -> None:
    with TestClient(run(program("In your FastAPI application"))["app"]) as client:
        assert client.post("/api/copilotkit", json=chat()).status_code == 401
        assert client.get("/api/copilotkit/health").status_code == 200
        preflight = {"origin": "http://a.example", "access-control-request-method": "POST"}
        assert client.options("/api/copilotkit", headers=preflight).status_code == 204


def test_a_hook_refuses_strangers_and_names_the_others(run: Run) -> None:
    names = run(program("Hooks"))
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
    status = ask(run(program("Guardrails")), text)["status"]
    assert status["reason"] == "GUARDRAILS_VALIDATION_FAILED"
    assert reason in json.dumps(status["details"])


def test_the_agent_shows_its_state_and_speaks(run: Run) -> None:
    session = {"agentSession": {"agentName": "researcher"}}
    messages = ask(run(program("Agents")), "Hi", **session)["messages"]
    states = [message for message in messages if "state" in message]
    assert [json.loads(state["state"])["sources"] for state in states] == [0, 1, 2, 2]
    assert [state["running"] for state in states] == [True, True, False, False]
    [text] = [message for message in messages if "content" in message]
    assert text["content"] == ["I ", "read ", "two ", "books."]


def test_a_thread_can_be_read_renamed_listed_and_forgotten(run: Run, tmp_path: Path) -> None:
    with talking(run(program("Threads"))) as request:
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


@pytest.mark.parametrize("number", [0, 1])
def test_threads_belong_to_whom_the_hook_or_the_dependency_found(run: Run, number: int) -> None:
    with talking(run(program("Who owns a thread", number))) as request:
        request("/agent/default/run", run_input(thread="t1"))
        [thread] = request("/threads", method="GET").json()["threads"]
        stranger = request("/threads", method="GET", headers={})

    assert thread["createdById"] == "ann"
    assert (stranger.status, "Please sign in." in stranger.body.decode()) == (401, True)


def test_agents_depend_on_who_asks(run: Run) -> None:
    with talking(run(program("Agents", 1))) as request:
        mine = request("/info", method="GET").json()["agents"]
        nobodys = request("/info", method="GET", headers={}).json()["agents"]

    assert (list(mine), list(nobodys)) == (["sales"], [])


def test_a_remote_agent_gets_its_own_key_and_not_the_persons(run: Run) -> None:
    with talking(run(program("Remote agents"))) as request:
        info = request("/info", method="GET").json()["agents"]["default"]
        answer = request("/agent/default/run", run_input())

    assert info["description"] == "Knows the weather."
    assert said(answer.events()) == "My key: Bearer key-of-the-agent"


def test_a_graph_on_a_langgraph_server_is_listed(run: Run) -> None:
    with talking(run(program("LangGraph Platform"))) as request:
        info = request("/info", method="GET").json()["agents"]["planner"]

    assert info["description"] == "Plans trips."


def test_a_remote_endpoint_that_is_down_fails_no_chat(run: Run) -> None:
    names = run(program("CopilotKit's remote endpoints"))

    assert ask(names, "think")["status"]["code"] == "Success"


@pytest.mark.parametrize("agent", ["echo", "desk", "planner"])
def test_objects_of_frameworks_answer(run: Run, agent: str) -> None:
    with talking(run(program("Agents of a framework"))) as request:
        events = request(f"/agent/{agent}/run", run_input()).events()

    assert events[-1]["type"] == "RUN_FINISHED"


def test_other_programs_use_actions_and_agents(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPILOT_SERVE_REMOTE", "true")
    with talking(run(program("For other programs"))) as request:
        info = request("/info", {}).json()
        price = request("/actions/execute", {"name": "get_price", "arguments": {"item": "cup"}})

    assert [agent["name"] for agent in info["agents"]] == ["advisor"]
    assert price.json() == {"result": "A cup costs 3 euros."}


def test_page_and_agent_share_a_state(run: Run) -> None:
    with talking(run(program("Shared state"))) as request:
        answer = request("/agent/planner/run", run_input(state={"stops": ["Bergen"]}))

    [state] = [event for event in answer.events() if event["type"] == "STATE_SNAPSHOT"]
    assert state["snapshot"] == {"stops": ["Bergen", "Oslo"]}
    assert said(answer.events()) == "Your plan has 2 stops."


@pytest.mark.parametrize(
    ("status", "approved", "words"),
    [
        ("resolved", True, "It is booked."),
        ("resolved", False, "Then not."),
        ("cancelled", None, "Then not."),
    ],
)
def test_an_interrupted_run_goes_on_with_the_answer(
    run: Run, status: str, approved: bool | None, words: str
) -> None:
    with talking(run(program("Interrupts"))) as request:
        first = request("/agent/booker/run", run_input(run="r1")).events()
        [asked] = first[-1]["outcome"]["interrupts"]
        answer = {"interruptId": asked["id"], "status": status, "payload": {"approved": approved}}
        second = request("/agent/booker/run", run_input(run="r2", resume=[answer])).events()

    assert asked["message"] == "Book it?"
    assert said(second) == words


def test_the_stage_sees_the_first_word(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "shop"):
        ask(run(program("Stages")), "think")
    assert len(re.findall("first word after", caplog.text)) == 1


def test_an_adapter_of_a_package_is_found_by_its_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from copilot_runtime.registry import Registry

    [points] = blocks(README, "toml")
    block = program("Your own adapter")
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


# --- commands and settings


@pytest.mark.parametrize(
    "line",
    [
        part.strip()
        for block in blocks(README, "sh")
        for line in block.code.splitlines()
        for part in line.partition(" #")[0].split("&&")
    ],
)
def test_every_command_and_its_options_exist(line: str) -> None:
    program, *arguments = [word for word in shlex.split(line) if not re.match(r"[A-Z_]+=", word)]
    match program:
        case "make":
            assert f"\n{arguments[0]}:" in (ROOT / "Makefile").read_text()
        case "copilot-runtime":
            _parse(arguments[: arguments.index(">")] if ">" in arguments else arguments)
        case "uvicorn":
            from uvicorn.main import main

            main.make_context("uvicorn", arguments)
        case "pip":
            wheel = f"dist/copilot_runtime-{__version__}-py3-none-any.whl"
            assert arguments in (["install", "."], ["install", wheel])
        case "docker":
            assert arguments[0] in {"build", "run"}
            assert "copilot-runtime" in arguments
            assert (ROOT / "Dockerfile").is_file()
        case _:
            raise AssertionError(f"Nobody checks the command {program!r}.")


def _parse(arguments: list[str]) -> None:
    """Let the command line read its arguments without running anything."""
    from typer.main import get_command

    from copilot_runtime.cli.main import cli

    command: Any = get_command(cli)
    name = ""
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, arguments)


@pytest.mark.parametrize("block", blocks(README, "yaml"), ids=lambda block: f"line {block.line}")
def test_every_file_of_settings_is_valid(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "copilot.yml"
    file.write_text(block.code)
    assert load_settings(file, {}) != Settings()


@pytest.mark.parametrize("marker", PARTS)
def test_a_table_that_is_made_of_the_code_is_that_of_the_code(marker: str) -> None:
    table = between(README.read_text(encoding="utf-8"), marker)
    assert table == PARTS[marker](), "python -m tests.documents writes it anew"


def test_the_tables_of_abilities_show_every_adapter_that_lacks_something() -> None:
    shown = {name for columns in COLUMNS for name in columns}
    assert {*LACKING, *SILENT} <= shown
    assert shown - {"openai_responses"} == set(ADAPTERS) - {"demo", "empty", "scripted"}


def test_the_example_of_settings_holds_every_setting_at_its_default() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text == example_settings(), "python -m tests.documents writes it anew"
    assert load_settings(EXAMPLE, {}) == Settings()
    assert [row.name for row in Settings.describe() if row.variable not in text] == []


# --- over real sockets


@pytest.mark.anyio
async def test_a_subscription_goes_on_after_a_lost_connection(run: Run) -> None:
    names = run(program("Subscriptions"))
    async with serving(CopilotRuntime(adapter=DemoAdapter(pace=0))) as port, asyncio.timeout(20):
        story = await names["main"](f"ws://127.0.0.1:{port}{PATH}")

    assert story.startswith("You asked for something long")
    assert story.endswith("This one is.")


@pytest.mark.anyio
async def test_nginx_passes_chats_and_sockets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = blocks(README, "nginx")
    location = block.code.replace("{", "{{").replace("}", "}}")
    location = location.replace("8000/graphql", f"{{port}}{PATH}")
    theirs = "location / {{ proxy_pass http://127.0.0.1:{port}; }}"
    assert theirs in proxy.CONFIGURATION
    monkeypatch.setattr(proxy, "CONFIGURATION", proxy.CONFIGURATION.replace(theirs, location))
    async with (
        serving(CopilotRuntime(adapter=DemoAdapter(pace=0))) as port,
        proxy.nginx(port) as listener,
        asyncio.timeout(20),
    ):
        reader, writer = await asyncio.open_unix_connection(listener)
        writer.write(
            proxy.request(chat(user("think"))).replace(PATH.encode(), b"/api/copilotkit", 1)
        )
        answer = await reader.readuntil(b"-----")
        writer.close()
        await writer.wait_closed()
        async with unix_connect(
            str(listener), "ws://localhost/api/copilotkit", subprotocols=[PROTOCOL]
        ) as socket:
            await socket.send('{"type":"connection_init"}')
            greeting = await socket.recv()

    assert b"SuccessResponseStatus" in answer
    assert greeting == '{"type":"connection_ack"}'
