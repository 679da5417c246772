"""Log ids, which contain a digest of the request, and the names of messages in a thread."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b, sha256
from os import urandom
from typing import Any, NamedTuple

from copilot_runtime.api.events import (
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    Event,
    MessagesSnapshot,
    ReasoningStart,
    RunStarted,
    TextMessageStart,
)
from copilot_runtime.api.messages import Message, ResultMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import NotFound, ThreadBusy
from copilot_runtime.base.jsontext import dumps

REMEMBERED_S = 3600
"""Seconds for which requests of deleted threads are recognised as repeated."""

_BYTES = 8
"""Bytes of each half of a log id; the half after the dot is the digest of the request."""


class DuplicateRun(ThreadBusy):
    """The run of a request has already begun: the request is a duplicate."""


class LogStatus(NamedTuple):
    """The id of a log, and whether its run has ended."""

    log_id: str
    ended: bool


def build_log_id(*question: Any) -> str:
    """Return a new log id: a random half, and the digest of `question`."""
    digest = blake2b(dumps(question), digest_size=_BYTES).hexdigest()
    return f"{urandom(_BYTES).hex()}.{digest}"


def asks_same(log_id: str, other: str) -> bool:
    """Return whether the requests of two logs with the same run id have the same content."""
    digest = _get_digest(log_id)
    return digest != "" and digest == _get_digest(other)


def is_duplicate(run: RunInput, logs: Iterable[LogStatus]) -> bool:
    """Return whether a run repeats one of the runs with the same id, given their logs.

    An answer to an interrupt may be sent twice with the same content, if the agent asks again. If
    the first run has ended, the open questions of the thread decide whether it is accepted.
    """
    same = [log for log in logs if asks_same(log.log_id, run.log_id)]
    return any(not run.resume or not log.ended for log in same)


def build_duplicate_error(run_id: str) -> DuplicateRun:
    return DuplicateRun(
        f"The run {run_id!r} has begun before in this conversation.",
        hint="Give each run an id of its own.",
    )


def digest_request(owner: str, thread_id: str, run_id: str, log_id: str) -> bytes | None:
    """Return a digest that identifies a request after its thread is deleted, or `None`."""
    if not (question := _get_digest(log_id)):
        return None
    return sha256("\0".join((owner, thread_id, run_id, question)).encode()).digest()


def build_deletion_error() -> NotFound:
    return NotFound(
        "This conversation was deleted, and this question had been asked in it before: it is not "
        "asked again.",
        hint="Give a new question an id of its own.",
    )


def _get_digest(log_id: str) -> str:
    """Return the digest in a log id; empty if the request cannot be repeated."""
    return log_id.partition(".")[2]


_LONGEST = 200
"""Characters of a name; a longer one is stored as its digest, to fit into the index."""


def get_message_name(message: Message) -> str:
    """Return the unique name of a message in its thread.

    Results have a prefix, because some agents give a result the id of its call.
    """
    if isinstance(message, ResultMessage):
        return _shorten(f"result:{message.id}")
    return _shorten(message.id)


def index_by_name(messages: Iterable[Message]) -> dict[str, Message]:
    """Return messages by name, in order; the first one of each name."""
    named: dict[str, Message] = {}
    for message in messages:
        named.setdefault(get_message_name(message), message)
    return named


def collect_names(events: Iterable[Event]) -> set[str]:
    """Return the names of all messages that these events contain or start."""
    return _read_names(events, _NAMES)


def collect_generated_names(log: Iterable[Event]) -> set[str]:
    """Return the names of the messages of a run, without those that `begin` stored."""
    return _read_names(log, _GENERATED)


def _read_names(events: Iterable[Event], readers: "Mapping[type, _Read]") -> set[str]:
    named = [event for event in events if type(event) in readers]
    return {name for event in named for name in readers[type(event)](event)}


def _shorten(name: str) -> str:
    # no database accepts lone surrogates, and PostgreSQL no NUL
    if len(name) > _LONGEST or "\0" in name or not name.isascii():
        return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return name


def _read_text(event: TextMessageStart | ReasoningStart | Activity) -> Sequence[str]:
    return (_shorten(event.message_id),)


def _read_call(event: ActionExecutionStart) -> Sequence[str]:
    """Return the names of the call and of its parent message, which may have no other content."""
    call = _shorten(event.call_id)
    return (call, _shorten(event.parent_id)) if event.parent_id else (call,)


def _read_result(event: ActionExecutionResult) -> Sequence[str]:
    return (_shorten(f"result:{event.message_id or f'result-{event.call_id}'}"),)


def _read_messages(event: MessagesSnapshot | RunStarted) -> Iterator[str]:
    return map(get_message_name, event.messages)


_Read = Callable[[Any], Iterable[str]]

_GENERATED: Mapping[type, _Read] = {
    TextMessageStart: _read_text,
    ReasoningStart: _read_text,
    Activity: _read_text,
    ActionExecutionStart: _read_call,
    ActionExecutionResult: _read_result,
    MessagesSnapshot: _read_messages,
}
_NAMES: Mapping[type, _Read] = {**_GENERATED, RunStarted: _read_messages}
