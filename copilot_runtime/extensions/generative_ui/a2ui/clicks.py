"""Pass clicks in surfaces to agents, each click exactly once.

A frontend sends a click as `forwardedProps.a2uiAction` without a message, and repeats it with every
follow-up request, such as the one with the result of a browser action. The agent gets two messages
for it: a call of `log_a2ui_event` and its result.
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
"""The property with which a frontend sends a click."""

CLICK_TOOL = "log_a2ui_event"
"""The name of the tool in the messages for the agent; no such tool exists."""

MAX_CLICK_BYTES = 100_000
"""Maximum size of a click as JSON, in bytes."""

MAX_CLICK_DEPTH = 32
"""Maximum depth of a click."""

_LONGEST_NAME = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Click:
    """A click on a button in a surface; `fields` has everything that the frontend sent."""

    name: str
    surface_id: str
    component_id: str
    timestamp: str
    """The time of the click in any format, or an empty string."""
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
    """Return the click of a request, or `None`.

    Its content originates from a model: names and contexts may be anything. Raises `Misuse` if it
    is not an object, and `LimitExceeded` if it is too large.
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
    """Return a name, JSON-encoded if it is not a string, or `default` if it is missing."""
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
"""Returns the runs of a thread, oldest first."""


def describe_place(run: RunInput) -> str:
    """Return a run's click and its position as text for the thread, or an empty string.

    A click without a timestamp has no description: its repetition counts as another click. Raises
    the errors of `read_click`.
    """
    click = read_click(run)
    if click is None or not click.timestamp:
        return ""
    place = _find_end(run)
    return f"{_build_key(run, click).hex()} {place.anchor.hex()} {place.count}"


class ClickLog:
    """Remembers the positions of recent clicks in their conversations.

    At most `max_clicks` per owner and `max_owners` are kept; the oldest are evicted. An owner is a
    user, or a thread without a user. Older clicks are looked up in the runs of their thread.
    """

    def __init__(
        self, read_runs: ReadRuns | None = None, *, max_owners: int = 4_096, max_clicks: int = 16
    ) -> None:
        self._read_runs = read_runs
        self._owners: OrderedDict[bytes, OrderedDict[bytes, _Place]] = OrderedDict()
        self._max_owners = max_owners
        self._max_clicks = max_clicks

    def add_click(self, run: RunInput) -> Sequence[Message]:
        """Return the conversation of a run with its click, if it has one.

        The click is appended; a repeated click is inserted at its original position with the same
        identifiers. A click without a timestamp is always a new one. Raises the errors of
        `read_click`.
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
        """Look up the position of a run's click in its thread if it is not in memory.

        Another process may have received it first, or this one before a restart. Raises
        `StoreFailed`.
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
    """The message that a click follows, and the number of messages before it."""

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
            at += 1  # results follow their calls
        return at


def _find_end(run: RunInput) -> _Place:
    """Return the position at the end of a run's conversation."""
    last = run.messages[-1] if run.messages else None
    return _Place(_identify(last), len(run.messages))


def _find_place(run: StoredRun, key: bytes) -> _Place | None:
    """Return a click's position in the conversation of a stored run, or `None` for another run."""
    first = run.events[0] if run.events else None
    if not isinstance(first, RunStarted) or not first.click.startswith(key.hex()):
        return None
    try:
        _, anchor, count = first.click.split(" ")
        return _Place(bytes.fromhex(anchor), int(count))
    except ValueError:  # written by another version of this package
        return None


def _build_key(run: RunInput, click: Click) -> bytes:
    """Return the key by which a repeated click is recognized."""
    return _digest(
        *(run.user or "", run.thread_id, click.timestamp),
        *(click.name, click.surface_id, click.component_id),
    )


def _belongs_to_turn(messages: Sequence[Message], at: int) -> bool:
    """Return `True` if a message is a result, or a call parallel to the previous one."""
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
    """Return a digest of a message's identifier, which frontend and store share."""
    if isinstance(message, ResultMessage):
        return _digest("result", message.call_id)
    return _digest("message", message.id if message is not None else "")


def _insert(
    messages: Sequence[Message], place: _Place, click: Click, seed: bytes
) -> Sequence[Message]:
    ids = [_derive_id(seed, part) for part in ("message", "call", "result")]
    if any(one.id == ids[1] for one in messages if isinstance(one, ActionExecutionMessage)):
        return messages  # the frontend got it from an agent that sends whole conversations
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
