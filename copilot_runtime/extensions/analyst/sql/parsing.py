"""sqlglot's reading of a text, in a number of steps that grows with its length.

It tries again after a wrong turn: each join without ON doubles the time, so that thirty of them
would take days.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

_STEPS = 5_000
_STEPS_PER_TOKEN = 50


class ParsingTooLong(SqlglotError):
    """A text needs more steps than texts of its length do."""


def parse_sql(sql: str, dialect: str = "duckdb") -> Sequence[exp.Expr | None]:
    """Return the statements of a text, as `sqlglot.parse` does. Raises `SqlglotError`."""
    tokens = Dialect.get_or_raise(dialect).tokenize(sql)
    parser = _bound_parser(dialect)(dialect=dialect)
    parser.steps_left = _STEPS + _STEPS_PER_TOKEN * len(tokens)
    return parser.parse(tokens, sql)


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
