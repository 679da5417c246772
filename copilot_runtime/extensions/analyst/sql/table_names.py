"""Resolve table names in a query, and replace tables by filtered subqueries."""

from collections.abc import Sequence
from difflib import get_close_matches

from sqlglot import exp

from copilot_runtime.extensions.analyst.scope import Scope
from copilot_runtime.extensions.analyst.sql.row_filters import (
    build_filter,
    read_physical,
    restrict_table,
)
from copilot_runtime.extensions.analyst.sql.rules import GuardRules, SqlRefused

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
