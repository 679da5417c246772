"""Conditions of JMESPath as functions: those that compare fields, and look for texts in names.

That is what most queries are, and it takes a tenth of the interpreter's time.
"""

from collections.abc import Callable, Mapping
from typing import Any

from copilot_runtime.extensions.tracing.store.records import Record

Predicate = Callable[[Record], bool]

_TEXT_FIELDS = frozenset({"trace_id", "span_id", "parent_span_id", "name"})
"""What is a text in every span: for anything else, the functions of texts end in errors."""
_TEXT_FUNCTIONS: Mapping[str, Callable[[str, str], bool]] = {
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": str.__contains__,
}


def compile_filter(tree: Mapping[str, Any]) -> Predicate | None:
    """Return which spans a query of the form `[?condition]` keeps; None for any other query."""
    if tree["type"] != "filter_projection":
        return None
    base, rest, condition = tree["children"]
    is_plain = base["type"] == rest["type"] == "identity"
    return _compile_condition(condition) if is_plain else None


def read_comparison(node: Mapping[str, Any]) -> tuple[tuple[str, ...], Any]:
    """Return the path and the value of `path == value`, or `!=`; no path for anything else."""
    if node["type"] != "comparator" or node["value"] not in ("eq", "ne"):
        return (), None
    left, right = node["children"]
    if left["type"] == "literal":
        left, right = right, left
    if right["type"] != "literal" or type(right["value"]) not in (str, int, float):
        return (), None
    return _read_path(left), right["value"]


def _compile_condition(node: Mapping[str, Any]) -> Predicate | None:
    match node["type"]:
        case "comparator":
            path, value = read_comparison(node)
            return _compile_comparison(path, value, is_equal=node["value"] == "eq")
        case "and_expression" | "or_expression" as kind:
            left, right = map(_compile_condition, node["children"])
            if left is None or right is None:
                return None
            if kind == "and_expression":
                return lambda span: left(span) and right(span)
            return lambda span: left(span) or right(span)
        case "function_expression":
            return _compile_function(node)
        case "not_expression":
            inner = _compile_condition(node["children"][0])
            return None if inner is None else lambda span: not inner(span)
        case _:
            return None


def _compile_comparison(path: tuple[str, ...], value: Any, *, is_equal: bool) -> Predicate | None:
    if not path:
        return None

    def compare(span: Record) -> bool:
        found: Any = span
        for name in path:
            if not isinstance(found, dict):
                found = None
                break
            found = found.get(name)
        # true is not 1
        return (found == value and not isinstance(found, bool)) is is_equal

    return compare


def _compile_function(node: Mapping[str, Any]) -> Predicate | None:
    function = _TEXT_FUNCTIONS.get(node["value"])
    match node["children"]:
        case [{"type": "field", "value": str(field)}, {"type": "literal", "value": str(text)}]:
            if function is None or field not in _TEXT_FIELDS:
                return None
            return lambda span: function(span[field], text)
        case _:
            return None


def _read_path(node: Mapping[str, Any]) -> tuple[str, ...]:
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] != "subexpression":
        return ()
    parts = [_read_path(child) for child in node["children"]]
    return tuple(name for part in parts for name in part) if all(parts) else ()
