"""Row filters: the operator's conditions on the rows that a user may read.

A filter is an SQL condition with `$variables`: `tenant = $user`. It is applied to every table of
every query, as a tree with the values as literals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.scope import Scope
from copilot_runtime.extensions.analyst.sql.rules import GuardRules, TableRule

_ALL_ROWS = 9_223_372_036_854_775_807
"""A limit that prevents DuckDB from pushing conditions below it. Otherwise a cast or a join in the
user's query would process rows before the filter removes them, and its error message would quote
them."""
_NUMBERS = {
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "BIGNUM"),
}


@dataclass(frozen=True)
class RowFilters:
    """The row filters of the settings, by table. `*` applies to every table.

    A table that lacks a column of its filter, or whose column has changed its type, is closed to
    all users: a mistake in the settings must not open it. A filter `true` opens a table that lacks
    the columns of `*`.
    """

    filters: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def parse(cls, filters: Mapping[str, str]) -> "RowFilters":
        """Return the filters. Raises `ConfigurationFailed` for text that is not a condition."""
        for name, text in filters.items():
            _parse_condition(name, text)
        return cls({name.lower(): text for name, text in filters.items()})

    def find(self, table: str, columns: Sequence[Column]) -> str | None:
        """Return the condition for a table, or `None` if all of its rows may be read."""
        conditions = self._find_conditions(table, columns)
        return " AND ".join(f"({text})" for _, text in conditions) or None

    def find_gap(
        self, table: str, columns: Sequence[Column], first_types: Mapping[str, str]
    ) -> str | None:
        """Return why a table does not match its filters, or `None`.

        `first_types` are the types of its columns when they were first seen.
        """
        types = {column.name.lower(): column.type for column in columns}
        for name, text in self._find_conditions(table, columns):
            for column in _own_columns(_parse_condition(name, text)):
                found = next((one for one in _list_parts(column) if one in types), None)
                if found is None:
                    return f"It has no column {column.name!r}, which the row filter {name!r} reads."
                first = first_types.get(found, types[found])
                if isinstance(column.parent, exp.Cast):
                    continue
                if _classify(types[found]) != _classify(first):
                    return (
                        f"Its column {column.name!r}, which the row filter {name!r} reads, was "
                        f"{first} and is {types[found]} now."
                    )
        return None

    def _find_conditions(self, table: str, columns: Sequence[Column]) -> Sequence[tuple[str, str]]:
        """Return the filters of a table, by name."""
        conditions = [
            (name, self.filters[name]) for name in (table.lower(), "*") if name in self.filters
        ]
        if len(conditions) == 2 and _is_true(conditions[0][1]):
            names = {column.name.lower() for column in columns}
            used = _own_columns(_parse_condition("*", conditions[1][1]))
            if not all(names & {*_list_parts(column)} for column in used):
                return conditions[:1]
        return conditions


def build_filter(name: str, rule: TableRule, rules: GuardRules, scope: Scope) -> exp.Expr | None:
    """Return the row condition of a table for a scope, or `None`."""
    conditions: list[exp.Expr] = []
    if rule.row_filter is not None:
        conditions.append(_bind(name, rule.row_filter, rules, scope))
    if scope.agent_name is not None and rule.has_column("source_name"):
        column = exp.column(exp.to_identifier("source_name", quoted=True))
        conditions.append(exp.EQ(this=column, expression=exp.Literal.string(scope.agent_name)))
    return exp.and_(*conditions, copy=False) if conditions else None


def restrict_table(name: str, rule: TableRule, condition: exp.Expr) -> exp.Select:
    """Return a subquery with only the rows of a table that meet a condition."""
    table = read_physical(rule.physical)
    table.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    return exp.select("*").from_(table).where(condition, copy=False).limit(_ALL_ROWS, copy=False)


def read_physical(name: str) -> exp.Table:
    """Return the table with a qualified, quoted name."""
    table = exp.to_table(name, dialect="duckdb")
    for part in table.parts:
        part.set("quoted", True)
    return table


def _bind(name: str, text: str, rules: GuardRules, scope: Scope) -> exp.Expr:
    """Return a condition with its variables replaced by values; FALSE if a value is missing."""
    condition = _parse_condition(name, text)
    variables = scope.variables
    for place in list(condition.find_all(exp.Parameter, exp.Placeholder)):
        value = variables.get(_read_variable(place))
        if value is None:
            return exp.false()
        place.replace(exp.Literal.string(value))
    for table in list(condition.find_all(exp.Table)):
        table.replace(_find_filter_table(name, table, rules))
    return exp.paren(condition, copy=False)


def _find_filter_table(name: str, table: exp.Table, rules: GuardRules) -> exp.Table:
    key = table.name.lower()
    physical = {k.lower(): v for k, v in rules.filter_tables.items()}.get(key)
    if physical is None and key in rules.names:
        physical = rules.tables[rules.names[key]].physical
    if physical is None:
        raise ConfigurationFailed(
            f"The row filter of {name!r} reads the table {table.name!r}, which there is not.",
            public="The data cannot be read: a row filter of its operator is wrong.",
        )
    found = read_physical(physical)
    found.set("alias", table.args.get("alias") or exp.TableAlias(this=table.this.copy()))
    return found


def _parse_condition(name: str, text: str) -> exp.Expr:
    try:
        tree = sqlglot.parse_one(f"SELECT 1 WHERE ({text}\n)", read="duckdb")
        (condition,) = (cast("exp.Where", tree.args["where"]).this,)
    except (SqlglotError, KeyError, RecursionError) as error:
        raise ConfigurationFailed(
            f"The row filter of {name!r} is no condition in SQL: {text[:200]!r}.",
            hint="Write one as in WHERE, such as: tenant = $user",
        ) from error
    return condition.copy()


def _read_variable(place: exp.Expr) -> str:
    return str(place.this.name if isinstance(place.this, exp.Expr) else place.this)


def _is_true(text: str) -> bool:
    condition = _parse_condition("*", text).unnest()
    return isinstance(condition, exp.Boolean) and condition.this is True


def _list_parts(column: exp.Column) -> Sequence[str]:
    """Return the names that may be the column: in `address.city`, `city` may be a struct field."""
    return [part.name.lower() for part in reversed(column.parts)]


def _classify(type: str) -> str:
    """Return the comparison class of a type: `owner > 9` differs for texts and numbers."""
    name = type.partition("(")[0].upper()
    if name in _NUMBERS:
        return "number"
    if name in {"VARCHAR", "ENUM", "UUID", "CHAR", "TEXT"}:
        return "text"
    return "time" if name == "DATE" or name.startswith("TIMESTAMP") else type.upper()


def _own_columns(condition: exp.Expr) -> list[exp.Column]:
    """Return the columns outside of subqueries."""
    return [
        column
        for column in condition.find_all(exp.Column)
        if column.find_ancestor(exp.Query) is None
    ]
