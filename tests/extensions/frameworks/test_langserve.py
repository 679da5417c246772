"""Chains behind LangServe's endpoints, as actions."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from copilot_runtime.actions.execute import execute
from copilot_runtime.api import Action, ActionContext, RunInput
from copilot_runtime.base.errors import ConfigurationFailed, NetworkError
from copilot_runtime.extensions.frameworks.langserve import LangServeChain, langserve_actions
from tests.adapters.provider import HANG, Provider, serving, whole
from tests.in_one_test import in_one_test

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


OUTPUTS: list[tuple[Any, Any]] = [
    ("A joke.", "A joke."),
    ({"joke": "Knock knock."}, {"joke": "Knock knock."}),
    (["one", 2, None], ["one", 2, None]),
    (7, 7),
    (False, False),
    (None, None),
    ({"content": "A joke.", "type": "ai"}, "A joke."),
    ({"content": ["A ", {"type": "text", "text": "joke."}], "type": "ai"}, "A joke."),
    (
        {"page_content": "A page.", "type": "Document"},
        {"page_content": "A page.", "type": "Document"},
    ),
]


@pytest.mark.parametrize(("output", "result"), OUTPUTS)
async def test_a_chain_may_answer_any_json(
    server: Provider, chain: LangServeChain, output: Any, result: Any
) -> None:
    server.answer([whole(TOPIC)], [whole({"output": output})])

    assert await run(await only(chain), topic="bears") == result


NO_ANSWERS: dict[str, tuple[bytes, str]] = {
    "no JSON": (
        whole(b"<html>", content_type="text/html"),
        "with something that is no JSON object",
    ),
    "a list": (whole(b"[]"), "with something that is no JSON object"),
    "no output": (whole({"metadata": {}}), "without an output"),
    "a list as an error": (whole(b'["no"]', status="502 No"), "answered 502."),
    "a wrong input": (
        whole(
            {"detail": [{"loc": ["input", "topic"], "msg": "Field required"}, "odd"]},
            status="422 No",
        ),
        "answered 422: input.topic: Field required.",
    ),
}


@pytest.mark.parametrize("case", NO_ANSWERS)
async def test_an_answer_that_is_none_is_explained(
    server: Provider, chain: LangServeChain, case: str
) -> None:
    answer, sentence = NO_ANSWERS[case]
    server.answer([whole(TOPIC)], [answer])

    with pytest.raises(NetworkError, match=re.escape(sentence)):
        await run(await only(chain), topic="bears")


async def test_a_chain_that_never_answers_is_given_up(server: Provider) -> None:
    server.answer([whole(TOPIC)], [HANG])
    chain = langserve_actions(f"{server.url}/joke", timeout=0.05)
    action = await only(chain)

    outcome = await execute(action, '{"topic":"bears"}', CONTEXT, timeout=60)
    await chain.aclose()

    assert json.loads(outcome.result)["error"]["code"] == "HANDLER_ERROR"


async def test_headers_may_be_made_of_those_of_the_person_who_asks(server: Provider) -> None:
    def headers(theirs: Mapping[str, str]) -> dict[str, str]:
        return {"authorization": theirs["authorization"], "x-mine": "1"}

    server.answer([whole(TOPIC)], [whole({"output": "A joke."})])
    chain = langserve_actions(f"{server.url}/joke", headers=headers)
    (action,) = await chain.actions(replace(RUN, headers={"authorization": "Bearer ada"}))
    assert action.run is not None
    await action.run({}, replace(CONTEXT, headers={"authorization": "Bearer eve"}))
    await chain.aclose()

    sent = [(one.headers["authorization"], one.headers["x-mine"]) for one in server.requests]
    assert sent == [("bearer ada", "1"), ("bearer eve", "1")]  # the fake lowers what it reads


async def test_the_schema_of_an_input_with_a_name_of_its_own_is_the_actions(
    server: Provider, chain: LangServeChain
) -> None:
    named = {"$ref": "#/$defs/Topic", "$defs": {"Topic": TOPIC}}
    server.answer([whole(named)], [whole({"output": "A joke."})])

    action = await only(chain)
    await run(action, topic="bears")

    assert action.parameters == {**TOPIC, "$defs": {"Topic": TOPIC}}
    assert server.requests[1].body["input"] == {"topic": "bears"}


@in_one_test("schema", [{}, {"anyOf": ["odd", None]}, {"$ref": "#/nowhere"}, {"$ref": 7}])
async def test_a_schema_that_says_nothing_is_that_of_one_thing(
    server: Provider, chain: LangServeChain, schema: dict[str, Any]
) -> None:
    server.answer([whole(schema)])

    assert (await only(chain)).parameters["required"] == ["input"]


async def test_the_address_of_invoke_is_that_of_the_chain(server: Provider) -> None:
    server.answer([whole(TOPIC)])
    chain = langserve_actions(f"{server.url}/joke/invoke")

    assert (await only(chain)).name == "joke"
    await chain.aclose()
    assert server.requests[0].line == "GET /joke/input_schema HTTP/1.1"


def test_an_address_is_needed() -> None:
    with pytest.raises(ConfigurationFailed, match="is not an address"):
        langserve_actions("joke")
