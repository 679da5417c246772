"""Compares the client's conversation with the thread of the graph, and plans the run from it.

The thread stores its messages, so only new ones are sent. If a person edits a message or requests
another answer, the run starts from the checkpoint before that message. Messages that the client
does not have remain in the thread, because they may be hidden and could not be restored.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from copilot_runtime.api.events import Interrupt
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.jsonvalue import JsonObject, as_object
from copilot_runtime.extensions.frameworks.langgraph.call_names import CallNames
from copilot_runtime.extensions.frameworks.langgraph.messages import (
    build_placeholder_result,
    extract_text,
    is_placeholder,
    normalize_messages,
    parse_tool_calls,
    read_kind,
)
from copilot_runtime.extensions.frameworks.langgraph.request import (
    Assistant,
    build_input,
    build_resume,
)


@dataclass(frozen=True, slots=True)
class GraphThread:
    """A thread of a graph when a run begins: its state, and the interrupts that are open.

    `names` are the ids that its calls have on the page.
    """

    id: str
    assistant: Assistant
    values: JsonObject
    pending: Sequence[Interrupt]
    names: CallNames


class ThreadBackend(Protocol):
    """Where the threads of a graph are: on a server, or in a checkpointer of this process."""

    def history(self, thread: GraphThread, /) -> AsyncGenerator[tuple[JsonObject, Any], None]:
        """Yield the earlier states of a thread and their checkpoints, the last one first."""
        ...

    async def is_busy(self, thread: GraphThread, /) -> bool:
        """Return whether a run is under way in a thread."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run a graph: with an input, from a checkpoint or from the last one; or with `resume`.

    `resume` is the value of `Command(resume=…)`, and counts if there is no `input`. `question` is
    the id of a question that is answered again, so that what follows it on the page is void.
    """

    input: JsonObject | None = None
    checkpoint: Any = None
    resume: Any = None
    question: str | None = None


@dataclass(frozen=True, slots=True)
class Sync:
    """Messages to send; with `back_to`, from the state before that message."""

    messages: Sequence[JsonObject]
    back_to: str | None = None


async def plan_run(
    run: RunInput, thread: GraphThread, client: Sequence[JsonObject], backend: ThreadBackend
) -> Plan | None:
    """Return the plan of a run, or `None` while an interrupt waits for its answer.

    `client` are the client's messages. Raises `Misuse` for an answer without an open interrupt.
    """
    messages = thread.names.rename(normalize_messages(thread.values.get("messages")))
    if run.resume:
        return Plan(resume=build_resume(run.resume, thread.pending))
    sync = find_edit(client, messages)
    if sync is None:
        if thread.pending:
            return None
        common = await _find_common_ids(client, thread, messages, backend)
        sync = diff_messages(client, messages, common)
        if sync.back_to is None:
            results = find_missing_results(messages, sync.messages)
            if results and not await backend.is_busy(thread):
                sync = Sync([*results, *sync.messages])
    new = thread.names.restore(sync.messages)
    if sync.back_to is None:
        state = run.agent_input.state
        input = build_input(run, thread.assistant, state, new, thread.values)
        return Plan(input)
    # the state on the page is younger than that message
    input = build_input(run, thread.assistant, {}, new, {})
    checkpoint = await _find_checkpoint(sync.back_to, thread, backend)
    return Plan(input, checkpoint, question=sync.back_to)


async def _find_checkpoint(question: str, thread: GraphThread, backend: ThreadBackend) -> Any:
    """Return the checkpoint before a question, or `None` if the thread has none."""
    has_it = False
    async with aclosing(backend.history(thread)) as states:
        async for values, checkpoint in states:
            ids = {message["id"] for message in normalize_messages(values.get("messages"))}
            if has_it and question not in ids:
                return checkpoint
            has_it |= question in ids  # the newest states may have it no longer
    return None


async def _find_common_ids(
    client: Sequence[JsonObject],
    thread: GraphThread,
    messages: Sequence[JsonObject],
    backend: ThreadBackend,
) -> AbstractSet[str]:
    """Return the ids of the last state with a message of the client, or none.

    The graph may have removed all of them from its latest state.
    """
    ids = {message["id"] for message in messages}
    sent = {message["id"] for message in client}
    if ids & sent or len(client) == 1 or "messages" not in thread.values:
        return ids & sent
    async with aclosing(backend.history(thread)) as states:
        async for values, _ in states:
            ids = {message["id"] for message in normalize_messages(values.get("messages"))}
            if ids & sent:
                return ids & sent
    return set()


def find_missing_inputs(run: RunInput, thread: GraphThread) -> AbstractSet[str]:
    """Return the keys of the graph's input that neither its thread nor the page has."""
    keys = thread.assistant.input_keys or frozenset[str]()
    return keys - thread.values.keys() - as_object(run.agent_input.state).keys()


def find_edit(client: Sequence[JsonObject], thread: Sequence[JsonObject]) -> Sync | None:
    """Return a `Sync` that goes back to the client's last question, if the thread's text differs.

    Other differences come from the graph: a node may rewrite a message.
    """
    questions = [at for at, message in enumerate(client) if read_kind(message) == "human"]
    if not questions:
        return None
    last = client[questions[-1]]
    index = _ThreadIndex(thread, client)
    if any(index.diff(message) is not None for message in client[questions[-1] + 1 :]):
        return None  # it goes on from there
    for message in thread:
        if message["id"] == last["id"] and _canonical(message) != _canonical(last):
            return Sync([last], back_to=last["id"])
    return None


def diff_messages(
    client: Sequence[JsonObject],
    thread: Sequence[JsonObject],
    common: AbstractSet[str],
) -> Sync:
    """Return the messages to send: those that are new, and results for which the thread waits.

    `common` are messages of the client that the thread has, or has had before it was trimmed. What
    stands before the last one of them is not new: if the thread lacks it, the graph removed it.
    """
    repeat = _find_repeat(client, thread, common)
    if repeat is not None:
        return Sync([repeat], back_to=repeat["id"])
    index = _ThreadIndex(thread, client)
    places = [at for at, message in enumerate(client) if message["id"] in common]
    start = places[-1] + 1 if places else 0
    return Sync(
        [
            new
            for at, message in enumerate(client)
            if (at >= start or index.awaits(message)) and (new := index.diff(message)) is not None
        ]
    )


def find_missing_results(
    thread: Sequence[JsonObject], new: Sequence[JsonObject]
) -> list[JsonObject]:
    """Return placeholders for missing results at the end of the thread.

    A stopped or failed run leaves calls without results, which models refuse. The client may still
    replace the placeholders.
    """
    ids = {message.get("tool_call_id") or message["id"] for message in (*thread, *new)}
    last = next((message for message in reversed(thread) if read_kind(message) != "tool"), None)
    if last is None or not new or any(message["id"] == last["id"] for message in new):
        return []
    calls = parse_tool_calls(last)
    return [build_placeholder_result(call) for call in calls if call["id"] not in ids]


def drop_instructions(client: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """Return messages without CopilotKit's instructions for a model that has no agent, as Node."""
    return client[1:] if client and read_kind(client[0]) == "system" else client


def _find_repeat(
    client: Sequence[JsonObject], thread: Sequence[JsonObject], common: AbstractSet[str]
) -> JsonObject | None:
    """Return the question the client ends with, if the thread has, or had, an answer to it."""
    last = client[-1] if client else None
    if last is None or read_kind(last) != "human":
        return None
    for at, message in enumerate(thread):
        if message["id"] == last["id"]:
            return last if at + 1 < len(thread) else None
    return last if last["id"] in common else None


class _ThreadIndex:
    """Finds the counterparts of a client's messages in the thread, even under other ids."""

    def __init__(self, thread: Sequence[JsonObject], client: Sequence[JsonObject]) -> None:
        self._ids = {message["id"] for message in thread}
        self._calls = {call["id"] for message in thread for call in parse_tool_calls(message)}
        self._texts = {
            extract_text(message.get("content"))
            for message in thread
            if read_kind(message) == "ai" and not parse_tool_calls(message)
        }
        self._results = {
            message.get("tool_call_id"): message
            for message in thread
            if read_kind(message) == "tool"
        }
        self._client_results = {message.get("tool_call_id") for message in client}

    def awaits(self, message: JsonObject) -> bool:
        """Return whether a message is the result of a call in the thread."""
        return message.get("tool_call_id") in self._calls

    def diff(self, message: JsonObject) -> JsonObject | None:
        """Return the part of a message that the thread lacks."""
        match read_kind(message):
            case "tool":
                result = self._results.get(message["tool_call_id"])
                if result is None:
                    return message
                if is_placeholder(result):
                    return {**message, "id": result["id"]}
                return None
            case "ai" if message["id"] not in self._ids:
                return self._diff_answer(message)
            case _:
                return None if message["id"] in self._ids else message

    def _diff_answer(self, message: JsonObject) -> JsonObject | None:
        """Return an answer with only those calls that have a result: others were interrupted."""
        calls = [call for call in parse_tool_calls(message) if call["id"] not in self._calls]
        if not calls and parse_tool_calls(message):
            return None
        calls = [call for call in calls if call["id"] in self._client_results]
        # a text that a node emitted is in the thread under another id
        has_text = not message["content"] or message["content"] in self._texts
        return None if has_text and not calls else {**message, "tool_calls": calls}


def _canonical(message: JsonObject) -> Any:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content, sort_keys=True)
