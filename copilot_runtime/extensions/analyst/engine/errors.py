"""Convert DuckDB's errors, without file paths, values of rows and names of other tables."""

import re
from collections.abc import Sequence
from typing import Any, Literal

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject, get_text, parse_object

FailureKind = Literal[
    "column_not_found",
    "table_not_found",
    "function_not_found",
    "type_mismatch",
    "syntax",
    "group_by_missing",
    "ambiguous",
    "out_of_memory",
    "not_allowed",
    "other",
]


_LESS = "Ask for less: filter, aggregate, or leave a join out."


class QueryFailed(CopilotError):
    """The engine refused SQL, or could not complete it.

    `message` is for models and users, `kind` is a `FailureKind`.
    """

    code = "QUERY_FAILED"
    status_code = 422
    visibility = "banner"
    severity = "warning"

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind = "other",
        name: str | None = None,
        candidates: Sequence[str] = (),
        position: int | None = None,
        exception_type: str = "",
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, kind=kind)
        self.error_type = kind
        self.name = name
        """The name that was not found."""
        self.candidates = tuple(candidates)
        """DuckDB's suggestions; for columns there are always some, however dissimilar."""
        self.position = position
        """The character offset of the error in the SQL, from 0."""
        self.exception_type = exception_type
        """DuckDB's exception class without `Exception`, such as `Binder`."""

    def to_fields(self) -> dict[str, Any]:
        """Return the arguments that make an equal error."""
        return {
            "message": self.message,
            "kind": self.error_type,
            "name": self.name,
            "candidates": self.candidates,
            "position": self.position,
            "exception_type": self.exception_type,
            "hint": self.hint,
        }


class QueryTimedOut(CopilotError):
    """A query exceeded its time limit and was stopped."""

    code = "QUERY_TIMED_OUT"
    status_code = 504
    visibility = "banner"
    severity = "warning"
    error_type = "timeout"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The query was stopped after {seconds:g} s.",
            hint=_LESS,
        )


class DatasetRefused(CopilotError):
    """A data set cannot be loaded, saved, refreshed or deleted; `public` has the reason."""

    code = "DATASET_REFUSED"
    status_code = 409
    visibility = "banner"
    severity = "warning"


_PATH = re.compile(r"(?<![\w/.:])(?:[A-Za-z]:)?[\\/](?:[^\s\"'\\/]+[\\/])+[^\s\"'\\/]*")
_VALUE = re.compile(r"""(["']).*\1""", re.DOTALL)
_NUMBER = re.compile(r"(?<![A-Za-z0-9_])[-+]?\d[\d.,:eE+-]*")
_WITH_VALUES = {"Conversion", "Out of Range", "Invalid Input", "Mismatch Type", "Invalid Type"}
"""Exception classes whose messages quote values, possibly of rows that a filter hides."""
_ALIAS = re.compile(r"(\W|^)\"?d[0-9]+\"?\.(?:\"?main\"?\.)?(?=[\w\"])")
_GUESS = re.compile(r"\n?Did you mean .*", re.DOTALL)
_CANDIDATE = re.compile(r"""["']((?:[^"']|"")+)["']""")
_FUNCTIONS = re.compile(r"\s*Candidate functions:.*", re.DOTALL)
_WITH_CANDIDATES = {"column_not_found", "function_not_found", "ambiguous"}
"""Kinds of errors with suggestions. Tables are excluded: DuckDB would name other users' saved
tables."""

MOST_CHARACTERS = 1_000


def parse_error(error: Exception, offset: int = 0) -> QueryFailed:
    """Convert an exception of DuckDB. `offset` is the length of our prefix before the SQL.

    Server paths, internal database names and values of rows are removed: the values may be of rows
    that a filter hides.
    """
    details = parse_object(str(error).partition(": ")[2])
    exception_type = get_text(details, "exception_type") or type(error).__name__.removesuffix(
        "Exception"
    )
    subtype = get_text(details, "error_subtype")
    text = get_text(details, "exception_message") or str(error).partition(": ")[2] or str(error)
    kind = _classify(exception_type, subtype, get_text(details, "type"), text)
    position = get_text(details, "position")
    has_candidates = kind in _WITH_CANDIDATES or text.startswith("Referenced table")
    candidates = _read_candidates(details, text) if has_candidates else ()
    return QueryFailed(
        _hide_values(clean_message(text), exception_type),
        kind=kind,
        name=get_text(details, "name") or _find_name(text, kind),
        candidates=candidates,
        position=max(int(position) - offset, 0) if position.isdigit() else None,
        exception_type=exception_type,
    )


def refuse_memory(limit: str) -> QueryFailed:
    """Return the error for a query that exceeded `analyst.memory_limit`."""
    return QueryFailed(
        f"The query needs more memory than analyst.memory_limit ({limit}) allows.",
        kind="out_of_memory",
        exception_type="Out of Memory",
        hint=_LESS,
    )


def clean_message(text: str) -> str:
    """Return a message of DuckDB without paths, database names and suggestions."""
    if "read-only mode" in text:
        return "The data is read-only here."
    if "allocate" in text and "used)" in text:
        return "The query needs more memory than it may have."
    text = _FUNCTIONS.sub("", _GUESS.sub("", text))
    text = _ALIAS.sub(r"\1", _PATH.sub("[file]", text))
    text = re.sub(r"\n\s*\n.*?\^\s*$", "", text, flags=re.DOTALL)
    return text.strip()[:MOST_CHARACTERS] or "The query failed."


def _hide_values(text: str, exception_type: str) -> str:
    if exception_type not in _WITH_VALUES:
        return text
    return _NUMBER.sub("(a number)", _VALUE.sub("(a value)", text))


def _classify(exception_type: str, subtype: str, entry: str, text: str) -> FailureKind:
    if subtype == "COLUMN_NOT_FOUND":
        return "column_not_found"
    if exception_type == "Catalog":
        if "Function" in entry or "Macro" in entry:
            return "function_not_found"
        return "other" if entry in {"Type", "Collation"} else "table_not_found"
    if subtype == "NO_MATCHING_FUNCTION" or exception_type in {"Conversion", "Mismatch Type"}:
        return "type_mismatch"
    if exception_type == "Parser" or subtype == "SYNTAX_ERROR":
        return "syntax"
    if exception_type == "Out of Memory":
        return "out_of_memory"
    if exception_type == "Permission" or "read-only mode" in text:
        return "not_allowed"
    return _classify_text(text)


def _classify_text(text: str) -> FailureKind:
    if "must appear in the GROUP BY clause" in text:
        return "group_by_missing"
    if text.startswith("Ambiguous reference"):
        return "ambiguous"
    if text.startswith("Referenced table"):
        return "table_not_found"
    if "does not have a column named" in text or "not found in FROM clause" in text:
        return "column_not_found"
    if "Cannot compare values of type" in text or "explicit type cast" in text.lower():
        return "type_mismatch"
    return "other"


def _read_candidates(details: JsonObject, text: str) -> Sequence[str]:
    value = details.get("candidates")
    if isinstance(value, list):
        return [*map(str, value)]
    if isinstance(value, str) and value:
        return [one.strip().strip('"') for one in value.split(",")]
    _, marker, rest = text.partition("Candidate bindings:")
    for word in ("Candidate tables:", "(use:"):
        if not marker:
            _, marker, rest = text.partition(word)
    return [one.replace('""', '"') for one in _CANDIDATE.findall(rest)] if marker else ()


def _find_name(text: str, kind: FailureKind) -> str | None:
    if kind not in {"column_not_found", "ambiguous", "table_not_found"}:
        return None
    match = re.search(r'(?:column|Referenced table) (?:name(?:d)? )?"((?:[^"]|"")+)"', text)
    return match[1] if match else None
