"""The tables of a query: resolved by name, and restricted to the rows that the user may read.

A row filter is an operator's SQL condition with `$variables`: `tenant = $user`. It is applied to
every table of every query, as a tree with the values as literals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.sql.rules import GuardRules, Scope, SqlRefused, TableRule

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


MOST_READS = 200
"""Maximum number of table reads in one query; ordinary queries have a few."""

_MOVED = ("alias", "pivots", "joins", "laterals", "sample")


class TableReader:
    """Replaces the tables of a query.

    Every CTE gets a unique name, and every table its qualified one. So a CTE and a table of the
    same name cannot be confused, whatever the scoping rules of the two parsers.
    """

    def __init__(self, rules: GuardRules, scope: Scope) -> None:
        self._rules = rules
        self._scope = scope
        self._ctes: dict[int, str] = {}
        self.paths: set[tuple[str, ...]] = set()
        """The table paths that the final SQL may contain."""
        self.tables: list[str] = []
        """Tables that the query reads, by their names in the rules."""
        self.restricted: list[str] = []
        """The filtered ones among these tables."""

    def replace_tables(self, tree: exp.Expr) -> exp.Expr:
        """Return the tree over physical tables and filtered subqueries; modifies the given tree."""
        meant = [(table, self._find_cte(table)) for table in tree.find_all(exp.Table)]
        _check_reads(meant)
        for number, cte in enumerate(tree.find_all(exp.CTE), 1):
            self._ctes[id(cte)] = f"{cte.alias[:60]} (cte {number})"
        for table, cte in meant:
            if isinstance(table.this, exp.Func):
                continue
            new = self._read_table(table) if cte is None else self._read_cte(table, cte)
            if isinstance(table.parent, exp.Summarize | exp.Describe):
                new = exp.select("*").from_(new)
            table.replace(new)
        for cte in list(tree.find_all(exp.CTE)):
            if name := self._ctes.get(id(cte)):
                cte.args["alias"].set("this", exp.to_identifier(name, quoted=True))
                self.paths.add((name,))
        for column in tree.find_all(exp.Column):
            if column.text("db").lower() == "main" and not column.args.get("catalog"):
                column.set("db", None)
        return tree

    def _find_cte(self, table: exp.Table) -> exp.CTE | None:
        """Return the CTE that a table name refers to, searching from the innermost scope."""
        if table.args.get("db") or table.args.get("catalog"):
            return None
        name = table.name.lower()
        inside: exp.Expr = table
        node = table.parent
        while node is not None:
            if isinstance(node, exp.With):
                place = inside.index or 0
                visible = node.expressions[: place + bool(node.args.get("recursive"))]
            else:
                clause = node.args.get("with_")
                visible = clause.expressions if clause is not None and clause is not inside else []
            for cte in reversed(visible):
                if cte.alias.lower() == name:
                    return cte
            inside, node = node, node.parent
        return None

    def _read_cte(self, table: exp.Table, cte: exp.CTE) -> exp.Expr:
        new = exp.Table(this=exp.to_identifier(self._ctes[id(cte)], quoted=True))
        return _move(table, new)

    def _read_table(self, table: exp.Table) -> exp.Expr:
        name = self._find_name(table)
        rule = self._rules.tables[name]
        if name not in self.tables:
            self.tables.append(name)
        self._allow(read_physical(rule.physical))
        condition = build_filter(name, rule, self._rules, self._scope)
        if condition is None:
            return _move(table, read_physical(rule.physical))
        if name not in self.restricted:
            self.restricted.append(name)
        for other in condition.find_all(exp.Table):
            self._allow(other)
        return _move(table, exp.Subquery(this=restrict_table(name, rule, condition)))

    def _find_name(self, table: exp.Table) -> str:
        """Return the table's name in the rules, or raise `SqlRefused`."""
        schema, catalog = table.text("db").lower(), table.args.get("catalog")
        names = self._rules.names
        is_plain = isinstance(table.this, exp.Identifier) and schema in ("", "main") and not catalog
        if is_plain and (name := names.get(table.name.lower())):
            return name
        path = ".".join(part.name for part in table.parts)[:200]
        matches = get_close_matches(table.name.lower()[:200], names, n=3)
        close = tuple(names[one] for one in matches)
        hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else None
        raise SqlRefused(
            "table_not_allowed",
            f"There is no table {path!r}.",
            hint=hint,
            name=table.name,
            candidates=close,
        )

    def _allow(self, table: exp.Table) -> None:
        self.paths.add(tuple(part.name for part in table.parts))


def _check_reads(meant: Sequence[tuple[exp.Table, exp.CTE | None]]) -> None:
    """Raise `SqlRefused` if the number of table reads is too high after expanding all CTEs.

    A chain of CTEs, each of which reads the previous one twice, grows exponentially. DuckDB expands
    it completely while planning, beyond its memory limit and without interruption.
    """
    names: dict[int, list[exp.CTE | None]] = {}
    for table, cte in meant:
        place = table.find_ancestor(exp.CTE)
        names.setdefault(id(place), []).append(None if cte is place else cte)
    counts: dict[int, int] = {}

    def count(cte: exp.CTE | None) -> int:
        if (key := id(cte)) not in counts:
            counts[key] = 1  # for an indirectly recursive one
            total = sum(1 if one is None else count(one) for one in names.get(key, ()))
            counts[key] = min(max(total, 1), MOST_READS + 1)
        return counts[key]

    if count(None) > MOST_READS or any(count(cte) > MOST_READS for _, cte in meant if cte):
        raise SqlRefused(
            "too_large",
            f"The query reads tables more than {MOST_READS} times, counting each use of a WITH.",
            hint="Name each step of WITH once or twice, not again in every later step.",
        )


def _move(table: exp.Table, new: exp.Expr) -> exp.Expr:
    """Return the new table with the alias, joins and pivots of the other."""
    for key in _MOVED:
        if value := table.args.get(key):
            new.set(key, value)
    if not new.args.get("alias"):
        new.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
    return new


def name_subqueries(tree: exp.Expr) -> None:
    """Name each result that is a subquery by its text, before row filters become part of it."""
    for query in tree.find_all(exp.Select):
        for one in query.expressions:
            if not one.alias and one.find(exp.Table) is not None:
                one.replace(exp.alias_(one.copy(), one.sql(dialect="duckdb"), quoted=True))
