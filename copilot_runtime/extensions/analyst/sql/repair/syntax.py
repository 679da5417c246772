"""Repair malformed SQL text, and translate SQL of other databases."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import TokenType

from copilot_runtime.extensions.analyst.sql.parsing import parse_sql
from copilot_runtime.extensions.analyst.sql.repair.context import (
    DIALECT,
    Candidate,
    RepairContext,
    build_fix,
    edit,
    list_texts,
    to_sql,
)

DIALECTS = ("mysql", "tsql", "postgres", "bigquery", "snowflake", "sqlite", "oracle", "spark")
_NAMES = {"mysql": "MySQL", "tsql": "T-SQL", "postgres": "PostgreSQL", "bigquery": "BigQuery"}
_QUOTES_ARE_TEXT = {"mysql", "bigquery", "spark"}
"""Dialects in which "x" is a string literal."""
_OR_IS_CONCATENATION = {"mysql"}
_FLOOR = 80
"""Minimum similarity at which a function name counts as a typo."""

_ALIASES = {
    "average": "avg",
    "stdev": "stddev",
    "std": "stddev",
    "ucase": "upper",
    "lcase": "lower",
}


def parse(sql: str, dialect: str = DIALECT) -> exp.Expr | None:
    """Return the tree of a single statement; `None` for anything else."""
    try:
        trees = [tree for tree in parse_sql(sql, dialect) if tree is not None]
    except (SqlglotError, RecursionError):
        return None
    trees = [tree for tree in trees if not isinstance(tree, exp.Semicolon)]
    return trees[0] if len(trees) == 1 and isinstance(trees[0], exp.Query) else None


def repair_function(
    tree: exp.Expr, name: str | None, context: RepairContext
) -> Iterator[Candidate]:
    """Yield the tree with an unknown function call replaced by DuckDB's equivalent."""
    call = next((node for node in tree.walk() if _is_call(node, name, context)), None)
    if call is None:
        return
    text = to_sql(call)
    texts = {text}
    for dialect in DIALECTS if to_duckdb(call) is not None else ():
        again = _read_value(text, dialect)
        value = None if again is None else _read_value(to_duckdb(again) or "", DIALECT)
        if value is None or to_sql(value) in texts or not _keeps_texts(text, dialect):
            continue
        if not _keeps_arguments(call, value):
            continue
        texts.add(to_sql(value))
        how = _NAMES.get(dialect, dialect.capitalize())
        yield from _replace(tree, text, value, how, context)
    yield from _replace_name(tree, call, context)


def repair_dialect(
    sql: str, context: RepairContext, *, may_quote_texts: bool = True
) -> Iterator[Candidate]:
    """Yield translations of a whole statement from other databases' dialects.

    Args:
        sql: The statement.
        context: The existing names.
        may_quote_texts: `True` if "x" may be a string literal, as in MySQL.
    """
    names = {it.name.casefold() for columns in context.tables.values() for it in columns}
    for dialect in DIALECTS:
        if not _keeps_texts(sql, dialect, names if may_quote_texts else None):
            continue
        foreign = parse(sql, dialect)
        tree = None if foreign is None else parse(to_duckdb(foreign) or "")
        if tree is not None and _count_texts(sql) <= list_texts(tree).total():
            how = f"read it as {_NAMES.get(dialect, dialect.capitalize())}"
            yield Candidate(tree=tree, fix=build_fix("syntax", sql, to_sql(tree), how))


def has_unknown_call(sql: str, context: RepairContext) -> bool:
    """Return `True` if SQL calls a function that the engine lacks."""
    names = {name.casefold() for name in _CALL.findall(sql)}
    return bool(context.functions) and bool(names - context.functions - _KEYWORDS)


_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_KEYWORD_NAMES = (
    "select from where and or not in exists over as by on using values case when then else filter "
    "group order having join with union all any cast try_cast count coalesce if interval distinct "
    "partition between like ilike is limit offset nullif extract within lateral"
)
_KEYWORDS = frozenset(_KEYWORD_NAMES.split())


def _read_value(text: str, dialect: str) -> exp.Expr | None:
    """Return the tree of an expression."""
    tree = parse(f"SELECT {text}", dialect) if text else None
    return tree.selects[0] if isinstance(tree, exp.Select) and len(tree.selects) == 1 else None


def to_duckdb(tree: exp.Expr) -> str | None:
    """Return a tree as DuckDB SQL, or `None` if the translation would drop a part."""
    try:
        return tree.sql(dialect=DIALECT, unsupported_level=ErrorLevel.RAISE)
    except (SqlglotError, RecursionError, ValueError):
        return None


def _keeps_arguments(call: exp.Expr, value: exp.Expr) -> bool:
    """Return `True` if a translated call has all columns and as many literals as the original."""
    columns, others = (
        Counter(it.name.casefold() for it in tree.find_all(exp.Column)) for tree in (call, value)
    )
    units = {it for it in columns if it.upper() in _UNITS}
    counts = [sum(1 for _ in tree.find_all(exp.Literal)) for tree in (call, value)]
    lost = columns - others
    return not set(lost) - units and counts[0] <= counts[1]


_UNIT_NAMES = (
    "YEAR YY YYYY QUARTER QQ Q MONTH MM WEEK WK DAY DD D HOUR HH MINUTE MI SECOND SS "
    "MILLISECOND MICROSECOND DAYOFWEEK DAYOFYEAR"
)
_UNITS = frozenset(_UNIT_NAMES.split())
"""Date parts, which some dialects write in the position of a column."""


def _count_texts(sql: str) -> int:
    return sum(it.token_type == TokenType.STRING for it in sqlglot.tokenize(sql, read=DIALECT))


def _is_call(node: exp.Expr, name: str | None, context: RepairContext) -> bool:
    if not isinstance(node, exp.Func):
        return False
    own = context.write(node).partition("(")[0].strip().casefold() if name else ""
    if name:
        return own == name.casefold() or node.name.casefold() == name.casefold()
    return isinstance(node, exp.Anonymous) and node.name.casefold() not in context.functions


def _replace(
    tree: exp.Expr, text: str, value: exp.Expr, how: str, context: RepairContext
) -> Iterator[Candidate]:
    repaired = edit(
        tree,
        lambda node: isinstance(node, exp.Func) and context.write(node) == text,
        lambda _: value.copy(),
        context,
    )
    if repaired is not None:
        before = text.partition("(")[0]
        yield Candidate(tree=repaired, fix=build_fix("function", before, to_sql(value), how))


def _replace_name(tree: exp.Expr, call: exp.Expr, context: RepairContext) -> Iterator[Candidate]:
    """Yield the tree with a function name replaced by the most similar one."""
    from rapidfuzz import fuzz, process

    if not isinstance(call, exp.Anonymous):
        return
    name = call.name.casefold()
    functions = sorted(it for it in context.functions if it.isidentifier())
    close = process.extract(name, functions, scorer=fuzz.ratio, score_cutoff=_FLOOR, limit=2)
    is_unique = len(close) == 1 or (len(close) == 2 and close[0][1] > close[1][1])
    meant = _ALIASES.get(name) or (close[0][0] if is_unique else None)
    if meant is None or meant == name:
        return
    arguments = ", ".join(to_sql(it) for it in call.expressions)
    value = parse(f"SELECT {meant.upper()}({arguments})")
    if isinstance(value, exp.Select):
        yield from _replace(tree, to_sql(call), value.selects[0], "", context)


def _keeps_texts(sql: str, dialect: str, names: set[str] | None = None) -> bool:
    """Return `True` if a dialect yields the same string literals and identifiers as DuckDB."""
    if dialect in _OR_IS_CONCATENATION and "||" in re.sub(r"'[^']*'", "", sql):
        return False
    try:
        ours, theirs = (sqlglot.tokenize(sql, read=it) for it in (DIALECT, dialect))
    except SqlglotError:
        return False
    texts = [it.text for it in ours if it.token_type == TokenType.STRING]
    read = [it.text for it in theirs if it.token_type == TokenType.STRING]
    quoted = [it.text for it in ours if it.token_type == TokenType.IDENTIFIER]
    if dialect in _QUOTES_ARE_TEXT:
        both = [it.text for it in ours if it.token_type in (TokenType.STRING, TokenType.IDENTIFIER)]
        return read == both and (
            not quoted or (names is not None and not any(it.casefold() in names for it in quoted))
        )
    return read == texts


_TEXT = re.compile(r"'(?:[^']|'')*'")
_CURLY = "\u2018\u2019\u201a\u201c\u201d\u201e"
_STRAIGHT = str.maketrans(_CURLY, "'''" + '"""')
_MOST_CHARACTERS = 20_000


def repair_syntax(sql: str, context: RepairContext) -> Iterator[Candidate]:
    """Yield statements that the text may be meant to be, the smallest change first."""
    if len(sql) > _MOST_CHARACTERS:
        return
    yield from repair_text(sql)
    yield from repair_dialect(sql, context)
    for text, _ in _list_texts(sql)[-1:]:
        yield from repair_dialect(text, context)


def repair_text(sql: str) -> Iterator[Candidate]:
    """Yield the statements that result from repairing quotes and brackets of a text."""
    if len(sql) > _MOST_CHARACTERS:
        return
    for text, names in _list_texts(sql):
        tree = parse(text)
        if tree is not None:
            how = " and ".join(names)
            yield Candidate(tree=tree, fix=build_fix("syntax", sql, to_sql(tree), how))


def _list_texts(sql: str) -> Sequence[tuple[str, Sequence[str]]]:
    """Return the results of each text repair and of all of them together, with names."""
    texts: dict[str, Sequence[str]] = {}
    total, names = sql, list[str]()
    for name, change in _CHANGES:
        if (text := change(sql)) != sql:
            texts.setdefault(text, [name])
        if (text := change(total)) != total:
            total, names = text, [*names, name]
    texts.setdefault(total, names)
    return [(text, names) for text, names in texts.items() if names]


def strip_fence(sql: str) -> str:
    """Return SQL without a surrounding Markdown fence."""
    text = sql.strip()
    if not (text.startswith("```") and text.endswith("```") and len(text) > 6):
        return sql
    first, _, rest = text[3:-3].partition("\n")
    return rest.strip() if not first.strip() or first.strip().isalnum() else text[3:-3].strip()


def _strip_end(sql: str) -> str:
    return sql.rstrip("; \t\r\n")


def _replace_curly_quotes(sql: str) -> str:
    return _outside_texts(sql, lambda part: part.translate(_STRAIGHT))


def _replace_backticks(sql: str) -> str:
    return _outside_texts(sql, lambda part: re.sub(r"`([^`\n]+)`", r'"\1"', part))


def _replace_brackets(sql: str) -> str:
    names = re.compile(r"(?<![\w\])])\[([A-Za-z_][\w ]*)\]")
    return _outside_texts(sql, lambda part: names.sub(r'"\1"', part))


def _close_text(sql: str) -> str:
    """Return SQL with the missing quote of its last text, if that text is a single word."""
    text, quote, word = _strip_end(sql).rpartition("'")
    is_open = sql.count("'") % 2 == 1 and bool(re.fullmatch(r"[\w.-]+", word))
    return f"{text}{quote}{word}'" if is_open else sql


def _balance(sql: str) -> str:
    """Return SQL with missing closing brackets added at its end, or surplus ones removed."""
    outside = _TEXT.sub("", sql)
    missing = outside.count("(") - outside.count(")")
    text = _strip_end(sql)
    if 0 < missing <= 5 and not text.endswith("("):
        return text + ")" * missing
    while missing < 0 and text.endswith(")"):
        text, missing = text[:-1].rstrip(), missing + 1
    return text if not missing else sql


def _close_call(sql: str) -> str:
    """Return SQL with the closing brackets of a call before FROM balanced."""
    match = re.match(r"\s*SELECT\s(.*?)\s(FROM\s.*)$", sql, re.IGNORECASE | re.DOTALL)
    if match is None:
        return sql
    items = match[1].rstrip()
    outside = _TEXT.sub("", items)
    missing = outside.count("(") - outside.count(")")
    if 0 < missing <= 5:
        return f"SELECT {items}{')' * missing} {match[2]}"
    if -5 <= missing < 0 and items.endswith(")" * -missing):
        return f"SELECT {items[:missing]} {match[2]}"
    return sql


def _drop_comma(sql: str) -> str:
    keyword = re.compile(r",(\s+(?:FROM|WHERE|GROUP|ORDER|LIMIT|HAVING)\b)", re.IGNORECASE)
    return re.sub(r",\s*$", "", _outside_texts(sql, lambda part: keyword.sub(r"\1", part)))


def _outside_texts(sql: str, change: Callable[[str], str]) -> str:
    """Transform the text outside of single-quoted literals."""
    parts: list[str] = []
    end = 0
    for match in _TEXT.finditer(sql):
        parts += [change(sql[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, change(sql[end:])])


_CHANGES: Sequence[tuple[str, Callable[[str], str]]] = (
    ("dropped the semicolon at the end", _strip_end),
    ("replaced curly quotes with straight ones", _replace_curly_quotes),
    ("replaced backticks with double quotes", _replace_backticks),
    ("replaced square brackets with double quotes", _replace_brackets),
    ("dropped a comma", _drop_comma),
    ("closed a quote", _close_text),
    ("closed a bracket", _close_call),
    ("balanced the brackets at the end", _balance),
)
