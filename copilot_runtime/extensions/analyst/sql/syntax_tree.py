"""The second check of SQL: DuckDB's own parse of the text that is going to run.

The guard checks and rewrites sqlglot's tree. What counts is how DuckDB parses the resulting text,
so that parse is checked as well, against allow-lists. SQL that the two parsers interpret
differently is refused here, before it runs.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

import duckdb

from copilot_runtime.extensions.analyst.sql.rules import TABLE_FUNCTIONS, SqlRefused, is_forbidden
from copilot_runtime.extensions.analyst.sql.sizes import BOUND, BOUND_MESSAGE, check_size

_NODES = frozenset(
    {
        "SELECT_NODE",
        "SET_OPERATION_NODE",
        "RECURSIVE_CTE_NODE",
        "CTE_NODE",
        "BASE_TABLE",
        "EMPTY",
        "EXPRESSION_LIST",
        "JOIN",
        "PIVOT",
        "SHOW_REF",
        "SUBQUERY",
        "TABLE_FUNCTION",
        "DISTINCT_MODIFIER",
        "LIMIT_MODIFIER",
        "LIMIT_PERCENT_MODIFIER",
        "ORDER_MODIFIER",
        "ASCENDING",
        "DESCENDING",
        "ORDER_DEFAULT",
    }
)
_WRITES = frozenset(
    {"DELETE_QUERY_NODE", "INSERT_QUERY_NODE", "UPDATE_QUERY_NODE", "MERGE_QUERY_NODE"}
)
_EXPRESSIONS = frozenset(
    {
        "BETWEEN",
        "CASE",
        "CAST",
        "COLLATE",
        "COLUMN_REF",
        "COMPARISON",
        "CONJUNCTION",
        "CONSTANT",
        "FUNCTION",
        "LAMBDA",
        "OPERATOR",
        "POSITIONAL_REFERENCE",
        "STAR",
        "SUBQUERY",
        "TYPE",
        "WINDOW",
    }
)


def check_syntax_tree(
    sql: str, *, tables: Collection[tuple[str, ...]], functions: Collection[str]
) -> None:
    """Raise `SqlRefused` unless DuckDB parses one query over these tables and functions only.

    `tables` are the table paths in the text, such as `("d1", "main", "orders")`. A path with one
    part is the name of a CTE.
    """
    for node in _walk(_read(sql)):
        if "class" in node:
            _check_expression(node, functions)
        elif isinstance(node.get("type"), str):
            _check_node(node, tables, functions)


def _read(sql: str) -> Mapping[str, Any]:
    cursor = _connect().cursor()
    try:
        rows = cursor.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchall()
    except (duckdb.Error, RecursionError):
        raise SqlRefused("parse_error", "DuckDB cannot read this query.") from None
    finally:
        cursor.close()
    tree: dict[str, Any] = json.loads(rows[0][0])
    if tree["error"]:
        if tree.get("error_type") == "parser":
            message = str(tree.get("error_message", "")).splitlines()[:1]
            raise SqlRefused(
                "parse_error", f"DuckDB cannot read this query: {''.join(message)[:300]}"
            )
        raise SqlRefused("not_select", "Only queries that read are allowed.")
    if len(tree["statements"]) != 1:
        raise SqlRefused("multiple_statements", "Only one statement is allowed.")
    return tree


@cache
def _connect() -> duckdb.DuckDBPyConnection:
    """Return an empty in-memory database that only parses SQL; it never runs a query."""
    return duckdb.connect(
        config={
            "enable_external_access": "false",
            "lock_configuration": "true",
            "threads": "1",
            "memory_limit": "256MB",
        }
    )


@cache
def list_functions() -> frozenset[str]:
    """Return the names of DuckDB's functions."""
    return _list_names("SELECT DISTINCT function_name FROM duckdb_functions()")


@cache
def list_keywords() -> frozenset[str]:
    """Return DuckDB's reserved words, which must be quoted to be used as names."""
    return _list_names(
        "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    )


@cache
def _list_types() -> frozenset[str]:
    """Return DuckDB's built-in types. Types of a database could be built from its values."""
    names = _list_names("SELECT DISTINCT type_name FROM duckdb_types()")
    return frozenset({"list", "array"} | {name.lower() for name in names})


def _list_names(sql: str) -> frozenset[str]:
    cursor = _connect().cursor()
    try:
        return frozenset(name for (name,) in cursor.execute(sql).fetchall())
    finally:
        cursor.close()


def _walk(tree: object) -> Iterator[dict[str, Any]]:
    stack: list[Any] = [tree]
    while stack:
        match stack.pop():
            case dict() as node:
                yield node
                stack.extend(node.values())
            case list() as nodes:
                stack.extend(nodes)
            case _:
                pass


def _check_node(
    node: Mapping[str, Any], tables: Collection[tuple[str, ...]], functions: Collection[str]
) -> None:
    kind = node["type"]
    if kind in _WRITES:
        raise SqlRefused("write_in_tree", "The query writes; only reading is allowed.")
    if kind not in _NODES:
        raise SqlRefused("not_select", f"The query uses {kind!r}, which is not allowed.")
    if kind == "BASE_TABLE":
        path = tuple(node["qualified_name"]["path"])
        if node.get("at_clause") or path not in tables:
            name = ".".join(path)[:200]
            raise SqlRefused("table_not_allowed", f"The table {name!r} is not allowed.", name=name)
    elif kind == "SHOW_REF" and not (node.get("query") and not node.get("table_name")):
        raise SqlRefused("not_select", "SHOW is not allowed.")
    elif kind == "TABLE_FUNCTION":
        call = node["function"]
        if call.get("class") != "FUNCTION" or len(call["qualified_name"]["path"]) > 1:
            raise SqlRefused("function_not_allowed", "This call in FROM is not allowed.")
        if call["function_name"].lower() not in TABLE_FUNCTIONS:
            raise _refuse_function(call["function_name"], functions, where=" in FROM")
        node["function"]["is_table"] = True


def _check_expression(node: Mapping[str, Any], functions: Collection[str]) -> None:
    kind = node["class"]
    if kind not in _EXPRESSIONS:
        if kind == "PARAMETER":
            raise SqlRefused("parse_error", "The query has a parameter; write the value itself.")
        raise SqlRefused("not_select", f"The query uses {kind!r}, which is not allowed.")
    if kind == "TYPE" and (
        len(node["qualified_name"]["path"]) > 1 or node["type_name"].lower() not in _list_types()
    ):
        raise SqlRefused("not_select", f"There is no type {str(node['type_name'])[:100]!r}.")
    if kind not in ("FUNCTION", "WINDOW"):
        return
    name = str(node["function_name"]).lower()
    if len(node["qualified_name"]["path"]) > 2:
        raise SqlRefused(
            "function_not_allowed",
            f"The function {name!r} is not allowed with a qualified name.",
            name=name,
        )
    if name == "error" and _is_bound(node):
        return
    if name not in functions:
        raise _refuse_function(name, functions)
    if not node.get("is_table"):
        arguments = [_describe(one["expression"]) for one in node.get("arguments", ())]
        # text.repeat(9) reads as a function of the schema "text", and is bound as repeat(text, 9)
        is_method = len(node["qualified_name"]["path"]) > 1
        check_size(name, [None, *arguments] if is_method else arguments)


def _refuse_function(name: str, functions: Collection[str], where: str = "") -> SqlRefused:
    is_unknown = not is_forbidden(name) and name.lower() not in functions
    return SqlRefused(
        "function_not_allowed",
        f"The function {name[:100]!r} is not allowed{where}.",
        hint="Use DuckDB's functions for values; none that reads files, settings or the engine.",
        name=name,
        is_unknown=is_unknown,
    )


def _is_bound(node: Mapping[str, Any]) -> bool:
    """Return `True` for the error that bounded calls raise."""
    return [_describe(one["expression"]) for one in node["arguments"]] == [BOUND_MESSAGE]


def _describe(node: Mapping[str, Any]) -> object:
    """Return a literal's value, `BOUND` for an argument that is checked at run time, or `None`."""
    match node:
        case {"class": "CONSTANT", "literal": {"kind": "INTEGER", "text": str(text)}}:
            return int(text) if text.isdigit() else None
        case {"class": "CONSTANT", "literal": {"kind": "STRING", "text": str(text)}}:
            return text
        case {"class": "CAST", "child": child}:
            return _describe(child)
        case {
            "class": "CASE",
            "case_checks": [
                {"then_expr": {"function_name": "error"} as error},
                {"then_expr": {"function_name": "least" | "greatest" | "left"}},
            ],
        }:
            return BOUND if _is_bound(error) else None
        case _:
            return None
