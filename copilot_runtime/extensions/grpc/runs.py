"""Runs for calls: builds them from messages, and follows them in batches of events."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol, get_args

from copilot_runtime.api.agent import DEFAULT_AGENT, Agent
from copilot_runtime.api.events import Event, RunFailed
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.messages import Message, Role, TextMessage, new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.transcript import fold_thread
from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.grpc.service import Call, check_text
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.threads.store import ThreadKey
from copilot_runtime.threads.validation import check_id, check_thread_id
from copilot_runtime.transports.program_runs import ProgramRuns, RunEnded

_ROLES = frozenset(get_args(Role)) - {"tool"}
_LONGEST_NAME = 200


class TextLike(Protocol):
    """A message of a request: its role and its text."""

    id: str
    role: str
    content: str


async def build_request(
    runs: ProgramRuns,
    call: Call,
    messages: Sequence[TextLike],
    *,
    operation: str,
    most: int,
    agent: str = "",
    thread_id: str = "",
) -> RunInput:
    """Return a run with the messages of a request, appended to those stored in the thread.

    Raises `Misuse` if the request is invalid.
    """
    if not 1 <= len(messages) <= most:
        raise Misuse(f"messages has 1 to {most} messages.")
    name = check_text("agent", agent, _LONGEST_NAME)
    new = [*map(decode_text, messages)]
    chosen = None if name in ("", DEFAULT_AGENT) else name
    if not thread_id:
        return runs.build_run(call.caller, messages=new, agent=chosen, operation=operation)
    check_thread_id("thread_id", thread_id)
    stored = await read_thread(runs.conversations, call.caller, thread_id)
    return runs.build_run(
        call.caller,
        thread_id=thread_id,
        messages=[*stored, *new],
        agent=chosen,
        operation=operation,
        persist=True,
    )


async def read_thread(
    conversations: Conversations, caller: Caller, thread_id: str
) -> Sequence[Message]:
    """Return the messages of the caller's thread, or none if it does not exist."""
    runs = await conversations.runs(ThreadKey.of(caller.user, thread_id))
    return fold_thread(run.events for run in runs)


def decode_text(message: TextLike) -> TextMessage:
    """Return a message of a request as ours. Raises `Misuse`."""
    role: Any = message.role or "user"
    if role not in _ROLES:
        raise Misuse(f"The role of a message is one of {', '.join(sorted(_ROLES))}.")
    if message.id:
        check_id("id of a message", message.id)
    return TextMessage(id=message.id or new_id(), role=role, content=message.content)


async def follow_run(
    conversations: Conversations, request: RunInput, agent: Agent | None = None
) -> AsyncGenerator[Sequence[Event], None]:
    """Start a run and yield its events in batches. Closing the generator stops the run.

    Raises `RunEnded` after the last event of a run that failed.
    """
    run = conversations.create(request)
    try:
        await conversations.launch(run, agent)
        async with aclosing(run.follow()) as log:
            async for _, events in log:
                yield events
                if events and isinstance(last := events[-1], RunFailed):
                    raise RunEnded(last.error)
    finally:
        run.stop()


async def collect_run(
    conversations: Conversations, request: RunInput, agent: Agent | None = None
) -> list[Event]:
    """Return all events of a run. Raises `RunEnded` if it failed."""
    found: list[Event] = []
    async with aclosing(follow_run(conversations, request, agent)) as batches:
        async for events in batches:
            found += events
    return found
