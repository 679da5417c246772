"""Find a column by an approximate name, and classify columns by type and name."""

import re
from collections.abc import Mapping, Sequence

from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.tools.tool import ToolFailed

CLOSE_ENOUGH = 80.0
"""Minimum similarity of two names, from 0 to 100."""

MOST_NAMES = 60
"""Maximum number of columns that an error message lists."""

_NUMBERS = re.compile(
    r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|REAL|DECIMAL(\(.*\))?|BIGNUM|VARINT)", re.I
)
_TIMES = re.compile(r"(DATE|TIMESTAMP.*)", re.I)
_TEXTS = re.compile(r"(VARCHAR|CHAR|TEXT|ENUM\(.*\))", re.I | re.S)
_SCORES = re.compile(r"score|accuracy|precision|recall|rate|ratio|quality", re.I)
_IDS = re.compile(r"(^|_)(id|uuid|key|code|number|no)$|^id_", re.I)


def is_numeric(column: Column) -> bool:
    """Return `True` for a numeric column."""
    return _NUMBERS.fullmatch(column.type.strip()) is not None


def is_time(column: Column) -> bool:
    """Return `True` for a column of dates or timestamps."""
    return _TIMES.fullmatch(column.type.strip()) is not None


def is_text(column: Column) -> bool:
    """Return `True` for a text column."""
    return _TEXTS.fullmatch(column.type.strip()) is not None


def is_score(name: str) -> bool:
    """Return `True` if a column's name suggests a score between 0 and 1."""
    return _SCORES.search(name) is not None


def is_id(name: str) -> bool:
    """Return `True` if a column's name suggests an identifier."""
    return _IDS.search(name) is not None


def list_measures(columns: Sequence[Column]) -> list[Column]:
    """Return the numeric columns; identifier-like ones only if there are no others."""
    numeric = [column for column in columns if is_numeric(column)]
    return [column for column in numeric if not is_id(column.name)] or numeric


def find_column(
    name: str, columns: Sequence[Column], synonyms: Mapping[str, str] | None = None
) -> Column:
    """Return the column that a name refers to.

    Tries the name in any case, synonyms, the column whose name contains it, and the most similar
    one. Raises `ToolFailed` with a list of the columns.
    """
    if found := match_column(name, columns, synonyms):
        return found
    raise ToolFailed(
        f"There is no column {name[:100]!r}.",
        hint="Use one of the available columns.",
        details={"available_columns": [column.name for column in columns[:MOST_NAMES]]},
    )


def match_column(
    name: str, columns: Sequence[Column], synonyms: Mapping[str, str] | None = None
) -> Column | None:
    """Return the column that best matches a name, or `None` if no name is close enough."""
    name = name.strip().strip('"`[]')
    for column in columns:
        if column.name == name:
            return column
    target = _normalize(name)
    if not target:
        return None
    by_name = {_normalize(column.name): column for column in reversed(columns)}
    if target in by_name:
        return by_name[target]
    meaning = (synonyms or {}).get(name.lower())
    if meaning and _normalize(meaning) in by_name:
        return by_name[_normalize(meaning)]
    within = [key for key in by_name if target in key]
    if len(target) > 2 and within:
        return by_name[min(within, key=lambda key: (len(key), key))]
    return _match_similar(target, by_name)


def _match_similar(target: str, by_name: Mapping[str, Column]) -> Column | None:
    from rapidfuzz import fuzz, process

    best = process.extractOne(target, list(by_name), scorer=fuzz.ratio, score_cutoff=CLOSE_ENOUGH)
    return by_name[best[0]] if best else None


def _normalize(name: str) -> str:
    """Return a name case-folded and without word separators."""
    return re.sub(r"[\W_]+", "_", name.strip().lower()).strip("_")
