"""Repair malformed SQL text: quotes, brackets and Markdown fences."""

import re
from collections.abc import Callable, Iterator, Sequence

from copilot_runtime.extensions.analyst.sql.repair.context import (
    Candidate,
    RepairContext,
    build_fix,
    to_sql,
)
from copilot_runtime.extensions.analyst.sql.repair.dialects import parse, repair_dialect

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
