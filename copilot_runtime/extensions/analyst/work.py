"""The tool calls of a question: results, approvals, and the merged stream of events.

An approval's question is part of the conversation: a call without a result. So an answer needs no
state of this process, and also counts after a restart. Frontends send the conversation, so the
question's identifier is signed: an approval applies to the tool and arguments that were shown.
"""

import asyncio
import hmac
import os
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.events import (
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    Events,
    Interrupt,
)
from copilot_runtime.api.messages import ActionExecutionMessage, Message
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_text, get_text, parse_text
from copilot_runtime.extensions.analyst.results import ApprovalRequest, ToolResult
from copilot_runtime.extensions.analyst.session import ThoughtStream, build_call_key
from copilot_runtime.extensions.analyst.view import View


class Work:
    """Tracks the tool calls of a question.

    A call that requires approval waits. Once all other calls have ended, the answer ends with an
    interrupt for each waiting call.
    """

    def __init__(self, run: RunInput, view: View) -> None:
        self.run = run
        self.view = view
        self.bell = Bell()
        self.thoughts = ThoughtStream(on_change=self.bell.ring)
        self.approvals: dict[str, ApprovalRequest] = {}
        """The required approvals, by call id."""
        self.has_calls = False
        self._names: dict[str, str] = {}
        self._open: set[str] = set()
        self._outputs: dict[str, str] = {}
        self._is_streaming = False
        self._results: list[ToolResult] = []
        self._shown = 0

    def record_turn(self, is_streaming: bool) -> None:
        """Record whether the model is streaming a response, in which it may add calls."""
        self._is_streaming = is_streaming
        self.bell.ring()

    @property
    def must_ask(self) -> bool:
        """`True` if only calls that wait for an approval are left."""
        settled = self._outputs.keys() | self.approvals.keys()
        return bool(self.approvals) and not self._is_streaming and self._open <= settled

    async def record_result(self, result: ToolResult, context: ActionContext) -> None:
        """Record a tool result.

        A call that requires an approval waits here until it is cancelled.
        """
        if result.approval is not None:
            self.approvals[context.call_id] = result.approval
            self.bell.ring()
            await asyncio.get_running_loop().create_future()
        self._results.append(result)
        self.bell.ring()

    def watch_actions(self, actions: Sequence[Action]) -> Sequence[Action]:
        """Wrap actions so that their outputs are tracked."""
        return [*map(self._watch_action, actions)]

    def _watch_action(self, action: Action) -> Action:
        run = action.run
        assert run is not None

        async def call(arguments: Mapping[str, Any], context: ActionContext) -> Any:
            output = await run(arguments, context)
            self._outputs[context.call_id] = output if isinstance(output, str) else ""
            self.bell.ring()
            return output

        return replace(action, run=call)

    async def watch_events(self, events: Events, own: Sequence[str]) -> Events:
        """Yield the events of a loop whose tools have the names `own`."""
        async with aclosing(events):
            async for event in events:
                match event:
                    case ActionExecutionStart(call_id=id, name=name):
                        self.has_calls = True
                        self._names[id] = name
                    case ActionExecutionEnd(call_id=id) if self._names.get(id) in own:
                        self._open.add(id)
                    case ActionExecutionResult(call_id=id):
                        self._open.discard(id)
                        self.approvals.pop(id, None)
                    case _:
                        pass
                yield event

    def list_late_results(self) -> Sequence[Event]:
        """Return the results of finished calls that were blocked by a waiting call."""
        return [
            ActionExecutionResult(call_id=id, name=self._names[id], result=self._outputs[id])
            for id in sorted(self._open)
            if id in self._outputs
        ]

    def collect(self, *, as_text: bool = False) -> Sequence[Event]:
        """Return the events of new thoughts and results since the last call."""
        thoughts = self.thoughts.thoughts[self._shown :]
        self._shown += len(thoughts)
        results, self._results = self._results, []
        return [
            *self.view.show_thoughts(thoughts, as_text=as_text),
            *(event for result in results for event in self.view.show_result(result)),
        ]


_MOST_WAITING = 64
"""Maximum number of buffered events before the model and its tools are paused."""


class Bell:
    """Wakes the reader of a stream after new items or its end."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake the reader."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for the next ring; a ring since the last wait counts."""
        await self._event.wait()
        self._event.clear()


async def merge_events(
    events: Events,
    bell: Bell,
    collect: Callable[[], Sequence[Event]],
    has_ended: Callable[[], bool],
) -> AsyncGenerator[Event, None]:
    """Yield the events, merged with those that `collect` returns whenever the bell rings.

    Ends with the events, or as soon as `has_ended` returns `True`; the events are closed then.
    Their errors are raised.
    """
    waiting: deque[Event] = deque()
    room = asyncio.Event()

    async def read() -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    waiting.append(event)
                    bell.ring()
                    if len(waiting) >= _MOST_WAITING:
                        room.clear()
                        await room.wait()
        finally:
            bell.ring()

    reader = asyncio.create_task(read(), name="analyst: read events")
    try:
        is_over = False
        while not is_over:
            await bell.wait()
            is_over = reader.done() or has_ended()
            while waiting:
                event = waiting.popleft()
                for other in collect():
                    yield other
                yield event
            room.set()
            for other in collect():
                yield other
        if reader.done():
            reader.result()
    finally:
        if not reader.done():
            reader.cancel()
            await asyncio.wait([reader])
        retrieve_exception(reader)


PREFIX = "approve:"
"""Prefix of the call identifier in the identifier of an interrupt."""

REASON = "approval"

_KEY_BYTES = 32

_PURPOSE = b"approvals of the analyst"
"""Context for key derivation: the same secret has other uses, too."""

RESPONSE_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "note": {"type": "string"}},
    "required": ["approved"],
}


@dataclass(frozen=True, slots=True)
class Approval:
    """A reviewer's answer: the call, and whether it may run."""

    call_id: str
    tool: str
    arguments: JsonObject
    is_approved: bool
    note: str = ""


class Signature:
    """Signs calls with a shared key: derived from the servers' secret, or stored in a folder."""

    def __init__(self, folder: Path, secret: str = "") -> None:
        self._file = folder / "approvals.key"
        self._key = hmac.digest(secret.encode(), _PURPOSE, "sha256") if secret else None

    def sign(self, call_id: str, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return the signature of a call: 32 hexadecimal digits."""
        text = f"{call_id}\0{build_call_key(tool, _to_plain(dict(arguments)))}"
        return hmac.digest(self._read_key(), text.encode(errors="surrogatepass"), "sha256").hex()[
            :32
        ]

    def _read_key(self) -> bytes:
        if self._key is not None:
            return self._key
        if (key := self._find_key()) is not None:
            return key
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_name(f"approvals-{secrets.token_hex(8)}.part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        part.replace(self._file)
        return self._file.read_bytes()  # another server may have replaced the key meanwhile

    def _find_key(self) -> bytes | None:
        try:
            key = self._file.read_bytes()
        except FileNotFoundError:
            return None
        return key if len(key) == _KEY_BYTES else None


def build_interrupt(call_id: str, request: ApprovalRequest, signature: Signature) -> Interrupt:
    """Return the approval question for a call. v1 clients send all of its value back."""
    about = {"tool": request.tool, "arguments": dict(request.arguments), "rows": request.rows}
    id = f"{PREFIX}{call_id}:{signature.sign(call_id, request.tool, request.arguments)}"
    return Interrupt(
        interrupt_id=id,
        reason=REASON,
        message=request.question,
        call_id=call_id,
        value={"id": id, "reason": REASON, "message": request.question, **about},
        metadata=about,
        response_schema=RESPONSE_SCHEMA,
    )


def read_approvals(run: RunInput, signature: Signature) -> Sequence[Approval]:
    """Return the approvals and rejections with which a run was resumed.

    Raises `Misuse` if an answer has no decision, refers to no open call, or has a wrong signature.
    """
    calls = find_open_calls(run.messages)
    return [_read_approval(resume, calls, signature) for resume in run.resume]


def find_open_calls(messages: Sequence[Message]) -> dict[str, ActionExecutionMessage]:
    """Return the calls of a conversation without a result, by call identifier."""
    calls = {one.id: one for one in messages if isinstance(one, ActionExecutionMessage)}
    for message in messages:
        if message.type == "result":
            calls.pop(message.call_id, None)
    return calls


def _read_approval(
    resume: Resume, calls: dict[str, ActionExecutionMessage], signature: Signature
) -> Approval:
    value = as_object(parse_text(resume.value))
    id = resume.interrupt_id or get_text(value, "id")
    if not id.startswith(PREFIX):
        raise _no_question()
    call_id, _, signed = id.removeprefix(PREFIX).rpartition(":")
    is_approved, note = read_decision(resume)
    if (call := calls.get(call_id)) is not None:
        tool, arguments = call.name, as_object(parse_text(call.arguments or "{}"))
    else:
        tool, arguments = get_text(value, "tool"), as_object(value.get("arguments"))
    if not tool:
        raise _no_question()
    expected = signature.sign(call_id, tool, arguments)
    if not hmac.compare_digest(signed.encode(errors="replace"), expected.encode()):
        raise Misuse(
            "The approved call differs from the one that the analyst proposed.",
            hint="Send the call unchanged, or ask the analyst again.",
        )
    return Approval(call_id, tool, arguments, is_approved, note)


def _to_plain(value: Any) -> Any:
    """Return JSON normalised for clients that reserialize it: 1.0 becomes 1."""
    match value:
        case dict():
            fields: JsonObject = value
            return {name: _to_plain(one) for name, one in fields.items()}
        case list():
            items: list[Any] = value
            return [*map(_to_plain, items)]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def read_decision(resume: Resume) -> tuple[bool, str]:
    """Return the decision and the reviewer's comment. Raises `Misuse` if there is no decision."""
    if resume.status == "cancelled":
        return False, ""
    payload: Any = resume.payload
    if payload is None and resume.response is not None:
        payload = parse_text(resume.response)
    if isinstance(payload, bool):
        return payload, ""
    fields = as_object(payload)
    approved = fields.get("approved")
    if isinstance(approved, bool):
        return approved, get_text(fields, "note")
    word = as_text(payload).strip().lower()
    if word in ("yes", "approve", "approved", "true"):
        return True, ""
    if word in ("no", "reject", "rejected", "decline", "declined", "false"):
        return False, ""
    raise Misuse(
        "The analyst cannot go on with this answer.",
        hint='It is neither {"approved": true} nor {"approved": false}.',
    )


def _no_question() -> Misuse:
    return Misuse(
        "The analyst does not wait for this answer.",
        hint="It has been given before, or the conversation no longer has the call. Ask again.",
    )
