"""The types of columns of texts: the first one that every value has.

A value that two types or two orders of day and month would read differently stays a text, unless
another value of the data set decides. Notes about doubtful choices contain no values, because not
all users may see them.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import duckdb

from copilot_runtime.base.batches import split_batches
from copilot_runtime.extensions.analyst.engine.csv.forms import (
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
    SIGN,
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

_SAMPLE_VALUES = 100_000
_TESTS = 16
"""Tests in one query: its time grows with the square of their number."""
_MAJORITY = 500
"""Different values of which half have to be of a type for its loss to be named."""
_NUMBERS = {
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), False),
    **dict.fromkeys(("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "HUGEINT"), True),
    **dict.fromkeys(("UBIGINT", "UINTEGER", "USMALLINT", "UTINYINT", "UHUGEINT"), True),
}
"""Type of numbers → whether they are whole."""
_WITH_ZONE = "TIMESTAMP WITH TIME ZONE"
_DATES = ("DATE", "TIMESTAMP", _WITH_ZONE)


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
    Where a file `has_semicolons` between its values, commas are mostly those of fractions, and
    1.234 may be a thousand, and in files of which only some have them (`is_mixed`), it is a text.
    Other columns than the operator's have one of the `forms`.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        table: str,
        types: Mapping[str, str],
        dates: DateOrder | None,
        *,
        has_semicolons: bool = False,
        is_mixed: bool = False,
        forms: Sequence[Form] = FORMS,
    ) -> None:
        self._connection = connection
        self._table = table
        self._types = {name.lower(): type for name, type in types.items()}
        self._dates: DateOrder | None = dates
        self._has_semicolons = has_semicolons
        self._is_mixed = is_mixed
        self._forms = forms
        self._numbers: Collection[str] = ()
        self._others: dict[str, Sequence[Form]] = {}
        """Further forms of the operator's columns."""
        self._units: Mapping[str, str] = {}

    def find(self, names: Sequence[str]) -> Sequence[TypedColumn]:
        """Return the columns with their types."""
        samples = self._sample(names)
        kinds = {name: self._find_kind(name) for name in names if name.lower() in self._types}
        self._numbers = {name for name, kind in kinds.items() if kind in _NUMBERS}
        self._units = {
            name: find_unit(values, is_number=name in self._numbers)
            for name, values in samples.items()
            if name in self._numbers or name not in kinds
        }
        readings = {name: self._list_readings(name, kind) for name, kind in kinds.items()}
        fitting = {
            name: self._list_fitting(name, samples[name]) for name in names if name not in readings
        }
        is_comma = _find_separator([*fitting.values(), *readings.values()])
        doubts = {
            **self._decide_readings(readings, is_comma),
            **self._decide_fitting(fitting, samples, is_comma),
        }
        found = {**self._keep_true(fitting), **readings}
        for name in fitting:
            if not found[name] and not doubts[name]:
                doubts[name] = self._describe_others(name, samples[name])
        order = _find_order(found) if self._dates is None else self._dates
        return [self._choose(name, found[name], order, doubts[name]) for name in names]

    def _decide_readings(
        self, readings: Mapping[str, list[Form]], is_comma: bool | None
    ) -> Mapping[str, str]:
        """Keep the forms with one separator in the operator's columns; return the doubts."""
        doubts: dict[str, str] = {}
        for name, forms in readings.items():
            # with whole numbers, thousands would be the only choice
            is_fraction = is_comma is None and DECIMAL not in forms
            doubts[name] = _choose_separator(forms, is_fraction or is_comma)
            if not forms:
                type = self._types[name.lower()]
                doubts[name] = f"is a text: none of its values is of the type {type}"
        return doubts

    def _decide_fitting(
        self,
        fitting: Mapping[str, list[Form]],
        samples: Mapping[str, Sequence[str]],
        is_comma: bool | None,
    ) -> Mapping[str, str]:
        """Keep the forms with one separator that lose nothing; return the doubts."""
        doubts: dict[str, str] = {}
        for name, forms in fitting.items():
            doubts[name] = _choose_separator(forms, is_comma, may_be_thousands=self._has_semicolons)
            if DECIMAL in forms and (lost := _find_lost_form(name, samples[name])):
                forms.clear()
                doubts[name] = lost
            elif self._is_mixed and any(map(AMBIGUOUS.fullmatch, samples[name])):
                forms.clear()
                doubts[name] = "is a text: its files may write thousands and fractions differently"
        return doubts

    def _list_fitting(self, name: str, sample: Sequence[str]) -> list[Form]:
        if unit := self._units.get(name):
            sample = [re.sub(match_unit(unit), r"\1", it) for it in sample]
        return [one for one in self._forms if sample and one.fits(sample)]

    def _find_kind(self, name: str) -> str:
        """Return the name in DuckDB of the type that the operator said a column has."""
        type = self._types[name.lower()]
        try:
            row: Any = self._connection.execute(f"SELECT typeof(CAST(NULL AS {type}))").fetchone()
        except duckdb.Error:
            raise DatasetRefused(
                f"The settings give {name!r} the type {type}, which DuckDB does not have."
            ) from None
        return str(row[0]).partition("(")[0]

    def _list_readings(self, name: str, kind: str) -> list[Form]:
        """Return the forms in which most texts of a column have the type that the operator said.

        A column whose texts are none has no form.
        """
        type, text = self._types[name.lower()], self._text(name)
        is_whole = _NUMBERS.get(kind, False)
        kinds = next((them for them in (_NUMBERS, _DATES) if kind in them), (kind,))
        forms = [
            one
            for one in (*FORMS, *OPERATORS_FORMS)
            if one.type in kinds and (one.type != _WITH_ZONE or kind == _WITH_ZONE)
        ]
        if kind in _NUMBERS or not forms:
            plain = make_plain(type, "[+-]?[0-9]+" if is_whole else "")
            forms.append(plain if is_whole else replace(plain, point="."))
        counts = ", ".join(f"count({self._cast(name, one)})" for one in forms)
        row: Any = self._connection.execute(
            f"SELECT count({text}), {counts} FROM {self._table}"
        ).fetchone()
        filled, *found = row
        most = max(found)
        pairs = [*zip(forms, found, strict=True)]
        self._others[name] = [one for one, count in pairs if 0 < count < most]
        return [one for one, count in pairs if count == most] if most or not filled else []

    def _cast(self, name: str, form: Form) -> str:
        """Return the SQL of the values of a form as the operator's type; no number is rounded."""
        type, text = self._types[name.lower()], self._text(name)
        value = form.cast(text, type)
        if _NUMBERS.get(type) and form.type == "DOUBLE":
            value = f"CASE WHEN {value} = {form.read(text)} THEN {value} END"
        return value

    def _text(self, name: str) -> str:
        """Return the SQL of the text of a column, with its sign in front and without its unit."""
        text = _trim(name)
        is_number = name in self._numbers
        if is_number:
            text = move_sign(f"replace({text}, chr(8722), '-')")
        if unit := self._units.get(name):
            text = f"regexp_replace({text}, {quote_text(match_unit(unit))}, '\\1')"
            text = move_sign(text) if is_number else text
        return text

    def _sample(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        count = max(_SAMPLE_VALUES // max(len(names), 1), 50)
        rows = self._connection.execute(f"FROM {self._table} LIMIT {count}").fetchall()
        if len(rows) == count:
            rows += self._connection.execute(  # some of all
                f"FROM {self._table} USING SAMPLE reservoir({count} ROWS) REPEATABLE (1)"
            ).fetchall()
        columns = [dict.fromkeys(values) for values in zip(*rows, strict=True)] or [
            {} for _ in names
        ]
        return {
            name: [text for value in values if value is not None and (text := value.strip())]
            for name, values in zip(names, columns, strict=True)
        }

    def _keep_true(self, fitting: Mapping[str, list[Form]]) -> Mapping[str, list[Form]]:
        """Return the types that fit a sample and that all values have.

        The first one is enough, but for dates: another order may fit as well.
        """
        true: dict[str, list[Form]] = {name: [] for name in fitting}
        waiting = {name: [*types] for name, types in fitting.items() if types}
        while waiting:
            pairs: list[tuple[str, Form]] = []
            for name, types in waiting.items():
                count = len(types) if types[0].order else 1
                pairs += [(name, types.pop(0)) for _ in range(count)]
            for batch in split_batches(pairs, _TESTS):
                for name, one in self._list_true(batch):
                    true[name].append(one)
            waiting = {name: types for name, types in waiting.items() if types and not true[name]}
        return true

    def _list_true(self, pairs: Sequence[tuple[str, Form]]) -> Sequence[tuple[str, Form]]:
        """Return the columns of which all values have a form."""
        tests = ", ".join(
            f"bool_and({one.test(self._text(name))} OR {_trim(name)} IS NULL)"
            for name, one in pairs
        )
        row: Any = self._connection.execute(f"SELECT {tests} FROM {self._table}").fetchone()
        return [pair for pair, is_true in zip(pairs, row, strict=True) if is_true]

    def _describe_others(self, name: str, values: Sequence[str]) -> str:
        """Return why a column is a text, if half of its values in a sample have another type."""
        values = values[:_MAJORITY]
        if unit := self._units.get(name):
            values = [re.sub(match_unit(unit), r"\1", it) for it in values]
        numbers = [value for value in values if WITH_SIGN.fullmatch(value)]
        if len(numbers) * 2 > len(values) and any(map(SIGN.search, numbers)):
            return (
                "is a text: its numbers have signs or units, such as $, % or parentheses; with "
                "one unit, DOUBLE in the `columns` of the source makes them numbers"
            )
        counts = Counter(
            one for one in self._forms for value in values if one.pattern.fullmatch(value)
        )
        form, count = counts.most_common(1)[0] if counts else (BOOLEAN, 0)
        if not count or count * 2 < len(values):
            return ""
        condition = f"{_trim(name)} IS NOT NULL AND NOT ({form.test(self._text(name))})"
        row: Any = self._connection.execute(
            f"SELECT count(*) FILTER ({condition}), count({_trim(name)}) FROM {self._table}"
        ).fetchone()
        if row[0] == row[1]:
            return ""
        return f"is a text: {row[0]:,} of its {row[1]:,} values are not of the type {form.type}"

    def _choose(
        self, name: str, forms: Sequence[Form], order: DateOrder | None, doubt: str
    ) -> TypedColumn:
        """Return a column in the first of its forms, or as texts."""
        orders = {one.order for one in forms if one.order}
        if len(orders) > 1 and not self._dates and all("[.]" in one.texts for one in forms):
            forms = [one for one in forms if one.order == "day-first"]
            doubt = "has dates with points, and is read day-first"
        elif len(orders) > 1 or "year-first" in orders:
            if order is None:
                other = "year" if "year-first" in orders else "month"
                doubt = (
                    f"is a text: its dates may begin with the day or the {other}; `dates: "
                    "day-first` in the settings of the source says which"
                )
                forms = ()
            else:
                forms = [one for one in forms if one.order == order]
                doubt = "" if self._dates else f"is read {order}, as other dates of the data set"
        elif self._dates and orders and self._dates not in orders:
            doubt, forms = f"is a text: its dates are not {self._dates}, as the settings say", ()
        elif forms and "%y" in forms[0].sql:
            doubt = f"has years of two digits, and is read {forms[0].order}"
        notes = [f"{name!r} {doubt}."] if doubt else []
        if not forms:
            return TypedColumn(
                name=name, select=f"nullif({quote_name(name)}, '')", note=" ".join(notes)
            )
        form, text, type = forms[0], self._text(name), forms[0].type
        select = form.read(text)
        if name.lower() in self._types:
            type = self._types[name.lower()]
            select = self._cast(name, form)
            others = [one for one in self._others[name] if one.goes_with(form, order)]
            if others:
                select = f"coalesce({', '.join(self._cast(name, one) for one in (form, *others))})"
            value = self._cast(name, form)
            shorter = f"TRY_CAST({value} AS {form.type}) <> {form.read(text)}"
            row: Any = self._connection.execute(
                f"SELECT count({text}) - count({select}), "
                f"count({value}) FILTER ({shorter}) FROM {self._table}"
            ).fetchone()
            if row[0]:
                notes.append(f"Values of {name!r} that are no {type} are empty: {row[0]:,}.")
            if row[1]:
                notes.append(f"Values of {name!r} that are shortened to a {type}: {row[1]:,}.")
        if form is IN_UTC:
            notes.append(f"{name!r} is in UTC.")
        if unit := self._units.get(name):
            notes.append(f"{name!r} is in {unit!r}.")
        return TypedColumn(name=name, select=select, type=type, note=" ".join(notes))


def _trim(name: str) -> str:
    return f"nullif(trim({quote_name(name)}), '')"


def _find_lost_form(name: str, values: Sequence[str]) -> str:
    """Return why numbers are texts: as numbers, they would lose what tells codes or versions apart.

    Versions have a name that says so, or both `1.1` and `1.10`.
    """
    if any("E" in it for it in values) and all(map(CODE.fullmatch, values)):
        return "is a text: its values may be codes, of which 1E5 is not 100000"
    if all(map(PHONE.fullmatch, values)):
        return "is a text: its values may be telephone numbers"
    if not all(map(VERSION.fullmatch, values)):
        return ""
    forms = {*values}
    lost = [it for it in forms if it.endswith("0") and "." in it]
    if (lost and VERSION_NAME.search(name)) or any(
        it[:-1] in forms and it[-2] not in ".0" for it in lost
    ):
        return "is a text: its values may be versions, of which 1.10 is not 1.1"
    return ""


def _find_separator(columns: Iterable[Sequence[Form]]) -> bool | None:
    """Return whether fractions follow a comma, if the columns that show it agree."""
    pairs = {(POINT in types, COMMA in types) for types in columns}
    certain = {is_comma for is_point, is_comma in pairs if is_point != is_comma}
    return certain.pop() if len(certain) == 1 else None


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


def _find_order(columns: Mapping[str, Sequence[Form]]) -> DateOrder | None:
    """Return the order of day and month in the columns that have only one, if they agree."""
    found: set[DateOrder] = set()
    for types in columns.values():
        orders = {one.order for one in types if one.order}
        if len(orders - {"year-first"}) == len(orders) == 1 and "[.]" not in types[0].texts:
            found |= cast("set[DateOrder]", orders)
    return found.pop() if len(found) == 1 else None
