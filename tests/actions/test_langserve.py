"""Chains behind LangServe's endpoints, as actions."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime.actions.langserve import LangServeChain, langserve_actions
from copilot_runtime.errors import ConfigurationFailed, NetworkError
from copilot_runtime.interfaces import Action, ActionContext, RunInput
from tests.adapters.provider import Provider, serving, whole

pytestmark = pytest.mark.anyio

RUN = RunInput(thread_id="t", run_id="r", messages=[])
CONTEXT = ActionContext(thread_id="t", run_id="r", call_id="c", properties={}, headers={})
TOPIC = {
    "type": "object",
    "title": "PromptInput",
    "properties": {"topic": {"type": "string"}},
    "required": ["topic"],
}
ANYTHING = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Messages"}], "$defs": {"Messages": {}}}


@pytest.fixture
async def server(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    del anyio_backend
    async with serving() as server:
        yield server


@pytest.fixture
async def chain(server: Provider) -> AsyncGenerator[LangServeChain, None]:
    chain = langserve_actions(f"{server.url}/my%20chains/joke/", headers={"x-mine": "1"})
    yield chain
    await chain.aclose()


async def only(chain: LangServeChain) -> Action:
    (action,) = await chain.actions(RUN)
    return action


async def run(action: Action, **values: Any) -> Any:
    assert action.run is not None
    return await action.run(values, CONTEXT)


async def test_a_chain_is_an_action_with_the_schema_of_its_input(
    server: Provider, chain: LangServeChain
) -> None:
    server.answer([whole(TOPIC)], [whole({"output": "A joke.", "metadata": {}})])

    action = await only(chain)
    result = await run(action, topic="bears")

    assert (action.name, action.parameters, result) == ("joke", TOPIC, "A joke.")
    schema, invoke = server.requests
    assert schema.line == "GET /my%20chains/joke/input_schema HTTP/1.1"
    assert invoke.line == "POST /my%20chains/joke/invoke HTTP/1.1"
    assert invoke.body == {"input": {"topic": "bears"}, "config": {}, "kwargs": {}}
    assert invoke.headers["x-mine"] == "1"


async def test_a_chain_that_takes_one_thing_gets_it_from_its_only_parameter(
    server: Provider, chain: LangServeChain
) -> None:
    message = {"content": "A joke.", "type": "ai", "id": "run-1"}
    server.answer([whole(ANYTHING)], [whole({"output": message})])

    action = await only(chain)
    result = await run(action, input="bears")

    assert action.parameters == {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
    }
    assert result == "A joke."
    assert server.requests[1].body["input"] == "bears"


async def test_the_schema_is_asked_for_once(server: Provider, chain: LangServeChain) -> None:
    server.answer([whole(TOPIC)])

    assert (await only(chain)).parameters == (await only(chain)).parameters
    assert len(server.requests) == 1


async def test_a_chain_that_is_not_there_is_an_error_and_asked_again_next_time(
    server: Provider, chain: LangServeChain
) -> None:
    server.answer([whole({"detail": "Not Found"}, status="404 Not Found")], [whole(TOPIC)])

    with pytest.raises(NetworkError, match="'joke' answered 404: Not Found"):
        await chain.actions(RUN)

    assert (await only(chain)).parameters == TOPIC


async def test_a_chain_that_fails_is_not_run_again(server: Provider, chain: LangServeChain) -> None:
    server.answer([whole(TOPIC)], [whole(b"Oh no", status="500 No", content_type="text/plain")])
    action = await only(chain)

    with pytest.raises(NetworkError, match="answered 500"):
        await run(action, topic="bears")

    assert len(server.requests) == 2


def test_an_address_is_needed() -> None:
    with pytest.raises(ConfigurationFailed, match="is not an address"):
        langserve_actions("joke")
