"""Spans of database queries, by OpenTelemetry's stable conventions for databases.

https://opentelemetry.io/docs/specs/semconv/database/
"""

import re

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import NO_SPAN, Span

_MAX_QUERY = 2000
_MAX_SCANNED = 100_000
"""Maximum number of characters of a query that are masked and recorded."""

_VALUE = re.compile(
    r"""
      (?P<comment> (?: -- | \# ) [^\n]*+ | /\* (?: .* \*/ | .*+ ) )
    | \$(?P<tag>\w*+)\$ (?: .*? \$(?P=tag)\$ | .*+ )
    | (?: [xXbBeEnN] (?=') )? ' (?: [^'\\] | '' | \\[^'] )*+ (?: ' | \\' .*+ | \\? \Z )
    | " (?: [^"\\] | "" | \\[^"] )*+ (?: " | \\" .*+ | \\? \Z )
    | ` [^`]*+ (?: ` | \Z )
    | (?<! [\w.$] ) [0-9] [\w.]*+
    """,
    re.VERBOSE | re.DOTALL,
)
"""Matches comments, string literals, quoted names and numbers in SQL.

Databases differ in whether `\\'` ends a string literal and whether comments nest. The pattern
treats anything that may belong to one as part of it, even up to the end of the query.
"""


def start_database_span(
    parent: Span,
    *,
    system: str,
    operation: str,
    collection: str = "",
    namespace: str = "",
    query: str = "",
) -> Span:
    """Start the span of a query: `{operation} {collection}`, such as `SELECT orders`.

    `system` is the kind of database, such as `duckdb`, and `namespace` its name. The SQL text of
    `query` is recorded with its values masked.
    """
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(
        f"{operation} {collection}".rstrip(),
        kind="client",
        attributes={
            semconv.DB_SYSTEM_NAME: system,
            semconv.DB_OPERATION_NAME: operation,
            semconv.DB_COLLECTION_NAME: collection or None,
            semconv.DB_NAMESPACE: namespace or None,
            semconv.DB_QUERY_SUMMARY: f"{operation} {collection}".rstrip() if query else None,
            semconv.DB_QUERY_TEXT: mask_query(query) or None,
        },
    )


def mask_query(query: str) -> str:
    """Return SQL with `?` for each value and each quoted name, without comments, on one line."""

    def mask(match: re.Match[str]) -> str:
        return " " if match["comment"] else "?"

    masked = " ".join(_VALUE.sub(mask, query[:_MAX_SCANNED]).split())
    return masked if len(masked) <= _MAX_QUERY else f"{masked[:_MAX_QUERY]}…"
