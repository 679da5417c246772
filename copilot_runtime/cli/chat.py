"""`copilot-runtime chat`: talk to a runtime from the terminal, as a v1 client does."""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import typer

from copilot_runtime.cli.answer import Answer, Call, Line, Piece, Result
from copilot_runtime.errors import ConfigurationFailed, CopilotError, NetworkError
from copilot_runtime.http.client import StreamResponse, Upstream
from copilot_runtime.http.sse import SSEDecoder

_MOST_TURNS = 20
"""Most turns in answer to one question, should the model call actions for ever."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What could make a terminal do more than show text."""

DOCUMENT = """
mutation generateCopilotResponse($data: GenerateCopilotResponseInput!, $properties: JSONObject) {
  generateCopilotResponse(data: $data, properties: $properties) {
    threadId
    runId
    ... on CopilotResponse @defer {
      status {
        ... on BaseResponseStatus { code }
        ... on FailedResponseStatus { reason details }
      }
    }
    messages @stream {
      __typename
      ... on BaseMessageOutput { id createdAt }
      ... on BaseMessageOutput @defer {
        status { ... on FailedMessageStatus { code reason } }
      }
      ... on TextMessageOutput { content @stream role parentMessageId }
      ... on ActionExecutionMessageOutput { name arguments @stream parentMessageId }
      ... on ResultMessageOutput { result actionExecutionId actionName }
      ... on AgentStateMessageOutput { agentName nodeName state running }
    }
    metaEvents @stream { ... on LangGraphInterruptEvent { type name value } }
  }
}
"""


def converse(
    url: str, *, message: str | None = None, agent: str | None = None, headers: Sequence[str] = ()
) -> int:
    """Hold a conversation, or with a message or a pipe one exchange. Return the exit code."""
    chat = Chat(_address(url), agent=agent, headers=dict(map(_header, headers)))
    with asyncio.Runner() as runner:
        try:
            if message is None and not sys.stdin.isatty():
                message = sys.stdin.read().strip()
                if not message:
                    raise ConfigurationFailed(
                        "There is nothing to say: the input is empty.",
                        hint="Pipe a text, give --message, or run this in a terminal.",
                    )
            if message is not None:
                return 0 if runner.run(chat.say(message)) else 1
            _loop(runner, chat)
            return 0
        finally:
            runner.run(chat.aclose())


def _loop(runner: asyncio.Runner, chat: "Chat") -> None:
    with contextlib.suppress(ImportError):
        import_module("readline")  # gives `input` a history and editing
    typer.echo(f"Talking to {chat.url}. Ctrl-C stops an answer, Ctrl-D ends.")
    while True:
        try:
            text = input("\n> ").strip()
        except EOFError:
            typer.echo()
            return
        except KeyboardInterrupt:
            typer.echo("\nCtrl-D ends.")
            continue
        if not text:
            continue
        try:
            runner.run(chat.say(text))
        except KeyboardInterrupt:
            typer.echo("\n(stopped)")
        except CopilotError as error:
            _complain(error)


class Chat:
    """One conversation. A question that failed leaves no trace in it."""

    def __init__(
        self, url: str, *, agent: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.url = url
        self.agent = agent
        self.headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            **(headers or {}),
        }
        self.thread_id = str(uuid4())
        self.messages: list[dict[str, Any]] = []
        self._upstream = Upstream("Runtime", idle_timeout=600, max_retries=0)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._upstream.aclose()

    async def say(self, text: str) -> bool:
        """Send a message and show the answer, and those that follow on results of actions."""
        said = {"textMessage": {"role": "user", "content": text}}
        asked = [*self.messages, _message(str(uuid4()), said)]
        for _ in range(_MOST_TURNS):
            answer = await self._turn(asked)
            if answer.failure is not None:
                typer.echo(f"\n{answer.failure}", err=True)
                return False
            asked = self.messages = [*asked, *map(_as_input, answer.messages())]
            if not answer.wants_more:
                return True
        typer.echo(f"\nStopped after {_MOST_TURNS} turns of actions.", err=True)
        return False

    async def _turn(self, messages: Sequence[Mapping[str, Any]]) -> Answer:
        answer, screen = Answer(), _Screen()
        try:
            async with aclosing(self._payloads(messages)) as payloads:
                async for payload in payloads:
                    for line in answer.take(payload):
                        screen.show(line)
        finally:
            screen.end()
        answer.finish()
        return answer

    async def _payloads(
        self, messages: Sequence[Mapping[str, Any]]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        body = json.dumps({"query": DOCUMENT, "variables": {"data": self._data(messages)}})
        async with self._upstream.post(self.url, body.encode(), self.headers) as reply:
            if "text/event-stream" not in reply.headers.get("content-type", ""):
                yield await _whole(reply, self.url)
                return
            frames = SSEDecoder()
            async for block in reply:
                for data in frames.feed(block):
                    if data:
                        yield _decoded(data)

    def _data(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        data: dict[str, Any] = {
            "metadata": {"requestType": "Chat"},
            "threadId": self.thread_id,
            "messages": list(messages),
            "frontend": {"actions": []},
        }
        if self.agent is not None:
            data["agentSession"] = {"agentName": self.agent, "threadId": self.thread_id}
        return data


class _Screen:
    """Shows an answer as it comes, text as text and everything else on lines of its own."""

    def __init__(self) -> None:
        self._in_line = False

    def show(self, line: Line) -> None:
        match line:
            case Piece(text):
                self._write(text)
            case Call(name, arguments):
                self._whole(f"  → {name}({arguments})")
            case Result(name, text):
                self._whole(f"  ← {name}: {text}")
            case str():
                self._whole(line)

    def end(self) -> None:
        if self._in_line:
            self._write("\n")

    def _whole(self, line: str) -> None:
        self.end()
        self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        text = _CONTROL.sub("", text)
        if text:
            self._in_line = not text.endswith("\n")
            typer.echo(text, nl=False)
            sys.stdout.flush()


async def _whole(reply: StreamResponse, url: str) -> Mapping[str, Any]:
    """Return an answer that is no stream: an error, or a runtime that does not stream."""
    text = await reply.text()
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if isinstance(body, dict) and ("data" in body or "errors" in body):
        return {"hasNext": False, **body}
    raise NetworkError(
        f"{url} does not speak the protocol of CopilotKit: it answered {reply.status}.",
        hint="The URL is the one that <CopilotKit runtimeUrl> gets, such as /graphql.",
    )


def _decoded(data: bytes) -> Mapping[str, Any]:
    try:
        payload = json.loads(data)
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        raise NetworkError(f"The runtime sent something that is no JSON object: {data[:80]!r}.")
    return payload


def _address(url: str) -> str:
    url = url if "://" in url else f"http://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationFailed(f"{url!r} is no URL of a runtime, such as http://127.0.0.1:8000.")
    return url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/graphql"


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigurationFailed(f"{text!r} is no header; write 'Name: value'.")
    return name.strip().lower(), value.strip()


def _complain(error: CopilotError) -> None:
    typer.echo(f"\n{error.message}", err=True)
    if error.hint:
        typer.echo(error.hint, err=True)


def _message(id: str, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": id, "createdAt": datetime.now(UTC).isoformat(), **content}


def _as_input(output: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of an answer as the next request sends it."""
    match output:
        case {"__typename": "TextMessageOutput"}:
            content = {"textMessage": {"role": output["role"], "content": output["content"]}}
        case {"__typename": "ActionExecutionMessageOutput"}:
            content = {
                "actionExecutionMessage": {
                    "name": output["name"],
                    "arguments": output["arguments"] or "{}",
                    "parentMessageId": output.get("parentMessageId"),
                }
            }
        case _:
            content = {
                "resultMessage": {
                    "actionExecutionId": output["actionExecutionId"],
                    "actionName": output["actionName"],
                    "result": output["result"],
                }
            }
    return _message(output["id"], content)
