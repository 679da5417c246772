"""A request is in memory once while its answer streams, however long its conversation."""

import asyncio
import gc
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from benchmarks.streaming.clients import AGUI, V1, Client
from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.transports.graphql.inputs import TextMessageInput

pytestmark = pytest.mark.anyio

QUESTION = "Is this question in memory twice?"


@pytest.mark.parametrize(
    ("client", "path"), [(V1, "/graphql"), (AGUI, "/graphql/agent/default/run")], ids=["v1", "agui"]
)
async def test_an_answer_does_not_keep_the_decoded_body(client: Client, path: str) -> None:
    runtime = CopilotRuntime(ScriptedAdapter(say("Hello")), settings=Settings(threads="memory"))
    body = json.dumps(client.body((), QUESTION, "")).encode()
    unsent = [{"type": "http.request", "body": body}]
    answered = asyncio.Event()
    found: list[Any] = []

    async def receive() -> MutableMapping[str, Any]:
        if not unsent:
            await answered.wait()
            return {"type": "http.disconnect"}
        return unsent.pop()

    async def send(message: MutableMapping[str, Any]) -> None:
        if b"Hello" in message.get("body", b""):
            found.append(list_decoded())
        if message["type"] == "http.response.body" and not message.get("more_body"):
            answered.set()

    headers = {"host": "localhost", "content-type": "application/json", "accept": client.accept}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    async with runtime.running():
        await runtime.lazy_app()(scope, receive, send)

    assert found == [[]]


def list_decoded() -> list[Any]:
    """Return the parts of decoded bodies that hold the question."""
    objects = gc.get_objects()
    decoded = [it for it in objects if type(it) is dict and it.get("content") == QUESTION]
    inputs = [it for it in objects if type(it) is TextMessageInput]
    return decoded + [it for it in inputs if it.content == QUESTION]
