"""Which earlier messages of a conversation the model reads."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

HistoryUnit = Literal["entries", "turns"]

HISTORY_LIMIT = 6
"""Entries, or turns, of the conversation that are sent, by default."""

MOST_CHARS = 4_000
"""Characters of one earlier message."""

WITHHELD = "(This message was withheld: it looked like instructions to the assistant.)"

_ROLES = ("user", "assistant")

IsSafe = Callable[[str], bool]


class Entry(NamedTuple):
    """An earlier message."""

    role: Literal["user", "assistant"]
    content: str


def trim_history(
    history: Sequence[Mapping[str, Any] | Entry] | None,
    *,
    limit: int = HISTORY_LIMIT,
    unit: HistoryUnit = "entries",
    is_safe: IsSafe | None = None,
) -> Sequence[Entry]:
    """Return the last messages of people and of the assistant.

    A turn is a person's message with everything up to the next one. Messages that `is_safe` refuses
    are replaced by a sentence; long ones are cut.
    """
    entries = [entry for item in history or () if (entry := _read(item)) is not None]
    if limit <= 0:
        return []
    if unit == "turns":
        starts = [at for at, entry in enumerate(entries) if entry.role == "user"]
        entries = entries[starts[-limit] :] if len(starts) > limit else entries
    else:
        entries = entries[-limit:]
    return [
        entry if _is_fine(entry, is_safe) else entry._replace(content=WITHHELD) for entry in entries
    ]


def _read(item: Mapping[str, Any] | Entry) -> Entry | None:
    if isinstance(item, Entry):
        return item
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES or not isinstance(content, str) or not content.strip():
        return None
    return Entry("user" if role == "user" else "assistant", content[:MOST_CHARS])


def _is_fine(entry: Entry, is_safe: IsSafe | None) -> bool:
    return is_safe is None or is_safe(entry.content)
