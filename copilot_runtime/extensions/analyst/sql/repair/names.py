"""Repair names: misspelt columns and tables, values in double quotes, aliases, and grouping."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from sqlglot import exp

from copilot_runtime.extensions.analyst.engine.errors import QueryFailed
from copilot_runtime.extensions.analyst.sql.repair.context import (
    Candidate,
    Match,
    RepairContext,
    build_fix,
    build_identifier,
    edit,
    find_columns,
    find_name,
    find_select,
    find_source,
    list_sources,
    to_sql,
)

_QUALIFIER = re.compile(r'Referenced table "((?:[^"]|"")+)" not found')
_TABLE = re.compile(r'Table "((?:[^"]|"")+)" does not have a column named')
_CHOICE = re.compile(r"""(['"])((?:(?!\1).)+)\1""")


def repair_column(
    tree: exp.Expr, failure: QueryFailed, context: RepairContext
) -> Iterator[Candidate]:
    """Yield replacements for an unknown column, the likeliest first."""
    name = failure.name or ""
    columns = [it for it in find_columns(tree, name) if find_source(it, context) is None]
    if (match := _TABLE.search(failure.message)) is not None:
        columns = [it for it in columns if it.table.casefold() == match[1].casefold()] or columns
    if not columns:
        return
    quoted = [it for it in columns if it.this.quoted and not it.table]
    for column in quoted:
        yield from propose_literal(tree, column, context)
    for column in columns:
        names = _list_names(column, failure.candidates, context)
        context.budget.spend(len(names))
        found = find_name(column.name, names, context.synonyms)
        if found is None:
            continue
        wrong = {to_sql(it) for it in columns if it.table == column.table}
        repaired = edit(
            tree,
            lambda node, wrong=wrong: isinstance(node, exp.Column) and to_sql(node) in wrong,
            lambda node, name=found.name: _rename(node, name),
            context,
        )
        if repaired is not None:
            fix = build_fix("column", column.name, found.name, found.how)
            yield Candidate(tree=repaired, fix=fix)
            break
    for column in columns:
        if not column.table and not column.this.quoted:
            yield from propose_literal(tree, column, context)


def repair_qualifier(
    tree: exp.Expr, failure: QueryFailed, context: RepairContext
) -> Iterator[Candidate]:
    """Yield the alias that the qualifier of a column was meant to be."""
    match = _QUALIFIER.search(failure.message)
    if match is None:
        return
    wrong = match[1].casefold()
    for column in list(tree.find_all(exp.Column)):
        select = find_select(column)
        if column.table.casefold() != wrong or select is None:
            continue
        sources = list_sources(select, context)
        names = {source.table.casefold(): it for it, source in sources.items() if source.table}
        having = [
            alias
            for alias, source in sources.items()
            if any(it.name.casefold() == column.name.casefold() for it in source.columns)
        ]
        context.budget.spend(len(sources))
        close = find_name(wrong, sources)
        alias = names.get(wrong) or (close.name if close else None)
        alias = alias or (having[0] if len(sources) == len(having) == 1 else None)
        if alias is None or alias == wrong:
            continue
        repaired = edit(
            tree,
            lambda node: isinstance(node, exp.Column) and node.table.casefold() == wrong,
            lambda node, alias=alias: _qualify(node, alias),
            context,
        )
        if repaired is not None:
            yield Candidate(tree=repaired, fix=build_fix("table", match[1], alias, "alias"))
            return


def repair_ambiguous(
    tree: exp.Expr, failure: QueryFailed, context: RepairContext
) -> Iterator[Candidate]:
    """Yield the tree with an ambiguous column qualified by DuckDB's first suggestion."""
    match = re.search(r'column name "((?:[^"]|"")+)"', failure.message)
    name = failure.name or (match[1] if match else "")
    _, _, rest = failure.message.partition("(use:")
    offers = [found[2] for found in _CHOICE.finditer(rest)] or list(failure.candidates)
    aliases = [offer.split(".")[-2].strip('"') for offer in offers if "." in offer]
    for column in find_columns(tree, name):
        select = find_select(column)
        if column.table or select is None:
            continue
        sources = list_sources(select, context)
        owners = [it for it in aliases if it.casefold() in sources] or [
            alias
            for alias, source in sources.items()
            if any(one.name.casefold() == name.casefold() for one in source.columns)
        ]
        if not owners:
            continue
        repaired = edit(
            tree,
            lambda node: isinstance(node, exp.Column) and _is_bare(node, name),
            lambda node, alias=owners[0]: _qualify(node, alias),
            context,
        )
        if repaired is not None:
            after = f"{owners[0]}.{column.name}"
            yield Candidate(tree=repaired, fix=build_fix("ambiguous", column.name, after))
            return


def _list_names(
    column: exp.Column, candidates: Sequence[str], context: RepairContext
) -> Sequence[str]:
    """Return candidate names: columns of the sources, aliases, and the engine's suggestions."""
    select = find_select(column)
    names: list[str] = []
    while select is not None:
        for alias, source in list_sources(select, context).items():
            if column.table.casefold() in ("", alias):
                names += [one.name for one in source.columns]
        if not column.table:
            names += [it.alias for it in select.expressions if isinstance(it, exp.Alias)]
        select = select.find_ancestor(exp.Select)
    return [*names, *(one.rpartition(".")[2] for one in candidates)]


def _rename(node: exp.Expr, name: str) -> exp.Expr:
    copy = node.copy()
    copy.set("this", build_identifier(name))
    return copy


def _qualify(node: exp.Expr, alias: str) -> exp.Expr:
    copy = node.copy()
    copy.set("table", build_identifier(alias))
    return copy


def _is_bare(column: exp.Column, name: str) -> bool:
    return not column.table and column.name.casefold() == name.casefold()


_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)
_PATTERNS = (exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpFullMatch, exp.SimilarTo)
_TIME_TYPES = ("DATE", "TIME")


def propose_literal(
    tree: exp.Expr, column: exp.Column, context: RepairContext
) -> Iterator[Candidate]:
    """Yield the tree with a name as a text, if the compared column has that value."""
    literal, written = exp.Literal.string(column.name), to_sql(column)
    fix = build_fix("literal", column.name, to_sql(literal))
    for probe in _list_probes(column, context):
        repaired = edit(
            tree,
            lambda node: isinstance(node, exp.Column) and to_sql(node) == written,
            lambda _: literal.copy(),
            context,
        )
        if repaired is not None:
            yield Candidate(tree=repaired, fix=fix, probe=probe)


def _list_probes(column: exp.Column, context: RepairContext) -> Iterator[exp.Expr | None]:
    """Yield a query, or `None` if none is necessary, for each way in which a name may be a text."""
    text = column.name
    if column.this.quoted and _is_pattern(column):
        yield None
        return
    comparison = column.find_ancestor(*_COMPARISONS, exp.Select)
    if comparison is None or isinstance(comparison, exp.Select):
        return
    for other in comparison.find_all(exp.Column):
        source = None if other is column else find_source(other, context)
        if source is None:
            continue
        _, place, kind = source
        if kind.startswith(_TIME_TYPES):
            if _is_time(text):
                yield None
        elif place.table is not None:
            condition = exp.EQ(
                this=exp.column(other.this.copy()),
                expression=exp.Literal.string(text),
            )
            table = exp.to_table(place.table)
            yield exp.select("1").from_(table).where(condition).limit(1)


def _is_pattern(column: exp.Column) -> bool:
    """Return `True` if a name in double quotes is a pattern or a format instead of a column."""
    parent = column.parent
    if isinstance(parent, _PATTERNS) and parent.args.get("expression") is column:
        return True
    return "%" in column.name and isinstance(parent, exp.Func)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


_PLACEHOLDER_NAMES = (
    "data dataset data_set df my_table mytable table_name tablename your_table current_dataset "
    "current_table this_table"
)
_PLACEHOLDERS = frozenset(_PLACEHOLDER_NAMES.split())
"""Placeholder names that models use for the question's table."""
_SYSTEM = frozenset({"information_schema", "pg_catalog", "system", "temp", "duckdb"})


def repair_table(tree: exp.Expr, name: str | None, context: RepairContext) -> Iterator[Candidate]:
    """Yield the tree with a missing table replaced by an existing one."""
    last = (name or "").rpartition(".")[2].strip('"')
    aliases = {cte.alias for cte in tree.find_all(exp.CTE) if cte.alias}
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier) or {table.db, table.catalog} & _SYSTEM:
            continue
        if last and last.casefold() != table.name.casefold():
            continue
        context.budget.spend(len(context.tables) + len(aliases))
        is_there = context.find_table(table.name) is not None
        found = (
            Match(context.find_table(table.name) or "", "other schema")
            if is_there and table.db
            else find_name(table.name, [*context.tables, *aliases])
        )
        if found is None and table.name.casefold() in _PLACEHOLDERS and context.dataset:
            found = Match(context.dataset, "the current data set")
        if found is None:
            continue
        before = ".".join(part.name for part in table.parts)
        repaired = edit(
            tree,
            lambda node, table=table: (
                isinstance(node, exp.Table | exp.Column) and _names(node, table)
            ),
            lambda node, name=found.name: _rename_table(node, name),
            context,
        )
        if repaired is not None:
            fix = build_fix("table", before, found.name, found.how)
            yield Candidate(tree=repaired, fix=fix)
            return


def _names(node: exp.Table | exp.Column, table: exp.Table) -> bool:
    """Return `True` if a node is the table, or a column qualified by its name."""
    if isinstance(node, exp.Table):
        return node.parts == table.parts
    return not table.alias and node.table.casefold() == table.name.casefold()


def _rename_table(node: exp.Expr, name: str) -> exp.Expr:
    copy = node.copy()
    if isinstance(copy, exp.Table):
        copy.set("this", build_identifier(name))
        for part in ("db", "catalog"):
            copy.set(part, None)
    else:
        copy.set("table", build_identifier(name))
        for part in ("db", "catalog"):
            copy.set(part, None)
    return copy


def repair_grouping(tree: exp.Expr, context: RepairContext) -> Iterator[Candidate]:
    """Yield the tree with `GROUP BY ALL` in SELECTs that mix aggregates with columns."""
    places = [select for select in tree.find_all(exp.Select) if _lacks_group(select)]
    for place in places:
        text = context.write(place)
        repaired = edit(
            tree,
            lambda node, text=text: isinstance(node, exp.Select) and context.write(node) == text,
            _group,
            context,
        )
        if repaired is not None:
            group = place.args.get("group")
            before = to_sql(group).strip() if isinstance(group, exp.Group) else ""
            yield Candidate(tree=repaired, fix=build_fix("group_by", before, "GROUP BY ALL"))


def _lacks_group(select: exp.Select) -> bool:
    """Return `True` if a SELECT has aggregates but no `GROUP BY ALL`."""
    having = select.args.get("having")
    parts = [*select.expressions, *([having] if isinstance(having, exp.Having) else [])]
    has_aggregate = any(_aggregates(part, select) for part in parts)
    group = select.args.get("group")
    is_all = isinstance(group, exp.Group) and bool(group.args.get("all"))
    return has_aggregate and not is_all


def _aggregates(part: exp.Expr, select: exp.Select) -> bool:
    return any(
        find_select(found) is select and not isinstance(found.parent, exp.Window)
        for found in part.find_all(exp.AggFunc)
    )


def _group(node: exp.Expr) -> exp.Expr:
    copy = node.copy()
    copy.set("group", exp.Group(all=True))
    return copy
