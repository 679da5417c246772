"""The file format of metrics, `metric_catalog.yaml`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import sqlglot
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    create_model,
    model_validator,
)
from sqlglot import exp
from sqlglot.errors import SqlglotError

from copilot_runtime.config.yaml_model import list_keys, parse_yaml_model

SECTION = "metric_catalog"
_RELATIONS = "relations"
_DIALECT = "duckdb"
_FORBIDDEN = (exp.Query, exp.Table, exp.DDL, exp.Command, exp.Window, exp.Star)
"""Node types that a metric's expression must not contain; `COUNT(*)` is allowed."""


def parse_expression(text: str) -> exp.Expr:
    """Parse an expression. Raises `ValueError` if it is malformed or not allowed."""
    try:
        tree = sqlglot.parse_one(f"SELECT {text}", read=_DIALECT)
    except (SqlglotError, RecursionError, TypeError, AttributeError) as error:
        raise ValueError(f"{text!r} is no SQL expression") from error
    has_more = isinstance(tree, exp.Select) and any(
        value for name, value in tree.args.items() if name not in ("expressions", "kind")
    )
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or has_more:
        raise ValueError(f"{text!r} is not one SQL expression")
    value = tree.expressions[0]
    value = value.this if isinstance(value, exp.Alias) else value
    for node in value.walk():
        if isinstance(node, _FORBIDDEN) and not isinstance(node.parent, exp.Count):
            raise ValueError(f"{text!r} reads more than columns of its table")
    return value


def _check_aggregate(text: str) -> str:
    if parse_expression(text).find(exp.AggFunc) is None:
        raise ValueError(f"{text!r} does not aggregate: write for example AVG({text})")
    return text


def _check_condition(text: str) -> str:
    if parse_expression(text).find(exp.AggFunc) is not None:
        raise ValueError(f"{text!r} aggregates, which a filter of rows cannot")
    return text


def _read_dimensions(value: Any) -> Any:
    """Read a list of columns as a mapping of names to expressions."""
    if isinstance(value, list):
        return {str(item).rpartition(".")[2]: str(item) for item in value}
    return value


def _read_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Aggregate = Annotated[str, AfterValidator(_check_aggregate)]
Condition = Annotated[str, AfterValidator(_check_condition)]
Dimensions = Annotated[dict[Name, Condition], BeforeValidator(_read_dimensions)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Signals(BaseModel):
    """The storage layout of a metric's components."""

    model_config = ConfigDict(extra="allow", frozen=True)

    payload_kind: str = ""
    group_fields: Annotated[list[str], BeforeValidator(_read_list)] = []
    note: str = ""


class Ratio(_Section):
    """One aggregate divided by another; NULL if the divisor is 0."""

    numerator: Aggregate
    denominator: Aggregate


class MetricDefinition(_Section):
    """A metric: its meaning, and from `table` on, its computation."""

    description: str = ""
    category: str = ""
    score_range: Annotated[list[float] | None, BeforeValidator(lambda it: _read_range(it))] = None
    threshold: float | None = None
    unit: str = ""
    signals: Signals = Signals()
    table: Name | None = None
    sql: Aggregate | None = None
    ratio: Ratio | None = None
    filters: Annotated[list[Condition], BeforeValidator(_read_list)] = []
    """Conditions that all rows of the metric fulfil."""
    dimensions: Dimensions = {}
    """Columns for grouping and filters: its own, or `other_table.column` through a relation."""
    time: Name | None = None
    """The time column for grouping by period."""

    @model_validator(mode="after")
    def _check_sql(self) -> "MetricDefinition":
        if self.sql and self.ratio:
            raise ValueError("write 'sql' or 'ratio', not both")
        if (self.sql or self.ratio) and not self.table:
            raise ValueError("'table' is missing: the table that 'sql' reads")
        if (self.filters or self.dimensions or self.time) and not (self.sql or self.ratio):
            raise ValueError("'sql' is missing: how the metric is computed")
        return self


class Relation(_Section):
    """A foreign key: a column whose values refer to a unique column of another table."""

    column: Annotated[str, StringConstraints(pattern=r"^[^.\s]+\.[^.\s]+$")]
    """`table.column` of the many rows, such as `orders.customer_id`."""
    references: Annotated[str, StringConstraints(pattern=r"^[^.\s]+\.[^.\s]+$")]
    """`table.column` of the one row, such as `customers.id`."""


class CatalogFile(BaseModel):
    """A catalogue file: metrics by domain and name. Unknown sections are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    metric_catalog: dict[Name, dict[Name, MetricDefinition]] = {}
    relations: list[Relation] = []


def parse_catalog(text: str, source: str) -> CatalogFile:
    """Parse a catalogue file. Raises `ConfigurationFailed` with mistakes as `source:line: …`."""
    try:
        keys: Mapping[str, int] = list_keys(text)
    except Exception:  # the next parser reports its errors with their lines
        keys = {}
    is_whole = SECTION in keys or not set(keys) - {_RELATIONS} or "metric_definitions" in source
    if is_whole:
        return parse_yaml_model(CatalogFile, text, source)
    names = [name for name in keys if name != _RELATIONS]
    fields: dict[str, Any] = {
        f"domain_{at}": (dict[Name, MetricDefinition], Field(alias=name))
        for at, name in enumerate(names)
    }
    model = create_model("Domains", relations=(list[Relation], []), **fields)
    found = parse_yaml_model(model, text, source)
    domains = {name: getattr(found, f"domain_{at}") for at, name in enumerate(names)}
    return CatalogFile(metric_catalog=domains, relations=getattr(found, _RELATIONS))


def _read_range(value: Any) -> Any:
    """Parse a range in the notations `[0, 1]`, `{min: 0, max: 1}` and `0-1`."""
    if isinstance(value, dict):
        return [value.get("min", 0), value.get("max", 1)]
    if isinstance(value, str):
        parts = value.replace("..", "-").replace(" to ", "-").split("-")
        return [part.strip() for part in parts if part.strip()]
    return value


def canonicalize(tree: exp.Expr) -> str | None:
    """Return a query in canonical form, or `None` if it is not a plain SELECT.

    Aliases, quotes, the order of conditions and columns, ORDER BY and LIMIT are normalised away.
    Literals are kept: another value is another metric.
    """
    select = tree.copy()
    if not isinstance(select, exp.Select) or any(select.args.get(it) for it in _OTHERS):
        return None
    _drop_qualifiers(select)
    items = [it.this if isinstance(it, exp.Alias) else it for it in select.expressions]
    group = select.args.get("group")
    groups = _resolve_groups(group, select.expressions) if isinstance(group, exp.Group) else []
    where = select.args.get("where")
    conditions = _flatten(where.this) if isinstance(where, exp.Where) else []
    start: Any = select.args.get("from_") or select.args.get("from")
    parts = [
        sorted(_write(it) for it in items),
        [_write(start.this) if start is not None else ""],
        sorted(_write(it) for it in select.args.get("joins") or []),
        sorted({_write(it) for it in conditions}),
        sorted({_write(it) for it in groups}),
    ]
    return "\n".join("; ".join(part) for part in parts)


_OTHERS = (
    *("with", "with_", "distinct", "having", "qualify", "windows", "laterals", "sample", "offset"),
    "pivots",
)


def _drop_qualifiers(select: exp.Select) -> None:
    """Drop the table qualifiers of columns if the query has only one table."""
    if select.args.get("joins"):
        return
    for table in select.find_all(exp.Table):
        table.set("alias", None)
        table.set("db", None)
    for column in select.find_all(exp.Column):
        column.set("table", None)


def _resolve_groups(group: exp.Group, items: Sequence[exp.Expr]) -> Sequence[exp.Expr]:
    values = [it.this if isinstance(it, exp.Alias) else it for it in items]
    if group.args.get("all"):
        return [it for it in values if it.find(exp.AggFunc) is None]
    aliases = {it.alias.casefold(): it.this for it in items if isinstance(it, exp.Alias)}
    found: list[exp.Expr] = []
    for one in group.expressions:
        if isinstance(one, exp.Literal) and one.name.isdigit() and 0 < int(one.name) <= len(items):
            found.append(values[int(one.name) - 1])
        elif isinstance(one, exp.Column) and not one.table and one.name.casefold() in aliases:
            found.append(aliases[one.name.casefold()])
        else:
            found.append(one)
    return found


def _flatten(condition: exp.Expr) -> Sequence[exp.Expr]:
    if isinstance(condition, exp.Paren):
        return _flatten(condition.this)
    if isinstance(condition, exp.And):
        return [*_flatten(condition.this), *_flatten(condition.expression)]
    return [condition]


def _write(tree: exp.Expr) -> str:
    copy = tree.copy()
    for name in copy.find_all(exp.Identifier):
        name.set("this", name.name.casefold())
        name.set("quoted", False)
    for bracket in list(copy.find_all(exp.Paren)):
        if bracket is not copy and isinstance(bracket.this, exp.Column | exp.Literal | exp.Func):
            bracket.replace(bracket.this)
    if isinstance(copy, exp.Paren):
        copy = copy.this
    return copy.sql(dialect="duckdb", comments=False)
