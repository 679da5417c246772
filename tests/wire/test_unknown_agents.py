"""Who asks for an agent that is not there gets the names of those that this caller may use."""

from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import Agent, Caller, CopilotRuntime, Settings
from copilot_runtime.testing import Client, ReplyFailed, ScriptedAgent
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def agents_of(caller: Caller) -> dict[str, Agent]:
    names = {"ann": ["sales", "stock"], "bob": ["support"]}
    return {name: ScriptedAgent() for name in names.get(caller.user or "", [])}


@in_one_test("protocol", ["agui", "graphql"])
@in_one_test(
    ("user", "names"), [("ann", {"sales", "stock"}), ("bob", {"support"}), ("eve", set[str]())]
)
async def test_the_names_are_those_of_the_caller(user: str, names: set[str], protocol: Any) -> None:
    def authenticate(connection: HTTPConnection) -> str:
        return connection.headers["x-user"]

    runtime = CopilotRuntime(
        agents=agents_of, authenticate=authenticate, settings=Settings(threads="memory")
    )
    headers = {"x-user": user}
    async with Client(runtime, protocol=protocol, agent="nobody", headers=headers) as page:
        with pytest.raises(ReplyFailed) as failure:
            await page.say("Hi")

    every = {"sales", "stock", "support"}
    assert {name for name in every if name in failure.value.message} == names
