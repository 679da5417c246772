"""Validation of ids and names, and pagination, for all thread stores."""

import re
from typing import NamedTuple

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import Misuse, ThreadBusy
from copilot_runtime.threads.store import ThreadKey

LONGEST = 500
"""Maximum number of characters in an id or a name."""

MOST_PER_PAGE = 200

_CURSOR = re.compile(r"(\d{1,18})\.(\d{1,18})", re.ASCII)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class Place(NamedTuple):
    """A position in a list of threads: after the thread `number`, last updated at `updated`."""

    updated: int
    number: int

    def cursor(self) -> str:
        return f"{self.updated}.{self.number}"


TOP = Place(10**18, 0)
"""The position before the first thread."""


def parse_cursor(cursor: str | None) -> Place:
    """Parse a cursor. Raises `Misuse` if it is malformed."""
    if cursor is None:
        return TOP
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise Misuse(
            f"{cursor[:40]!r} is not a cursor of a list of threads.",
            hint="Send the nextCursor of the page before, or none for the first page.",
        )
    return Place(int(found[1]), int(found[2]))


def page_size(limit: int) -> int:
    return min(max(limit, 1), MOST_PER_PAGE)


def get_thread_key(run: RunInput) -> ThreadKey:
    """Return the key of a run's thread. Raises `Misuse` for ids that no store accepts."""
    if not run.thread_id:
        raise Misuse("A thread needs an id.", hint="Send a threadId.")
    key = ThreadKey.of(run.user, run.thread_id)
    check_thread_id("thread id", key.id)
    check_id("user", key.owner)
    check_id("run id", run.run_id)
    check_id("agent's name", run.agent_name)
    return key


def is_valid_key(key: ThreadKey) -> bool:
    """Return whether a thread with this key can exist; requests may name any."""
    return all(len(part) <= LONGEST and is_text(part) for part in key)


def is_text(text: str) -> bool:
    """Return whether a text has neither NUL nor lone surrogates, which databases reject."""
    if text.isascii():
        return "\0" not in text
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def check_text(what: str, text: str) -> None:
    """Raise `Misuse` for a text that is too long, or that databases reject."""
    if len(text) > LONGEST:
        raise Misuse(f"The {what} is longer than {LONGEST} characters.", hint="Send a shorter one.")
    if not is_text(text):
        raise Misuse(f"The {what} has characters that are no text.", hint="Send it without them.")


def check_id(what: str, text: str) -> None:
    """Raise `Misuse` for an id that is too long, or has control characters."""
    if len(text) <= LONGEST and text.isprintable():  # nearly always
        return
    check_text(what, text)
    if _CONTROL.search(text):
        raise Misuse(
            f"The {what} has control characters.", hint="Send it without line breaks and the like."
        )


def check_owner(what: str, text: str) -> None:
    """Raise `Misuse` for a user id that cannot own threads.

    Decoding replaces lone surrogates and invalid bytes by U+FFFD, so two users whose ids differ
    only in these would be the same owner.
    """
    check_id(what, text)
    if "\ufffd" in text:
        raise Misuse(f"The {what} has characters that are no text.", hint="Send it without them.")


def check_thread_id(what: str, text: str) -> None:
    """Raise `Misuse` for a thread id that no store accepts or that cannot be a URL segment."""
    check_id(what, text)
    if text in (".", ".."):  # clients normalise these away in paths, even if encoded
        raise Misuse(f"The {what} cannot be {text!r}.", hint="Send one that is no part of a path.")


class ThreadConflict(ThreadBusy):
    """Another run of the thread was first, perhaps in another process."""


def busy(key: ThreadKey) -> ThreadConflict:
    return ThreadConflict(
        f"The thread {key.id!r} is still being answered.",
        hint="Wait for the end of its run, or stop it.",
    )


def log_id_in_use(key: str) -> Misuse:
    return Misuse(
        f"A run called {key!r} has not ended.", hint="Give each run's log a name of its own."
    )
