"""A JMESPath interpreter with time and size limits, for untrusted expressions.

The interpreter of the package `jmespath` is written in Python, so each of its steps can check the
time limit. Four operations process a whole value in one uninterruptible step of C: comparison,
containment, conversion to text, and `join`. A short expression can build a value that is small in
memory but practically endless to traverse, because its parts are shared. So before these
operations the value is traversed here, and its size is limited.
"""

from collections.abc import Callable
from typing import Any

from jmespath import exceptions
from jmespath.functions import Functions, signature
from jmespath.parser import Parser
from jmespath.visitor import Options, TreeInterpreter

from copilot_runtime.base.errors import LimitExceeded, Misuse

MAX_SIZE = 1_000_000
"""Maximum number of values in a created list, and of values that one step traverses."""

_HINT = "The query is not a JMESPath. See https://jmespath.org."
Node = Any
"""A node of a syntax tree: a mapping with `type`, `value` and `children`."""

# untyped, as their type stubs do not allow the overrides below
_TreeInterpreter: Any = TreeInterpreter
_Functions: Any = Functions


def parse(expression: str) -> Node:
    """Parse a JMESPath expression. Raises `Misuse` if it is invalid."""
    try:
        return Parser().parse(expression).parsed
    except exceptions.LexerError as error:
        raise Misuse(f"{error.message}: {error.lexer_value!r}", hint=_HINT) from None
    except exceptions.ParseError as error:
        kind, token = error.token_type or "EOF", error.token_value or ""
        name = kind if kind == "EOF" else kind.title().replace("_", "")
        raise Misuse(f'Invalid token ({name}): "{token}"', hint=_HINT) from None
    except (exceptions.JMESPathError, RecursionError, ValueError) as error:
        raise Misuse(f"The query is not a JMESPath: {_shorten(error)}") from None


class Interpreter(_TreeInterpreter):
    """Evaluates a syntax tree. `check` is called at each step, and raises to end it."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__(Options(custom_functions=_BoundedFunctions(check)))
        self._check = check

    def evaluate(self, tree: Node, value: Any) -> Any:
        """Return the result of an expression for a value. Raises `Misuse` for a type mismatch."""
        try:
            return self.visit(tree, value)
        except _ERRORS as error:
            raise Misuse(f"The query failed: {_shorten(error)}") from None

    def visit(self, node: Node, *args: Any, **kwargs: Any) -> Any:
        """Visit a node of the tree, after the check."""
        self._check()
        return super().visit(node, *args, **kwargs)

    def visit_comparator(self, node: Node, value: Any) -> Any:
        """Compare two values, after measuring both. Raises `LimitExceeded` if one is too large."""
        left, right = (self.visit(child, value) for child in node["children"])
        if isinstance(left, list | dict) and isinstance(right, list | dict):
            measure(left, self._check)
            measure(right, self._check)
        sides = [{"type": "literal", "value": side} for side in (left, right)]
        return super().visit_comparator({**node, "children": sides}, value)

    def visit_flatten(self, node: Node, value: Any) -> Any:
        """Flatten a list by one level. Raises `LimitExceeded` if the result is too large."""
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        size = 0
        for element in base:
            size += len(element) if isinstance(element, list) else 1
            if size > MAX_SIZE:
                raise _too_large()
        return super().visit_flatten(
            {**node, "children": [{"type": "literal", "value": base}]}, value
        )


class _BoundedFunctions(_Functions):
    """The functions of JMESPath; those that traverse whole values measure them first."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    @signature({"types": []})
    def _func_to_string(self, value: Any) -> Any:
        measure(value, self._check)
        return super()._func_to_string(value)

    @signature({"types": ["array", "string"]}, {"types": []})
    def _func_contains(self, subject: Any, search: Any) -> Any:
        if isinstance(subject, list):
            measure([subject, search], self._check)
        return super()._func_contains(subject, search)

    @signature({"types": ["string"]}, {"types": ["array-string"]})
    def _func_join(self, separator: str, array: list[str]) -> str:
        measure(array, self._check)
        if len(separator) * len(array) > MAX_SIZE:
            raise _too_large()
        return super()._func_join(separator, array)


def measure(value: Any, check: Callable[[], None]) -> None:
    """Raise `LimitExceeded` for a value that takes more than `MAX_SIZE` steps to traverse."""
    size, waiting = 0, [value]
    while waiting:
        check()
        one = waiting.pop()
        if isinstance(one, dict):
            size += len(one)
            waiting += one.values()
        elif isinstance(one, list):
            size += len(one)
            waiting += one
        elif isinstance(one, str):
            size += len(one) >> 4
        if size > MAX_SIZE:
            raise _too_large()


def _too_large() -> LimitExceeded:
    return LimitExceeded(
        "The query builds a value that is too large.",
        hint=f"At most {MAX_SIZE:,} values are put into a list or compared.",
        status_code=400,
    )


_ERRORS = (
    exceptions.JMESPathError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def _shorten(error: BaseException) -> str:
    try:
        return str(error).partition("\n")[0][:200]
    except (RecursionError, ValueError, MemoryError):  # the message contains the whole value
        return type(error).__name__
