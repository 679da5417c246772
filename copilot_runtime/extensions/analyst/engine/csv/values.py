"""Texts of a table that stand for other values, such as errors and protected numbers."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import duckdb

from copilot_runtime.base.encodings import BLOCK
from copilot_runtime.base.shapes import DITTO
from copilot_runtime.extensions.analyst.engine.datasets import quote_text, quote_texts

_ERRORS = (
    *("#N/A", "#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!", "#ERROR!", "#SPILL!"),
    *("#NV", "#BEZUG!", "#WERT!", "#ZAHL!", "#VALEUR!", "#NOM?", "#NOMBRE!", "#VALOR!", "#¡REF!"),
)
"""Errors of formulas, as spreadsheets write them into CSV files."""


Kind = Literal["ditto", "error", "missing", "joined", "protected", "space"]
_MARKS: Sequence[Kind] = ("ditto", "error", "missing", "joined", "protected")
_TESTS: Mapping[Kind, str] = {
    "ditto": f"({{0}} = {quote_text(DITTO)})",
    "error": f"(starts_with({{0}}, '#') AND {{0}} IN ({quote_texts(_ERRORS)}) "
    "OR {0} = 'Loading...')",
    "missing": "({0} = '\\N')",  # of MySQL and PostgreSQL
    "joined": "starts_with({0}, chr(65279))",  # the beginning of a file behind another one
    "protected": """(starts_with({0}, '="') AND ends_with({0}, '"') AND length({0}) > 3)""",
    "space": "(starts_with({0}, ' ') OR ends_with({0}, ' ') OR ends_with({0}, chr(160)))",
}
"""Kind → the SQL condition that a column has a value of it."""
_SIGNS: Mapping[Kind, Sequence[str]] = {
    "ditto": (DITTO,),
    "error": ("#", "Loading..."),
    "missing": ("\\N",),
    "joined": ("\ufeff",),
    "protected": ('="',),
    "space": ("\u00a0",),
}
"""Kind → texts of which a file has one if it may have such values."""
_NOTES: Mapping[Kind, str] = {
    "ditto": "Ditto marks are read as the value above them: {:,}.",
    "error": "Cells with an error, such as #N/A, are empty: {:,}.",
    "missing": "Cells with \\N are empty: {:,}.",
}


def find_signs(path: Path, delimiter: str) -> Collection[Kind]:
    """Return the kinds of values that a file may have; searching it is faster than the columns."""
    signs: dict[Kind, list[bytes]] = {
        kind: [it.encode() for it in texts] for kind, texts in _SIGNS.items()
    }
    edge = f'[{re.escape(delimiter)}"\\n\\r]'
    padding = re.compile(f" (?:{edge}|(?<={edge} ))".encode())  # a search for a space is fast
    found: set[Kind] = set()
    end = b""
    with path.open("rb") as file:
        while len(found) < len(signs) and (block := file.read(BLOCK)):
            block = end + block
            is_ascii = block.isascii()
            for kind, texts in signs.items():
                if kind not in found and any(
                    it in block for it in texts if it.isascii() or not is_ascii
                ):
                    found.add(kind)
            if "space" not in found and padding.search(block):
                found.add("space")
            end = block[-16:]
    return found


def replace_marks(
    connection: duckdb.DuckDBPyConnection,
    part: str,
    columns: Sequence[str],
    signs: Collection[Kind],
) -> Iterator[str]:
    """Replace the texts that stand for other values; yield sentences about them."""
    kinds: list[Kind] = [it for it in _MARKS if it in signs]
    if not kinds:
        return
    tests = [_TESTS[kind].format(name) for kind in kinds for name in columns]
    counts = ", ".join(f"count(*) FILTER ({test})" for test in tests)
    row: Any = connection.execute(f"SELECT {counts} FROM {part}").fetchone()
    if not any(row):
        return
    width = len(columns)
    found: dict[Kind, Sequence[int]] = {
        kind: row[at * width : (at + 1) * width] for at, kind in enumerate(kinds)
    }
    values = [
        f"{_replace(name)} AS {name}"
        for name, numbers in zip(columns, zip(*found.values(), strict=True), strict=True)
        if any(numbers)
    ]
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {part} AS "
        f"SELECT * REPLACE ({', '.join(values)}) FROM {part} ORDER BY rowid"
    )
    for kind, numbers in found.items():
        if kind in _NOTES and (count := sum(numbers)):
            yield _NOTES[kind].format(count)


def _replace(name: str) -> str:
    """Return the SQL of the values of a column without marks."""
    ditto, error, missing, joined, protected = (_TESTS[kind].format(name) for kind in _MARKS)
    plain = (
        f"CASE WHEN {error} OR {missing} THEN '' WHEN {joined} THEN substr({name}, 2) "
        f"WHEN {protected} THEN substr({name}, 3, length({name}) - 3) ELSE {name} END"
    )
    above = f"last_value(CASE WHEN {ditto} THEN NULL ELSE {plain} END IGNORE NULLS)"
    above = f"coalesce({above} OVER (ORDER BY rowid), {name})"
    return f"CASE WHEN {ditto} THEN {above} ELSE {plain} END"


def count_spaces(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str]
) -> Sequence[int]:
    """Return the number of values with spaces around them in each of some columns of texts."""
    if not columns:
        return []
    counts = ", ".join(f"count(*) FILTER ({_TESTS['space'].format(name)})" for name in columns)
    row: Any = connection.execute(f"SELECT {counts} FROM {table}").fetchone()
    return row
