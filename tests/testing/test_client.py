"""An application's test reads as a conversation, in both protocols, in process and at a URL."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime import Action, ChatRequest, CopilotRuntime, Events, RunInput, Settings, action
from copilot_runtime.api import ContextItem
from copilot_runtime.api.events import Event, Interrupt, TextMessageContent
from copilot_runtime.base.errors import ConfigurationFailed, Misuse, NetworkError, Refused
from copilot_runtime.testing import (
    Client,
    Gate,
    ReplyFailed,
    ScriptedAdapter,
    ScriptedAgent,
    SyncClient,
    ToolCall,
    ask,
    call,
    replace_adapter,
    say,
    set_state,
)
from tests.in_one_test import in_one_test
from tests.wire.server import listening

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.anyio

PROTOCOLS: Any = pytest.mark.parametrize("protocol", ["agui", "graphql"])


@action
def get_weather(city: str) -> str:
    """Look out of the window."""
    return f"4 degrees in {city}"


def runtime_of(*turns: Any, **more: Any) -> CopilotRuntime:
    adapter = ScriptedAdapter(*turns, gate=more.pop("gate", None))
    return CopilotRuntime(adapter, settings=Settings(threads="memory"), **more)


async def test_another_conversation_may_be_with_another_page() -> None:
    model = ScriptedAdapter(say("Hello."), say("Hello again."))
    async with Client(CopilotRuntime(model), context=[ContextItem("Cart", "2 items")]) as client:
        await client.say("Hi")
        other = client.another(
            tools=[get_weather], context=[], state={"seats": 1}, properties={"tone": "dry"}
        )
        reply = await other.say("Hi")

    assert "2 items" in str(model.requests[0].messages[0])
    assert "2 items" not in str(model.requests[1].messages)
    assert "get_weather" in [action.name for action in model.requests[1].actions]
    assert (other.state, other.properties) == ({"seats": 1}, {"tone": "dry"})
    assert [event.content for event in reply.events if isinstance(event, TextMessageContent)] == [
        "Hello again."
    ]


@PROTOCOLS
async def test_a_reply_has_the_text_of_the_answer(protocol: Any) -> None:
    async with Client(runtime_of(say(["Hel", "lo."])), protocol=protocol) as client:
        chat = await client.say("Hi")

    assert (chat.text, chat.tool_calls) == ("Hello.", [])


@PROTOCOLS
async def test_the_next_message_brings_the_conversation_along(protocol: Any) -> None:
    adapter = ScriptedAdapter(say("Hello."), say("Fine."))
    async with Client(
        CopilotRuntime(adapter, settings=Settings(threads="memory")), protocol=protocol
    ) as client:
        await client.say("Hi")
        chat = await client.say("How are you?")

    assert chat.text == "Fine."
    texts = [getattr(message, "content", None) for message in adapter.requests[1].messages]
    assert texts == ["Hi", "Hello.", "How are you?"]


@PROTOCOLS
async def test_a_reply_goes_on_after_an_action_of_the_server(protocol: Any) -> None:
    runtime = runtime_of(
        call("get_weather", {"city": "Oslo"}), say("It is cold."), actions=[get_weather]
    )
    async with Client(runtime, protocol=protocol) as client:
        chat = await client.say("How is the weather in Oslo?")

    assert chat.text == "It is cold."
    assert chat.tool_calls == [ToolCall("get_weather", {"city": "Oslo"}, "4 degrees in Oslo")]


@PROTOCOLS
async def test_functions_of_the_page_are_called_as_a_page_calls_them(protocol: Any) -> None:
    colors: list[str] = []

    def set_color(color: str) -> str:
        colors.append(color)
        return "done"

    runtime = runtime_of(call("set_color", {"color": "teal"}), say("It is teal."))
    async with Client(runtime, protocol=protocol, tools=[set_color]) as client:
        chat = await client.say("Make it teal")

    assert colors == ["teal"]
    assert (chat.text, chat.open_calls) == ("It is teal.", [])
    assert chat.tool_calls == [ToolCall("set_color", {"color": "teal"}, "done")]


@PROTOCOLS
async def test_a_call_for_the_page_waits_for_the_answer_of_the_test(protocol: Any) -> None:
    confirm = Action(name="confirm", description="Ask the person.")
    runtime = runtime_of(call("confirm", {"what": "delete"}), say("It is deleted."))
    async with Client(runtime, protocol=protocol, tools=[confirm]) as client:
        chat = await client.say("Delete it")
        assert chat.open_calls == [ToolCall("confirm", {"what": "delete"})]
        chat = await client.answer({"confirm": "yes"})

    assert (chat.text, chat.open_calls) == ("It is deleted.", [])


async def test_a_call_that_the_person_passed_over_needs_no_answer_later() -> None:
    runtime = runtime_of(call("confirm"), say("Never mind."), call("confirm"), say("Good."))
    async with Client(runtime, tools=[Action(name="confirm")]) as client:
        await client.say("Delete it")
        assert (await client.say("No, wait")).text == "Never mind."
        await client.say("Now")
        chat = await client.answer({"confirm": "yes"})

    assert chat.text == "Good."


async def test_an_answer_to_a_call_that_nobody_made_is_an_error_of_the_test() -> None:
    async with Client(runtime_of(say("Hello."))) as client:
        await client.say("Hi")
        with pytest.raises(Misuse, match=r"No call waits for 'confirm'\. Those that wait: none"):
            await client.answer({"confirm": "yes"})
        with pytest.raises(ConfigurationFailed, match="results is a str, and not a mapping"):
            await client.answer("yes")  # pyright: ignore[reportArgumentType]  # the mistake


def test_tools_that_are_one_function_are_answered_with_a_list() -> None:
    with pytest.raises(
        ConfigurationFailed, match=r"(?s)tools is .* not a list.*Write tools=\[set_color\]"
    ):
        Client(runtime_of(), tools=get_weather)  # pyright: ignore[reportArgumentType]  # the mistake


async def test_a_path_without_a_slash_is_answered_with_one() -> None:
    async with Client(runtime_of()) as client:
        with pytest.raises(ConfigurationFailed, match=r"Write '/health'"):
            await client.request("GET", "health")


@PROTOCOLS
async def test_an_interrupt_is_answered_and_the_agent_gets_the_answer(protocol: Any) -> None:
    agent = ScriptedAgent(ask("Book it?"), say("It is booked."))
    runtime = CopilotRuntime(agents={"booker": agent}, settings=Settings(threads="memory"))
    async with Client(runtime, protocol=protocol, agent="booker") as client:
        chat = await client.say("A flight to Oslo")
        assert [question.message for question in chat.interrupts] == ["Book it?"]
        chat = await client.resume("yes")

    assert (chat.text, len(chat.interrupts)) == ("It is booked.", 0)
    [resume] = agent.runs[1].resume
    assert resume.response == "yes"


@PROTOCOLS
async def test_an_answer_that_is_refused_may_be_given_again(protocol: Any) -> None:
    schema = {"type": "object", "required": ["seat"]}
    question = Interrupt(
        interrupt_id="i", value={"id": "i", "reason": "seat"}, response_schema=schema
    )
    agent = ScriptedAgent([question], say("Booked."))
    runtime = CopilotRuntime(agents={"a": agent}, settings=Settings(threads="memory"))
    async with Client(runtime, agent="a", protocol=protocol) as client:
        await client.say("A seat to Oslo")
        with pytest.raises(ReplyFailed, match="cannot go on with this answer"):
            await client.resume("yes")
        reply = await client.resume({"seat": 7})

    assert (reply.text, [*reply.interrupts, *client.interrupts]) == ("Booked.", [])


@PROTOCOLS
async def test_page_and_agent_share_a_state(protocol: Any) -> None:
    agent = ScriptedAgent(
        [*set_state({"stops": ["Oslo"]}), *say("One stop.")],
        lambda run: say(f"{run.agent_input.state}"),
    )
    runtime = CopilotRuntime(agents={"planner": agent}, settings=Settings(threads="memory"))
    async with Client(runtime, protocol=protocol, agent="planner") as client:
        chat = await client.say("Plan")
        assert chat.state == client.state == {"stops": ["Oslo"]}
        chat = await client.say("And now?")

    assert chat.text == "{'stops': ['Oslo']}"


@PROTOCOLS
async def test_a_refusal_is_an_error_with_its_sentence(protocol: Any) -> None:
    async def refuse(events: Events, run: RunInput) -> Events:
        raise Refused("Let us talk about your order.")
        yield

    runtime = runtime_of(say("Never said."), guardrails=[refuse])
    async with Client(runtime, protocol=protocol) as client:
        with pytest.raises(ReplyFailed, match="Let us talk about your order") as failure:
            await client.say("Hi")

    assert failure.value.code == "GUARDRAILS_VALIDATION_FAILED"


@PROTOCOLS
async def test_an_unknown_agent_is_an_error_of_the_reply(protocol: Any) -> None:
    async with Client(runtime_of(say("Hello.")), protocol=protocol, agent="nobody") as client:
        with pytest.raises(ReplyFailed, match="nobody"):
            await client.say("Hi")


@PROTOCOLS
async def test_a_server_at_a_url_answers_alike(protocol: Any) -> None:
    async with (
        listening(runtime_of(say("Hello."))) as port,
        Client(f"http://127.0.0.1:{port}/copilotkit", protocol=protocol) as client,
    ):
        chat = await client.say("Hi")

    assert chat.text == "Hello."


async def test_an_application_has_its_lifespan_and_a_path() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        steps.append("start")
        yield
        steps.append("end")

    app = FastAPI(lifespan=lifespan)
    runtime_of(say("Hello.")).mount(app, "/api/copilotkit")
    async with Client(app, path="/api/copilotkit") as client:
        assert steps == ["start"]
        assert (await client.say("Hi")).text == "Hello."
        assert (await client.request("GET", "/api/copilotkit/health")).status == 200

    assert steps == ["start", "end"]


async def test_a_wrong_path_is_named() -> None:
    async with Client(runtime_of(say("Hello.")).app("/here"), path="/there") as client:
        with pytest.raises(ReplyFailed, match=r"HTTP 404 at '/there/agent/default/run'"):
            await client.say("Hi")


async def test_an_application_that_cannot_start_says_why() -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        async with Client(FastAPI(lifespan=lifespan)):
            pass


async def test_what_the_application_raises_is_raised_in_the_test() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise LookupError("a bug")

    async with Client(app) as client:
        with pytest.raises(LookupError, match="a bug"):
            await client.say("Hi")


@PROTOCOLS
async def test_two_people_talk_to_one_application(protocol: Any) -> None:
    def greet(request: ChatRequest) -> list[Event]:
        return say(f"Hello {request.user}.")

    def authenticate(connection: HTTPConnection) -> str:
        return connection.headers["x-user"]

    runtime = runtime_of(greet, greet, authenticate=authenticate)
    async with Client(runtime, protocol=protocol, headers={"X-User": "ann"}) as ann:
        bob = ann.another(headers={"X-User": "bob"})
        assert (await ann.say("Hi")).text == "Hello ann."
        assert (await bob.say("Hi")).text == "Hello bob."


async def test_a_model_of_the_application_is_replaced_for_a_while() -> None:
    runtime = runtime_of(say("The real one."))
    async with Client(runtime) as client:
        with replace_adapter(runtime, ScriptedAdapter(say("The scripted one."))):
            assert (await client.say("Hi")).text == "The scripted one."
        assert (await client.say("Hi")).text == "The real one."


async def test_a_script_that_is_too_short_names_its_player() -> None:
    runtime = CopilotRuntime(agents={"a": ScriptedAgent()}, settings=Settings(threads="memory"))
    async with Client(runtime, agent="a") as client:
        with pytest.raises(ReplyFailed, match="The script has 0 turns and was asked for turn 1"):
            await client.say("Hi")


@in_one_test(
    ("turns", "found"),
    [
        (["Hello."], "Turn 1 of ScriptedAdapter is no list of events, but is a str"),
        ([say("Hi"), ["Hello."]], "Turn 2 of ScriptedAdapter is no list of events, but has a str"),
        ([[say("Hi"), say("Bye")]], "Turn 1 of ScriptedAdapter .* has a list"),
        ([say("Hi")[0]], "is a TextMessageStart"),
        ([None], "is a NoneType"),
    ],
)
async def test_a_turn_that_is_no_list_of_events_is_answered_with_one(
    turns: list[Any], found: str
) -> None:
    with pytest.raises(Misuse, match=rf"{found}.* Write ScriptedAdapter\(say\('Hello'\)"):
        ScriptedAdapter(*turns)


async def test_a_function_that_returns_no_list_of_events_is_answered_with_one() -> None:
    def answer(request: ChatRequest) -> Any:
        return "Hello."

    async with Client(runtime_of(answer)) as client:
        with pytest.raises(ReplyFailed, match=r"Turn 1 of ScriptedAdapter .* Write"):
            await client.say("Hi")


async def test_a_runtime_without_a_model_has_none_to_replace() -> None:
    runtime = CopilotRuntime(agents={"a": ScriptedAgent()}, settings=Settings(threads="memory"))
    with (
        pytest.raises(Misuse, match=r"no model that could be replaced.*ScriptedAgents"),
        replace_adapter(runtime, ScriptedAdapter()),
    ):
        pass


async def test_an_answer_that_takes_too_long_is_an_error_of_the_test() -> None:
    async with Client(runtime_of(say("Hello."), gate=Gate()), timeout=0.5) as client:
        with pytest.raises(NetworkError, match=r"was not answered within 0\.5 s"):
            await client.say("Hi")


async def test_an_application_that_starts_for_ever_is_an_error_of_the_test() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    with pytest.raises(NetworkError, match=r"did not start within 0\.1 s"):
        async with Client(app, timeout=0.1):
            pass


async def test_a_plain_client_in_an_async_test_names_the_other() -> None:
    with pytest.raises(Misuse, match="async with Client"), SyncClient(runtime_of()):
        pass


async def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    with pytest.raises(Misuse, match="async with Client"):
        await Client(runtime_of()).say("Hi")


@in_one_test(
    "target",
    [42, "nowhere", "ftp://localhost/graphql", CopilotRuntime, CopilotRuntime.app, FastAPI],
)
async def test_a_target_that_is_nothing_to_talk_to_is_refused(target: Any) -> None:
    with pytest.raises(Exception, match=r"no CopilotRuntime|URL"):
        Client(target)


async def test_an_application_without_a_lifespan_answers() -> None:
    inner: ASGIApp = runtime_of(say("Hello.")).app()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        await inner(scope, receive, send)

    async with Client(app) as client:
        assert (await client.say("Hi")).text == "Hello."


def test_a_plain_client_of_an_application_that_cannot_start_leaves_no_loop() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        loops.append(asyncio.get_running_loop())
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(RuntimeError, match="no database"), SyncClient(app):
        pass

    assert [loop.is_closed() for loop in loops] == [True]


@PROTOCOLS
def test_a_plain_function_talks_without_await(protocol: Any) -> None:
    with SyncClient(runtime_of(say("Hello.")), protocol=protocol) as client:
        assert client.say("Hi").text == "Hello."


def test_the_package_imports_neither_this_nor_pytest() -> None:
    code = """
import sys
import copilot_runtime, copilot_runtime.app.app
assert "copilot_runtime.testing" not in sys.modules
import copilot_runtime.testing
assert "pytest" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_fixtures_open_clients_and_close_them(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        'import os\nos.environ["COPILOT_THREADS"] = "memory"\n'
        'pytest_plugins = ["copilot_runtime.testing.fixtures"]\n'
    )
    pytester.makepyfile(
        """
        import pytest
        from copilot_runtime import CopilotRuntime
        from copilot_runtime.testing import ScriptedAdapter, say

        def test_plain(open_client):
            client = open_client(CopilotRuntime(ScriptedAdapter(say("Hello."))))
            assert client.say("Hi").text == "Hello."

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        async def test_async(open_async_client):
            client = await open_async_client(CopilotRuntime(ScriptedAdapter(say("Hello."))))
            assert (await client.say("Hi")).text == "Hello."
        """
    )
    pytester.runpytest_subprocess("-p", "no:langsmith_plugin").assert_outcomes(passed=2)
