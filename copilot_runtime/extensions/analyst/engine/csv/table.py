"""Read CSV files into one table: every line, with the types of its columns."""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb

from copilot_runtime.base.boundaries import describe_doubts
from copilot_runtime.base.layouts import SAMPLE, Layout, find_layout
from copilot_runtime.base.shapes import PAGE_NUMBER, RULE
from copilot_runtime.extensions.analyst.engine.csv.columns import ColumnTypes
from copilot_runtime.extensions.analyst.engine.csv.forms import DateOrder
from copilot_runtime.extensions.analyst.engine.csv.lines import (
    MOST_NOTES,
    describe_losses,
    read_remarks,
    rewrite,
)
from copilot_runtime.extensions.analyst.engine.csv.readings import TypedColumn
from copilot_runtime.extensions.analyst.engine.csv.totals import Totals, is_sum
from copilot_runtime.extensions.analyst.engine.csv.values import (
    Kind,
    count_spaces,
    find_signs,
    replace_marks,
)
from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text, quote_texts
from copilot_runtime.extensions.analyst.engine.text_files import TextFile

logger = logging.getLogger(__name__)

_MISSING = "\x02\x03"
"""What stands for a value that a line does not have; no text is this."""


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """What the operator knows of the files."""

    columns: Mapping[str, str]
    """Column → its type in DuckDB."""
    dates: DateOrder | None = None

    def describe_missing(self, names: Iterable[str]) -> Sequence[str]:
        """Return a sentence about columns with a type that a table does not have, if any."""
        found = {name.lower() for name in names}
        missing = [name for name in self.columns if name.lower() not in found]
        sentence = f"The settings give a type to columns that are not here: {', '.join(missing)}."
        return [sentence] if missing else []


class CsvFiles:
    """Files that become one table. `folder` is for copies of malformed ones."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        files: Sequence[TextFile],
        folder: Path,
        options: CsvOptions,
    ) -> None:
        self._connection = connection
        self._files = files
        self._folder = folder
        self._options = options
        self._notes: list[str] = []
        self._totals = Totals(connection, self._notes)
        self._empty: list[str] = []
        self._has_spaces = False
        """`True` if values may have spaces around them."""
        self.totals: Mapping[str, Sequence[str]] = {}
        """Column of the created table → the labels in it of rows that add up others."""

    def create_table(self, name: str) -> Sequence[str]:
        """Create the table; return what is not certain about it, each as a sentence.

        Raises `duckdb.Error`, `OSError`, and `ValueError` for an empty file.
        """
        self._notes += [file.note for file in self._files if file.note]
        pairs = list(self._find_layouts())
        parts = [
            self._read(number, layout, [path for _, path in group])
            for number, (layout, group) in enumerate(groupby(pairs, key=lambda pair: pair[0]))
        ]
        texts = parts[0]
        if len(parts) > 1:
            if len({frozenset(map(str.lower, layout.names)) for layout, _ in pairs}) > 1:
                self._notes.append("Its files have different columns: what one lacks is empty.")
            texts = "temp.csv_texts"
            union = " UNION ALL BY NAME ".join(f"FROM {part}" for part in parts)
            self._connection.execute(f"CREATE TEMP TABLE csv_texts AS {union}")
            for part in parts:
                self._connection.execute(f"DROP TABLE {part}")
        cursor = self._connection.execute(f"FROM {texts} LIMIT 0")
        names = [str(item[0]) for item in cursor.description or ()]
        self._notes += self._options.describe_missing(names)
        semicolons = {layout.delimiter == ";" for layout, _ in pairs}
        find_types = partial(self._find_types, names, semicolons)
        self._totals.leave_out(texts, find_types)
        columns = find_types(texts)
        selected = ", ".join(f"{one.select} AS {quote_name(one.name)}" for one in columns)
        self._connection.execute(
            f"CREATE OR REPLACE TABLE {quote_name(name)} AS SELECT {selected} FROM {texts}"
        )
        self._connection.execute(f"DROP TABLE {texts}")
        self._totals.find_sums(quote_name(name), {one.name: one.type for one in columns})
        self.totals = self._totals.describe(names)
        self._notes += [one.note for one in columns if one.note]
        texts = columns if self._has_spaces else ()
        plain = [one.name for one in texts if one.type == "VARCHAR"]
        counts = count_spaces(self._connection, quote_name(name), [*map(quote_name, plain)])
        self._notes += [
            f"{one!r} has {count:,} values with spaces around them."
            for one, count in zip(plain, counts, strict=True)
            if count
        ]
        more = self._notes[MOST_NOTES:]
        for note in more:
            logger.warning("The data set %r: %s", name, note)
        return [
            *self._notes[:MOST_NOTES],
            *([f"{len(more)} more are in the log."] if more else []),
        ]

    def _find_types(
        self, names: Sequence[str], semicolons: Collection[bool], table: str
    ) -> Sequence[TypedColumn]:
        found = ColumnTypes(
            self._connection,
            table,
            self._options.columns,
            self._options.dates,
            has_semicolons=True in semicolons,
            is_mixed=len(semicolons) > 1,
        )
        return found.find(names)

    def _find_layouts(self) -> Iterator[tuple[Layout, Path]]:
        """Yield the files that have lines. Raises `ValueError` if there is none."""
        for number, file in enumerate(self._files):
            try:
                layout = file.layout or _read_layout(file)
                yield replace(layout, doubts=()) if file.is_sheet else layout, file.path
            except ValueError as error:
                if number == len(self._files) - 1 == len(self._empty):
                    raise
                self._empty.append(file.path.name)
                self._notes.append(f"{file.path.name} is left out: {error}.")

    def _read(self, number: int, layout: Layout, paths: Sequence[Path]) -> str:
        """Read files of one layout into a table of texts; return its name."""
        self._notes += layout.notes
        self._notes += describe_doubts(layout.doubts)
        remarks: dict[str, bool] = {}
        for path in paths:
            remarks |= read_remarks(path, layout)
        signs: set[Kind] = set()
        for path in paths:
            signs.update(find_signs(path, layout.delimiter))
        self._has_spaces |= "space" in signs
        part = f"csv_part_{number}"
        width = len(layout.names)
        is_parallel, is_rewritten = True, False
        if layout.is_folded:  # DuckDB would skip records, and not lines
            paths = [self._rewrite(path, layout) for path in paths]
            layout, is_rewritten = replace(layout, escape='"', skipped=0), True
        while True:
            select = _select(layout, width, paths, is_parallel=is_parallel)
            try:
                self._connection.execute(f"CREATE TEMP TABLE {part} AS {select}")
                break
            except duckdb.Error as error:
                text = str(error)
                found = re.search(r"Expected Number of Columns: \d+ Found: (\d+)", text)
                if found and width < int(found[1]):
                    width = int(found[1])
                elif is_parallel and "parallel=false" in text:
                    is_parallel = False
                elif not is_rewritten and re.search("CSV (Error|Parser)", text):
                    paths = [self._rewrite(path, layout) for path in paths]
                    layout, is_rewritten = replace(layout, escape='"', skipped=0), True
                else:
                    raise
        columns = [_column(layout, at) for at in range(width)]
        self._drop_lines(part, layout, columns, remarks)
        self._notes += replace_marks(self._connection, part, columns, signs)
        self._note_lines(f"temp.{part}", layout, width)
        return f"temp.{part}"

    def _drop_lines(
        self, part: str, layout: Layout, columns: Sequence[str], remarks: Mapping[str, bool]
    ) -> None:
        """Leave out empty lines, notes below the table, and the header where it is repeated."""
        names = [
            f"ltrim({name}, ' \ufeff') = {quote_text(layout.names[at])}"
            for at, name in enumerate(columns[: len(layout.names)])
            if at not in layout.unnamed
        ]
        empty = [f"coalesce({name}, '') = ''" for name in columns]
        texts = quote_texts(dict.fromkeys(["", *remarks]))
        remark = f"{columns[0]} <> '' AND {columns[0]} IN ({texts})"
        if layout.has_comments:
            remark = f"({remark} OR starts_with({columns[0]}, '#'))"
        alone = " AND ".join([remark, *empty[1:]])
        if layout.has_comments:
            alone = f"({alone} OR starts_with({columns[0]}, '# '))"
        texts = quote_texts([text for text, has_others in remarks.items() if has_others] or [""])
        notes = f"({alone} OR {columns[0]} <> '' AND {columns[0]} IN ({texts}))"
        has_notes = len(columns) > 1 and (remarks or layout.has_comments)
        kinds = {
            "Lines that repeat the header": names,
            "Notes": [notes] if has_notes else [],
            "Empty lines": empty if len(columns) > 1 else [],
            "Page numbers": [_match_page_number(columns)] if len(columns) > 1 else [],
            "Lines of dashes": [_match_rule(columns)] if layout.has_rules else [],
        }
        for kind, parts in kinds.items():
            condition = " AND ".join(parts)
            if parts and (count := self._count(part, condition)):
                self._connection.execute(f"DELETE FROM {part} WHERE {condition}")
                self._notes.append(f"{kind} are left out: {count:,}.")

    def _rewrite(self, path: Path, layout: Layout) -> Path:
        """Return a copy without the malformed lines and without the header."""
        target = self._folder / f"{len(list(self._folder.iterdir()))}.csv"
        if lines := rewrite(path, layout, target):
            self._notes.append(describe_losses(path, lines))
        return target

    def _note_lines(self, part: str, layout: Layout, width: int) -> None:
        """Note lines with more values than the header, or with fewer."""
        named = len(layout.names)
        columns = [_column(layout, at) for at in range(width)]
        others = " AND ".join(f"coalesce({name}, '') = ''" for name in columns[1:])
        if named > 1 and (short := self._count(part, f"{columns[named - 1]} IS NULL")):
            self._notes.append(f"{_lines(short)} fewer values than the header; the last are empty.")
        if width > named and (long := self._count(part, f"{columns[named]} <> ''")):
            where = columns[named]
            self._notes.append(f"{_lines(long)} more values than the header, from {where} on.")
        alone = self._count(part, f"{others} AND {columns[0]} <> ''") if named > 2 else 0
        if alone:
            self._notes.append(f"{_lines(alone)} a value in the first column alone.")
        if width > 1:
            self._totals.find(part, columns)
            self._note_gaps(part, layout, columns)
        unnamed = [
            _column(layout, at) for at in range(width) if at >= named or at in layout.unnamed
        ]
        for name in unnamed if len(unnamed) < width else ():
            if not self._count(part, f"{name} <> ''"):
                self._connection.execute(f"ALTER TABLE {part} DROP COLUMN {name}")

    def _note_gaps(self, part: str, layout: Layout, columns: Sequence[str]) -> None:
        """Note a first column whose values may count for the lines below them, too."""
        is_gap = f"coalesce({columns[0]}, '') = ''"
        first: Any = self._connection.execute(f"SELECT {columns[0]} FROM {part} LIMIT 1").fetchone()
        gaps, rows = self._count(part, is_gap), self._count(part, "true")
        if not first or not first[0] or gaps * 3 <= rows:
            return
        gaps -= self._count(part, f"{is_gap} AND {is_sum(columns)}")
        if gaps * 3 > rows:
            self._notes.append(
                f"{layout.names[0]!r} is empty in {gaps:,} of {rows:,} lines: the value above may "
                "count for them, too."
            )

    def _count(self, part: str, condition: str) -> int:
        row: Any = self._connection.execute(f"SELECT count(*) FROM {part} WHERE {condition}")
        return int(row.fetchone()[0])


def _read_layout(file: TextFile) -> Layout:
    with file.path.open(encoding="utf-8", errors="replace", newline="") as lines:
        head = lines.read(SAMPLE)
    return find_layout(head, file.delimiter, is_whole=len(head) < SAMPLE)


def _select(layout: Layout, width: int, paths: Sequence[Path], *, is_parallel: bool) -> str:
    files = ", ".join(quote_text(str(path)) for path in paths)
    columns = ", ".join(f"'c{at}': 'VARCHAR'" for at in range(width))
    value = "trim(c{0})" if layout.has_rules else "c{0}"  # lines of dashes are as wide as values
    names = ", ".join(f"{value.format(at)} AS {_column(layout, at)}" for at in range(width))
    return (
        f"SELECT {names} FROM read_csv([{files}], auto_detect=false, header=false, "
        f"delim={quote_text(layout.delimiter)}, quote='\"', escape={quote_text(layout.escape)}, "
        f"columns={{{columns}}}, skip={layout.skipped}, null_padding=true, "
        f"nullstr={quote_text(_MISSING)}, allow_quoted_nulls=false, "
        f"max_line_size=268435456, parallel={is_parallel})"
    )


def _match_rule(columns: Sequence[str]) -> str:
    """Return the SQL condition that a line is of dashes."""
    text = " || ".join(f"coalesce({name}, '')" for name in columns)
    return f"regexp_full_match({text}, {quote_text(RULE)})"


def _match_page_number(columns: Sequence[str]) -> str:
    """Return the SQL condition that the only value of a line is a page number."""
    first, others = columns[0], " || ".join(f"coalesce({name}, '')" for name in columns[1:])
    pattern = quote_text(PAGE_NUMBER)
    return (
        f"CASE WHEN {first} <> '' AND {columns[1]} <> '' THEN false "
        f"WHEN coalesce({first}, '') = '' THEN regexp_full_match({others}, {pattern}) "
        f"ELSE regexp_full_match({first}, {pattern}) AND {others} = '' END"
    )


def _column(layout: Layout, at: int) -> str:
    """Return the quoted name of a column; those beyond the header have numbers."""
    if at < len(layout.names):
        return quote_name(layout.names[at])
    used = {name.lower() for name in layout.names}
    name = f"column{at}"
    while name in used:
        name += "_"
    return quote_name(name)


def _lines(count: int) -> str:
    return f"{count:,} lines have" if count != 1 else "1 line has"
