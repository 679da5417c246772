"""Which functions SQL may call."""

import re
from collections.abc import Iterable

TABLE_FUNCTIONS = frozenset(
    {"range", "generate_series", "unnest", "repeat_row", "json_each", "json_tree"}
)
"""Functions that may stand in FROM. All others read files, settings or tables by text."""

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
"""Names that look like those of forbidden functions."""
_SYNTAX = frozenset(
    {"coalesce", "if", "ifnull", "nullif", "unnest", "columns", "grouping", "grouping_id", "try"}
)
"""Names that DuckDB's grammar gives a meaning, so that its list of functions may lack them."""


def list_safe_functions(names: Iterable[str]) -> frozenset[str]:
    """Return the functions of an engine, in lower case, that SQL may call.

    Left out is what reads files, settings, other tables by their name, or the engine's own state,
    what writes, sleeps, or casts and merges internal values unchecked.
    """
    lower = {name.lower() for name in names}
    return frozenset(
        {name for name in lower if name in _SAFE_CURRENT or not is_forbidden(name)} | _SYNTAX
    )


def is_forbidden(name: str) -> bool:
    """Return whether a function with this name may never be called."""
    name = name.lower()
    return name not in _SAFE_CURRENT and _FORBIDDEN.fullmatch(name) is not None
