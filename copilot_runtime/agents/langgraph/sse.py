"""Parses the event stream of a LangGraph server, with the ids by which it can be resumed."""

from typing import NamedTuple

from copilot_runtime.errors import NetworkError

_LIMIT = 32 * 1024 * 1024
"""The largest event, in bytes: it may contain a whole state."""


class Frame(NamedTuple):
    """One event; `id` is None if the stream cannot be resumed."""

    name: str
    data: bytes
    id: str | None


class FrameParser:
    """Takes blocks of bytes, cut anywhere, and returns the complete events.

    An event without its empty line is dropped: its id may be missing, and then it comes again.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, block: bytes) -> list[Frame]:
        """Return the events that end in this block."""
        self._rest.append(block)
        self._size += len(block)
        if b"\n" not in block:
            if self._size > _LIMIT:
                raise NetworkError(f"The agent sent an event larger than {_LIMIT} bytes.")
            return []
        text = b"".join(self._rest)
        # a CR at the very end may be half of a line's end
        whole = text.replace(b"\r\n", b"\n")
        *events, rest = whole.split(b"\n\n")
        self._rest, self._size = [rest], len(rest)
        return [frame for event in events if (frame := _parse_frame(event)) is not None]


def _parse_frame(event: bytes) -> Frame | None:
    name, id = "", None
    data: list[bytes] = []
    for line in event.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"event":
                name = value.decode(errors="replace")
            case b"data":
                data.append(value)
            case b"id":
                id = value.decode(errors="replace")
            case _:  # comments are signs of life
                pass
    return Frame(name, b"\n".join(data), id) if data else None
