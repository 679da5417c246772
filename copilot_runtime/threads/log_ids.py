"""The ids of logs whose requests may come again: each says what was asked for."""

from collections.abc import Iterable
from hashlib import blake2b, sha256
from os import urandom
from typing import Any, NamedTuple

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import NotFound, ThreadBusy
from copilot_runtime.base.jsontext import dumps

REMEMBERED_S = 3600
"""Seconds for which it is known that a request had been answered in a thread that was deleted."""

_BYTES = 8
"""Bytes of each half of an id, of which the one behind the dot says what was asked for."""


class DuplicateRun(ThreadBusy):
    """The run of a request has begun before: the same request came twice."""


class LogStatus(NamedTuple):
    """The id of a log, and whether its run has ended."""

    log_id: str
    ended: bool


def build_log_id(*question: Any) -> str:
    """Return a new id for the log of a request that asks for something."""
    digest = blake2b(dumps(question), digest_size=_BYTES).hexdigest()
    return f"{urandom(_BYTES).hex()}.{digest}"


def asks_same(log_id: str, other: str) -> bool:
    """Return whether two requests, whose runs have one id, ask for the same."""
    digest = _get_digest(log_id)
    return digest != "" and digest == _get_digest(other)


def is_duplicate(run: RunInput, logs: Iterable[LogStatus]) -> bool:
    """Return whether a run is one of those of the same id, whose logs these are.

    An answer to an interrupt may be given twice in the same words, if the agent asks again: once
    it has been worked on, the questions of the thread say whether it may.
    """
    same = [log for log in logs if asks_same(log.log_id, run.log_id)]
    return any(not run.resume or not log.ended for log in same)


def build_duplicate_error(run_id: str) -> DuplicateRun:
    return DuplicateRun(
        f"The run {run_id!r} has begun before in this conversation.",
        hint="Give each run an id of its own.",
    )


def digest_request(owner: str, thread_id: str, run_id: str, log_id: str) -> bytes | None:
    """Return what a request is known by when its thread is gone; None if it cannot come again."""
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
    """Return what says what was asked for; nothing where nobody can ask again."""
    return log_id.partition(".")[2]
