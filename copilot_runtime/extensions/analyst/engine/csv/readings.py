"""How a column of texts is read: in which form, with which unit, and what is doubtful about it.

Notes contain no values, because not all users may see them.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from copilot_runtime.extensions.analyst.engine.csv.forms import (
    ADDRESS,
    AMBIGUOUS,
    BOOLEAN,
    CODE,
    COMMA,
    DECIMAL,
    FORMS,
    IN_UTC,
    INTEGER,
    OPERATORS_FORMS,
    PHONE,
    POINT,
    SHORTENED,
    SIGN,
    SPACED,
    VERSION,
    VERSION_NAME,
    WITH_SIGN,
    DateOrder,
    Form,
    find_unit,
    make_plain,
    match_unit,
    move_sign,
)
from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused

_SMALL = re.compile(r":\d\d\.\d{6}\d*[1-9]")
"""A time with more decimals than DuckDB keeps."""
_MAJORITY = 500
"""Different values of which half have to be of a type for its loss to be named."""
_NUMBERS = {
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), False),
    **dict.fromkeys(("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "HUGEINT"), True),
    **dict.fromkeys(("UBIGINT", "UINTEGER", "USMALLINT", "UTINYINT", "UHUGEINT"), True),
}
"""Type of numbers → whether they are whole."""
_WITH_ZONE = "TIMESTAMP WITH TIME ZONE"
_HAS_ZONE = re.compile(r"\d(?:Z|[+-]\d\d(?::?\d\d)?)$")
_DATES = ("DATE", "TIMESTAMP", _WITH_ZONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumn:
    """A column, and the SQL expression that converts its texts."""

    name: str
    select: str
    type: str = "VARCHAR"
    note: str = ""
    """A sentence about a doubtful choice, or empty."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of texts, or a query in parentheses."""

    connection: duckdb.DuckDBPyConnection
    name: str

    def ask(self, aggregates: str) -> Sequence[Any]:
        """Return the values of SQL aggregates over all rows."""
        row: Any = self.connection.execute(f"SELECT {aggregates} FROM {self.name}").fetchone()
        return row


class Reading:
    """How a column is read whose type is found: in a form that all of its values have.

    `values` are different ones of a sample, and `forms` those that a column may have.
    """

    def __init__(
        self, table: TextTable, name: str, values: Sequence[str], forms: Sequence[Form]
    ) -> None:
        self.name = name
        self.values = values
        self.unit = find_unit(values)
        bare = self._list_bare(values)
        self.forms = [one for one in forms if bare and one.fits(bare)]
        """The forms that are possible; in the end, the first one is that of the column."""
        self.doubt = ""
        """The doubtful choice: a sentence whose subject, the name of the column, is left out."""
        self._table = table
        self._every = forms

    @property
    def cell(self) -> str:
        """The SQL of a text, which is NULL if it is empty."""
        return f"nullif(trim({quote_name(self.name)}), '')"

    @property
    def text(self) -> str:
        """The SQL of a text without its unit."""
        if not self.unit:
            return self.cell
        return f"regexp_replace({self.cell}, {quote_text(match_unit(self.unit))}, '\\1')"

    def settle(self, is_comma: bool | None, *, may_be_thousands: bool, may_be_mixed: bool) -> None:
        """Keep the forms with one decimal separator that lose nothing.

        `is_comma` is that of other columns. Where points `may_be_thousands`, or files of the data
        set `may_be_mixed`, numbers that may be both are texts.
        """
        self.doubt = _choose_separator(self.forms, is_comma, may_be_thousands=may_be_thousands)
        has_numbers = any(one.type in _NUMBERS for one in self.forms)
        is_signed = any(it.startswith("-") for it in self.values)
        if has_numbers and not is_signed and any(map(PHONE.fullmatch, self.values)):
            self.forms, self.doubt = [], "is a text: its values may be telephone numbers"
        elif DECIMAL in self.forms and (lost := _find_lost_form(self.name, self.values)):
            self.forms, self.doubt = [], lost
        elif DECIMAL in self.forms and _are_like_versions(self.values):
            self.doubt = "has numbers such as 1.10 beside 1.9, which would be others as versions"
        elif DECIMAL in self.forms and any(map(SHORTENED.fullmatch, self.values)):
            self.doubt = "has numbers such as 4.93E+12, of which a spreadsheet has left digits out"
        elif COMMA in self.forms and all(map(ADDRESS.fullmatch, self.values)):
            self.forms, self.doubt = [], "is a text: its values may be addresses of the internet"
        elif self.forms and any(map(SPACED.fullmatch, self.values)):
            self.doubt = "has spaces, which are read as those of thousands"
        elif may_be_mixed and any(map(AMBIGUOUS.fullmatch, self.values)):
            self.doubt = "is a text: its files may write thousands and fractions differently"
            self.forms = []

    def choose(self, order: DateOrder | None, dates: DateOrder | None) -> TypedColumn:
        """Return the column in the first of its forms, or as texts.

        `order` is that of day and month in the data set, and `dates` what the operator says of it.
        """
        if not (self.forms or self.doubt):
            self.doubt = self._describe_others()
        self._decide_dates(order, dates)
        notes = [f"{self.name!r} {self.doubt}."] if self.doubt else []
        if not self.forms:
            select = f"nullif({quote_name(self.name)}, '')"
            return TypedColumn(name=self.name, select=select, note=" ".join(notes))
        type, select, losses = self._convert(order)
        notes += losses
        if type.startswith("TIME") and any(map(_SMALL.search, self.values)):
            notes.append(f"Times of {self.name!r} are cut to six decimals of a second.")
        if self.forms[0] is IN_UTC:
            notes.append(f"{self.name!r} is in UTC.")
        if self.unit:
            notes.append(f"{self.name!r} is in {self.unit!r}.")
        return TypedColumn(name=self.name, select=select, type=type, note=" ".join(notes))

    def _list_bare(self, values: Sequence[str]) -> Sequence[str]:
        """Return values of a sample without their unit."""
        if not self.unit:
            return values
        return [re.sub(match_unit(self.unit), r"\1", it) for it in values]

    def _convert(self, order: DateOrder | None) -> tuple[str, str, Sequence[str]]:  # noqa: ARG002
        """Return the type, the SQL of a value, and sentences about values that are lost."""
        form = self.forms[0]
        return form.type, form.read(self.text), ()

    def _decide_dates(self, order: DateOrder | None, dates: DateOrder | None) -> None:
        """Keep the forms with one order of day and month."""
        orders = {one.order for one in self.forms if one.order}
        if len(orders) > 1 and not dates and all("[.]" in one.texts for one in self.forms):
            self.forms = [one for one in self.forms if one.order == "day-first"]
            self.doubt = "has dates with points, and is read day-first"
        elif orders == {"month-first"} and not dates and "[.]" in self.forms[0].texts:
            self.doubt = "has dates with points, and is read month-first"
        elif len(orders) > 1 or "year-first" in orders:
            if order is None:
                other = "year" if "year-first" in orders else "month"
                self.doubt = (
                    f"is a text: its dates may begin with the day or the {other}; `dates: "
                    "day-first` in the settings of the source says which"
                )
                self.forms = []
            else:
                self.forms = [one for one in self.forms if one.order == order]
                self.doubt = "" if dates else f"is read {order}, as other dates of the data set"
        elif dates and orders and dates not in orders:
            self.doubt = f"is a text: its dates are not {dates}, as the settings say"
            self.forms = []
        elif self.forms and "%y" in self.forms[0].sql:
            order_of = self.forms[0].order or "with the month by its name"
            self.doubt = f"has years of two digits, and is read {order_of}"

    def _describe_others(self) -> str:
        """Return why a column is a text, if half of its values in a sample have another type."""
        values = self._list_bare(self.values[:_MAJORITY])
        numbers = [value for value in values if WITH_SIGN.fullmatch(value)]
        if len(numbers) * 2 > len(values) and any(map(SIGN.search, numbers)):
            return (
                "is a text: its numbers have signs or units, such as $, % or parentheses; with "
                "one unit, DOUBLE in the `columns` of the source makes them numbers"
            )
        counts = Counter(
            one for one in self._every for value in values if one.pattern.fullmatch(value)
        )
        form, count = counts.most_common(1)[0] if counts else (BOOLEAN, 0)
        if not count or count * 2 < len(values):
            return ""
        condition = f"{self.cell} IS NOT NULL AND NOT ({form.test(self.text)})"
        others, filled = self._table.ask(f"count(*) FILTER ({condition}), count({self.cell})")
        if others == filled:
            return ""
        return f"is a text: {others:,} of its {filled:,} values are not of the type {form.type}"


class OperatorsReading(Reading):
    """How a column is read of which the operator says the type: in the forms of most values.

    A column without a value of the type is one of texts. Raises `DatasetRefused` if DuckDB does not
    have the type.
    """

    def __init__(self, table: TextTable, name: str, values: Sequence[str], type: str) -> None:
        super().__init__(table, name, values, ())
        self.type = type
        try:
            query = f"SELECT typeof(CAST(NULL AS {type}))"
            kind = str(table.connection.execute(query).fetchall()[0][0]).partition("(")[0]
        except duckdb.Error:
            raise DatasetRefused(
                f"The settings give {name!r} the type {type}, which DuckDB does not have."
            ) from None
        self._is_number = kind in _NUMBERS
        self._is_whole = _NUMBERS.get(kind, False)
        self.unit = find_unit(values, is_number=True) if self._is_number else ""
        self._others: Sequence[Form] = ()
        """Further forms that some values have."""
        self.forms = self._find_forms(kind)

    @property
    def text(self) -> str:
        """The SQL of a text without its unit, and with its sign in front."""
        if not self._is_number:
            return self.cell
        text = move_sign(f"replace({self.cell}, chr(8722), '-')")
        if not self.unit:
            return text
        return move_sign(f"regexp_replace({text}, {quote_text(match_unit(self.unit))}, '\\1')")

    def settle(
        self,
        is_comma: bool | None,
        *,
        may_be_thousands: bool,  # noqa: ARG002 - the type says it
        may_be_mixed: bool,  # noqa: ARG002
    ) -> None:
        if not self.forms:
            self.doubt = f"is a text: none of its values is of the type {self.type}"
            return
        if is_comma is None:  # the marks in whole numbers are those of thousands
            is_comma = self._is_whole == (DECIMAL in self.forms)
        self.doubt = self.doubt or _choose_separator(self.forms, is_comma)

    def _find_forms(self, kind: str) -> list[Form]:
        """Return the forms of most values."""
        kinds = next((them for them in (_NUMBERS, _DATES) if kind in them), (kind,))
        forms = [
            one
            for one in (*FORMS, *OPERATORS_FORMS)
            if one.type in kinds and (one.type != _WITH_ZONE or kind == _WITH_ZONE)
        ]
        if kind == _WITH_ZONE and any(map(_HAS_ZONE.search, self.values)):
            forms = [one for one in forms if one.type == _WITH_ZONE]
        elif kind == _WITH_ZONE:
            self.doubt = "has no time zones, and is read as UTC"
        if self._is_number or not forms:
            plain = make_plain(self.type, "[+-]?[0-9]+" if self._is_whole else "")
            forms.append(plain if self._is_whole else replace(plain, point="."))
        counts = ", ".join(f"count({self._cast(one)})" for one in forms)
        count, *found = self._table.ask(f"count({self.text}), {counts}")
        most = max(found)
        pairs = [*zip(forms, found, strict=True)]
        self._others = [one for one, number in pairs if 0 < number < most]
        return [one for one, number in pairs if number == most] if most or not count else []

    def _cast(self, form: Form) -> str:
        """Return the SQL of the values of a form as the operator's type; no number is rounded."""
        value = form.cast(self.text, self.type)
        if _NUMBERS.get(self.type) and form.type == "DOUBLE":
            value = f"CASE WHEN {value} = {form.read(self.text)} THEN {value} END"
        return value

    def _convert(self, order: DateOrder | None) -> tuple[str, str, Sequence[str]]:
        form, text = self.forms[0], self.text
        value = select = self._cast(form)
        if others := [one for one in self._others if one.goes_with(form, order)]:
            select = f"coalesce({', '.join(map(self._cast, (form, *others)))})"
        shorter = f"TRY_CAST({value} AS {form.type}) <> {form.read(text)}"
        lost, shortened = self._table.ask(
            f"count({text}) - count({select}), count({value}) FILTER ({shorter})"
        )
        notes: list[str] = []
        if lost:
            notes.append(f"Values of {self.name!r} that are no {self.type} are empty: {lost:,}.")
        if shortened:
            notes.append(
                f"Values of {self.name!r} that are shortened to a {self.type}: {shortened:,}."
            )
        return self.type, select, notes


def _find_lost_form(name: str, values: Sequence[str]) -> str:
    """Return why numbers are texts: as numbers, they would lose what tells codes or versions apart.

    Versions have a name that says so, or both `1.1` and `1.10`.
    """
    if any("e" in it.lower() for it in values) and all(map(CODE.fullmatch, values)):
        return "is a text: its values may be codes, of which 1E5 is not 100000"
    if not all(map(VERSION.fullmatch, values)):
        return ""
    forms = {*values}
    lost = [it for it in forms if it.endswith("0") and "." in it]
    if (lost and VERSION_NAME.search(name)) or any(
        it[:-1] in forms and it[-2] not in ".0" for it in lost
    ):
        return "is a text: its values may be versions, of which 1.10 is not 1.1"
    return ""


def _are_like_versions(values: Sequence[str]) -> bool:
    """Return whether fractions follow each other as those of versions do, such as 3.9 and 3.10."""
    found: dict[str, set[int]] = {}
    for value in values:
        whole, _, fraction = value.partition(".")
        if not re.fullmatch("[1-9][0-9]?", fraction):
            return False
        found.setdefault(whole, set()).add(int(fraction))
    later = [(it, them) for them in found.values() for it in them if it > 9]
    return any(it == 10 for it, _ in later) and all(it - 1 in them for it, them in later)


def _choose_separator(
    types: list[Form], is_comma: bool | None, *, may_be_thousands: bool = False
) -> str:
    """Remove the types with the other separator; return what is not certain, as a sentence."""
    if INTEGER in types or not (POINT in types and COMMA in types):
        return ""
    has_points = DECIMAL in types
    if is_comma is None and (may_be_thousands or not has_points):
        types.clear()
        return (
            f"is a text: its {'points' if has_points else 'commas'} may be those of thousands or "
            "of fractions; `columns` in the settings of the source says which: BIGINT or DOUBLE"
        )
    other = (DECIMAL, POINT) if is_comma else (COMMA,)
    types[:] = [one for one in types if one not in other]
    if is_comma is None:
        return "has points, which are read as those of fractions, not of thousands"
    if has_points:
        return "has points, which are read as those of thousands" if is_comma else ""
    return f"has commas, which are read as those of {'fractions' if is_comma else 'thousands'}"
