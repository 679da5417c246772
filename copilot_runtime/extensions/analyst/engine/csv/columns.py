"""The types of columns of texts: the first one that every value has.

A value that two types or two orders of day and month would read differently stays a text, unless
another value of the data set decides.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import duckdb

from copilot_runtime.base.batches import split_batches
from copilot_runtime.extensions.analyst.engine.csv.forms import (
    COMMA,
    FORMS,
    INTEGER,
    POINT,
    VERSION_NAME,
    DateOrder,
    Form,
)
from copilot_runtime.extensions.analyst.engine.csv.readings import (
    OperatorsReading,
    Reading,
    TextTable,
    TypedColumn,
)
from copilot_runtime.extensions.analyst.engine.datasets import quote_text

_ODD = "[^-+0-9.]|^[-+]?[0-9]{1,3}[.][0-9]{3}$"
"""Matches the numbers that may be read in more than one way, such as `1.234` and `1E5`."""
_FEW = 1_000
"""The number of them that are looked at, beside a sample."""
_SAMPLE_VALUES = 100_000
_TESTS = 16
"""Tests in one query: its time grows with the square of their number."""


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
        self._table = TextTable(connection, table)
        self._types = {name.lower(): type for name, type in types.items()}
        self._dates: DateOrder | None = dates
        self._has_semicolons = has_semicolons
        self._is_mixed = is_mixed
        self._forms = forms

    def find(self, names: Sequence[str]) -> Sequence[TypedColumn]:
        """Return the columns with their types. Raises `DatasetRefused`."""
        samples, is_whole = self._sample(names)
        readings = [self._read(name, values) for name, values in samples.items()]
        if not is_whole:
            readings = [*map(self._complete, readings)]
        is_comma = _find_separator(readings)
        for one in readings:
            one.settle(is_comma, may_be_thousands=self._has_semicolons, may_be_mixed=self._is_mixed)
        self._keep_true([it for it in readings if not isinstance(it, OperatorsReading)])
        order = self._dates or _find_order(readings)
        return [one.choose(order, self._dates) for one in readings]

    def _read(self, name: str, values: Sequence[str]) -> Reading:
        if type := self._types.get(name.lower()):
            return OperatorsReading(self._table, name, values, type)
        return Reading(self._table, name, values, self._forms)

    def _complete(self, one: Reading) -> Reading:
        """Return a column of numbers with the values of all rows that are doubtful."""
        is_number = any(it.point or it is INTEGER for it in one.forms)
        if isinstance(one, OperatorsReading) or not is_number:
            return one
        odd = f"regexp_matches({one.cell}, {quote_text(_ODD)})"
        if one.unit:
            odd = f"NOT contains({one.cell}, {quote_text(one.unit)})"
        if VERSION_NAME.search(one.name):
            odd += f" OR ends_with({one.cell}, '0') AND contains({one.cell}, '.')"
        rows = self._table.connection.execute(
            f"SELECT {one.cell} FROM {self._table.name} WHERE {odd} LIMIT {_FEW}"
        ).fetchall()
        values = dict.fromkeys([*one.values, *(text for (text,) in rows)])
        return one if len(values) == len(one.values) else self._read(one.name, [*values])

    def _sample(self, names: Sequence[str]) -> tuple[Mapping[str, Sequence[str]], bool]:
        """Return different values of each column, and whether they are those of all rows."""
        connection, table = self._table.connection, self._table.name
        count = max(_SAMPLE_VALUES // max(len(names), 1), 50)
        rows = connection.execute(f"FROM {table} LIMIT {count}").fetchall()
        is_whole = len(rows) < count
        if not is_whole:
            rows += connection.execute(  # some of all
                f"FROM {table} USING SAMPLE reservoir({count} ROWS) REPEATABLE (1)"
            ).fetchall()
        columns = [dict.fromkeys(values) for values in zip(*rows, strict=True)] or [
            {} for _ in names
        ]
        samples = {
            name: [text for value in values if value is not None and (text := value.strip())]
            for name, values in zip(names, columns, strict=True)
        }
        return samples, is_whole

    def _keep_true(self, readings: Sequence[Reading]) -> None:
        """Keep the forms that fit a sample and that all values have.

        The first one is enough, but for dates: another order may fit as well.
        """
        waiting = {one: one.forms for one in readings if one.forms}
        for one in waiting:
            one.forms = []
        while waiting:
            pairs: list[tuple[Reading, Form]] = []
            for one, forms in waiting.items():
                count = len(forms) if forms[0].order else 1
                pairs += [(one, forms.pop(0)) for _ in range(count)]
            for batch in split_batches(pairs, _TESTS):
                tests = ", ".join(
                    f"bool_and({form.test(one.text)} OR {one.cell} IS NULL)" for one, form in batch
                )
                for (one, form), is_true in zip(batch, self._table.ask(tests), strict=True):
                    one.forms += [form] if is_true else []
            waiting = {one: forms for one, forms in waiting.items() if forms and not one.forms}


def _find_separator(readings: Sequence[Reading]) -> bool | None:
    """Return whether fractions follow a comma, if the columns that show it agree."""
    pairs = {(POINT in one.forms, COMMA in one.forms) for one in readings}
    certain = {is_comma for is_point, is_comma in pairs if is_point != is_comma}
    return certain.pop() if len(certain) == 1 else None


def _find_order(readings: Sequence[Reading]) -> DateOrder | None:
    """Return the order of day and month in the columns that have only one, if they agree."""
    found: set[DateOrder] = set()
    for one in readings:
        orders = {form.order for form in one.forms if form.order}
        if len(orders - {"year-first"}) == len(orders) == 1 and "[.]" not in one.forms[0].texts:
            found |= cast("set[DateOrder]", orders)
    return found.pop() if len(found) == 1 else None
