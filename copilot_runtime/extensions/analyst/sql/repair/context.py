"""What a repair may use: the names and types that there are, and where they are in SQL."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from sqlglot import exp

from copilot_runtime.extensions.analyst.results import Column, Fix

DIALECT = "duckdb"


@dataclass(frozen=True, kw_only=True)
class RepairContext:
    """The data that a question may see."""

    tables: Mapping[str, Sequence[Column]]
    """The columns of each table, by the name that SQL uses."""
    synonyms: Mapping[str, str] = field(default_factory=dict[str, str])
    """Columns by other words for them, in lower case."""
    dataset: str | None = None
    """The table that the question is about."""
    functions: frozenset[str] = frozenset()
    """The names of the engine's functions; none if they are not known."""

    def find_table(self, name: str) -> str | None:
        """Return a table by its name in any case."""
        return next((one for one in self.tables if one.casefold() == name.casefold()), None)

    def list_columns(self, table: str) -> Sequence[Column]:
        """Return the columns of a table; none if there is no such table."""
        name = self.find_table(table)
        return () if name is None else self.tables[name]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """SQL that may be what was meant."""

    tree: exp.Expr
    fix: Fix
    probe: exp.Expr | None = None
    """A query that returns a row only if it is so, such as whether a value is in a column."""


@dataclass(frozen=True)
class Source:
    """What a name before a column stands for: a table, or a subquery with its columns."""

    table: str | None
    columns: Sequence[Column]


def find_select(node: exp.Expr) -> exp.Select | None:
    """Return the SELECT that a node belongs to."""
    return node if isinstance(node, exp.Select) else node.find_ancestor(exp.Select)


def list_sources(select: exp.Select, context: RepairContext) -> Mapping[str, Source]:
    """Return what a SELECT reads from, by alias in lower case."""
    sources: dict[str, Source] = {}
    for item in _list_items(select):
        name = item.alias_or_name
        if isinstance(item, exp.Table):
            cte = _find_cte(item)
            columns = context.list_columns(item.name) if cte is None else list_outputs(cte)
            sources[name.casefold()] = Source(item.name if cte is None else None, columns)
        elif isinstance(item, exp.Subquery):
            sources[name.casefold()] = Source(None, list_outputs(item.this))
    return sources


def find_source(column: exp.Column, context: RepairContext) -> tuple[str, Source, str] | None:
    """Return alias, source and type of a column, if exactly one source has it."""
    select = find_select(column)
    while select is not None:
        found = [
            (alias, source, one.type)
            for alias, source in list_sources(select, context).items()
            if column.table.casefold() in ("", alias)
            for one in source.columns
            if one.name.casefold() == column.name.casefold()
        ]
        if found:
            return found[0] if len(found) == 1 else None
        select = select.find_ancestor(exp.Select)
    return None


def list_outputs(query: object) -> Sequence[Column]:
    """Return the columns that a query returns, without types; `*` is not resolved."""
    if isinstance(query, exp.Query):
        return [Column(name, "") for name in query.named_selects if name and name != "*"]
    return ()


def find_columns(tree: exp.Expr, name: str) -> Iterator[exp.Column]:
    """Yield the columns of a name, which may have a table before it."""
    table, _, last = name.rpartition(".")
    for column in list(tree.find_all(exp.Column)):
        is_whole = column.name.casefold() == name.casefold()
        parts = (column.table.casefold(), column.name.casefold())
        if is_whole or parts == (table.casefold(), last.casefold()):
            yield column


def edit(
    tree: exp.Expr,
    predicate: Callable[[exp.Expr], bool],
    build: Callable[[exp.Expr], exp.Expr],
) -> exp.Expr | None:
    """Return a copy of a tree with some nodes replaced; None if there is none of them."""
    copy = tree.copy()
    nodes = [node for node in copy.walk() if predicate(node)]
    for node in nodes:
        replacement = build(node)
        if node is copy:
            copy = replacement
        else:
            node.replace(replacement)
    return copy if nodes else None


def build_identifier(name: str) -> exp.Identifier:
    """Return a name for SQL, in quotes only where it needs them."""
    from sqlglot.tokens import Tokenizer

    is_plain = name.isascii() and name.isidentifier() and name.upper() not in Tokenizer.KEYWORDS
    return exp.to_identifier(name, quoted=not is_plain)


def to_sql(node: exp.Expr) -> str:
    """Return a tree as DuckDB reads it."""
    return node.sql(dialect=DIALECT)


def list_texts(tree: exp.Expr) -> Counter[str]:
    """Return the texts in a tree, and how often each is there."""
    return Counter(it.name for it in tree.find_all(exp.Literal) if it.is_string)


def _list_items(select: exp.Select) -> Iterator[exp.Expr]:
    start = cast("exp.From | None", select.args.get("from_") or select.args.get("from"))
    joins = cast("list[exp.Join]", select.args.get("joins") or [])
    for clause in [*([start] if start else []), *joins]:
        item: Any = clause.this
        yield item
        for join in item.args.get("joins") or []:
            yield join.this


def _find_cte(table: exp.Table) -> exp.Expr | None:
    """Return the query of the CTE that a table name stands for."""
    if table.db:
        return None
    node: exp.Expr | None = table
    while node is not None:
        clause: Any = node.args.get("with_") or node.args.get("with")
        for cte in clause.expressions if clause is not None else ():
            if cte.alias.casefold() == table.name.casefold():
                return cast("exp.Expr", cte.this)
        node = node.parent
    return None
