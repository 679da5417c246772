"""Convert DuckDB values to plain JSON."""

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue
from copilot_runtime.extensions.analyst.results import Table

MAX_SAFE_INTEGER = 2**53 - 1
"""Largest integer that JavaScript represents exactly."""

MOST_ROWS = 500
"""Maximum number of table rows that a frontend gets."""

_MAX_DEPTH = 20
_MAX_BLOB = 1024


def to_plain(value: Any, depth: int = 0) -> JsonValue:
    """Convert a cell to JSON: NaN becomes `None`, and a date becomes text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, int):
        return value if abs(value) <= MAX_SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return _to_number(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta | UUID):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _to_hex(bytes(cast("bytes", value)))
    return _to_nested_value(value, depth)


def _to_number(value: Decimal) -> JsonValue:
    if not value.is_finite():
        return None
    if value == value.to_integral_value():
        return to_plain(int(value))
    number = float(value)
    # amounts of money keep their digits; a value that no float represents stays a text
    return number if Decimal(repr(number)) == value else str(value)


def _to_hex(data: bytes) -> str:
    if len(data) <= _MAX_BLOB:
        return data.hex()
    return f"{data[:_MAX_BLOB].hex()}… ({len(data)} bytes)"


def _to_nested_value(value: Any, depth: int) -> JsonValue:
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_to_key(key): to_plain(item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item, depth + 1) for item in cast("Sequence[Any]", value)]
    return replace_surrogates(str(value))


def _to_key(value: Any) -> str:
    plain = to_plain(value)
    return plain if isinstance(plain, str) else str(plain)


def list_records(table: Table, most: int | None = None) -> list[JsonObject]:
    """Return rows as objects for a model. Duplicate column names are numbered: `a`, `a_2`."""
    names = number_names([column.name for column in table.columns])
    rows = table.rows if most is None else table.rows[:most]
    return [dict(zip(names, map(_to_short, row), strict=True)) for row in rows]


def _to_short(value: Any) -> JsonValue:
    """Return a cell for a model, rounded: 0.30000000000000004 becomes 0.3."""
    plain = to_plain(value)
    return float(f"{plain:.12g}") if isinstance(plain, float) else plain


def number_names(names: Sequence[str]) -> list[str]:
    """Make names unique: `a`, `a` become `a`, `a_2`."""
    originals = set(names)
    found: list[str] = []
    for name in names:
        unique, count = name, 1
        while unique in found:
            count += 1
            unique = f"{name}_{count}"
            if unique in originals and unique not in found:
                continue
        found.append(unique)
    return found


def describe_table(title: str, table: Table, sql: str = "") -> JsonObject:
    """Return a table as JSON for frontends: at most 500 rows."""
    names = number_names([column.name for column in table.columns])
    rows = table.rows[:MOST_ROWS]
    return {
        "title": title,
        "columns": [
            {"name": name, "type": column.type}
            for name, column in zip(names, table.columns, strict=True)
        ],
        "rows": [[to_plain(value) for value in row] for row in rows],
        "total_rows": table.total_rows,
        "is_truncated": table.is_truncated or len(table.rows) > MOST_ROWS,
        "sql": sql,
    }
