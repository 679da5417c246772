"""Lines of a CSV file: those of each of its tables, malformed ones, and notes below a table."""

import csv
import io
import logging
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from copilot_runtime.base.boundaries import find_boundaries
from copilot_runtime.base.delimiters import open_reader
from copilot_runtime.base.encodings import BLOCK
from copilot_runtime.base.layouts import (
    SAMPLE,
    SEPARATOR_LINE,
    Layout,
    count_remarks,
    find_layout,
    is_remark,
)
from copilot_runtime.base.shapes import is_rule
from copilot_runtime.extensions.analyst.engine.text_files import TextFile

logger = logging.getLogger(__name__)

MOST_NOTES = 12
"""Maximum number of notes about a table, and of malformed lines that one names."""
_LINES_OF_A_VALUE = 100
"""A value that has no end after as many lines begins with a stray quotation mark."""
_TAIL = 16 * 1024
"""Bytes at the end of a file that may have notes."""

_TABLES = 50
"""The most tables of a file that become data sets."""
_COUNTED = 10_000
"""The most tables of a file that are counted."""
_EMPTY_LINE = re.compile(rb"\n(?:\r?\n|,,|;;|\t\t|\|\|)")


class LeftOut(NamedTuple):
    """A malformed line."""

    number: int
    text: str


def describe_losses(path: Path, lines: Sequence[LeftOut]) -> str:
    """Write the malformed lines of a file to the log, and return a sentence about them."""
    for line in lines[:MOST_NOTES]:
        logger.warning("Line %d of %r is malformed: %.500r", line.number, str(path), line.text)
    some = ", ".join(f"{line.number:,}" for line in lines[:MOST_NOTES])
    count = f"{len(lines):,} lines are" if len(lines) > 1 else "1 line is"
    return f"{count} malformed and left out: {some}."


def split_tables(file: TextFile, folder: Path) -> Sequence[TextFile]:
    """Return a file for each table of a CSV file, or the file itself if it has one, or too many."""
    with file.path.open(encoding="utf-8", errors="replace", newline="") as lines:
        head = lines.read(SAMPLE)
    try:
        layout = find_layout(head, file.delimiter, is_whole=len(head) < SAMPLE)
    except ValueError:  # it is empty
        return [file]
    file = file._replace(layout=layout)
    if not layout.starts and (len(head) < SAMPLE or not _has_empty_lines(file.path)):
        return [file]
    starts, count = _find_starts(file.path, layout)
    if count == 1:
        return [file]
    if count > _TABLES:
        many = f"{count:,}" if count < _COUNTED else f"at least {count:,}"
        note = (
            f"{file.note} The file has {many} tables, the second one from line {starts[0]:,} on. "
            "They are read as one: save each as a file of its own."
        )
        return [file._replace(note=note.strip())]
    file = file._replace(note=f"{file.note} The file has {count:,} tables.".strip(), layout=None)
    delimiter = "" if SEPARATOR_LINE.match(head) else layout.delimiter
    parts = [
        TextFile(path, f"It begins at line {start:,} of the file.", layout.delimiter)
        for start, path in zip([1, *starts], _copy_lines(file.path, starts, folder), strict=True)
    ]
    return [file._replace(path=parts[0].path, delimiter=delimiter), *parts[1:]]


def _has_empty_lines(path: Path) -> bool:
    with path.open("rb") as file:
        end = b""
        while block := file.read(BLOCK):
            if _EMPTY_LINE.search(end + block):
                return True
            end = block[-2:]
    return False


def _find_starts(path: Path, layout: Layout) -> tuple[Sequence[int], int]:
    """Return the lines at which the first further tables begin, and the number of all tables."""
    starts: list[int] = []
    count = 1
    with path.open(encoding="utf-8", errors="replace", newline="") as lines:
        reader = open_reader(lines, layout.delimiter, layout.escape)
        try:
            records = ((reader.line_num, it) for it in reader if not is_rule(it))
            for it in find_boundaries(records):
                if it.is_certain and it.line > layout.skipped:
                    count += 1
                    if count <= _TABLES:
                        starts.append(it.line)
                    if count == _COUNTED:
                        break
        except csv.Error:  # a value without an end
            return [], 1
    return starts, count


def _copy_lines(path: Path, starts: Sequence[int], folder: Path) -> Iterator[Path]:
    """Write the lines before each of the starts, and those after the last one, to files."""
    with path.open(encoding="utf-8", errors="replace", newline="") as lines:
        for start, end in pairwise([1, *starts, None]):
            target = folder / f"{len([*folder.iterdir()])}.csv"
            with target.open("w", encoding="utf-8", newline="") as out:
                out.writelines(islice(lines, None if end is None else end - (start or 1)))
            yield target


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


def read_remarks(path: Path, layout: Layout) -> Mapping[str, bool]:
    """Return the first values of the lines at the end of a file that are notes.

    The value is `True` if there are others in its line, which are parts of the note.
    """
    with path.open("rb") as file:
        start = max(0, file.seek(0, io.SEEK_END) - _TAIL)
        file.seek(start)
        lines = [*io.StringIO(file.read().decode("utf-8", "ignore"), newline="")]
    records: list[Sequence[str]] = []
    for line in reversed(lines[1:] if start else lines):
        if (record := _read_record([line], layout)) is None:
            break
        records.insert(0, record or [""])
        if sum(map(bool, record)) > 1 and not is_remark(record[0]):
            break
    found = records[len(records) - count_remarks(records) :]
    return {it[0]: sum(map(bool, it)) > 1 for it in found if it[0]}


def _read_record(lines: Sequence[str], layout: Layout) -> Sequence[str] | None:
    """Return the record that has all of the lines, or `None`."""
    reader = open_reader(lines, layout.delimiter, layout.escape, is_strict=True)
    try:
        record = next(reader)
    except (csv.Error, StopIteration):
        return None
    return record if reader.line_num == len(lines) else None
