"""`copilot-runtime chat`: talk to a runtime from the terminal, as an AG-UI client."""

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import typer

from copilot_runtime.agents.agui import run_agent_input
from copilot_runtime.agui.event_decoder import EventDecoder
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.agui.refusal import decode_refusal
from copilot_runtime.cli.screen import Screen
from copilot_runtime.errors import (
    Cancelled,
    ConfigurationFailed,
    CopilotError,
    NetworkError,
    RunStalled,
)
from copilot_runtime.events import AgentState, Event, RunStarted
from copilot_runtime.http.client import StreamResponse, Upstream
from copilot_runtime.http.sse import SSEDecoder
from copilot_runtime.interfaces import DEFAULT_AGENT, Events, RunInput
from copilot_runtime.jsontext import dumps
from copilot_runtime.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    TextMessage,
    new_id,
)
from copilot_runtime.transcript import fold_conversation

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BROKE_OFF = "The runtime broke off in the middle of the answer."
_STOP_TIMEOUT = 10.0
"""Seconds that Ctrl-C waits for the runtime to stop the run."""


def converse(
    url: str, *, message: str | None = None, agent: str | None = None, headers: Sequence[str] = ()
) -> int:
    """Hold a conversation, or with a message or a pipe one exchange. Return the exit code.

    Raises `ConfigurationFailed` for a URL, a header or an input that cannot be used, and
    `NetworkError` for a runtime that cannot be reached or understood.
    """
    chat = Chat(_parse_url(url), agent=agent, headers=dict(map(_parse_header, headers)))
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
            _print_error(error)


class Chat:
    """One conversation. A question that failed leaves no trace in it.

    `url` is the one that `<CopilotKit runtimeUrl>` gets; `headers` are sent with each request.
    """

    def __init__(
        self, url: str, *, agent: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.url = url
        self.agent = agent or DEFAULT_AGENT
        self.headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            **(headers or {}),
        }
        self.thread_id = str(uuid4())
        self.messages: list[Message] = []
        self._state: Any = {}
        self._upstream = Upstream("Runtime", idle_timeout=600, max_retries=0)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._upstream.aclose()

    async def say(self, text: str) -> bool:
        """Send a message and print the answer as it comes. Return whether the run went well.

        Cancelled, it stops the run. Raises `NetworkError` for a runtime that cannot be reached,
        and `IncompleteStream` for an answer that cannot be read.
        """
        question = TextMessage(id=new_id(), role="user", content=text)
        run = RunInput(
            thread_id=self.thread_id,
            run_id=str(uuid4()),
            messages=[*self.messages, question],
            agent=self.agent,
        )
        events: list[Event] = [
            RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=run.messages)
        ]
        screen = Screen()
        try:
            async with aclosing(self._stream(run)) as stream:
                async for event in stream:
                    screen.show(event)
                    events.append(event)
        except asyncio.CancelledError:
            await self._stop()
            raise
        except (AgentFailed, Cancelled) as error:
            screen.end_line()
            typer.echo(f"\n{error.message} [{error.code}]", err=True)
            return False
        finally:
            screen.end_line()
        self.messages = _drop_open_calls(fold_conversation(events))
        states = [event.state for event in events if isinstance(event, AgentState)]
        self._state = states[-1] if states else self._state
        return True

    async def _stream(self, run: RunInput) -> Events:
        frames, decoder = SSEDecoder(), EventDecoder(self.agent, self._state, run)
        body = dumps(run_agent_input(run, self._state))
        async with self._upstream.post(self._operation_url("run"), body, self.headers) as response:
            if "text/event-stream" not in response.headers.get("content-type", ""):
                raise await _read_refusal(response, self.url)
            async with aclosing(_read_blocks(response)) as blocks:
                async for block in blocks:
                    for event in decoder.read(frames.feed(block)):
                        yield event
                    if decoder.ended:
                        break
        if decoder.failure is not None:
            raise decoder.failure
        if not decoder.ended:
            raise NetworkError(_BROKE_OFF)

    async def _stop(self) -> None:
        """Stop the run, which does not end by itself when its reader leaves."""
        url = self._operation_url("stop", self.thread_id)
        with contextlib.suppress(CopilotError, TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                await self._upstream.request_json("POST", url, {}, self.headers)

    def _operation_url(self, *parts: str) -> str:
        path = "/".join(quote(part, safe="") for part in ("agent", self.agent, *parts))
        return f"{self.url.rstrip('/')}/{path}"


async def _read_blocks(response: StreamResponse) -> AsyncGenerator[bytes, None]:
    """Yield the answer. Raises `NetworkError` for a connection that breaks off, or is silent."""
    try:
        async for block in response:
            yield block
    except RunStalled:
        raise
    except NetworkError as error:
        raise NetworkError(_BROKE_OFF, hint=error.hint) from error


def _drop_open_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without calls that have no result: models refuse such a conversation."""
    results = {message.call_id for message in messages if isinstance(message, ResultMessage)}
    return [
        message
        for message in messages
        if not isinstance(message, ActionExecutionMessage) or message.id in results
    ]


async def _read_refusal(response: StreamResponse, url: str) -> NetworkError:
    """Return the error for an answer that is no stream: its own reason, if it has one."""
    refusal = decode_refusal(await response.text())
    if refusal is not None:
        hint = f"Known: {', '.join(refusal.agents)}." if refusal.agents else None
        return NetworkError(refusal.message, status_code=response.status, hint=hint)
    return NetworkError(
        f"{url} does not speak the protocol of CopilotKit: it answered {response.status}.",
        hint="The URL is the one that <CopilotKit runtimeUrl> gets, such as /graphql.",
    )


def _parse_url(url: str) -> str:
    url = url if "://" in url else f"http://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationFailed(f"{url!r} is no URL of a runtime, such as http://127.0.0.1:8000.")
    return url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/graphql"


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or _HEADER_NAME.fullmatch(name) is None or not value.isprintable():
        raise ConfigurationFailed(f"{text!r} is no header; write 'Name: value'.")
    return name.lower(), value


def _print_error(error: CopilotError) -> None:
    typer.echo(f"\n{error.message}", err=True)
    if error.hint:
        typer.echo(error.hint, err=True)
