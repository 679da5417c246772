"""Gives clicks in surfaces to agents, each of them once.

A page sends a click as `forwardedProps.a2uiAction` without a message of its own, and sends it again
with every request that follows from it, such as the one with the result of a browser action. The
agent gets two messages for it: a call of `log_a2ui_event` and its result.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from uuid import UUID, uuid4

from copilot_runtime.api.events import RunStarted
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_object,
    as_optional_text,
    require_object,
)
from copilot_runtime.threads.store import StoredRun, ThreadKey

CLICK = "a2uiAction"
"""The property with which a page sends a click."""

CLICK_TOOL = "log_a2ui_event"
"""The tool that the agent finds called; there is none of this name."""

MAX_CLICK_BYTES = 100_000
"""The longest click, as JSON."""

MAX_CLICK_DEPTH = 32
"""Levels of a click."""

_LONGEST_NAME = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Click:
    """A press of a button in a surface; `fields` is all that the page says of it."""

    name: str
    surface_id: str
    component_id: str
    timestamp: str
    """When it was, in any form; empty if the page does not say."""
    fields: JsonObject

    def describe(self) -> str:
        """Return the sentence for the agent."""
        where = f" (component: {self.component_id})" if self.component_id else ""
        context = dumps(self.fields.get("context") or {}).decode()
        return (
            f'User performed action "{self.name}" on surface "{self.surface_id}"{where}. '
            f"Context: {context}"
        )


def read_click(run: RunInput) -> Click | None:
    """Return the click of a request, or None if there is none.

    What it says comes from what a model wrote: names and contexts may be anything. Raises `Misuse`
    for one that is no object, `LimitExceeded` for one that is too large.
    """
    value = as_object(run.properties.get(CLICK)).get("userAction")
    if value is None:
        return None
    where = f"forwardedProps.{CLICK}.userAction"
    fields = require_object(value, where)
    _check_size(fields, where)
    return Click(
        name=_read_name(fields, "name", where, "unknown_action"),
        surface_id=_read_name(fields, "surfaceId", where, "unknown_surface"),
        component_id=_read_name(fields, "sourceComponentId", where, ""),
        timestamp=_read_timestamp(fields.get("timestamp")),
        fields=fields,
    )


def _check_size(fields: JsonObject, where: str) -> None:
    level: list[Any] = [fields]
    for _ in range(MAX_CLICK_DEPTH):
        level = [
            item
            for value in level
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, dict | list)
        ]
        if not level:
            break
    else:
        raise LimitExceeded(f"{where} has more than {MAX_CLICK_DEPTH} levels.")
    if len(dumps(fields)) > MAX_CLICK_BYTES:
        raise LimitExceeded(f"{where} has more than {MAX_CLICK_BYTES} bytes.")


def _read_name(fields: JsonObject, key: str, where: str, default: str) -> str:
    """Return a name, as JSON if it is no text; `default` if there is none."""
    value = fields.get(key)
    if value is None:
        return default
    name = value if isinstance(value, str) else dumps(value).decode()
    if len(name) > _LONGEST_NAME:
        raise LimitExceeded(f"{where}.{key} has more than {_LONGEST_NAME} characters.")
    return name


def _read_timestamp(value: Any) -> str:
    if isinstance(value, int | float):
        return str(value)
    return (as_optional_text(value) or "")[:_LONGEST_NAME]


ReadRuns = Callable[[ThreadKey], Awaitable[Sequence[StoredRun]]]
"""Returns the runs of a thread, the oldest first."""


def describe_place(run: RunInput) -> str:
    """Return the click of a run and what it follows, for the thread; empty if there is none.

    One without a timestamp is not described: when it comes again, it is another one. Raises what
    `read_click` raises.
    """
    click = read_click(run)
    if click is None or not click.timestamp:
        return ""
    place = _find_end(run)
    return f"{_build_key(run, click).hex()} {place.anchor.hex()} {place.count}"


class ClickLog:
    """Has the places of the last clicks: what they follow in their conversations.

    There are at most `max_clicks` of one owner, and those of `max_owners`; the oldest go first. An
    owner is a user, or a thread of nobody. Others are found in the runs of their thread.
    """

    def __init__(
        self, read_runs: ReadRuns | None = None, *, max_owners: int = 4_096, max_clicks: int = 16
    ) -> None:
        self._read_runs = read_runs
        self._owners: OrderedDict[bytes, OrderedDict[bytes, _Place]] = OrderedDict()
        self._max_owners = max_owners
        self._max_clicks = max_clicks

    def add_click(self, run: RunInput) -> Sequence[Message]:
        """Return the conversation of a run with its click, or as it is if there is none.

        The click is its end; a request that has the same one again gets it in the same place, under
        the same ids. One without a timestamp is another one each time. Raises what `read_click`
        raises.
        """
        click = read_click(run)
        if click is None:
            return run.messages
        place = _find_end(run)
        if not click.timestamp:
            return _insert(run.messages, place, click, uuid4().bytes)
        key = _build_key(run, click)
        places = self._find_places(run)
        place = places.setdefault(key, place)
        places.move_to_end(key)
        while len(places) > self._max_clicks:
            places.popitem(last=False)
        return _insert(run.messages, place, click, key)

    async def load(self, run: RunInput) -> None:
        """Find the place of the click of a run in its thread, if it is not here.

        Another process may have got it first, or one before this. Raises `StoreFailed`.
        """
        click = read_click(run)
        if self._read_runs is None or click is None or not click.timestamp:
            return
        key = _build_key(run, click)
        if key in self._find_places(run):
            return
        for stored in await self._read_runs(ThreadKey.of(run.user, run.thread_id)):
            if (place := _find_place(stored, key)) is not None:
                self._find_places(run)[key] = place
                return

    def _find_places(self, run: RunInput) -> "OrderedDict[bytes, _Place]":
        owner = _digest("thread", run.thread_id) if run.user is None else _digest("user", run.user)
        places = self._owners.setdefault(owner, OrderedDict())
        self._owners.move_to_end(owner)
        while len(self._owners) > self._max_owners:
            self._owners.popitem(last=False)
        return places


@dataclass(frozen=True, slots=True)
class _Place:
    """What a click follows, and how many messages there were."""

    anchor: bytes
    count: int

    def find(self, messages: Sequence[Message]) -> int:
        """Return the index of the click in a conversation."""
        at = 0
        if self.count:
            indexes = reversed(range(len(messages)))
            found = (at + 1 for at in indexes if _identify(messages[at]) == self.anchor)
            at = next(found, min(self.count, len(messages)))
        while at < len(messages) and _belongs_to_turn(messages, at):
            at += 1  # results stand behind their calls
        return at


def _find_end(run: RunInput) -> _Place:
    """Return the end of the conversation of a run."""
    last = run.messages[-1] if run.messages else None
    return _Place(_identify(last), len(run.messages))


def _find_place(run: StoredRun, key: bytes) -> _Place | None:
    """Return where the conversation of a stored run had a click, or None for another one."""
    first = run.events[0] if run.events else None
    if not isinstance(first, RunStarted) or not first.click.startswith(key.hex()):
        return None
    try:
        _, anchor, count = first.click.split(" ")
        return _Place(bytes.fromhex(anchor), int(count))
    except ValueError:  # another version of this package wrote it
        return None


def _build_key(run: RunInput, click: Click) -> bytes:
    """Return what a click is known by, when it comes again."""
    return _digest(
        *(run.user or "", run.thread_id, click.timestamp),
        *(click.name, click.surface_id, click.component_id),
    )


def _belongs_to_turn(messages: Sequence[Message], at: int) -> bool:
    """Return whether a message is a result, or a call beside the one before it."""
    match messages[at]:
        case ResultMessage():
            return at > 0
        case ActionExecutionMessage(parent_id=parent) if at > 0 and parent:
            before = messages[at - 1]
            siblings = before.parent_id if isinstance(before, ActionExecutionMessage) else before.id
            return parent == siblings
        case _:
            return False


def _identify(message: Message | None) -> bytes:
    """Return what a message has with the page and in the store alike."""
    if isinstance(message, ResultMessage):
        return _digest("result", message.call_id)
    return _digest("message", message.id if message is not None else "")


def _insert(
    messages: Sequence[Message], place: _Place, click: Click, seed: bytes
) -> Sequence[Message]:
    ids = [_derive_id(seed, part) for part in ("message", "call", "result")]
    if any(one.id == ids[1] for one in messages if isinstance(one, ActionExecutionMessage)):
        return messages  # the page has it of an agent that sends whole conversations
    call = ActionExecutionMessage(
        id=ids[1], name=CLICK_TOOL, arguments=dumps(click.fields).decode(), parent_id=ids[0]
    )
    result = ResultMessage(id=ids[2], call_id=ids[1], name=CLICK_TOOL, result=click.describe())
    text = TextMessage(id=ids[0], role="assistant", content="")
    at = place.find(messages)
    return [*messages[:at], text, call, result, *messages[at:]]


def _derive_id(seed: bytes, part: str) -> str:
    digest = blake2b(seed + part.encode(), digest_size=16).digest()
    return str(UUID(bytes=digest, version=4))


def _digest(*parts: str) -> bytes:
    return blake2b(dumps(parts), digest_size=16).digest()
