"""The rules of the guard: scopes, their tables and functions, size limits, and refusals."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from copilot_runtime.base.errors import Refused
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.analyst.results import Column


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The attributes of a caller that decide which rows may be read.

    Everything computed from data, such as statistics, samples and results, belongs to one scope,
    and is cached and stored under its `key`.
    """

    user: str | None = None
    """The user returned by the `authenticate` hook, or `None`."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of the variables in row filters, such as `tenant`; never taken from a request."""
    agent_name: str | None = None
    """Restricts tables with a column `source_name` to rows with this value."""
    is_operator: bool = False
    """`True` if operators' data sets may be read, such as the traces of this runtime."""

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits, equal for scopes with the same permissions."""
        values = dict(sorted(self.values.items()))
        parts = [self.user, values, self.agent_name, self.is_operator]
        return hashlib.sha256(dumps(parts)).hexdigest()[:16]

    @property
    def owner(self) -> str | None:
        """The owner of memory, charts and files: the user, or callers with equal row values."""
        if self.user is None and self.values:
            return f"scope:{replace(self, agent_name=None).key}"
        return self.user

    @property
    def variables(self) -> Mapping[str, str | None]:
        """Values of `$name` in row filters; an undefined variable refuses every row."""
        return {**self.values, "user": self.user}


@dataclass(frozen=True, kw_only=True)
class TableRule:
    """A readable table: `physical` is its qualified, quoted name in the engine."""

    physical: str
    columns: Sequence[Column] = ()
    row_filter: str | None = None
    """The operator's SQL condition with `$variables`; `None` allows every row."""

    def has_column(self, name: str) -> bool:
        """Return `True` if the table has a column of this lower-case name."""
        return any(column.name.lower() == name for column in self.columns)


@dataclass(frozen=True, kw_only=True)
class GuardRules:
    """The allowed tables and functions of one scope, and the size limits of its SQL."""

    tables: Mapping[str, TableRule]
    functions: frozenset[str]
    """Lower-case names of allowed functions, as returned by `list_safe_functions`."""
    filter_tables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Physical names of tables that only row filters may read."""
    max_chars: int = 20_000
    max_depth: int = 100
    max_nodes: int = 6_000

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Return table names by lower-case name: SQL identifiers are case-insensitive."""
        return {name.lower(): name for name in self.tables}


TABLE_FUNCTIONS = frozenset(
    {"range", "generate_series", "unnest", "repeat_row", "json_each", "json_tree"}
)
"""Functions allowed in FROM. All others read files, settings or tables named by a text."""

_FORBIDDEN = re.compile(
    r"""
    __.* | .*(pragma|duckdb|secret|parquet|arrow|pandas|python|external_resource|logging|
    checkpoint|profiling|serialize|snapshot|extension|wal).*
    | (read|write|sniff|scan|copy|load|attach|install|enable|disable|truncate|test|export|import
       |verify|has|pg|inet|hive|storage|database|metadata|index|invoke|current|txid|getvar|get_var
       |get_block|collate|icu_collate)_.*
    | .*_(scan|privilege|is_visible)
    | query | query_table | seq_scan | glob | getenv | getvariable | setvariable | version
    | platform | user_agent | summary | show.* | table_info | functions | collations
    | nextval | currval | setval | setseed | sleep_ms | in_search_path | session_user | user
    | enum_(range|range_boundary|first|last)
    | stats | vector_type | create_sort_key | icu_sort_key | col_description | obj_description
    | shobj_description | map_to_pg_oid | assert_true | error | is_histogram_other_bin
    | which_secret | combine | finalize | to_aggregate_state | combine_aggr
    | cast_to_type | make_type | get_type | replace_type | can_cast_implicitly
    | parse_duckdb_log_message | variant_bytes_to_variant | constant_or_null
    | st_.* | lttb | repeat_row_internal | transaction_timestamp_internal
    """,
    re.VERBOSE,
)
_SAFE_CURRENT = frozenset(
    {
        "current_date",
        "current_time",
        "current_timestamp",
        "current_localtime",
        "current_localtimestamp",
        "get_current_time",
        "get_current_timestamp",
        "pg_typeof",
        "has_any",
        "index_of",
    }
)
"""Allowed functions whose names match the pattern of forbidden ones."""
_SYNTAX = frozenset(
    {"coalesce", "if", "ifnull", "nullif", "unnest", "columns", "grouping", "grouping_id", "try"}
)
"""Names that are part of DuckDB's grammar, so that its list of functions may lack them."""


def list_safe_functions(names: Iterable[str]) -> frozenset[str]:
    """Return the lower-case names of an engine's functions that SQL may call.

    Excluded are functions that read files, settings, tables named by a text, or the engine's state,
    that write or sleep, and that cast or merge internal values unchecked.
    """
    lower = {name.lower() for name in names}
    return frozenset(
        {name for name in lower if name in _SAFE_CURRENT or not is_forbidden(name)} | _SYNTAX
    )


def is_forbidden(name: str) -> bool:
    """Return `True` if a function with this name may never be called."""
    name = name.lower()
    return name not in _SAFE_CURRENT and _FORBIDDEN.fullmatch(name) is not None


SqlCode = Literal[
    "multiple_statements",
    "write_in_tree",
    "not_select",
    "function_not_allowed",
    "table_not_allowed",
    "parse_error",
    "too_long",
    "too_deep",
    "too_large",
]


class SqlRefused(Refused):
    """The guard refused SQL before it reached the data. The message is a sentence for users.

    `name` is the refused table or function; `candidates` are tables with a similar name that the
    user may read. `is_unknown` distinguishes an unknown function from a forbidden one.
    """

    is_hint_public = True

    def __init__(
        self,
        code: SqlCode,
        message: str,
        *,
        hint: str | None = None,
        name: str | None = None,
        candidates: tuple[str, ...] = (),
        is_unknown: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason: SqlCode = code
        self.error_type = code
        self.name = name
        self.candidates = candidates
        self.is_unknown = is_unknown
