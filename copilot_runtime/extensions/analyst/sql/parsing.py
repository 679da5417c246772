"""sqlglot's parser with a step limit that grows with the length of the text.

The parser backtracks: each join without ON doubles the time, so that thirty of them would take
days.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from copilot_runtime.base.concurrency import ThreadPool

T = TypeVar("T")

_STEPS = 5_000
_STEPS_PER_TOKEN = 50


_threads = ThreadPool(2, "sql")


async def read_sql(work: Callable[[], T]) -> T:
    """Parse, guard or repair SQL in one of two threads, and return the result of `work`.

    SQL of 20,000 characters takes a second, mostly in Python, during which the event loop goes on
    at a third of its speed at worst.
    """
    return await _threads.run(work)


class ParsingTooLong(SqlglotError):
    """Parsing exceeded the step limit for a text of this length."""


def parse_sql(sql: str, dialect: str = "duckdb") -> Sequence[exp.Expr | None]:
    """Return the statements of a text, like `sqlglot.parse`. Raises `SqlglotError`."""
    tokens = Dialect.get_or_raise(dialect).tokenize(sql)
    if tokens and tokens[0].token_type in (TokenType.PIVOT, TokenType.UNPIVOT):
        sql = _wrap_pivot(sql, tokens)
        tokens = Dialect.get_or_raise(dialect).tokenize(sql)
    parser = _bound_parser(dialect)(dialect=dialect)
    parser.steps_left = _STEPS + _STEPS_PER_TOKEN * len(tokens)
    return parser.parse(tokens, sql)


def _wrap_pivot(sql: str, tokens: Sequence[Any]) -> str:
    """Return a PIVOT statement with an order or a limit as a subquery, as sqlglot reads it."""
    depth = 0
    for token in tokens:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if not depth and token.token_type in (TokenType.ORDER_BY, TokenType.LIMIT):
            return f"SELECT * FROM ({sql[: token.start]}) {sql[token.start :]}"
    return sql


@cache
def _bound_parser(dialect: str) -> Any:
    base: Any = Dialect.get_or_raise(dialect).parser_class

    class BoundParser(base):
        steps_left = _STEPS

        def _advance(self, *args: Any, **kwargs: Any) -> None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise ParsingTooLong("The SQL has too many possible readings.")
            super()._advance(*args, **kwargs)

        def _retreat(self, index: int) -> None:
            self.steps_left -= 1
            super()._retreat(index)

    return BoundParser


_MAX_CHARS = 20_000
_ERRORS = (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, LookupError)
"""Exceptions that sqlglot raises for text that is not SQL."""


def fingerprint_sql(sql: str) -> str:
    """Return SQL with `?` for every value; for a text that is not SQL, its hash."""
    return _mask(sql) or _hash(sql)


def hash_sql(sql: str) -> str:
    """Return 8 hexadecimal digits, equal for SQL that differs only in its values."""
    mask = _mask(sql)
    return _hash(mask or sql)


def _hash(text: str) -> str:
    return hashlib.sha1(text.encode(errors="replace"), usedforsecurity=False).hexdigest()[:8]


def read_statements(sql: str) -> Sequence[exp.Expr]:
    """Return the statements of a text; none if it is long or no SQL."""
    if len(sql) > _MAX_CHARS:
        return []
    try:
        return [tree for tree in parse_sql(sql) if tree is not None]
    except _ERRORS:
        return []


def quote(name: str) -> exp.Identifier:
    """Return a quoted name."""
    return exp.to_identifier(name, quoted=True)


def _mask(sql: str) -> str:
    trees = read_statements(sql)
    try:
        return "; ".join(_write(tree) for tree in trees if not isinstance(tree, exp.Semicolon))
    except _ERRORS:
        return ""


def _write(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Command):
        return f"{tree.name.upper()} ?"
    # inner nodes first: a sign or a list is masked after its content
    for node in reversed(list(tree.walk())):
        if isinstance(node, exp.Command | exp.JSONPath) or _is_value(node):
            if node is tree:
                return "?"
            node.replace(exp.Placeholder())
        elif isinstance(node, exp.In) and node.expressions and all(map(_is_mask, node.expressions)):
            node.set("expressions", [exp.Placeholder()])
    return tree.sql(dialect="duckdb", comments=False)


def _is_value(node: exp.Expr) -> bool:
    if isinstance(node, exp.Neg | exp.Paren):
        return _is_mask(node.this) and isinstance(node, exp.Neg)
    is_literal = isinstance(
        node,
        exp.Literal
        | exp.Boolean
        | exp.RawString
        | exp.HexString
        | exp.BitString
        | exp.ByteString
        | exp.UnicodeString
        | exp.National,
    )
    return is_literal and not isinstance(node.parent, exp.DataTypeParam)


def _is_mask(node: exp.Expr) -> bool:
    return isinstance(node, exp.Placeholder) and not node.this
