"""Verifies the hash chain of an audit log."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from copilot_runtime.extensions.access.audit.entry import compute_hash, parse_line
from copilot_runtime.extensions.access.audit.log import Tail, list_files

NO_KEY = (
    "There is no audit.key: a writer of the file could recompute all hashes, and the change would "
    "go undetected."
)
"""The limitation of a log without a key."""

_MOST_PROBLEMS = 100


class Line(NamedTuple):
    """A line of a log with its position. `fields` is `None` if it is malformed."""

    file: Path
    place: int
    fields: dict[str, Any] | None


@dataclass(slots=True)
class Verification:
    """The result. `head` is the last line; stored elsewhere, it reveals a later truncation."""

    lines: int = 0
    first: int = 0
    head: Tail = field(default_factory=Tail)
    problems: list[str] = field(default_factory=list[str])

    @property
    def is_intact(self) -> bool:
        return not self.problems

    def add(self, problem: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of all files of a log, oldest first."""
    for file in list_files(path):
        with file.open("rb") as lines:
            for place, data in enumerate(lines, 1):
                try:
                    yield Line(file, place, parse_line(data))
                except ValueError:
                    yield Line(file, place, None)


def verify(path: Path, key: str = "", head: Tail | None = None) -> Verification:
    """Recompute all hashes. With a `head`, the log must contain that line unchanged."""
    found = Verification()
    secret, before = key.encode(), Tail()
    saw_head = head is None
    for line in read_lines(path):
        where = f"{line.file.name}, line {line.place}"
        if line.fields is None:
            found.add(f"{where}: it is no JSON, or was written half")
            continue
        fields = dict(line.fields)
        digest, number = fields.pop("hash", None), fields.get("number")
        if not isinstance(number, int) or not isinstance(digest, str):
            found.add(f"{where}: it has no number, or no hash")
            continue
        if compute_hash(fields, secret) != digest:
            found.add(f"{where}: number {number} was changed, or the key is another one")
        if not found.lines:
            found.first = number
            if number == 1 and fields.get("previous"):
                found.add(f"{where}: there were lines before the first")
        elif number != before.number + 1:
            found.add(f"{where}: number {number} follows {before.number}: lines are missing")
        elif fields.get("previous") != before.hash:
            found.add(f"{where}: number {number} does not follow the line before it")
        if head is not None and number == head.number:
            saw_head = True
            if digest != head.hash:
                found.add(f"{where}: number {number} is not the line that was the last then")
        found.lines += 1
        before = Tail(number, digest)
    if not saw_head and head is not None and head.number >= found.first:
        found.add(f"number {head.number} is missing: the end of the log was cut off")
    found.head = before
    return found
