"""The forms in which the texts of a file stand for values: of each type, with its unit."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from copilot_runtime.extensions.analyst.engine.datasets import quote_text, quote_texts

DateOrder = Literal["day-first", "month-first"]
Order = Literal[DateOrder, "year-first"]


@dataclass(frozen=True, slots=True)
class Form:
    """How texts stand for values of a type in DuckDB."""

    type: str
    pattern: re.Pattern[str]
    """A pattern of the values of a sample."""
    sql: str
    """SQL that returns the value of the text `$v`, or NULL for most others."""
    texts: str = ""
    """A regular expression of the texts that have the form, where DuckDB reads more."""
    order: Order | None = None
    point: str = ""
    """The decimal separator of a number."""
    has_zone: bool = False
    """Whether it is a time with its time zone."""

    def read(self, text: str) -> str:
        """Return the SQL of the value of a text, which is SQL itself."""
        return self.sql.replace("$v", text)

    def test(self, text: str) -> str:
        """Return the SQL condition that a text has the form."""
        is_value = f"{self.read(text)} IS NOT NULL"
        if not self.texts:
            return is_value
        return f"regexp_full_match({text}, {quote_text(self.texts)}) AND {is_value}"

    def cast(self, text: str, type: str) -> str:
        """Return the SQL of the value of a text as another type; NULL without the form."""
        value = self.read(text)
        if self.texts:
            value = f"CASE WHEN {self.test(text)} THEN {value} END"
        return f"TRY_CAST({value} AS {type})"

    def goes_with(self, other: "Form", order: DateOrder | None) -> bool:
        """Return whether values of both forms may stand in one column, with dates in an order."""
        if self.has_zone != other.has_zone:
            return False
        return self.order in (None, order) and self.point in ("", other.point)

    def fits(self, values: Sequence[str]) -> bool:
        """Return whether all values of a sample have the form."""
        return all(map(self.pattern.fullmatch, values))


def make_plain(type: str, texts: str = "") -> Form:
    """Return the form that DuckDB itself reads, of texts that match the expression if there is one.

    DuckDB reads more than it keeps: without the expression, a time is cut off a date.
    """
    return Form(type, re.compile(texts or ".*"), f"TRY_CAST($v AS {type})", texts)


BOOLEAN = make_plain("BOOLEAN", "(?i:true|false)")
_YES = "true t yes y 1 wahr vrai ja j oui s\u00ed si s\u00ec sim tak \u0434\u0430"
_NO = "false f no n 0 falsch faux nein nee non n\u00e3o nie \u043d\u0435\u0442"
# digits after a zero are a code, such as that of a place
_DIGITS = "[+-]?(?:0|[1-9][0-9]{0,18})"
INTEGER = Form("BIGINT", re.compile(_DIGITS), "TRY_CAST($v AS BIGINT)", _DIGITS)
# a number of 16 digits and more would lose some
_WHOLE = "(?:0|[1-9][0-9]{0,14})"
_EXPONENT = "(?:[eE][+-]?[0-9]{1,3})?"
_FRACTION = (
    rf"[+-]?(?:{_WHOLE}(?:\.[0-9]*)?|\.[0-9]+){_EXPONENT}"
    "|[+-]?(?i:nan|inf(?:inity)?)"
)
CODE = re.compile(f"{_WHOLE}(?:[eE][0-9]{{1,3}})?")
SHORTENED = re.compile(r"[0-9](?:\.[0-9]{1,5})?E\+(?:09|1[0-9])")
"""A number of ten digits or more, as spreadsheets show it and write it into CSV files."""
"""A part number such as `1E5`, or a number that programs do not write so."""
DECIMAL = Form("DOUBLE", re.compile(_FRACTION), "TRY_CAST($v AS DOUBLE)", _FRACTION, point=".")


def _group_digits(group: str, point: str) -> Form:
    """Return the form of numbers with groups of digits, such as `1,234.50`."""
    groups = f"[1-9][0-9]{{0,2}}(?:[{group}][0-9]{{3}}){{1,4}}"
    if group == ",":
        groups += "|[1-9][0-9]?(?:,[0-9]{2}){1,5},[0-9]{3}"  # 12,34,567 of India
    text = f"[+-]?(?:{groups}|{_WHOLE})(?:[{point}][0-9]+{_EXPONENT})?"
    bare = f"regexp_replace($v, {quote_text(f'[{group}]')}, '', 'g')"
    number = f"TRY_CAST(replace({bare}, {quote_text(point)}, '.') AS DOUBLE)"
    return Form("DOUBLE", re.compile(text), number, text, point=point)


POINT = _group_digits(",", ".")
COMMA = _group_digits(".", ",")
AMBIGUOUS = re.compile(r"[+-]?\d{1,3}[.,]\d{3}")
"""A number with a fraction or a thousand, depending on the decimal separator."""
_GROUP = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})"
ADDRESS = re.compile(rf"{_GROUP}(?:\.{_GROUP}){{3}}")
"""An address of the internet, such as `192.168.100.101`."""
SPACED = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:[.,]\d+)?")
"""A number with spaces between its thousands, or several numbers."""
PHONE = re.compile(r"\+\d[\d .-]{6,16}\d")
VERSION = re.compile(r"\d{1,4}(?:\.\d{1,3})?")
VERSION_NAME = re.compile(r"(?i)(?:version|versi\u00f3n|firmware|\bver)\s*$")
WITH_SIGN = re.compile(
    r"(?:[A-Z]{3} |[^\w\s.:#]\s?){0,2}\d[\d.,' ]*(?:\s?[^\w\s.,:]| [A-Za-z\u00b5]{1,4}){0,2}"
)
"""A number, also with a currency or unit, in parentheses, or with its sign behind it."""
SIGN = re.compile("[^\\d.,' +-]|[+-]$")
_SPACES = " \u00a0\u202f"


def _dates() -> Iterator[Form]:
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


def _times(order: Order | None, format: str, text: str) -> Iterator[Form]:
    """Yield a date alone, and with the forms of a time of day."""
    for name, time, more in (
        ("DATE", "", ""),
        ("TIMESTAMP", " %H:%M", " [0-9]{1,2}:[0-9]{2}"),
        ("TIMESTAMP", " %H:%M:%S", " [0-9]{1,2}:[0-9]{2}:[0-9]{2}"),
        ("TIMESTAMP", " %I:%M %p", " [0-9]{1,2}:[0-9]{2} [AaPp][Mm]"),
        ("TIMESTAMP", " %I:%M:%S %p", " [0-9]{1,2}:[0-9]{2}:[0-9]{2} [AaPp][Mm]"),
    ):
        value = f"TRY_STRPTIME($v, {quote_text(format + time)})::{name}"
        yield Form(name, re.compile(text + more), value, text + more, order)


_DAY = r"\d{4}[-/]\d{1,2}[-/]\d{1,2}"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"

_WIDE = "".join(map(chr, (*range(0xFF10, 0xFF1A), 0xFF0E, 0xFF0D, 0xFF0B)))
_WIDE_FORM = (
    "[-+\uff0d\uff0b]?(?:[0\uff10]|[1-9\uff11-\uff19][0-9\uff10-\uff19]{0,14})(?:[,\uff0c][0-9\uff10-\uff19]{3}){0,4}"
    "(?:[.\uff0e][0-9\uff10-\uff19]+)?"
)
_WIDE_DIGITS = Form(
    "DOUBLE",
    re.compile(_WIDE_FORM),
    f"TRY_CAST(translate(replace(replace($v, ',', ''), '\uff0c', ''), '{_WIDE}', '0123456789.-+') "
    "AS DOUBLE)",
    _WIDE_FORM,
)
"""Numbers with digits of the width of Chinese characters."""

_MOMENT = rf"{_DAY}[T ]{_TIME} ?(?:Z|[+-]\d{{2}}(?::?\d{{2}})?)"
DATES = (
    make_plain("DATE", _DAY),
    make_plain("TIMESTAMP", f"{_DAY}(?:[T ]{_TIME})?"),
    make_plain("TIMESTAMP WITH TIME ZONE", _MOMENT),
    *_dates(),
)
FORMS = (
    *(BOOLEAN, INTEGER, DECIMAL, POINT, COMMA),
    *(_group_digits(_SPACES, ","), _group_digits(_SPACES, "."), _group_digits("'\u2019", ".")),
    *(make_plain("TIME", _TIME), *DATES, _WIDE_DIGITS),
)
"""In this order: the first that all values have is the form of a column."""

IN_UTC = Form(
    "TIMESTAMP",
    re.compile(_MOMENT),
    "TRY_CAST($v AS TIMESTAMP WITH TIME ZONE) AT TIME ZONE 'UTC'",
    _MOMENT,
    has_zone=True,
)
OPERATORS_FORMS = (
    IN_UTC,
    Form("DATE", re.compile("[0-9]{8}"), "TRY_STRPTIME($v, '%Y%m%d')::DATE", "[0-9]{8}"),
    Form(
        "BOOLEAN",
        re.compile(f"(?i:{'|'.join(f'{_YES} {_NO}'.split())})"),
        f"CASE WHEN lower($v) IN ({quote_texts(_YES.split())}) THEN true "
        f"WHEN lower($v) IN ({quote_texts(_NO.split())}) THEN false END",
    ),
)
"""Those only of columns of which the operator says the type: others may be something else."""

_CODES = "EUR|USD|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|RON|TRY|BRL|CAD|AUD|ZAR|KRW"
_SYMBOLS = "[$\u20ac\u00a3\u00a5\u20b9\u20bd\u20a9\u20ba]"
_UNIT = re.compile(
    rf"[+-]?({_SYMBOLS}|(?:{_CODES})(?=[{_SPACES}]))[{_SPACES}]?[+-]?[\d.].*"
    rf"|[+-]?[\d.].*?({_SYMBOLS}|[%\u2030]|(?<=[{_SPACES}])(?:{_CODES}))"
)
"""A number with a currency before or behind it, or with a percent sign."""


_SHARES = "%\u2030"
_WORD = re.compile(rf"()[+-]?[\d.,'{_SPACES}]*\d[{_SPACES}]*([^\s\d.,+-][^\d.,+-]{{0,9}})")
"""A number with any unit behind it."""


def find_unit(values: Sequence[str], *, is_number: bool = False) -> str:
    """Return the only unit that numbers of a sample have, a currency or %, or an empty string.

    If a column `is_number`, its unit may be any word, and is that of most numbers with one. Numbers
    without % may be others than those with it.
    """
    patterns = (_UNIT, _WORD) if is_number else (_UNIT,)
    values = [re.sub(_NEGATIVE, r"\1\2", it) for it in values] if is_number else values
    matches = [
        match
        for it in values
        if (match := next(filter(None, (pattern.fullmatch(it) for pattern in patterns)), None))
    ]
    units = Counter((match[1] or match[2]).strip() for match in matches)
    unit, count = units.most_common(1)[0] if units else ("", 0)
    if unit in _SHARES and not is_number and count < len([it for it in values if it != "0"]):
        return ""
    return unit if count == units.total() or (is_number and count * 2 > units.total()) else ""


def match_unit(unit: str) -> str:
    """Return a regular expression of a unit; what stands in its group is the number's sign."""
    unit = re.escape(unit)
    return rf"^([+-]?){unit}[{_SPACES}]?|[{_SPACES}]?{unit}$"


_NEGATIVE = r"^\((.*)\)$|^([^-].*)-$"
"""A negative number as accountants write it, in a column that the operator says has numbers."""


def move_sign(text: str) -> str:
    """Return the SQL of a number with a minus in front, not in parentheses or behind it."""
    return f"regexp_replace({text}, {quote_text(_NEGATIVE)}, '-\\1\\2')"
