"""A Jinja sandbox with limits on time and memory, whatever the template contains."""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import StrictUndefined, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter

_MAX_WORK = 10_000_000
"""Maximum cost of one rendering: about one unit per character read or written."""

_STEP = 100
"""Minimum cost of a call, or of a loop's iteration."""

_VALUE = 20
"""Cost of examining a value, besides its length."""

_MAX_BITS = 10_000
"""Maximum size of integers in a template, in bits."""

_MULTIPLYING = frozenset(
    (
        *("batch", "center", "indent", "join", "replace", "round", "slice", "tojson"),
        *("urlize", "wordwrap"),
    )
)
"""Filters whose result may be as large as the product of their arguments."""

_left: ContextVar[list[int]] = ContextVar("left")
"""The remaining cost of the current rendering."""


@contextmanager
def bound_work() -> Generator[None]:
    """Limit the cost of a rendering within the block. Beyond, it fails with `SecurityError`."""
    token = _left.set([_MAX_WORK])
    try:
        yield
    finally:
        _left.reset(token)


def _spend(work: int) -> None:
    left = _left.get()
    left[0] -= work
    if left[0] < 0:
        raise SecurityError("it takes too much work or memory")


def _measure(value: Any) -> int:
    """Charge the approximate length of a value as text, and return it."""
    size, values = 0, [value]
    while values:
        one = values.pop()
        if isinstance(one, str | bytes):
            work = _VALUE + len(one)
        elif isinstance(one, Mapping):
            items: Mapping[Any, Any] = one
            values += [*items.keys(), *items.values()]
            work = _VALUE
        elif isinstance(one, list | tuple | set | frozenset):
            parts: Iterable[Any] = one
            values += parts
            work = _VALUE
        else:
            work = _VALUE + (one.bit_length() // 3 if isinstance(one, int) else 0)
        _spend(work)
        size += work
    return size


def _spend_product(values: Iterable[Any]) -> None:
    """Charge the product of the two largest arguments: lengths of texts and lists, or numbers."""
    sizes = [abs(one) if isinstance(one, int) else _measure(one) - _VALUE for one in values]
    first, second = sorted([1, 1, *sizes])[-2:]
    _spend(_STEP + first * second)


def _spend_format(text: str | bytes, values: Any) -> None:
    """Charge the result of `%`: field widths are in the text, or, for `*`, among the values."""
    pattern = text if isinstance(text, str) else text.decode("latin-1")
    widths = [int(digits[:12]) for digits in re.findall(r"\d+", pattern)]
    if "*" in pattern:
        parts: Iterable[Any] = values if isinstance(values, tuple) else (values,)
        widths += [abs(one) for one in parts if isinstance(one, int)]
    _spend(_measure(values) * max(1, pattern.count("%")) + sum(widths) * (1 + pattern.count("*")))


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        _spend_format(format_spec, ())
        _measure(value)
        return super().format_field(value, format_spec)


class _Generator(CodeGenerator):
    """Generates code that counts the steps of loops and macros, and the results of `~`."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802
        node.iter = _call("count_steps", node.iter)
        node.body.insert(0, _count_text(node))
        super().visit_For(node, frame)

    def visit_Macro(self, node: nodes.Macro, frame: Frame) -> None:  # noqa: N802
        node.body.insert(0, _count_text(node))
        super().visit_Macro(node, frame)

    def visit_CallBlock(self, node: nodes.CallBlock, frame: Frame) -> None:  # noqa: N802
        node.body.insert(0, _count_text(node))
        super().visit_CallBlock(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.visit(_call("join_texts", *node.nodes), frame)


def _call(name: str, *args: nodes.Node) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), [*args], [], None, None)


def _count_text(node: nodes.Node) -> nodes.ExprStmt:
    length = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
    return nodes.ExprStmt(_call("count_text", nodes.Const(length)), lineno=node.lineno)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, extended by limits on time and memory.

    Templates are not optimised when they are compiled, because `bound_work` limits only rendering.
    """

    code_generator_class = _Generator
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            optimized=False,
            finalize=_finalize,
        )
        self.globals.clear()  # range, lipsum and the like
        self.filters = {name: _limit_filter(name, one) for name, one in self.filters.items()}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return the result of a binary operator, unless it is too large."""
        match operator, left, right:
            case "*" | "**", int(), int():
                factor = right if operator == "**" else 1
                bits = left.bit_length() * abs(factor) + (right.bit_length() if factor == 1 else 0)
                if bits > _MAX_BITS:
                    raise SecurityError("it makes too large a number")
            case "%", str() | bytes(), _:
                _spend_format(left, right)
            case "*", _, _:
                _spend_product((left, right))
            case _:
                _measure((left, right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function for a template, unless the result would be too large."""
        _spend(_STEP)
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str | bytes | int):
            _spend_product((owner, *args, *kwargs.values()))
        return super().call(context, obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a sandboxed `str.format`."""
        if super().wrap_str_format(value) is None:
            return None
        text: str = value.__self__
        is_map = value.__name__ == "format_map"

        def format_text(*args: Any, **kwargs: Any) -> str:
            _measure(text)
            values = args[0] if is_map and args else kwargs
            return _Formatter(self).vformat(text, () if is_map else args, values)

        return format_text

    def count_steps(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield items, and charge for each."""
        for item in items:
            _spend(1)
            yield item

    def count_text(self, length: int) -> None:
        """Charge for the text of a loop or macro."""
        _spend(_STEP + length)

    def join_texts(self, *values: Any) -> str:
        """Return the result of the `~` (concatenation) operator."""
        _measure(values)
        return "".join(map(str, values))


@pass_context  # prevents constant folding, so that Jinja calls it only while rendering
def _finalize(_context: Context, value: Any) -> Any:
    _measure(value)
    return value


def _limit_filter(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that charges for its input and its possible output."""
    skip = 1 if hasattr(run, "jinja_pass_arg") else 0

    @wraps(run)
    def run_within_limits(*args: Any, **kwargs: Any) -> Any:
        own, values = args[:skip], [_read(value) for value in args[skip:]]
        if name in _MULTIPLYING:
            _spend_product((*values, *kwargs.values()))
        elif name == "format":
            _spend_format(str(values[0]), (*values[1:], *kwargs.values()))
        else:
            _measure((*values, *kwargs.values()))
        return run(*own, *values, **kwargs)

    return run_within_limits


def _read(value: Any) -> Any:
    """Return a value that can be measured: an iterator becomes a list."""
    if not isinstance(value, Iterator):
        return value
    items: list[Any] = []
    for item in value:
        _measure(item)
        items.append(item)
    return items
