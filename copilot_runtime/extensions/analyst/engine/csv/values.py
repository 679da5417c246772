"""Texts of a table that stand for other values: ditto marks, errors, and protected numbers."""

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from copilot_runtime.base.shapes import DITTO_MARKS
from copilot_runtime.extensions.analyst.engine.datasets import quote_text

_ERRORS = (
    *("#N/A", "#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!", "#ERROR!", "#SPILL!"),
    *("#NV", "#BEZUG!", "#WERT!", "#ZAHL!", "#VALEUR!", "#NOM?", "#NOMBRE!", "#VALOR!", "#¡REF!"),
)
"""Errors of formulas, as spreadsheets write them into CSV files."""


def _list(texts: Sequence[str]) -> str:
    return f"({', '.join(map(quote_text, texts))})"


_DITTO = f"(strlen({{0}}) < 6 AND {{0}} IN {_list(sorted(DITTO_MARKS))})"
_ERROR = f"(starts_with({{0}}, '#') AND {{0}} IN {_list(_ERRORS)} OR {{0}} = 'Loading...')"
_PROTECTED = """(starts_with({0}, '="') AND ends_with({0}, '"'))"""
_SPACED = "(starts_with({0}, ' ') OR ends_with({0}, ' ') OR ends_with({0}, chr(160)))"
_KINDS = (_DITTO, _ERROR, _PROTECTED)
_NOTES = (
    "Ditto marks are read as the value above them: {:,}.",
    "Cells with an error, such as #N/A, are empty: {:,}.",
    "",
)


def replace_marks(
    connection: duckdb.DuckDBPyConnection, part: str, columns: Sequence[str]
) -> Iterator[str]:
    """Replace the texts that stand for other values; yield sentences about them."""
    tests = [kind.format(name) for name in columns for kind in _KINDS]
    counts = ", ".join(f"count(*) FILTER ({test})" for test in tests)
    row: Any = connection.execute(f"SELECT {counts} FROM {part}").fetchone()
    if not any(row):
        return
    found = [row[at : at + len(_KINDS)] for at in range(0, len(row), len(_KINDS))]
    values = [
        f"{_replace(name)} AS {name}" for name, it in zip(columns, found, strict=True) if any(it)
    ]
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {part} AS "
        f"SELECT * REPLACE ({', '.join(values)}) FROM {part} ORDER BY rowid"
    )
    for note, numbers in zip(_NOTES, zip(*found, strict=True), strict=True):
        if note and (count := sum(numbers)):
            yield note.format(count)


def _replace(name: str) -> str:
    """Return the SQL of the values of a column without marks."""
    ditto, error, protected = (kind.format(name) for kind in _KINDS)
    plain = (
        f"CASE WHEN {error} THEN '' WHEN {protected} THEN substr({name}, 3, length({name}) - 3) "
        f"ELSE {name} END"
    )
    above = f"last_value(CASE WHEN {ditto} THEN NULL ELSE {plain} END IGNORE NULLS)"
    return (
        f"CASE WHEN {ditto} THEN coalesce({above} OVER (ORDER BY rowid), {name}) ELSE {plain} END"
    )


def count_spaces(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str]
) -> Sequence[int]:
    """Return the number of values with spaces around them in each of some columns of texts."""
    if not columns:
        return []
    counts = ", ".join(f"count(*) FILTER ({_SPACED.format(name)})" for name in columns)
    row: Any = connection.execute(f"SELECT {counts} FROM {table}").fetchone()
    return row
