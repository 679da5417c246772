"""`copilot-runtime chat`: talk to a runtime from the terminal, as an AG-UI client."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from contextlib import aclosing
from importlib import import_module
from typing import Any
from uuid import uuid4

import typer

from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.api.events import AgentState, Event, RunStarted
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    TextMessage,
    new_id,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.transcript import fold_conversation
from copilot_runtime.base.errors import Cancelled, ConfigurationFailed, CopilotError
from copilot_runtime.cli.agent_client import AgentClient
from copilot_runtime.cli.screen import Screen


def converse(
    url: str, *, message: str | None = None, agent: str | None = None, headers: Sequence[str] = ()
) -> int:
    """Hold a conversation, or a single exchange if there is a message or piped input.

    Return the exit code.

    Raises `ConfigurationFailed` for an invalid URL, header or input, and `NetworkError` for a
    runtime that cannot be reached or understood.
    """
    chat = Chat(AgentClient(url, agent or DEFAULT_AGENT, headers))
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
        import_module("readline")  # adds history and line editing to `input`
    typer.echo(f"Talking to {chat.client.url}. Ctrl-C stops an answer, Ctrl-D ends.")
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
    """A conversation. A failed question is removed from it."""

    def __init__(self, client: AgentClient) -> None:
        self.client = client
        self.thread_id = str(uuid4())
        self.messages: list[Message] = []
        self._state: Any = {}

    async def aclose(self) -> None:
        """Close the connection."""
        await self.client.aclose()

    async def say(self, text: str) -> bool:
        """Send a message and print the answer as it streams in. Return `True` if the run succeeded.

        Cancellation stops the run. Raises `NetworkError` for a runtime that cannot be reached, and
        `IncompleteStream` for a malformed or incomplete answer.
        """
        question = TextMessage(id=new_id(), role="user", content=text)
        run = RunInput(
            thread_id=self.thread_id,
            run_id=str(uuid4()),
            messages=[*self.messages, question],
            agent=self.client.agent,
        )
        events: list[Event] = [
            RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=run.messages)
        ]
        screen = Screen(self.client.url)
        try:
            async with aclosing(self.client.run(run, self._state)) as stream:
                async for event in stream:
                    screen.show(event)
                    events.append(event)
        except asyncio.CancelledError:
            await self.client.stop(self.thread_id)
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


def _drop_open_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without calls that have no result: models reject such calls."""
    results = {message.call_id for message in messages if isinstance(message, ResultMessage)}
    return [
        message
        for message in messages
        if not isinstance(message, ActionExecutionMessage) or message.id in results
    ]


def _print_error(error: CopilotError) -> None:
    typer.echo(f"\n{error.message}", err=True)
    if error.hint:
        typer.echo(error.hint, err=True)
