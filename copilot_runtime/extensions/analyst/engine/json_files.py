"""Read JSON files into one table: every object, with the types of its columns."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb

from copilot_runtime.extensions.analyst.engine.csv.columns import ColumnTypes
from copilot_runtime.extensions.analyst.engine.csv.forms import DATES
from copilot_runtime.extensions.analyst.engine.csv.lines import LeftOut, describe_losses
from copilot_runtime.extensions.analyst.engine.csv.table import CsvOptions
from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text, quote_texts
from copilot_runtime.extensions.analyst.engine.text_files import TextFile

_VALUES = "temp.json_values"
_NONE = quote_text("\x01")
"""A format that no date has: DuckDB would guess whether the day or the month is first."""


def copy_json(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    files: Sequence[TextFile],
    folder: Path,
    options: CsvOptions,
) -> Sequence[str]:
    """Create a table of JSON files; return what is not certain about it, each as a sentence.

    `folder` is for copies of malformed files. Raises `duckdb.Error` and `OSError`.
    """
    notes = [file.note for file in files if file.note]
    paths = [file.path for file in files]
    try:
        _read_values(connection, paths)
    except duckdb.InvalidInputException as error:
        if "Malformed JSON" not in str(error):
            raise
        copies = [folder / f"lines-{number}.jsonl" for number in range(len(paths))]
        left_out = [*map(_copy_lines, paths, copies)]
        if not any(left_out):
            raise
        pairs = [*zip(paths, copies, left_out, strict=True)]
        notes += [describe_losses(path, lines) for path, _, lines in pairs if lines]
        paths = [copy if lines else path for path, copy, lines in pairs]
        _read_values(connection, paths)
    notes += _keep_digits(connection, paths)
    notes += _unquote_texts(connection)
    columns: Sequence[tuple[str, ...]] = connection.execute(f"DESCRIBE {_VALUES}").fetchall()
    names = {it.lower() for it in options.columns}
    texts = [it[0] for it in columns if it[1] == "VARCHAR" or it[0].lower() in names]
    values = f"FROM {_VALUES}"
    if texts:
        casts = ", ".join(
            f"CAST({quoted} AS VARCHAR) AS {quoted}" for quoted in map(quote_name, texts)
        )
        table = f"(SELECT {casts} FROM {_VALUES})"
        found = ColumnTypes(connection, table, options.columns, options.dates, forms=DATES)
        types = found.find(texts)
        notes += [one.note for one in types if one.note]
        selected = ", ".join(
            f"{one.select} AS {quote_name(one.name)}" for one in types if one.type != "VARCHAR"
        )
        values = f"FROM (SELECT * REPLACE ({casts}) FROM {_VALUES})"
        if selected:
            values = f"SELECT * REPLACE ({selected}) {values}"
    connection.execute(f"CREATE OR REPLACE TABLE {quote_name(name)} AS {values}")
    connection.execute(f"DROP TABLE {_VALUES}")
    notes += options.describe_missing(it[0] for it in columns)
    return notes


def _read_values(
    connection: duckdb.DuckDBPyConnection,
    paths: Sequence[Path],
    types: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Read files into a table in which dates are texts.

    All rows decide about the types, if they are not given: DuckDB would round 1.5 in a column that
    began with 1.
    """
    pairs = ", ".join(f"{quote_text(name)}: {quote_text(type)}" for name, type in types.items())
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {_VALUES.removeprefix('temp.')} AS FROM read_json("
        f"[{quote_texts(map(str, paths))}], union_by_name=true, sample_size=-1, "
        f"dateformat={_NONE}, timestampformat={_NONE}{pairs and f', columns={{{pairs}}}'})"
    )


def _keep_digits(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> Sequence[str]:
    """Read whole numbers with all of their digits, which DuckDB rounds beyond 64 bits.

    Returns sentences about those that are rounded, in a column with fractions.
    """
    columns: Sequence[tuple[str, ...]] = connection.execute(f"DESCRIBE {_VALUES}").fetchall()
    names = [it[0] for it in columns if it[1] == "DOUBLE"]
    if not names:
        return []
    tests = ", ".join(f"coalesce(max(abs({quote_name(it)})), 0) >= 2 ** 53" for it in names)
    row: Any = connection.execute(f"SELECT {tests} FROM {_VALUES}").fetchone()
    rounded = [name for name, is_rounded in zip(names, row, strict=True) if is_rounded]
    if not rounded:
        return []
    types = {it[0]: "VARCHAR" if it[0] in rounded else it[1] for it in columns}
    _read_values(connection, paths, types)
    notes: list[str] = []
    for name in rounded:
        text = quote_name(name)
        row = connection.execute(
            f"SELECT count(TRY_CAST({text} AS HUGEINT)) = count({text}), "
            f"bool_or(regexp_full_match({text}, '-?[0-9]{{16,}}')), "
            f"bool_and(regexp_full_match({text}, '-?[0-9]+')) FROM {_VALUES}"
        ).fetchone()
        fits, has_long, is_whole = row
        if not is_whole and has_long:
            notes.append(f"{name!r} has numbers of more than 15 digits, which are rounded.")
        type = ("HUGEINT" if fits else "VARCHAR") if is_whole else "DOUBLE"
        connection.execute(f"ALTER TABLE {_VALUES} ALTER {text} TYPE {type}")
    return notes


def _unquote_texts(connection: duckdb.DuckDBPyConnection) -> Sequence[str]:
    """Make texts of columns with numbers and texts, which DuckDB keeps as JSON in quotation marks.

    Returns sentences about them.
    """
    columns: Sequence[tuple[str, ...]] = connection.execute(f"DESCRIBE {_VALUES}").fetchall()
    notes: list[str] = []
    for name in (it[0] for it in columns if it[1] == "JSON"):
        text = quote_name(name)
        row: Any = connection.execute(
            f"SELECT bool_and(json_type({text}) NOT IN ('OBJECT', 'ARRAY')) FROM {_VALUES}"
        ).fetchone()
        if row[0]:
            connection.execute(
                f"ALTER TABLE {_VALUES} ALTER {text} TYPE VARCHAR USING {text} ->> '$'"
            )
            notes.append(f"{name!r} is a text: it has values of different types.")
    return notes


def _copy_lines(path: Path, target: Path) -> Sequence[LeftOut]:
    """Copy the lines of a file that are JSON; return the others, or none if those are most."""
    left_out: list[LeftOut] = []
    count = 0
    with path.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as out:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                json.loads(line)
            except (ValueError, RecursionError):
                left_out.append(LeftOut(number, line.strip()))
            else:
                count += 1
                out.write(f"{line.rstrip()}\n")
    return left_out if count >= len(left_out) else []
