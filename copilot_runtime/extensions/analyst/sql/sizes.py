"""Limit the size of texts and lists that a single SQL call may create.

DuckDB cannot be interrupted within one call: `range(100000000)` as a list blocked a core for two
minutes and exceeded the memory limit. Literal counts are checked here, other counts when the SQL
runs. Texts are limited as well: `damerau_levenshtein` of two long texts exhausted the memory of the
machine.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from sqlglot import exp

from copilot_runtime.extensions.analyst.sql.rules import SqlRefused

MAX_ELEMENTS = 10_000
_MAX_PRODUCT = 1_000_000
_MAX_CALLS = 6
BOUND_MESSAGE: Final = "a single call would make or compare texts or lists that are too long"
"""The SQL error message for a count or text that exceeds its limit."""
BOUND: Final = object()
"""Marks an argument that `bound_sizes` checks at run time."""

_COUNT_ARGUMENTS = {
    "repeat": 1,
    "lpad": 1,
    "rpad": 1,
    "list_resize": 1,
    "array_resize": 1,
    "bitstring": 1,
    "to_base": 2,
    "bar": 3,
    "equi_width_bins": 2,
}
_SERIES = ("range", "generate_series")
_FORMATS = ("printf", "format")
_WIDE_FORMAT = re.compile(r"\d{5,}|\*|:[^}]*\{")
_DISTANCES = frozenset(
    {
        *("levenshtein", "editdist3", "damerau_levenshtein"),
        *("jaro_similarity", "jaro_winkler_similarity"),
    }
)
"""Functions whose time or memory grows with the product of the lengths of two texts."""
_MAX_COMPARED = 500
_REPLACEMENTS = ("replace", "regexp_replace")
_MAX_REPLACED = 100_000
_MAX_GROWTH = 10
"""Maximum growth of a text by the replacement of one character."""
_MAX_GROWTHS = 1_000
_MAX_TEXT_CALLS = 3
_VOLATILE = frozenset({"random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7"})


def bound_sizes(tree: exp.Expr) -> None:
    """Add size limits to the calls of a tree, in place."""
    calls = [call for call in tree.walk() if _is_large(call)]
    if len(calls) > _MAX_CALLS:
        raise SqlRefused(
            "too_large",
            f"The query has {len(calls)} calls that make long texts or lists; "
            f"{_MAX_CALLS} are allowed.",
            hint="Use fewer of repeat, lpad, rpad and lists of generate_series.",
        )
    cap = min(MAX_ELEMENTS, int(_MAX_PRODUCT ** (1 / max(1, len(calls)))))
    for call in reversed(calls):  # innermost calls first
        if isinstance(call, exp.GenerateSeries):
            _bound_series(call, cap)
        elif isinstance(call, exp.Repeat):
            _bound_repeat(call, cap)
        elif isinstance(call, exp.Pad):
            call.set("expression", _bound_count(call.expression, cap))
        elif isinstance(call, exp.Space):
            call.set("this", _bound_count(call.this, cap))
        else:
            place = _COUNT_ARGUMENTS[call.name.lower()]
            arguments = call.expressions
            arguments[place] = _bound_count(arguments[place], cap)
            call.set("expressions", arguments)
    _bound_texts(tree)


def check_size(name: str, arguments: Sequence[Any]) -> None:
    """Raise `SqlRefused` if a call, as parsed by DuckDB, may create too large a value.

    Arguments are integers or texts for literals, `BOUND` for arguments with a run-time check, and
    `None` otherwise.
    """
    if name in _FORMATS:
        if not arguments or not isinstance(arguments[0], str) or _WIDE_FORMAT.search(arguments[0]):
            raise _refuse(name, "The format has to be a text with widths below 10,000.")
    elif name in _SERIES:
        *_, start, end = [0, *arguments[:2]]
        if end is BOUND:
            return
        if not isinstance(start, int) or not isinstance(end, int):
            raise _refuse(name, f"In FROM, {name} may have any length.")
        if abs(end - start) > MAX_ELEMENTS:
            raise _refuse(name, f"In FROM, {name} may have any length.")
    elif name in _DISTANCES:
        if not all(_is_short(one, _MAX_COMPARED) for one in arguments[:2]):
            raise _refuse(name, "Write it as a plain call, as in levenshtein(a, b).")
    elif name in _REPLACEMENTS and len(arguments) > 2:
        if not _is_short(arguments[2], _MAX_GROWTH * _count_characters(name, arguments[1])):
            raise _refuse(name, f"Write it as a plain call, as in {name}(a, 'b', 'c').")
    elif name == "repeat" and isinstance(arguments[-1], int):
        text = arguments[0]
        if not isinstance(text, str) or len(text) * arguments[-1] > MAX_ELEMENTS:
            raise _refuse(name, f"At most {MAX_ELEMENTS} characters are allowed.")
    elif (place := _COUNT_ARGUMENTS.get(name, len(arguments))) < len(arguments):
        count = arguments[place]
        if count is not BOUND and not (isinstance(count, int) and count <= MAX_ELEMENTS):
            raise _refuse(name, f"At most {MAX_ELEMENTS} characters or elements are allowed.")


def _is_large(node: exp.Expr) -> bool:
    match node:
        case exp.GenerateSeries():
            return not isinstance(node.parent, exp.Table)
        case exp.Repeat() | exp.Pad() | exp.Space():
            return True
        case exp.Anonymous():
            place = _COUNT_ARGUMENTS.get(node.name.lower())
            return place is not None and place < len(node.expressions)
        case _:
            return False


def _bound_count(count: exp.Expr, cap: int) -> exp.Expr:
    number = _read_integer(count)
    if number is None:
        return _compare(count, exp.Literal.number(cap), is_upper=True)
    if number > cap:
        raise _refuse("repeat", f"At most {cap} characters or elements are allowed here.")
    return count


def _bound_repeat(call: exp.Repeat, cap: int) -> None:
    """Limit the total number of characters of all copies."""
    text, count = call.this, call.args["times"]
    if isinstance(text, exp.Literal) and text.is_string:
        call.set("times", _bound_count(count, cap // max(1, len(text.this))))
        return
    most = _divide(cap, text)
    call.set("times", _compare(count, most, is_upper=True))


def _bound_texts(tree: exp.Expr) -> None:
    """Limit texts that are compared character by character, or inserted as replacements."""
    growths, bounds = 1, 0
    for call in reversed([*tree.walk()]):
        match call:
            case exp.Levenshtein() | exp.JarowinklerSimilarity():
                for name in ("this", "expression"):
                    call.set(name, _bound_text(call.args[name], _MAX_COMPARED))
            case exp.Anonymous() if call.name.lower() in _DISTANCES:
                texts = [_bound_text(one, _MAX_COMPARED) for one in call.expressions[:2]]
                call.set("expressions", [*texts, *call.expressions[2:]])
            case exp.Replace() | exp.RegexpReplace():
                name = "replace" if isinstance(call, exp.Replace) else "regexp_replace"
                text = call.args.get("replacement")
                if text is None:
                    continue
                width = _count_characters(name, _read_text(call.expression))
                literal = _read_text(text)
                if literal is not None and len(literal) <= _MAX_GROWTH * width:
                    growths *= max(1, -(-len(literal) // width))
                    continue
                bounds += 1
                call.set("replacement", _bound_text(text, _divide(_MAX_REPLACED, call.this)))
            case _:
                pass
    if growths > _MAX_GROWTHS or bounds > _MAX_TEXT_CALLS:
        raise SqlRefused(
            "too_large",
            "The query puts longer texts in the place of shorter ones too often.",
            hint="Use fewer calls of replace and regexp_replace that make texts longer.",
        )


def _bound_text(text: exp.Expr, most: "int | exp.Expr") -> exp.Expr:
    """Return the text, or an expression that raises an error at run time if it is too long."""
    literal = _read_text(text)
    if literal is not None and isinstance(most, int) and len(literal) <= most:
        return text
    bound = exp.Literal.number(most) if isinstance(most, int) else most
    message = exp.Anonymous(this="error", expressions=[exp.Literal.string(BOUND_MESSAGE)])
    length = exp.Anonymous(this="length", expressions=[text.copy()])
    cut = exp.Anonymous(this="left", expressions=[text.copy(), bound.copy()])
    return exp.Case(
        ifs=[
            exp.If(this=exp.GT(this=length.copy(), expression=bound.copy()), true=message),
            exp.If(this=exp.LTE(this=length, expression=bound.copy()), true=cut),
        ]
    )


def _divide(most: int, text: exp.Expr) -> exp.Expr:
    """Return how many times a text fits into a number of characters."""
    length = exp.Anonymous(this="length", expressions=[text.copy()])
    divisor = exp.Anonymous(this="greatest", expressions=[exp.Literal.number(1), length])
    return exp.Paren(this=exp.IntDiv(this=exp.Literal.number(most), expression=divisor))


def _read_text(node: exp.Expr | None) -> str | None:
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def _count_characters(name: str, pattern: object) -> int:
    """Return the minimum number of characters that a replacement stands for."""
    return max(1, len(pattern)) if name == "replace" and isinstance(pattern, str) else 1


def _is_short(text: object, most: int) -> bool:
    return text is BOUND or (isinstance(text, str) and len(text) <= most)


def _bound_series(call: exp.GenerateSeries, cap: int) -> None:
    start, end, step = (call.args.get(name) for name in ("start", "end", "step"))
    if start is None or end is None:
        raise SqlRefused("parse_error", "A series needs its end.")
    first, last = _read_integer(start), _read_integer(end)
    width = 1 if step is None else _read_step(step)
    if width is None or (step is not None and not width):
        raise _refuse("generate_series", "The step has to be a literal that is not 0.")
    if first is not None and last is not None and isinstance(width, int):
        if abs(last - first) > cap:
            raise _refuse("generate_series", f"At most {cap} elements are allowed here.")
        return
    if any(_is_volatile(node) for part in (start, step) if part for node in part.walk()):
        raise _refuse("generate_series", "Write the series into FROM.")
    reach = exp.Mul(
        this=step.copy() if step is not None else exp.Literal.number(1),
        expression=exp.Literal.number(cap),
    )
    farthest = exp.Add(this=exp.Paren(this=start.copy()), expression=exp.Paren(this=reach))
    call.set("end", _compare(end, farthest, is_upper=width > 0))


def _compare(value: exp.Expr, bound: exp.Expr, *, is_upper: bool) -> exp.Expr:
    """Return the value, or an expression that raises an error at run time if it exceeds the limit.

    A volatile value is capped, too: LEAST evaluates it once.
    """
    past, within, cut = (exp.GT, exp.LTE, "least") if is_upper else (exp.LT, exp.GTE, "greatest")
    message = exp.Anonymous(this="error", expressions=[exp.Literal.string(BOUND_MESSAGE)])
    inside = exp.Anonymous(this=cut, expressions=[value.copy(), bound.copy()])

    def compare(kind: type[exp.Binary]) -> exp.Expr:
        return kind(this=exp.Paren(this=value.copy()), expression=exp.Paren(this=bound.copy()))

    return exp.Case(
        ifs=[
            exp.If(this=compare(past), true=message),
            exp.If(this=compare(within), true=inside),
        ]
    )


def _read_integer(node: exp.Expr) -> int | None:
    sign = 1
    while isinstance(node, exp.Paren | exp.Neg):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
        return sign * int(node.this)
    return None


def _read_step(node: exp.Expr) -> int | float | None:
    """Return an integer step, or for an interval its sign as a fraction."""
    if not isinstance(node, exp.Interval):
        return _read_integer(node)
    text = str(node.this.this if isinstance(node.this, exp.Literal) else "")
    found = re.match(r"\s*(-?)\s*(\d+)", text)
    if not found or not int(found[2]):
        return None
    return -0.5 if found[1] else 0.5


def _is_volatile(node: exp.Expr) -> bool:
    if isinstance(node, exp.Query | exp.Rand | exp.Uuid):
        return True
    return isinstance(node, exp.Anonymous) and node.name.lower() in _VOLATILE


def _refuse(name: str, hint: str) -> SqlRefused:
    return SqlRefused(
        "function_not_allowed",
        f"The call of {name!r} may make a text or a list that is too large.",
        hint=hint,
        name=name,
    )
