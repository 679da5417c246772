"""The client of the package `a2a-sdk`, and plain requests, to an agent of a runtime."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import new_text_message
from a2a.types import (
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)

from tests.transports.served import at_work
from tests.wire_agui.http import Browser


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one agent with the client of the package."""

    client: Client
    url: str
    http: httpx.AsyncClient

    async def stream(
        self, message: str | Message = "Hi", *, at_once: bool = False, **fields: Any
    ) -> AsyncGenerator[StreamResponse]:
        request = SendMessageRequest(
            message=said(message, **fields),
            configuration=SendMessageConfiguration(return_immediately=at_once),
        )
        async for response in self.client.send_message(request):
            yield response

    async def ask(self, message: str | Message = "Hi", **fields: Any) -> Task:
        """Return the task at the end of its stream, as the client folds it."""
        task = Task()
        async for response in self.stream(message, **fields):
            match response.WhichOneof("payload"):
                case "task":
                    task.CopyFrom(response.task)
                case "status_update":
                    task.status.CopyFrom(response.status_update.status)
                case "artifact_update":
                    update = response.artifact_update
                    known = [
                        it for it in task.artifacts if it.artifact_id == update.artifact.artifact_id
                    ]
                    if known and update.append:
                        known[0].parts.extend(update.artifact.parts)
                    else:
                        task.artifacts.append(update.artifact)
                case _:
                    raise AssertionError(response)
        return task


def said(message: str | Message, **fields: Any) -> Message:
    if isinstance(message, Message):
        return message
    return new_text_message(message, role=Role.ROLE_USER, **fields)


@asynccontextmanager
async def asking(
    browser: Browser,
    agent: str = "echo",
    *,
    binding: str = "JSONRPC",
    streaming: bool = True,
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[Asker, None]:
    """Fetch the card of an agent and ask it."""
    url = f"http://127.0.0.1:{browser.where}{browser.base}/a2a/{agent}"
    async with httpx.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
        config = ClientConfig(
            httpx_client=http, streaming=streaming, supported_protocol_bindings=[binding]
        )
        yield Asker(await create_client(url, config), url, http)


@asynccontextmanager
async def at_a2a(
    agent: str = "echo", *, way: Mapping[str, Any] | None = None, **options: Any
) -> AsyncGenerator[Asker, None]:
    """Serve a runtime with A2A, and ask one of its agents."""
    settings = {"serve_a2a": True, **options.pop("settings", {})}
    async with (
        at_work(settings=settings, **options) as browser,
        asking(browser, agent, **(way or {})) as asker,
    ):
        yield asker


def text_of(task: Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


def state_of(task: Task) -> str:
    return TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower()


async def call_v03(asker: Asker, method: str, params: Any) -> Any:
    """Return the answer to a request as clients of 0.3 write it."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await asker.http.post(asker.url, json=body, headers={"a2a-version": "0.3"})
    if "event-stream" in answer.headers["content-type"]:
        lines = [it[5:] for it in answer.text.splitlines() if it.startswith("data:")]
        return [json.loads(line) for line in lines]
    return answer.json()
