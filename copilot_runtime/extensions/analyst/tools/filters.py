"""Convert a model's JSON filters to SQL conditions."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field
from sqlglot import exp

from copilot_runtime.base.jsonvalue import parse_text
from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.tools.queries import (
    build_literal,
    call,
    find_column,
    name_column,
    to_text,
)
from copilot_runtime.extensions.analyst.tools.tool import ToolFailed

_MOST_VALUES = 1_000
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")

_COMPARISONS: Mapping[str, type[exp.Binary]] = {
    "eq": exp.EQ,
    "ne": exp.NEQ,
    "gt": exp.GT,
    "gte": exp.GTE,
    "lt": exp.LT,
    "lte": exp.LTE,
}
_OPERATORS: Mapping[str, str] = {
    **{name: name for name in (*_COMPARISONS, "in", "not_in", "contains", "is_null", "between")},
    "=": "eq",
    "==": "eq",
    "equals": "eq",
    "is": "eq",
    "!=": "ne",
    "<>": "ne",
    "not": "ne",
    "neq": "ne",
    ">": "gt",
    ">=": "gte",
    "min": "gte",
    "from": "gte",
    "after": "gt",
    "<": "lt",
    "<=": "lte",
    "max": "lte",
    "to": "lte",
    "before": "lt",
    "like": "contains",
    "ilike": "contains",
    "not in": "not_in",
    "null": "is_null",
}


def _parse_filters(value: Any) -> Any:
    """Accept the formats that models send: an object, its JSON text, or a list of conditions."""
    value = parse_text(value)
    if value in ("", []):
        return {}
    if not isinstance(value, list):
        return value
    filters: dict[str, Any] = {}
    for item in cast("list[Any]", value):
        if not isinstance(item, Mapping):
            return cast("Any", value)
        fields = cast("Mapping[str, Any]", item)
        column, operator = fields.get("column"), fields.get("operator", fields.get("op", "eq"))
        if not isinstance(column, str) or not isinstance(operator, str):
            return cast("Any", value)
        conditions = filters.setdefault(column, {})
        conditions[operator.lower()] = fields.get("value")
    return filters


Filters = Annotated[
    dict[str, Any],
    BeforeValidator(_parse_filters),
    Field(
        description='Conditions by column: a value, a list, or operators like {"gte": 3}.',
    ),
]
NO_FILTERS: Any = Field(default_factory=dict[str, object])


def build_conditions(
    filters: Mapping[str, Any], columns: Sequence[Column], synonyms: Mapping[str, str] | None = None
) -> list[exp.Expr]:
    """Return the conditions of filters. Raises `ToolFailed` for an unknown column or operator."""
    return [
        condition
        for name, value in filters.items()
        for condition in _build_column_conditions(find_column(name, columns, synonyms), value)
    ]


def _build_column_conditions(column: Column, value: Any) -> list[exp.Expr]:
    if isinstance(value, Mapping):
        operators = cast("Mapping[str, Any]", value)
        return [build_condition(column, str(name), item) for name, item in operators.items()]
    return [build_condition(column, "in" if isinstance(value, list) else "eq", value)]


def build_condition(column: Column, operator: str, value: Any) -> exp.Expr:
    """Return one condition. Texts are compared case-insensitively. Raises `ToolFailed`."""
    canonical = _OPERATORS.get(operator.strip().lower())
    if canonical is None:
        raise ToolFailed(
            f"There is no operator {operator[:40]!r}.",
            hint=f"Known operators: {', '.join(dict.fromkeys(_OPERATORS.values()))}.",
        )
    if canonical == "is_null" or (value is None and canonical in ("eq", "ne")):
        is_null = exp.Is(this=name_column(column.name), expression=exp.Null())
        wants_null = bool(value) if canonical == "is_null" else canonical == "eq"
        return is_null if wants_null else exp.Not(this=is_null)
    if canonical == "contains":
        return build_contains(column, value)
    if canonical in ("in", "not_in", "between"):
        return _build_list_condition(column, canonical, value)
    if isinstance(value, list | Mapping):
        raise ToolFailed(f"The operator {operator!r} takes one value, for {column.name!r}.")
    return _COMPARISONS[canonical](
        this=_build_subject(column, value), expression=_build_value(column, value)
    )


def build_contains(column: Column, value: Any) -> exp.Expr:
    """Return a case-insensitive condition that a column contains a text."""
    subject = call("lower", to_text(name_column(column.name)))
    return call("contains", subject, call("lower", build_literal(str(value))))


def _build_list_condition(column: Column, operator: str, value: Any) -> exp.Expr:
    values: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    if operator == "between":
        if len(values) != 2:
            raise ToolFailed(f"'between' takes two values, for {column.name!r}.")
        subject = _build_subject(column, values[0])
        low, high = (_build_value(column, item) for item in values)
        return exp.Between(this=subject, low=low, high=high)
    if len(values) > _MOST_VALUES:
        raise ToolFailed(f"A filter takes at most {_MOST_VALUES} values, for {column.name!r}.")
    if not values:
        return exp.Boolean(this=operator == "not_in")
    found = exp.In(
        this=_build_subject(column, values[0]),
        expressions=[_build_value(column, item) for item in values],
    )
    return exp.Not(this=found) if operator == "not_in" else found


def _build_subject(column: Column, value: Any) -> exp.Expr:
    """Return a column in the form in which it is compared with a value."""
    named = name_column(column.name)
    if column.is_numeric and _is_number(value):
        return named
    if column.is_time and isinstance(value, str):
        return exp.cast(named, "DATE") if _is_day(value) else named
    if not column.is_text and isinstance(value, bool):
        return named
    if isinstance(value, int | float) and not isinstance(value, bool):
        return exp.TryCast(this=named, to=exp.DataType.build("DOUBLE"))
    return call("lower", to_text(named))


def _build_value(column: Column, value: Any) -> exp.Expr:
    if column.is_numeric and _is_number(value):
        return build_literal(_parse_number(value) if isinstance(value, str) else value)
    if column.is_time and isinstance(value, str):
        return exp.cast(build_literal(_parse_time(column, value)), _choose_time_type(column, value))
    if isinstance(value, bool) and not column.is_text:
        return build_literal(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return build_literal(value)
    return call("lower", build_literal(str(value)))


def _is_day(value: str) -> bool:
    """Return `True` if a text is a date: it is compared with the date part of a time."""
    return _DAY.fullmatch(value.strip()) is not None


def _parse_time(column: Column, value: str) -> str:
    try:
        return datetime.fromisoformat(value.strip()).isoformat()
    except ValueError:
        raise ToolFailed(
            f"{value[:60]!r} is no date, for {column.name!r}.",
            hint="Write dates as 2026-01-31, and times as 2026-01-31T12:00:00.",
        ) from None


def _choose_time_type(column: Column, value: str) -> str:
    if _is_day(value):
        return "DATE"
    return "TIMESTAMPTZ" if "ZONE" in column.type.upper() else "TIMESTAMP"


def _parse_number(value: str) -> int | float:
    """Return a number; integers of any size keep all digits."""
    try:
        return int(value)
    except ValueError:
        return float(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int | float):
        return True
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
