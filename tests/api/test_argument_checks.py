"""What is given to the constructor is checked there, and answered with what was meant."""

import traceback
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI

from copilot_runtime import (
    Action,
    CopilotRuntime,
    DemoAdapter,
    OpenAIAdapter,
    Settings,
    Stage,
    action,
)
from copilot_runtime.api import Agent, RunInput
from copilot_runtime.api.argument_checks import as_stage, complete
from copilot_runtime.api.events import Custom, Events, RunFinished
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.event_order.verify import verify_events
from copilot_runtime.testing import Client, ScriptedAdapter, say
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.run_log import MemoryBus
from tests.in_one_test import in_one_test
from tests.runs import Says, log_of, run_input, runtime_with


@action
def get_weather(city: str) -> str:
    """Look out of the window."""
    return city


class EventOrder(Stage):
    """A stage of which somebody gives the class."""


def take_run(run: object) -> None:
    """Have one parameter, for what is called with two."""


def take_two(a: object, b: object) -> None:
    """Have two."""


def take_nothing() -> Any:
    return {}


TAKES_TWO: Any = take_two
TAKES_RUN: Any = take_run

CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"adapter": DemoAdapter}, "The adapter is the class 'DemoAdapter'", "DemoAdapter(...)"),
    ({"adapter": OpenAIAdapter}, "The adapter is the class 'OpenAIAdapter'", "OpenAIAdapter(...)"),
    ({"adapter": "openai"}, "The adapter is of the type 'str'", "OpenAIAdapter('gpt-4o')"),
    ({"adapter": {"actions": []}}, "The adapter is of the type 'dict'", "actions=[...]"),
    ({"adapter": 5}, "has no method 'stream'", "or give an object of yours that has it"),
    ({"agents": {"a": "https://a"}}, "The agent 'a' is a str", "Write AguiAgent("),
    ({"agents": take_nothing}, "agents cannot be called with (caller)", "Write def agents(caller)"),
    ({"agents": [DemoAdapter()]}, "The agents are a list", "agents={'weather': weather}"),
    ({"agents": {"a": DemoAdapter}}, "The agent 'a' is the class 'DemoAdapter'", "be an agent"),
    ({"actions": get_weather}, "actions is one action, 'get_weather'", "actions=[get_weather]"),
    ({"actions": {"a": get_weather}}, "actions is a dict", "actions=[get_weather]"),
    ({"actions": "get_weather"}, "actions is a str", "actions=[get_weather]"),
    ({"actions": ["get_weather"]}, "a str (builtins.str) is not", "the functions themselves"),
    ({"actions": [5]}, "an int (builtins.int) is not", "the functions themselves"),
    ({"threads": "/tmp/x.db"}, "does not begin with the name of a store", "sqlite:/tmp/x.db"),
    ({"threads": Path("x.db")}, "threads is a path", "threads='sqlite:x.db'"),
    ({"threads": MemoryThreads}, "The store of threads is the class 'MemoryThreads'", "(...)"),
    ({"threads": 5}, "The store of threads is of the type 'int'", "'begin'"),
    ({"bus": MemoryBus}, "The bus is the class 'MemoryBus'", "MemoryBus(...)"),
    ({"bus": "memory"}, "The bus is of the type 'str'", "'append'"),
    (
        {"mcp_servers": ["http://a"]},
        "mcp_servers has an item that is a str",
        "McpServer('http://a')",
    ),
    ({"mcp_servers": "http://a"}, "mcp_servers is a str", "mcp_servers=["),
    ({"remote_endpoints": "http://a"}, "remote_endpoints is a str", "remote_endpoints=["),
    (
        {"mcp_servers": [{"endpoint": "http://a"}]},
        "mcp_servers has an item that is a dict",
        "McpServer('http://a')",
    ),
    (
        {"remote_endpoints": [{"url": "http://a"}]},
        "remote_endpoints has an item that is a dict",
        "remote_endpoints=[RemoteEndpoint('http://a')]",
    ),
    ({"stages": print}, "stages is a builtin_function_or_method", "stages=[stage]"),
    (
        {"stages": [take_run]},
        "cannot be called with (events, run)",
        "async def stage(",
    ),
    ({"stages": [EventOrder]}, "the class 'EventOrder'", "Write stages=[EventOrder(...)]"),
    ({"guardrails": ["politics"]}, "an item that is a str", "Settings(guardrails={'deny': [...]})"),
    (
        {"hooks": Hooks(before_request=TAKES_TWO)},
        "its parameters are (a, b)",
        "before_request(run)",
    ),
    (
        {"hooks": Hooks(after_request=TAKES_RUN)},
        "its parameters are (run)",
        "(run, messages)",
    ),
    (
        {"hooks": Hooks(error=TAKES_RUN)},
        "cannot be called with (error, context)",
        "def error(",
    ),
    ({"authenticate": lambda: "ann"}, "its parameters are ()", "def authenticate(connection)"),
    ({"actions": take_nothing}, "actions cannot be called with (run)", "Write def actions(run)"),
    ({"actions": {print}}, "actions is a set, and not a list", "actions=[get_weather]"),
    (
        {"actions": [Action(name="a", run=cast("Any", take_run))]},
        "The run of the action 'a' cannot be called with (arguments, context)",
        "Write action(function)",
    ),
    ({"guardrails": print}, "guardrails is a builtin_function_or_method", "guardrails=["),
    ({"transports": "agui"}, "transports is a str", "transports=['agui']"),
    ({"properties": ["a"]}, "properties is a list", "properties={"),
    ({"hooks": Hooks(error=cast("Any", "log"))}, "error is a str", "error=function"),
    ({"hooks": {"error": print}}, "hooks is a dict", "hooks=Hooks(error=report)"),
    ({"authenticate": True}, "authenticate is a bool", "authenticate=function"),
    ({"settings": {"port": 1}}, "settings is a dict", "settings=Settings(port=8080)"),
    ({"settings": Settings}, "settings is the class 'Settings'", "settings=Settings(port=8080)"),
]


@in_one_test(("arguments", "cause", "way_out"), CASES)
def test_a_wrong_argument_is_answered_with_cause_and_way_out(
    arguments: dict[str, Any], cause: str, way_out: str
) -> None:
    given: dict[str, Any] = {"settings": Settings(threads="memory"), **arguments}
    with pytest.raises(ConfigurationFailed) as caught:
        CopilotRuntime(**given)

    said = "".join(traceback.format_exception(caught.value))  # all that a program shows
    assert cause in said
    assert way_out in said


@in_one_test(
    ("arguments", "way_out"),
    [
        ({"serviceAdapter": DemoAdapter()}, "Did you mean 'adapter'?"),
        ({"remoteEndpoints": []}, "Did you mean 'remote_endpoints'?"),
        ({"onBeforeRequest": print}, "Write hooks=Hooks(before_request=...)."),
        ({"mcpApps": {}}, "Did you mean 'mcp_apps'?"),
        ({"openGenerativeUI": True}, "Did you mean 'open_generative_ui'?"),
        ({"model": "gpt-4o"}, "Write adapter=OpenAIAdapter('gpt-4o')."),
        ({"corsOrigins": "*"}, "Write settings=Settings(cors_origins=...)."),
        ({"delegate": True}, "Known: adapter, "),
    ],
)
def test_a_name_that_is_no_argument_is_answered_with_what_is_meant(
    arguments: dict[str, Any], way_out: str
) -> None:
    [name] = arguments
    with pytest.raises(TypeError) as caught:
        CopilotRuntime(**arguments)

    assert str(caught.value).startswith(f"CopilotRuntime has no argument {name!r}. {way_out}")


def test_a_second_argument_without_a_name_is_answered_with_the_names() -> None:
    given: Any = (DemoAdapter(), [get_weather])
    with pytest.raises(
        TypeError, match=r"takes only adapter without a name.* by name: .*, actions, "
    ):
        CopilotRuntime(*given)


def test_an_adapter_answers_a_wrong_name_with_its_own() -> None:
    given: dict[str, Any] = {"apiKey": "sk-secret"}
    with pytest.raises(TypeError) as caught:
        OpenAIAdapter("gpt-4o", **given)

    said = "OpenAIAdapter has no argument 'apiKey'. Did you mean 'api_key'?"
    assert str(caught.value) == said


def test_an_application_that_is_none_to_mount_in_is_answered_with_the_order() -> None:
    runtime: Any = CopilotRuntime(DemoAdapter(), settings=Settings(threads="memory"))
    with pytest.raises(ConfigurationFailed, match=r"is a str, and not FastAPI.\nWrite .*\(app, "):
        runtime.mount("/api", FastAPI())
    with pytest.raises(ConfigurationFailed, match=r"must begin with a slash.\nWrite '/api'"):
        runtime.mount(FastAPI(), "api")


def test_a_traceback_shows_the_hint_that_an_error_has_now() -> None:
    error = ConfigurationFailed("It is wrong.", hint="The key is sk-secret.")
    error.add_note("Somebody's note")
    error.hint = "Look into the log."

    said = traceback.format_exception_only(error)
    assert said[1:] == ["Look into the log.\n", "Somebody's note\n"]


@pytest.mark.anyio
async def test_the_address_of_a_store_is_enough(tmp_path: Path) -> None:
    runtime = CopilotRuntime(
        ScriptedAdapter(say("Hello.")), threads=f"sqlite:{tmp_path / 'x.db'}", settings=Settings()
    )
    async with Client(runtime) as client:
        await client.say("Hi")

    assert (tmp_path / "x.db").is_file()


pytestmark = pytest.mark.anyio


class Echo:
    """An agent that inherits from nothing, with one optional method and one of its own."""

    description = "Repeats"
    volume = 11

    async def run(self, run: RunInput) -> Events:
        yield Custom(name="echo", value=run.run_id)


def test_a_part_that_inherits_is_passed_on_as_it_is() -> None:
    class Mine(Agent):
        """An agent."""

    mine = Mine()
    assert complete(Agent, mine) is mine


async def test_what_is_missing_has_the_default_of_the_interface() -> None:
    agent = complete(Agent, Echo())
    agent.check(run_input())
    await agent.aclose()

    assert isinstance(agent, Agent)
    assert [event async for event in agent.run(run_input("r7"))] == [
        Custom(name="echo", value="r7")
    ]


def test_what_is_there_is_the_part_s_own_also_when_it_changes_later() -> None:
    part = Echo()
    agent = complete(Agent, part)
    part.description = "Repeats loudly"

    assert (agent.description, type(agent).__name__) == ("Repeats loudly", "Echo")
    assert getattr(agent, "volume") == 11  # noqa: B009  # the interface has no such attribute


async def test_a_plain_function_is_a_stage() -> None:
    async def shorten(events: Events, run: RunInput) -> Events:
        async for event in events:
            if not isinstance(event, Custom):
                yield event

    runtime = runtime_with(Says(Custom(name="long", value=None)), stages=[shorten])
    await runtime.start(run_input())

    assert isinstance(as_stage(shorten), Stage)
    assert (await log_of(runtime))[1:] == [RunFinished()]


def test_a_stage_of_ours_is_used_without_a_wrapper() -> None:
    stage = as_stage(verify_events)
    assert as_stage(stage) is stage
