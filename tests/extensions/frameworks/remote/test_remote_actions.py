"""Actions of a remote endpoint run there, once."""

from typing import Any

import pytest

from copilot_runtime.api import ActionContext
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
from tests.adapters.provider import RESET, Provider, whole
from tests.extensions.frameworks.remote.endpoint import GONE, OFFERED, asked

pytestmark = pytest.mark.anyio

CONTEXT = ActionContext(
    thread_id="t", run_id="r", call_id="c", properties={"team": "blue"}, headers={"x-a": "1"}
)


async def ran(endpoint: RemoteEndpoint) -> Any:
    [action] = await endpoint.actions(asked())
    assert action.run is not None
    return await action.run({"a": 1, "b": 2}, CONTEXT)


@pytest.mark.parametrize("result", [5, "five", None, {"a": [1]}, False])
async def test_what_it_returns_is_the_result(
    server: Provider, endpoint: RemoteEndpoint, result: Any
) -> None:
    server.answer(OFFERED, [whole({"result": result})])

    assert await ran(endpoint) == result
    assert server.requests[1].line == "POST /copilotkit/actions/execute HTTP/1.1"
    assert server.requests[1].headers["x-a"] == "1"
    assert server.requests[1].body == {
        "name": "add",
        "arguments": {"a": 1, "b": 2},
        "properties": {"team": "blue"},
    }


async def test_a_server_that_has_only_the_newer_routes_is_asked_there(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    server.answer(OFFERED, GONE, [whole({"result": 3})])

    assert await ran(endpoint) == 3
    assert server.requests[2].line == "POST /copilotkit/action/add HTTP/1.1"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([whole({"error": "Too large"}, status="500 No")], "Too large"),
        ([whole(b"<html>", status="503 No")], "The remote action 'add' failed."),
        ([whole(b"[]")], "returned something that cannot be read"),
        ([whole(b"no")], "returned something that cannot be read"),
        ([RESET], "The server hung up without an answer"),
    ],
)
async def test_one_that_fails_is_not_run_again(
    server: Provider, endpoint: RemoteEndpoint, script: Any, message: str
) -> None:
    server.answer(OFFERED, script)

    with pytest.raises(CopilotError, match=message):
        await ran(endpoint)

    assert len(server.requests) == 2
