"""Parses the event stream of a LangGraph server, with the ids by which it can be resumed."""

from collections.abc import Sequence
from typing import NamedTuple

from copilot_runtime.base.errors import NetworkError

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
        self._rest: list[bytes] = []  # an incomplete line
        self._lines: list[bytes] = []  # the lines of an incomplete event
        self._size = 0  # of both

    def feed(self, block: bytes) -> list[Frame]:
        """Return the events that end in this block. Raises `NetworkError` for one too large."""
        self._rest.append(block)
        self._size += len(block)
        frames: list[Frame] = []
        if b"\n" in block:
            *lines, rest = b"".join(self._rest).split(b"\n")
            self._rest = [rest]
            for line in lines:
                if line := line.removesuffix(b"\r"):
                    self._lines.append(line)
                    continue
                if (frame := _parse_frame(self._lines)) is not None:
                    frames.append(frame)
                self._lines.clear()
                self._size = 0
            self._size = self._size or len(rest) + sum(map(len, self._lines))
        if self._size > _LIMIT:
            raise NetworkError(f"The agent sent an event larger than {_LIMIT} bytes.")
        return frames


def _parse_frame(lines: Sequence[bytes]) -> Frame | None:
    name, id = "", None
    data: list[bytes] = []
    for line in lines:
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
