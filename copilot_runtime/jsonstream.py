"""Reads a JSON value while it comes in pieces: what is complete, and the beginnings of texts."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

Path = tuple[str | int, ...]
"""Keys and indexes from the outermost value to one inside it."""


class JsonPart(NamedTuple):
    """What one piece of text has added.

    `begin`: a value begins; `value` is its kind, `object`, `array`, `string` or `other`.
    `text`: a string goes on; `value` is what is new of it, unescaped, never empty.
    `end`: a value is complete; `value` is that value.
    """

    path: Path
    kind: Literal["begin", "text", "end"]
    value: Any


class JsonReader:
    """Reads one JSON value in time proportional to its length, in pieces cut anywhere.

    `paths` are those that are reported; `*` stands for any key or index: `("data", "*", "*")`.
    Once something is no JSON, `error` says so and nothing more is reported.
    """

    def __init__(self, paths: Sequence[tuple[str, ...]] = (("*",),)) -> None:
        self.paths = paths
        self.error: str | None = None
        self.is_complete = False

    @property
    def text(self) -> str:
        """All that was fed."""
        raise NotImplementedError

    def feed(self, piece: str) -> Sequence[JsonPart]:
        """Return the parts that a piece has added, in the order of the text."""
        raise NotImplementedError
