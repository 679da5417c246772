"""Context shared by all repairs: schema, sources of a SELECT, tree edits and name matching."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from sqlglot import exp

from copilot_runtime.extensions.analyst.results import Column, Fix

DIALECT = "duckdb"

STEPS = 200_000
"""How many nodes may be visited or written to repair or check a statement. That takes a second."""
_NAMES_PER_STEP = 16
"""How many names are compared in the time of a step."""
_CHARACTERS_PER_STEP = 8


class StepLimitExceeded(Exception):
    """A statement is too large to be repaired or checked within `STEPS`."""

    def __init__(self) -> None:
        super().__init__(f"The SQL is too large to be repaired within {STEPS:,} steps.")


@dataclass(slots=True)
class StepBudget:
    """The steps that are left: a repair may take one for each pair of a column and a node."""

    left: int = STEPS

    def spend(self, steps: int = 1) -> None:
        """Subtract steps. Raises `StepLimitExceeded` if there are not enough."""
        self.left -= steps
        if self.left < 0:
            raise StepLimitExceeded


@dataclass(frozen=True, kw_only=True)
class RepairContext:
    """The schema that is visible to a question."""

    tables: Mapping[str, Sequence[Column]]
    """The columns of each table, by the table's name in SQL."""
    synonyms: Mapping[str, str] = field(default_factory=dict[str, str])
    """Columns by their synonyms, in lower case."""
    dataset: str | None = None
    """The table that the question is about."""
    functions: frozenset[str] = frozenset()
    """The names of the engine's functions; empty if unknown."""
    budget: StepBudget = field(default_factory=StepBudget)

    def find_table(self, name: str) -> str | None:
        """Return a table by its case-insensitive name, or `None`."""
        return next((one for one in self.tables if one.casefold() == name.casefold()), None)

    def list_columns(self, table: str) -> Sequence[Column]:
        """Return the columns of a table; an empty list if the table does not exist."""
        name = self.find_table(table)
        return () if name is None else self.tables[name]

    def write(self, node: exp.Expr) -> str:
        """Return a tree as DuckDB SQL, for the steps that this takes."""
        text = to_sql(node)
        self.budget.spend(1 + len(text) // _CHARACTERS_PER_STEP)
        return text


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A repaired statement to try."""

    tree: exp.Expr
    fix: Fix
    probe: exp.Expr | None = None
    """A query that returns a row only if the candidate's assumption holds, such as that a value
    exists."""


@dataclass(frozen=True)
class Source:
    """The table or subquery that a column qualifier refers to, with its columns."""

    table: str | None
    columns: Sequence[Column]


def find_select(node: exp.Expr) -> exp.Select | None:
    """Return the SELECT that contains a node."""
    return node if isinstance(node, exp.Select) else node.find_ancestor(exp.Select)


def list_sources(select: exp.Select, context: RepairContext) -> Mapping[str, Source]:
    """Return the sources of a SELECT, by lower-case alias."""
    sources: dict[str, Source] = {}
    for item in _list_items(select):
        context.budget.spend()
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
        sources = list_sources(select, context)
        names = sum(len(source.columns) for source in sources.values())
        context.budget.spend(names // _NAMES_PER_STEP)
        found = [
            (alias, source, one.type)
            for alias, source in sources.items()
            if column.table.casefold() in ("", alias)
            for one in source.columns
            if one.name.casefold() == column.name.casefold()
        ]
        if found:
            return found[0] if len(found) == 1 else None
        select = select.find_ancestor(exp.Select)
    return None


def list_outputs(query: object) -> Sequence[Column]:
    """Return the output columns of a query, without types; `*` is not resolved."""
    if isinstance(query, exp.Query):
        return [Column(name, "") for name in query.named_selects if name and name != "*"]
    return ()


def find_columns(tree: exp.Expr, name: str) -> Iterator[exp.Column]:
    """Yield the columns of a name, which may be qualified by a table."""
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
    context: RepairContext,
) -> exp.Expr | None:
    """Return a copy of a tree with some nodes replaced; `None` if none of them is in it."""
    copy = tree.copy()
    every = list(copy.walk())
    context.budget.spend(len(every))
    nodes = [node for node in every if predicate(node)]
    for node in nodes:
        replacement = build(node)
        if node is copy:
            copy = replacement
        else:
            node.replace(replacement)
    return copy if nodes else None


def build_identifier(name: str) -> exp.Identifier:
    """Return an SQL identifier, quoted only if necessary."""
    from sqlglot.tokens import Tokenizer

    is_plain = name.isascii() and name.isidentifier() and name.upper() not in Tokenizer.KEYWORDS
    return exp.to_identifier(name, quoted=not is_plain)


def to_sql(node: exp.Expr) -> str:
    """Return a tree as DuckDB SQL."""
    return node.sql(dialect=DIALECT)


def list_texts(tree: exp.Expr) -> Counter[str]:
    """Return the string literals in a tree, with the number of occurrences."""
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


def build_fix(kind: str, before: str, after: str, how: str = "") -> Fix:
    """Return a fix with its sentence; for its kinds see `Fix.kind`."""
    return Fix(
        kind=kind, before=before, after=after, description=describe_fix(kind, before, after, how)
    )


def describe_fix(kind: str, before: str, after: str, how: str = "") -> str:
    """Describe a repair in a sentence.

    Args:
        kind: The kind of mistake: one of `Fix.kind`.
        before: The original text; for `type`, the column or the value.
        after: The new text.
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


FLOOR = 80
"""Minimum similarity of two names, from 0 to 100."""
PART_FLOOR = 90
"""The minimum for a name that is part of exactly one other."""

_WORD_FLOOR = 60
"""The minimum for each word, so that `min_price` does not become `max_price`."""
_SHORTEST_PREFIX = 4


class Match(NamedTuple):
    """The intended name, and how it was found."""

    name: str
    how: str


def find_name(
    name: str, candidates: Iterable[str], synonyms: Mapping[str, str] | None = None
) -> Match | None:
    """Return the best matching candidate, or `None` if none or several are likely.

    Args:
        name: The unknown name.
        candidates: The existing names.
        synonyms: Candidates by their synonyms, in lower case.
    """
    names = list(dict.fromkeys(candidates))
    if exact := [one for one in names if one.casefold() == name.casefold()]:
        return Match(exact[0], "same letters") if exact[0] != name else None
    meant = (synonyms or {}).get(name.casefold(), "")
    if found := [one for one in names if one.casefold() == meant.casefold()]:
        return Match(found[0], "synonym")
    best = _find_similar(name, names) or _find_whole(name, names)
    return None if best is None else Match(best, "fuzzy match")


def _find_similar(name: str, names: Sequence[str]) -> str | None:
    from rapidfuzz import fuzz

    rated = [(fuzz.ratio(name.casefold(), one.casefold()), one) for one in names]
    rated = [pair for pair in rated if pair[0] >= FLOOR and _is_likely(name, pair[1])]
    top = max((score for score, _ in rated), default=0)
    best = [one for score, one in rated if score == top]
    return best[0] if len(best) == 1 else None


def _find_whole(name: str, names: Sequence[str]) -> str | None:
    """Return the only name that contains this one, or is contained in it, or `None`."""
    from rapidfuzz import fuzz

    text = name.casefold()
    around = [one for one in names if text in one.casefold() or one.casefold() in text]
    if len(around) != 1 or len(text) < 2 or not _is_part(text, around[0].casefold()):
        return None
    is_close = fuzz.WRatio(text, around[0].casefold()) >= PART_FLOOR
    return around[0] if is_close and _has_same_digits(name, around[0]) else None


def _is_likely(name: str, other: str) -> bool:
    """Return `True` if names differ like typos, and not in a word or a number."""
    from rapidfuzz import fuzz

    words, others = _split(name), _split(other)
    return _has_same_digits(name, other) and (
        len(words) != len(others)
        or all(fuzz.ratio(*pair) >= _WORD_FLOOR for pair in zip(words, others, strict=True))
    )


def _has_same_digits(name: str, other: str) -> bool:
    digits, others = re.findall(r"\d+", name), re.findall(r"\d+", other)
    return digits == others or not (digits and others)


def _is_part(text: str, other: str) -> bool:
    """Return `True` if one name consists of whole words of the other, or of a long prefix of it."""
    shorter, longer = sorted((text, other), key=len)
    words = re.escape(shorter)
    return bool(
        re.search(rf"(?<![^\W_]){words}(?![^\W_])", longer)
        or (len(shorter) >= _SHORTEST_PREFIX and longer.startswith(shorter))
    )


def _split(name: str) -> list[str]:
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).casefold()
    return [part for part in re.split(r"[\W_]+", parts) if part]
