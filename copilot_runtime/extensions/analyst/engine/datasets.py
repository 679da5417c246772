"""Data sets: the tables that questions can query."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from copilot_runtime.extensions.analyst.results import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A table in the sandbox."""

    name: str
    """The unique name of the data set in SQL."""
    physical: str
    """The quoted, qualified name in the engine: `"d1"."main"."orders"`. Stable across refreshes."""
    source: str
    """The name of its source; for a saved data set, its own name."""
    row_count: int
    columns: Sequence[Column]
    version: str
    """A version that changes whenever the rows may have changed."""
    description: str = ""
    tags: Sequence[str] = ()
    owner: str | None = None
    """The user who saved it and alone may see it; `None` for a data set of the operator."""
    created_at: str = ""
    for_operators: bool = False
    """`True` if only operators may query it."""

    first_types: Mapping[str, str] = field(default_factory=dict[str, str])
    """The types of its columns when they were first copied, by lower-case name."""

    totals: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Column of texts → the labels in it of rows that add up others."""

    origins: Sequence[str] = ()
    """The names of the file and the sheet that it comes from, if they may have other tables."""

    @property
    def is_saved(self) -> bool:
        """`True` if it was saved by a question instead of configured by the operator."""
        return self.owner is not None

    @property
    def fingerprint(self) -> str:
        """A hash of the names and types of the columns: 12 hexadecimal digits."""
        return fingerprint_schema(self.columns)


def fingerprint_schema(columns: Iterable[Column]) -> str:
    """Return 12 hexadecimal digits that are equal for the same names and types in any order."""
    pairs = sorted((column.name, column.type) for column in columns)
    return hashlib.sha256(str(pairs).encode()).hexdigest()[:12]


def quote_name(name: str) -> str:
    """Quote an identifier for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Quote a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def quote_texts(texts: Iterable[str]) -> str:
    """Quote texts as SQL literals with commas between them."""
    return ", ".join(map(quote_text, texts))


def match_labels(column: str, labels: Iterable[str]) -> str:
    """Return the SQL condition that a row adds up others, by the text of a quoted column."""
    return f"coalesce(trim({column}, ' :'), '') IN ({quote_texts(labels)})"


_LONGEST_SAVED = 50
"""Maximum length of a name, in characters; a digest of its owner is appended."""


def make_table_name(text: str) -> str:
    """Return a table name that needs no quotes in SQL: `Sales 2026` becomes `sales_2026`.

    Letters of all scripts stay.
    """
    name = re.sub(r"\W+", "_", unicodedata.normalize("NFC", text).lower()).strip("_")[:60] or "data"
    return f"t_{name}" if name[0].isdigit() else name


def name_saved_table(name: str, owner: str) -> str:
    """Return the table name of a saved data set; it does not reveal other users' data sets."""
    if not owner:  # without authentication, all users share
        return f"ds_{name}"
    digest = hashlib.sha256(owner.encode(errors="surrogatepass")).hexdigest()[:6]
    return f"ds_{name[:_LONGEST_SAVED]}_{digest}"


def choose_name(table: str, source: str, names: Iterable[str], reserved: Iterable[str]) -> str:
    """Return a unique name for a new table, with the source or a number appended if necessary."""
    taboo = {name.lower() for name in (*names, *reserved)}
    base = make_table_name(table)
    longer = make_table_name(f"{source}_{table}") if source != table else f"{base}_data"
    numbers = (f"{longer}_{number}" for number in range(2, 10_000))
    return next(name for name in (base, longer, *numbers) if name not in taboo)
