"""Lines of a CSV file that are no rows: malformed ones, and the notes below its table."""

import csv
import io
from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from copilot_runtime.base.delimiters import open_reader
from copilot_runtime.base.layouts import Layout, count_remarks

_LINES_OF_A_VALUE = 100
"""A value that has no end after as many lines begins with a stray quotation mark."""
_TAIL = 16 * 1024
"""Bytes at the end of a file that may have notes."""


class LeftOut(NamedTuple):
    """A malformed line."""

    number: int
    text: str


def rewrite(path: Path, layout: Layout, target: Path) -> list[LeftOut]:
    """Write the records after the header to a file with the same delimiter, without a header.

    Returns the lines that are left out.
    """
    left_out: list[LeftOut] = []
    with (
        path.open(encoding="utf-8", newline="") as source,
        target.open("w", encoding="utf-8", newline="") as out,
    ):
        writer = csv.writer(
            out, delimiter=layout.delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL
        )
        waiting: deque[str] = deque()
        number = 0
        while waiting or (waiting := deque(islice(source, 1))):
            record, count = None, 1
            if number >= layout.skipped:
                while record is None and count <= _LINES_OF_A_VALUE:
                    waiting.extend(islice(source, max(0, count - len(waiting))))
                    record = _read_record([*islice(waiting, count)], layout)
                    count += record is None
                if record is None:
                    left_out.append(LeftOut(number + 1, waiting[0].strip()))
                    count = 1
                elif record:
                    writer.writerow(record)
            for _ in range(min(count, len(waiting))):
                waiting.popleft()
                number += 1
    return left_out


def read_remarks(path: Path, layout: Layout) -> Sequence[str]:
    """Return the notes at the end of a file, each of which is the only value of its line."""
    with path.open("rb") as file:
        start = max(0, file.seek(0, io.SEEK_END) - _TAIL)
        file.seek(start)
        lines = [*io.StringIO(file.read().decode("utf-8", "ignore"), newline="")]
    records: list[Sequence[str]] = []
    for line in reversed(lines[1:] if start else lines):
        if (record := _read_record([line], layout)) is None:
            break
        records.insert(0, record or [""])
        if sum(map(bool, record)) > 1:
            break
    return [it[0] for it in records[len(records) - count_remarks(records) :] if it[0]]


def _read_record(lines: Sequence[str], layout: Layout) -> Sequence[str] | None:
    """Return the record that has all of the lines, or `None`."""
    reader = open_reader(lines, layout.delimiter, layout.escape, is_strict=True)
    try:
        record = next(reader)
    except (csv.Error, StopIteration):
        return None
    return record if reader.line_num == len(lines) else None
