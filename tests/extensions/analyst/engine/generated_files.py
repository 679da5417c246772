"""Files of tables from a seed, and what other readers find in them."""

import csv
import io
import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import openpyxl
from openpyxl.utils.datetime import CALENDAR_MAC_1904

pd: Any = import_module("pandas")  # without types
_DUCKDB = duckdb.connect()
Rows = Sequence[Sequence[Any]]
_WORDS = ("North", "Zoë", "O'Brien", 'a "b" c', "x, y; z|w", "two\nlines", " padded ", "null", "-")


class GeneratedFile(NamedTuple):
    """A file, its names, and the rows as each of its readers reads them."""

    path: Path
    names: Sequence[str]
    readings: Sequence[Rows]


@dataclass
class _Kind:
    """Values of a column as objects, as a text, and how pandas reads it: options or a format."""

    make: Callable[[random.Random], Any]
    write: Callable[[Any], str] = str
    parse: Mapping[str, Any] | str | None = None


def _day(r: random.Random) -> datetime:
    return datetime(2020, 1, 1) + timedelta(days=r.randrange(2000))


def _moment(r: random.Random) -> datetime:
    return _day(r) + timedelta(seconds=r.randrange(86400))


def _fraction(r: random.Random) -> float:
    return round(r.uniform(-5, 5), 3)


def _date(format: str, make: Callable[[random.Random], datetime] = _day) -> _Kind:
    return _Kind(make, lambda it: it.strftime(format), format)


def _grouped(separator: str, point: str) -> _Kind:
    swap = str.maketrans({",": separator, ".": point})
    return _Kind(
        lambda r: round(r.uniform(-9e5, 9e5), 2),
        lambda it: f"{it:,.2f}".translate(swap),
        {"thousands": separator, "decimal": point},
    )


KINDS: Mapping[str, _Kind] = {
    "integer": _Kind(lambda r: r.randrange(-500, 10_000)),
    "fraction": _Kind(_fraction),
    "exponent": _Kind(lambda r: r.uniform(0, 1) * 10 ** r.randrange(-30, 30), repr),
    "comma": _Kind(_fraction, lambda it: f"{it}".replace(".", ","), {"decimal": ","}),
    "english": _grouped(",", "."),
    "german": _grouped(".", ","),
    "iso": _date("%Y-%m-%d"),
    "day first": _date("%d/%m/%Y"),
    "month first": _date("%m/%d/%Y"),
    "dotted": _date("%d.%m.%Y"),
    "named": _date("%d %b %Y"),
    "moment": _date("%Y-%m-%d %H:%M:%S", _moment),
    "evening": _date("%m/%d/%Y %I:%M %p", lambda r: _moment(r).replace(second=0)),
    "time": _Kind(lambda r: _moment(r).time()),
    "code": _Kind(lambda r: f"{r.randrange(1000):05}"),
    "version": _Kind(lambda r: ".".join(str(r.randrange(30)) for _ in range(3))),
    "boolean": _Kind(lambda r: r.random() < 0.5, lambda it: str(it).lower()),
    "money": _Kind(lambda r: f"${r.uniform(0, 9999):,.2f}"),
    "word": _Kind(lambda r: r.choice(_WORDS)),
    "empty": _Kind(lambda r: None),
}
_VALUE = re.compile(r"[$+-]?\d+(?!\d*$)")
"""A text that nobody takes for a name."""
_MISSING = ("", "", "", "NA", "-", "n/a")
_TYPED = ("integer", "fraction", "exponent", "iso", "moment", "time", "code", "boolean")


def make_file(folder: Path, seed: int) -> GeneratedFile:
    """Write the file of a seed: two of three are CSV, the others each of the other formats."""
    r = random.Random(seed)
    others = (_make_sqlite, _make_json, _make_parquet)
    return r.choice((_make_csv,) * 8 + (_make_xlsx,) * 4 + others)(folder / f"f{seed}", r)


def _make_table(r: random.Random, kinds: Sequence[str]) -> tuple[list[str], list[list[Any]]]:
    chosen = [r.choice(kinds) for _ in range(r.randrange(1, 7))]
    names = [f"{kind} {number}" for number, kind in enumerate(chosen)]
    gaps = [r.choice((0, 0, 0.3)) for _ in chosen]
    count = r.choice((1, 2, 5, 30))
    columns = [
        [None if r.random() < gap else KINDS[kind].make(r) for _ in range(count)]
        for kind, gap in zip(chosen, gaps, strict=True)
    ]
    rows = [[*row] for row in zip(*columns, strict=True)]
    return names, [row for row in rows if any(it is not None for it in row)] or [rows[0]]


def _make_csv(path: Path, r: random.Random) -> GeneratedFile:
    path = path.with_suffix(".csv")
    names, values = _make_table(r, [*KINDS])
    write = [KINDS[name.rpartition(" ")[0]].write for name in names]
    gap = ["", "", r.choice(_MISSING)]
    rows = [
        [r.choice(gap) if it is None else write[at](it) for at, it in enumerate(row)]
        for row in values
    ]
    delimiter = r.choice(",;\t|")
    end = r.choice(("\n", "\n", "\r\n", "\r"))
    texts = io.StringIO()
    quoting: Any = csv.QUOTE_ALL if end == "\r" else r.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    writer = csv.writer(texts, delimiter=delimiter, lineterminator=end, quoting=quoting)
    if len(names) > 1 and len(rows) > 2 and r.random() < 0.1:
        texts.write(f"A report{end}{end}")
    if r.random() < 0.8 or not any(map(_VALUE.match, rows[0])):
        writer.writerow(names)
    lines = [row[: len(row) - 1] if len(row) > 2 and r.random() < 0.02 else row for row in rows]
    writer.writerows(lines)
    path.write_bytes(texts.getvalue().encode(r.choice(("utf-8", "utf-8-sig", "utf-16", "cp1252"))))
    others = [_parse(names, rows), _sniff(path, delimiter)]
    fitting = [it for it in others if [*map(len, it)] == [len(names)] * len(rows)]
    return GeneratedFile(path, names, [rows, *fitting])


def _parse(names: Sequence[str], rows: Rows) -> Rows:
    """Return what pandas reads in each column, if it is told of separators and dates."""
    columns: list[Sequence[Any]] = []
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        parse = KINDS[name.rpartition(" ")[0]].parse
        if isinstance(parse, str):
            read: Any = pd.to_datetime(pd.Series(column), format=parse, errors="coerce")
        else:
            text = io.StringIO()
            lines = [["x"], *([it.strip()] for it in column)]
            csv.writer(text, quoting=csv.QUOTE_ALL).writerows(lines)
            text.seek(0)
            read = pd.read_csv(text, **(parse or {}), skip_blank_lines=False)["x"]
        columns.append([None if pd.isna(it) else it for it in read])
    return [*zip(*columns, strict=True)]


def _sniff(path: Path, delimiter: str) -> Rows:
    sql = "FROM read_csv(?, delim=?, sample_size=-1)"
    with suppress(duckdb.Error):
        return _DUCKDB.execute(sql, [str(path), delimiter]).fetchall()
    return []


def _make_xlsx(path: Path, r: random.Random) -> GeneratedFile:
    path = path.with_suffix(".xlsx")
    names, rows = _make_table(r, [*_TYPED, "word", "empty", "money"])
    book: Any = openpyxl.Workbook()
    if r.random() < 0.2:
        book.epoch = CALENDAR_MAC_1904
    sheet = book.active
    top, left = r.choice((1, 1, 4)), r.choice((1, 1, 3))
    if top > 1:
        sheet.cell(1, left, "A report")
    for number, row in enumerate([names, *rows], top):
        [sheet.cell(number, column, value) for column, value in enumerate(row, left)]
    if r.random() < 0.2:
        sheet.row_dimensions[top + 1].hidden = True
    book.save(path)
    read: Any = openpyxl.load_workbook(path, data_only=True).active
    found = [row[left - 1 :] for row in read.iter_rows(min_row=top + 1, values_only=True)]
    return GeneratedFile(path, names, [found])


def _make_sqlite(path: Path, r: random.Random) -> GeneratedFile:
    path = path.with_suffix(".sqlite")
    names, rows = _make_plain_table(r)
    columns = ", ".join(f'"{name}" {r.choice(("", "TEXT", "DATETIME"))}' for name in names)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE {path.stem}({columns})")
        marks = ", ".join("?" * len(names))
        connection.executemany(f"INSERT INTO {path.stem} VALUES ({marks})", rows)
        found = connection.execute(f"SELECT * FROM {path.stem}").fetchall()
    return GeneratedFile(path, names, [found])


def _make_json(path: Path, r: random.Random) -> GeneratedFile:
    names, rows = _make_plain_table(r)
    path = path.with_suffix(".json")
    path.write_text(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
    return GeneratedFile(path, names, [rows])


def _make_parquet(path: Path, r: random.Random) -> GeneratedFile:
    path = path.with_suffix(".parquet")
    names, rows = _make_plain_table(r)
    _DUCKDB.register("frame", pd.DataFrame(rows, columns=names))
    _DUCKDB.execute(f"COPY (FROM frame) TO '{path}'")
    return GeneratedFile(path, names, [_DUCKDB.execute(f"FROM '{path}'").fetchall()])


def _make_plain_table(r: random.Random) -> tuple[list[str], list[list[Any]]]:
    names, rows = _make_table(r, ("integer", "fraction", "iso", "moment", "code", "word"))
    return names, [[str(it) if isinstance(it, datetime) else it for it in row] for row in rows]


def list_differences(file: GeneratedFile, rows: Rows, description: str) -> Iterable[str]:
    """Yield each value that is unlike those of all readers, and of which nothing is said."""
    expected = file.readings[0]
    if len(rows) != len(expected):
        yield from [] if "left out" in description else [f"{len(rows)} rows, not {len(expected)}"]
        return
    columns = [*range(len(file.names))]
    used = [at for at in columns if any(row[at] not in (None, "") for row in expected)]
    columns = used if rows and len(rows[0]) == len(used) else columns
    for number, row in enumerate(rows):
        for column, value in zip(columns, row, strict=False):
            name = file.names[column]
            found = [it[number][column] for it in file.readings]
            is_equal = normalize(value) in map(normalize, found)
            said = (f"'{name}'", f"'column{column}'", "fewer")
            if not is_equal and not any(it in description for it in said):
                yield f"{name}, row {number}: {value!r}, not {found}"


def normalize(value: Any) -> object:
    """Return a value in one form for all readers."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ").removesuffix(" 00:00:00")
    if value is None or value != value or value == "":
        return None
    text = str(value).strip()
    if re.fullmatch(r"[+-]?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?", text, re.IGNORECASE):
        return float(text) if len(text) < 16 or "." in text or "e" in text.lower() else int(text)
    text = text.removesuffix(" 00:00:00")
    return text.lower() if text.lower() in ("true", "false") else text
