"""Compiles metrics to SQL; names and values of a question are always quoted or literals."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.analyst.semantic.definition import (
    MetricDefinition,
    Relation,
    parse_expression,
)
from copilot_runtime.extensions.analyst.sql.parsing import quote

Grain = Literal["hour", "day", "week", "month", "quarter", "year"]
GRAINS: Sequence[Grain] = ("hour", "day", "week", "month", "quarter", "year")

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "contains", "is null"]
_COMPARISONS: Mapping[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}


@dataclass(frozen=True, slots=True)
class DimensionFilter:
    """A condition on a dimension, or on the time column, of a metric."""

    dimension: str
    operator: Operator
    value: Any = None


@dataclass(frozen=True, kw_only=True)
class CompiledMetric:
    """A metric compiled to a query. The guard adds the row filters later."""

    name: str
    tree: exp.Select
    dimensions: Sequence[str]
    """The columns before the metric's, by which it is grouped."""

    @property
    def sql(self) -> str:
        """The query as text."""
        return self.tree.sql(dialect="duckdb")


def compile_metric(
    name: str,
    metric: MetricDefinition,
    *,
    relations: Sequence[Relation] = (),
    group_by: Sequence[str] = (),
    filters: Sequence[DimensionFilter] = (),
    grain: Grain | None = None,
) -> CompiledMetric:
    """Return the query of a metric.

    Columns of other tables are joined along the relations, with at most one row for each row of the
    metric's table, so joins never duplicate rows.

    Raises `ConfigurationFailed` for an unknown dimension, period or operator.
    """
    if metric.table is None:
        raise ConfigurationFailed(
            f"The metric {name!r} has no SQL.", hint="Give it 'table' and 'sql' in the catalogue."
        )
    compiler = _Compiler(name, metric, relations)
    groups = [(one, compiler.find_dimension(one)) for one in dict.fromkeys(group_by)]
    if grain is not None:
        groups.insert(0, (grain, compiler.truncate_time(grain)))
    conditions = [compiler.build_filter(one) for one in filters]
    own = [compiler.place(parse_expression(text)) for text in metric.filters]
    query = exp.select(
        *(exp.alias_(tree, quote(label)) for label, tree in groups),
        exp.alias_(compiler.build_value(), quote(name)),
    ).from_(exp.Table(this=quote(metric.table)))
    for join in compiler.joins:
        query.append("joins", join)
    if own or conditions:
        query = query.where(*own, *conditions)
    if groups:
        query = query.group_by(*(tree.copy() for _, tree in groups))
        query = query.order_by(*(exp.Literal.number(at + 1) for at in range(len(groups))))
    return CompiledMetric(name=name, tree=query, dimensions=[label for label, _ in groups])


class _Compiler:
    """Resolves the names of one query, and collects the joins that they need."""

    def __init__(self, name: str, metric: MetricDefinition, relations: Sequence[Relation]) -> None:
        self._name = name
        self._metric = metric
        self._relations = relations
        self._columns: dict[str, list[str]] = {}
        """Columns read from other tables, by table."""

    def find_dimension(self, name: str) -> exp.Expr:
        """Return the expression of a dimension."""
        expressions = {key.casefold(): text for key, text in self._metric.dimensions.items()}
        text = expressions.get(name.casefold())
        if text is None:
            names = ", ".join(self._metric.dimensions) or "none"
            raise ConfigurationFailed(
                f"The metric {self._name!r} has no dimension {name!r}. Dimensions: {names}."
            )
        return self.place(parse_expression(text))

    def truncate_time(self, grain: Grain) -> exp.Expr:
        """Return the expression for the period of a row."""
        time = self._metric.time
        if grain not in GRAINS:
            raise ConfigurationFailed(f"{grain!r} is no period. Periods: {', '.join(GRAINS)}.")
        if time is None:
            raise ConfigurationFailed(f"The metric {self._name!r} has no time column.")
        return exp.TimestampTrunc(this=self._own(time), unit=exp.Var(this=grain.upper()))

    def build_filter(self, filter: DimensionFilter) -> exp.Expr:
        """Return a condition whose value is a literal."""
        is_time = self._metric.time and filter.dimension.casefold() == self._metric.time.casefold()
        own = self._own(self._metric.time or "") if is_time else None
        column = own or self.find_dimension(filter.dimension)
        match filter.operator:
            case "in" | "not in":
                values = filter.value if isinstance(filter.value, list | tuple) else [filter.value]
                condition = exp.In(this=column, expressions=[_convert(it) for it in values])
                return exp.Not(this=condition) if filter.operator == "not in" else condition
            case "contains":
                text = exp.cast(column, "VARCHAR")
                return exp.Contains(
                    this=exp.Lower(this=text), expression=_convert(str(filter.value).lower())
                )
            case "is null":
                return exp.Is(this=column, expression=exp.Null())
            case operator if operator in _COMPARISONS:
                return _COMPARISONS[operator](this=column, expression=_convert(filter.value))
            case _:
                raise ConfigurationFailed(f"{filter.operator!r} is no operator of a filter.")

    def build_value(self) -> exp.Expr:
        """Return the expression of the metric."""
        ratio = self._metric.ratio
        if ratio is None:
            return self.place(parse_expression(self._metric.sql or "COUNT(*)"))
        numerator, denominator = (
            self.place(parse_expression(text)) for text in (ratio.numerator, ratio.denominator)
        )
        return exp.Div(
            this=exp.paren(numerator),
            expression=exp.Nullif(this=denominator, expression=exp.Literal.number(0)),
        )

    def place(self, tree: exp.Expr) -> exp.Expr:
        """Return an expression with all columns qualified by their tables."""
        table = self._metric.table or ""
        for column in list(tree.find_all(exp.Column)):
            if column.table and column.table.casefold() != table.casefold():
                names = self._columns.setdefault(column.table, [])
                names.extend([column.name] if column.name not in names else [])
                column.set("table", quote(column.table))
            else:
                column.set("table", quote(table))
            column.set("this", quote(column.name))
        return tree

    @property
    def joins(self) -> Sequence[exp.Join]:
        """The joins for all columns of other tables."""
        joins: dict[str, exp.Join] = {}
        for table in self._columns:
            for relation in self._find_path(table):
                target = relation.references.partition(".")[0]
                joins.setdefault(target.casefold(), self._join(relation))
        return [*joins.values()]

    def _find_path(self, target: str) -> Sequence[Relation]:
        """Return the relations that connect the metric's table with another one."""
        start = (self._metric.table or "").casefold()
        paths: deque[tuple[str, list[Relation]]] = deque([(start, [])])
        visited = {start}
        while paths:
            table, path = paths.popleft()
            if table == target.casefold():
                return path
            for relation in self._relations:
                end = relation.references.partition(".")[0].casefold()
                if relation.column.partition(".")[0].casefold() == table and end not in visited:
                    visited.add(end)
                    paths.append((end, [*path, relation]))
        raise ConfigurationFailed(
            f"The metric {self._name!r} reads {target!r}, but no relation leads there from "
            f"{self._metric.table!r}.",
            hint="Relations lead from many rows to one, so that no join repeats rows.",
        )

    def _join(self, relation: Relation) -> exp.Join:
        """Return a join with one row per key, even if the relation's target is not unique."""
        table, _, key = relation.references.partition(".")
        source, _, column = relation.column.partition(".")
        onward = [
            one.column.partition(".")[2]
            for one in self._relations
            if one.column.partition(".")[0].casefold() == table.casefold()
        ]
        needed = [name for it, names in self._columns.items() for name in names if it == table]
        columns = [it for it in dict.fromkeys([*needed, *onward]) if it != key]
        items = [exp.alias_(exp.AnyValue(this=exp.column(quote(it))), quote(it)) for it in columns]
        rows = exp.select(exp.column(quote(key)), *items).from_(exp.Table(this=quote(table)))
        rows = rows.group_by(exp.column(quote(key)))
        condition = exp.EQ(
            this=exp.column(quote(column), table=quote(source)),
            expression=exp.column(quote(key), table=quote(table)),
        )
        alias = exp.TableAlias(this=quote(table))
        return exp.Join(this=exp.Subquery(this=rows, alias=alias), side="LEFT", on=condition)

    def _own(self, column: str) -> exp.Expr:
        return exp.column(quote(column), table=quote(self._metric.table or ""))


def _convert(value: Any) -> exp.Expr:
    if value is None or isinstance(value, bool | int | float):
        return exp.convert(value)
    return exp.Literal.string(str(value).replace("\0", ""))
