"""The types of columns of texts: the first one that every value has.

A value that two types or two orders of day and month would read differently stays a text, unless
another value of the data set decides. Notes about doubtful choices contain no values, because not
all users may see them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import duckdb

from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text

DateOrder = Literal["day-first", "month-first"]
_Order = Literal[DateOrder, "year-first"]

_SAMPLE_VALUES = 100_000
_MAJORITY = 500
"""Different values of which half have to be of a type for its loss to be named."""


@dataclass(frozen=True, slots=True)
class _Type:
    name: str
    pattern: re.Pattern[str]
    """A pattern of the values of a sample."""
    value: str
    """SQL that returns the value of the text `$v`, or NULL for most others."""
    form: str = ""
    """A regular expression of the texts that have the type, where DuckDB reads more."""
    order: _Order | None = None


def _plain(name: str, pattern: str) -> _Type:
    return _Type(name, re.compile(pattern), f"TRY_CAST($v AS {name})")


_BOOLEAN = _plain("BOOLEAN", "(?i:true|false)")
# digits after a zero are a code, such as that of a place
_DIGITS = "[+-]?(?:0|[1-9][0-9]{0,18})"
_INTEGER = _Type("BIGINT", re.compile(_DIGITS), "TRY_CAST($v AS BIGINT)", _DIGITS)
# a number of 16 digits and more would lose some
_WHOLE = "(?:0|[1-9][0-9]{0,14})"
_EXPONENT = "(?:[eE][+-]?[0-9]{1,3})?"
_FRACTION = (
    rf"[+-]?(?:{_WHOLE}(?:\.[0-9]*)?|\.[0-9]+){_EXPONENT}"
    "|[+-]?(?i:nan|inf(?:inity)?)"
)
_CODE = re.compile(f"{_WHOLE}(?:E[0-9]{{1,3}})?")
"""A part number such as `1E5`, or a number that programs do not write so."""
_DECIMAL = _Type("DOUBLE", re.compile(_FRACTION), "TRY_CAST($v AS DOUBLE)", _FRACTION)


def _group_digits(group: str, point: str) -> _Type:
    """Return numbers with groups of three digits, such as `1,234.50`."""
    groups = f"[1-9][0-9]{{0,2}}(?:[{group}][0-9]{{3}})+"
    text = f"[+-]?(?:{groups}|{_WHOLE})(?:[{point}][0-9]+{_EXPONENT})?"
    bare = f"regexp_replace($v, {quote_text(f'[{group}]')}, '', 'g')"
    number = f"TRY_CAST(replace({bare}, {quote_text(point)}, '.') AS DOUBLE)"
    return _Type("DOUBLE", re.compile(text), number, text)


_POINT = _group_digits(",", ".")
_COMMA = _group_digits(".", ",")
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,3})?")
_VERSION_NAME = re.compile(r"(?i)(?:version|versi\u00f3n|firmware|\bver)\s*$")
_WITH_SIGN = re.compile(
    r"(?:[A-Z]{3} |[^\w\s.:#]\s?){0,2}\d[\d.,' ]*(?:\s?[^\w\s.,:]| [A-Za-z\u00b5]{1,4}){0,2}"
)
"""A number, also with a currency or unit, in parentheses, or with its sign behind it."""
_SIGN = re.compile("[^\\d.,' +-]|[+-]$")
_SPACES = " \u00a0\u202f"


def _dates() -> Iterator[_Type]:
    orders: Sequence[tuple[DateOrder, str, str]] = (
        ("day-first", "%d", "%m"),
        ("month-first", "%m", "%d"),
    )
    for order, first, second in orders:
        for mark, digits, year in (("/", 4, "%Y"), (".", 4, "%Y"), ("-", 4, "%Y"), ("/", 2, "%y")):
            text = f"[0-9]{{1,2}}[{mark}][0-9]{{1,2}}[{mark}][0-9]{{{digits}}}"
            yield from _times(order, f"{first}{mark}{second}{mark}{year}", text)
    # with two digits each, unlike versions
    yield from _times("day-first", "%d.%m.%y", "[0-9]{2}[.][0-9]{2}[.][0-9]{2}")
    # only a doubt: years that are no months might be days as well
    yield from _times("year-first", "%y/%m/%d", "(?:1[3-9]|[2-9][0-9])/[0-9]{2}/[0-9]{2}")
    for format, text in (
        ("%d %b %Y", "[0-9]{1,2} [A-Za-z]{3} [0-9]{4}"),
        ("%d-%b-%Y", "[0-9]{1,2}-[A-Za-z]{3}-[0-9]{4}"),
        ("%d/%b/%y", "[0-9]{1,2}/[A-Za-z]{3}/[0-9]{2}"),
        ("%d %B %Y", "[0-9]{1,2} [A-Za-z]{4,} [0-9]{4}"),
        ("%b %d, %Y", "[A-Za-z]{3} [0-9]{1,2}, [0-9]{4}"),
        ("%B %d, %Y", "[A-Za-z]{4,} [0-9]{1,2}, [0-9]{4}"),
        ("%Y\u5e74%m\u6708%d\u65e5", "[0-9]{4}\u5e74[0-9]{1,2}\u6708[0-9]{1,2}\u65e5"),
    ):
        yield from _times(None, format, text)


def _times(order: _Order | None, format: str, text: str) -> Iterator[_Type]:
    """Yield a date alone, and with the forms of a time of day."""
    for name, time, more in (
        ("DATE", "", ""),
        ("TIMESTAMP", " %H:%M", " [0-9]{1,2}:[0-9]{2}"),
        ("TIMESTAMP", " %H:%M:%S", " [0-9]{1,2}:[0-9]{2}:[0-9]{2}"),
        ("TIMESTAMP", " %I:%M %p", " [0-9]{1,2}:[0-9]{2} [AaPp][Mm]"),
        ("TIMESTAMP", " %I:%M:%S %p", " [0-9]{1,2}:[0-9]{2}:[0-9]{2} [AaPp][Mm]"),
    ):
        value = f"TRY_STRPTIME($v, {quote_text(format + time)})::{name}"
        yield _Type(name, re.compile(text + more), value, text + more, order)


_DAY = r"\d{4}[-/]\d{1,2}[-/]\d{1,2}"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"

_WIDE = "".join(map(chr, (*range(0xFF10, 0xFF1A), 0xFF0E, 0xFF0D, 0xFF0B)))
_WIDE_FORM = (
    "[-+\uff0d\uff0b]?(?:[0\uff10]|[1-9\uff11-\uff19][0-9\uff10-\uff19]{0,14})(?:[,\uff0c][0-9\uff10-\uff19]{3})*"
    "(?:[.\uff0e][0-9\uff10-\uff19]+)?"
)
_WIDE_DIGITS = _Type(
    "DOUBLE",
    re.compile(_WIDE_FORM),
    f"TRY_CAST(translate(replace(replace($v, ',', ''), '\uff0c', ''), '{_WIDE}', '0123456789.-+') "
    "AS DOUBLE)",
    _WIDE_FORM,
)
"""Numbers with digits of the width of Chinese characters."""

_TYPES = (
    *(_BOOLEAN, _INTEGER, _DECIMAL, _POINT, _COMMA),
    *(_group_digits(_SPACES, ","), _group_digits(_SPACES, "."), _group_digits("'\u2019", ".")),
    _plain("DATE", _DAY),
    _plain("TIMESTAMP", f"{_DAY}(?:[T ]{_TIME})?"),
    _plain("TIMESTAMP WITH TIME ZONE", rf"{_DAY}[T ]{_TIME} ?(?:Z|[+-]\d{{2}}(?::?\d{{2}})?)"),
    _plain("TIME", _TIME),
    *_dates(),
    _WIDE_DIGITS,
)
"""In this order: the first that all values have is the type of a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumn:
    """A column, and the SQL expression that converts its texts."""

    name: str
    select: str
    type: str = "VARCHAR"
    note: str = ""
    """A sentence about a doubtful choice, or empty."""


class ColumnTypes:
    """Finds the types of the columns of a table of texts.

    `types` are those of columns, `dates` the order of day and month, if the operator knows them.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        table: str,
        types: Mapping[str, str],
        dates: DateOrder | None,
    ) -> None:
        self._connection = connection
        self._table = table
        self._types = {name.lower(): type for name, type in types.items()}
        self._dates: DateOrder | None = dates

    def find(self, names: Sequence[str]) -> Sequence[TypedColumn]:
        """Return the columns with their types."""
        samples = self._sample(names)
        fitting = {
            name: [one for one in _TYPES if samples[name] and _fit(one, samples[name])]
            for name in names
            if name.lower() not in self._types
        }
        is_comma = _find_separator(fitting.values())
        doubts = {name: _choose_separator(types, is_comma) for name, types in fitting.items()}
        for name, types in fitting.items():
            if _DECIMAL in types and (doubt := _find_lost_form(name, samples[name])):
                types.clear()
                doubts[name] = doubt
        found = self._keep_true(fitting)
        doubts |= {
            name: self._describe_others(name, samples[name])
            for name, types in found.items()
            if not types and not doubts[name]
        }
        order = _find_order(found) if self._dates is None else self._dates
        return [
            _choose(name, found[name], order, doubts[name], is_set=bool(self._dates))
            if name in found
            else self._convert(name, self._types[name.lower()])
            for name in names
        ]

    def _sample(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        count = max(_SAMPLE_VALUES // max(len(names), 1), 50)
        rows = self._connection.execute(  # the first ones, and some of all
            f"(FROM {self._table} LIMIT {count}) UNION ALL "
            f"(FROM {self._table} USING SAMPLE reservoir({count} ROWS) REPEATABLE (1))"
        ).fetchall()
        columns = [dict.fromkeys(values) for values in zip(*rows, strict=True)] or [
            {} for _ in names
        ]
        return {
            name: [text for value in values if value is not None and (text := value.strip())]
            for name, values in zip(names, columns, strict=True)
        }

    def _keep_true(self, fitting: Mapping[str, list[_Type]]) -> Mapping[str, list[_Type]]:
        """Return the types that fit a sample and that all values have.

        The first one is enough, but for dates: another order may fit as well.
        """
        true: dict[str, list[_Type]] = {name: [] for name in fitting}
        waiting = {name: [*types] for name, types in fitting.items() if types}
        while waiting:
            pairs: list[tuple[str, _Type]] = []
            for name, types in waiting.items():
                count = len(types) if types[0].order else 1
                pairs += [(name, types.pop(0)) for _ in range(count)]
            tests = ", ".join(
                f"bool_and({_test(one, name)} OR {_trim(name)} IS NULL)" for name, one in pairs
            )
            row: Any = self._connection.execute(f"SELECT {tests} FROM {self._table}").fetchone()
            for (name, one), is_true in zip(pairs, row, strict=True):
                if is_true:
                    true[name].append(one)
            waiting = {name: types for name, types in waiting.items() if types and not true[name]}
        return true

    def _describe_others(self, name: str, values: Sequence[str]) -> str:
        """Return why a column is a text, if half of its values in a sample have another type."""
        values = values[:_MAJORITY]
        numbers = [value for value in values if _WITH_SIGN.fullmatch(value)]
        if len(numbers) * 2 > len(values) and any(map(_SIGN.search, numbers)):
            return "is a text: its numbers have signs or units, such as $, % or parentheses"
        counts = Counter(one for one in _TYPES for value in values if one.pattern.fullmatch(value))
        type, count = counts.most_common(1)[0] if counts else (_BOOLEAN, 0)
        if not count or count * 2 < len(values):
            return ""
        condition = f"{_trim(name)} IS NOT NULL AND NOT ({_test(type, name)})"
        row: Any = self._connection.execute(
            f"SELECT count(*) FILTER ({condition}), count({_trim(name)}) FROM {self._table}"
        ).fetchone()
        if row[0] == row[1]:
            return ""
        return f"is a text: {row[0]:,} of its {row[1]:,} values are not of the type {type.name}"

    def _convert(self, name: str, type: str) -> TypedColumn:
        """Return a column with the type that the operator gave it."""
        select = f"TRY_CAST({_trim(name)} AS {type})"
        counted = f"count(*) FILTER ({_trim(name)} IS NOT NULL AND {select} IS NULL)"
        row: Any = self._connection.execute(f"SELECT {counted} FROM {self._table}").fetchone()
        note = f"{row[0]:,} values of {name!r} are no {type}: they are empty." if row[0] else ""
        return TypedColumn(name=name, select=select, type=type, note=note)


def _trim(name: str) -> str:
    return f"nullif(trim({quote_name(name)}), '')"


def _apply(type: _Type, name: str) -> str:
    return type.value.replace("$v", _trim(name))


def _test(type: _Type, name: str) -> str:
    """Return the SQL condition that a text of a column has a type."""
    is_value = f"{_apply(type, name)} IS NOT NULL"
    if not type.form:
        return is_value
    return f"regexp_full_match({_trim(name)}, {quote_text(type.form)}) AND {is_value}"


def _fit(type: _Type, values: Sequence[str]) -> bool:
    return all(map(type.pattern.fullmatch, values))


def _find_lost_form(name: str, values: Sequence[str]) -> str:
    """Return why numbers are texts: as numbers, they would lose what tells codes or versions apart.

    Versions have a name that says so, or both `1.1` and `1.10`.
    """
    if any("E" in it for it in values) and all(map(_CODE.fullmatch, values)):
        return "is a text: its values may be codes, of which 1E5 is not 100000"
    if not all(map(_VERSION.fullmatch, values)):
        return ""
    forms = {*values}
    lost = [it for it in forms if it.endswith("0") and "." in it]
    if (lost and _VERSION_NAME.search(name)) or any(
        it[:-1] in forms and it[-2] not in ".0" for it in lost
    ):
        return "is a text: its values may be versions, of which 1.10 is not 1.1"
    return ""


def _find_separator(columns: Iterable[Sequence[_Type]]) -> bool | None:
    """Return whether fractions follow a comma, if the columns that show it agree."""
    pairs = {(_POINT in types, _COMMA in types) for types in columns}
    certain = {is_comma for is_point, is_comma in pairs if is_point != is_comma}
    return certain.pop() if len(certain) == 1 else None


def _choose_separator(types: list[_Type], is_comma: bool | None) -> str:
    """Remove the types with the other separator; return what is not certain, as a sentence."""
    if _INTEGER in types or not (_POINT in types and _COMMA in types):
        return ""
    has_points = _DECIMAL in types
    if is_comma is None and not has_points:
        types.clear()
        return "is a text: its commas may be those of thousands or of fractions"
    other = (_DECIMAL, _POINT) if is_comma else (_COMMA,)
    types[:] = [one for one in types if one not in other]
    if is_comma is None:
        return "has points, which are read as those of fractions, not of thousands"
    if has_points:
        return "has points, which are read as those of thousands" if is_comma else ""
    return f"has commas, which are read as those of {'fractions' if is_comma else 'thousands'}"


def _find_order(columns: Mapping[str, Sequence[_Type]]) -> DateOrder | None:
    """Return the order of day and month in the columns that have only one, if they agree."""
    found: set[DateOrder] = set()
    for types in columns.values():
        orders = {one.order for one in types if one.order}
        if len(orders - {"year-first"}) == len(orders) == 1 and "[.]" not in types[0].form:
            found |= cast("set[DateOrder]", orders)
    return found.pop() if len(found) == 1 else None


def _choose(
    name: str, types: Sequence[_Type], order: DateOrder | None, doubt: str, *, is_set: bool
) -> TypedColumn:
    """Return a column with the first of its types, or as texts."""
    orders = {one.order for one in types if one.order}
    if len(orders) > 1 or "year-first" in orders:
        if order is None:
            other = "year" if "year-first" in orders else "month"
            doubt = (
                f"is a text: its dates may begin with the day or the {other}; `dates: day-first` "
                "in the settings of the source says which"
            )
            types = ()
        else:
            types = [one for one in types if one.order == order]
            doubt = "" if is_set else f"is read {order}, as other dates of the data set"
    elif types and "%y" in types[0].value:
        doubt = f"has years of two digits, and is read {types[0].order}"
    note = f"{name!r} {doubt}." if doubt else ""
    if not types:
        return TypedColumn(name=name, select=f"nullif({quote_name(name)}, '')", note=note)
    return TypedColumn(name=name, select=_apply(types[0], name), type=types[0].name, note=note)
