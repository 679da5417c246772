"""Writes names as DuckDB reads them."""

import re

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
    all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by
    case cast check collate collation column concurrently constraint create cross default
    deferrable desc describe distinct do else end except false fetch for foreign freeze from full
    generated glob group having ilike in initially inner intersect into is isnull join lambda
    lateral leading left like limit map natural not notnull null offset on only or order outer
    overlaps pivot pivot_longer pivot_wider placing positional primary qualify references returning
    right select semi show similar some struct summarize symmetric table tablesample then to
    trailing true try_cast tuple union unique unpack unpivot using variadic verbose when where
    window with
    """,
    )
)


def quote_name(name: str) -> str:
    """Return the name of a column or table as SQL: in double quotes where it needs them."""
    if _PLAIN.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'
