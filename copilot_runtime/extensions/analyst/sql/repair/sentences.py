"""The sentence on each repair, for thoughts and for memory."""

from copilot_runtime.extensions.analyst.results import Fix


def build_fix(kind: str, before: str, after: str, how: str = "") -> Fix:
    """Return a fix with its sentence; its kinds are those of `Fix.kind`."""
    return Fix(
        kind=kind, before=before, after=after, description=describe_fix(kind, before, after, how)
    )


def describe_fix(kind: str, before: str, after: str, how: str = "") -> str:
    """Return what a repair did.

    Args:
        kind: What was wrong: one of `Fix.kind`.
        before: What stood there; for `type`, the column or the value.
        after: What stands there now.
        how: How the name was found, such as `synonym`.
    """
    match kind:
        case "column" | "table":
            found = f"{before!r} not found → replaced with {after!r}"
            return f"{kind.capitalize()} {found} ({how or 'fuzzy match'})"
        case "type" if after.startswith("TRY_"):
            wrapper = after.partition("(")[0]
            return f"CAST error on {before!r} → wrapped with {wrapper} to handle NULL values"
        case "type":
            return f"Type error on {before!r} → written as {after}"
        case "literal":
            return f'"{before}" is no column → written as the text {after}'
        case "function":
            dialect = f" (from {how})" if how else ""
            return f"Function {before} does not exist → written as {after}{dialect}"
        case "group_by":
            return "GROUP BY missing → added GROUP BY ALL"
        case "ambiguous":
            return f"Column {before!r} is ambiguous → replaced with {after!r}"
        case _:
            return f"Syntax error → {how or 'rewrote the SQL'}"
