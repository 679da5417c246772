"""The operator's metrics: for prompts, for tools, and to recognise trusted SQL."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlglot import exp

from copilot_runtime.base.errors import ConfigurationFailed, UnknownName
from copilot_runtime.config.file_watcher import read_text
from copilot_runtime.extensions.analyst.prompt.untrusted import quote_line
from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.semantic.compile import (
    GRAINS,
    CompiledMetric,
    DimensionFilter,
    Grain,
    compile_metric,
)
from copilot_runtime.extensions.analyst.semantic.definition import (
    CatalogFile,
    MetricDefinition,
    Relation,
    canonicalize,
    parse_catalog,
    parse_expression,
)

FILES = (
    *("metric_catalog.yaml", "metric_catalog.yml"),
    *("metric_definitions.yaml", "metric_definitions.yml"),
)
"""Catalogue files in the operator's folder; all existing ones are merged."""

MOST_CHARACTERS = 3_000
"""Maximum length of all metrics in a prompt, in characters."""
MOST_DESCRIPTION = 120
"""Maximum length of a description in a prompt, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric with its name."""

    name: str
    domain: str
    definition: MetricDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleMetric:
    """A metric that no longer fits the data, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class MetricCatalog:
    """All metrics. Names are case-insensitive."""

    metrics: Mapping[str, Metric] = field(default_factory=dict[str, Metric])
    relations: Sequence[Relation] = ()

    @classmethod
    def load(cls, folder: Path) -> "MetricCatalog":
        """Read the catalogue files of a folder; all of them are optional.

        Raises `ConfigurationFailed` with all mistakes, each as `file:line: …`.
        """
        files: list[tuple[str, CatalogFile]] = []
        problems: list[str] = []
        for path in (folder / name for name in FILES):
            if not path.is_file():
                continue
            try:
                files.append((str(path), parse_catalog(read_text(path), str(path))))
            except ConfigurationFailed as error:
                problems.append(error.message)
        if problems:
            raise ConfigurationFailed("\n".join(problems))
        return cls.join(files)

    @classmethod
    def parse(cls, text: str, source: str = "metric_catalog.yaml") -> "MetricCatalog":
        """Parse the text of a catalogue file."""
        return cls.join([(source, parse_catalog(text, source))])

    @classmethod
    def join(cls, files: Sequence[tuple[str, CatalogFile]]) -> "MetricCatalog":
        """Merge the metrics of files. Raises `ConfigurationFailed` for a duplicate."""
        metrics: dict[str, Metric] = {}
        for source, file in files:
            for domain, group in file.metric_catalog.items():
                for name, definition in group.items():
                    if name.casefold() in metrics:
                        raise ConfigurationFailed(f"{source}: the metric {name!r} is there twice.")
                    metric = Metric(name=name, domain=domain, definition=definition)
                    metrics[name.casefold()] = metric
        relations = [relation for _, file in files for relation in file.relations]
        return cls(metrics=metrics, relations=relations)

    def __len__(self) -> int:
        return len(self.metrics)

    def find(self, name: str) -> Metric:
        """Return a metric by its name. Raises `UnknownName`."""
        metric = self.metrics.get(name.casefold())
        if metric is None:
            raise UnknownName("metric", name, [one.name for one in self.metrics.values()])
        return metric

    def compile(
        self,
        name: str,
        *,
        group_by: Sequence[str] = (),
        filters: Sequence[DimensionFilter] = (),
        grain: Grain | None = None,
    ) -> CompiledMetric:
        """Return a metric as a query; see `compile_metric`."""
        metric = self.find(name)
        return compile_metric(
            metric.name,
            metric.definition,
            relations=self.relations,
            group_by=group_by,
            filters=filters,
            grain=grain,
        )

    def list_stale(self, tables: Mapping[str, Sequence[Column]]) -> Sequence[StaleMetric]:
        """Return the metrics that read a table or a column which no longer exists."""
        return [
            StaleMetric(name=metric.name, reason=reason)
            for metric in self.metrics.values()
            if (reason := self._find_loss(metric, tables)) is not None
        ]

    def list_metrics(self, columns: Sequence[Column], table: str | None = None) -> Sequence[Metric]:
        """Return the metrics of a table: columns named after them, or SQL over its columns."""
        names = {column.name.casefold() for column in columns}
        return [
            metric
            for metric in self.metrics.values()
            if _is_present(metric, names) and _is_of(metric, table)
        ]

    def render_metrics(self, columns: Sequence[Column], table: str | None = None) -> str:
        """Return the metrics of a table for a prompt: one line each, at most 3,000 characters."""
        lines: list[str] = []
        size = 0
        for metric in self.list_metrics(columns, table):
            line = f"- {_describe(metric, MOST_DESCRIPTION)}"
            size += len(line) + 1
            if size > MOST_CHARACTERS:
                break
            lines.append(line)
        return "\n".join(lines)

    def describe_metrics(
        self, columns: Sequence[Column], name: str | None = None, table: str | None = None
    ) -> str:
        """Describe the metrics of a table, or one of them, in full."""
        found = self.list_metrics(columns, table)
        if name:
            found = [one for one in found if one.name.casefold() == name.casefold()]
        return "\n\n".join("\n".join(_describe_whole(metric)) for metric in found)

    def match(self, tree: exp.Expr) -> Sequence[str]:
        """Return the metrics that a query computes exactly as defined, so that it can be trusted.

        The query may be grouped and filtered by any of the metric's dimensions. The number of rows
        of a table is no metric of anybody's: it needs no definition.
        """
        canonical = canonicalize(tree)
        if canonical is None or not isinstance(tree, exp.Select):
            return []
        return [
            metric.name
            for metric in self.metrics.values()
            if metric.definition.table
            and not _is_row_count(metric.definition)
            and self._equals(metric, tree, canonical)
        ]

    def match_values(self, tree: exp.Expr) -> Sequence[str]:
        """Return the metrics whose value a query with joins computes, without a proof of trust."""
        if not isinstance(tree, exp.Select) or not tree.args.get("joins"):
            return []
        tables = {table.name.casefold() for table in tree.find_all(exp.Table)}
        values = {_strip(item.unalias()) for item in tree.expressions}
        where = tree.args.get("where")
        conditions = {_strip(it) for it in _conditions(where)} if where else set[str]()
        found: list[str] = []
        for metric in self.metrics.values():
            definition = metric.definition
            value = parse_expression(_write_value(definition)) if definition.table else None
            if value is None or (definition.table or "").casefold() not in tables:
                continue
            filters = {_strip(parse_expression(it)) for it in definition.filters}
            if value.find(exp.Column) and _strip(value) in values and filters <= conditions:
                found.append(metric.name)
        return found

    def _equals(self, metric: Metric, tree: exp.Select, canonical: str) -> bool:
        definition = metric.definition
        dimensions = list(definition.dimensions)
        try:
            plain = self.compile(metric.name).tree
        except ConfigurationFailed:
            return False
        for groups, grain in _list_groupings(tree, definition):
            try:
                compiled = self.compile(metric.name, group_by=groups, grain=grain).tree
            except ConfigurationFailed:
                continue
            extra = _list_extra(tree, compiled, definition, dimensions)
            if extra is None:
                continue
            whole = compiled.where(*extra) if extra else compiled
            if canonicalize(whole) == canonical:
                return True
        return canonicalize(plain) == canonical

    def _find_loss(self, metric: Metric, tables: Mapping[str, Sequence[Column]]) -> str | None:
        columns_by_table = {
            name.casefold(): {column.name.casefold() for column in columns}
            for name, columns in tables.items()
        }
        definition = metric.definition
        if definition.table is None:
            return None
        for table, column in _list_reads(definition):
            if table.casefold() not in columns_by_table:
                return f"there is no table {table!r}"
            if column.casefold() not in columns_by_table[table.casefold()]:
                return f"{table!r} has no column {column!r}"
        return None


def _list_reads(definition: MetricDefinition) -> Iterator[tuple[str, str]]:
    """Yield table and name of each column that a metric reads."""
    table = definition.table or ""
    texts = [definition.sql] if definition.sql else []
    if definition.ratio is not None:
        texts += [definition.ratio.numerator, definition.ratio.denominator]
    for text in [*texts, *definition.filters, *definition.dimensions.values()]:
        for column in parse_expression(text).find_all(exp.Column):
            yield column.table or table, column.name
    if definition.time:
        yield table, definition.time


def _is_present(metric: Metric, names: set[str]) -> bool:
    definition = metric.definition
    if definition.table is None:
        return metric.name.casefold() in names
    table = definition.table.casefold()
    return all(
        column.casefold() in names
        for owner, column in _list_reads(definition)
        if owner.casefold() == table
    )


def _is_of(metric: Metric, table: str | None) -> bool:
    own = metric.definition.table
    return table is None or own is None or own.casefold() == table.casefold()


def _describe(metric: Metric, most: int) -> str:
    definition = metric.definition
    parts = [f"{quote_line(metric.name, most)} ({quote_line(metric.domain, 40)})"]
    if definition.description:
        parts.append(quote_line(definition.description, most))
    if definition.score_range:
        parts.append(f"range {' to '.join(f'{it:g}' for it in definition.score_range)}")
    if definition.threshold is not None:
        parts.append(f"threshold {definition.threshold:g}")
    if definition.table:
        parts.append(f"SQL {_write_value(definition)} FROM {quote_line(definition.table, most)}")
        if definition.filters:
            parts.append(f"WHERE {' AND '.join(quote_line(it, most) for it in definition.filters)}")
    return ": ".join([parts[0], "; ".join(parts[1:])]) if parts[1:] else parts[0]


def _write_value(definition: MetricDefinition) -> str:
    ratio = definition.ratio
    if ratio is not None:
        return f"({ratio.numerator}) / NULLIF({ratio.denominator}, 0)"
    return definition.sql or ""


def _is_row_count(definition: MetricDefinition) -> bool:
    value = _write_value(definition)
    return not (definition.filters or not value or parse_expression(value).find(exp.Column))


def _describe_whole(metric: Metric) -> Iterator[str]:
    definition = metric.definition
    yield _describe(metric, 1_000)
    if definition.category:
        yield f"  category: {definition.category}"
    if definition.dimensions:
        yield f"  dimensions: {', '.join(definition.dimensions)}"
    if definition.time:
        yield f"  time: {definition.time}"
    signals = definition.signals
    if signals.payload_kind:
        yield f"  payload: {signals.payload_kind}"
    if signals.group_fields:
        yield f"  grouped by: {', '.join(signals.group_fields)}"
    if signals.note:
        yield f"  note: {signals.note}"


def _list_groupings(
    tree: exp.Select, definition: MetricDefinition
) -> Iterator[tuple[Sequence[str], Grain | None]]:
    """Yield the dimensions and the period by which a query may be grouped."""
    items = [it.this if isinstance(it, exp.Alias) else it for it in tree.expressions]
    plain = [it for it in items if it.find(exp.AggFunc) is None]
    grain: Grain | None = None
    groups: list[str] = []
    for item in plain:
        if isinstance(item, exp.TimestampTrunc | exp.DateTrunc):
            unit = str(item.args.get("unit") or "").strip("'").casefold()
            grain = next((one for one in GRAINS if one == unit), None)
        else:
            text = _strip(item)
            groups += [
                name
                for name, sql in definition.dimensions.items()
                if _strip(parse_expression(sql)) == text
            ]
    if len(groups) + (grain is not None) == len(plain):
        yield groups, grain


def _list_extra(
    tree: exp.Select,
    compiled: exp.Select,
    definition: MetricDefinition,
    dimensions: Sequence[str],
) -> Sequence[exp.Expr] | None:
    """Return a query's additional conditions; `None` if one is not on a dimension."""
    where = tree.args.get("where")
    own = compiled.args.get("where")
    if not isinstance(where, exp.Where):
        return []
    metric_conditions = (
        {_strip(it) for it in _conditions(own)} if isinstance(own, exp.Where) else set[str]()
    )
    allowed = {
        column.name.casefold()
        for name in dimensions
        for column in parse_expression(definition.dimensions[name]).find_all(exp.Column)
    }
    allowed |= {definition.time.casefold()} if definition.time else set[str]()
    extra = [it for it in _conditions(where) if _strip(it) not in metric_conditions]
    for condition in extra:
        columns = {column.name.casefold() for column in condition.find_all(exp.Column)}
        if not columns or columns - allowed or condition.find(exp.Query) is not None:
            return None
    return [it.copy() for it in extra]


def _conditions(where: exp.Where) -> Sequence[exp.Expr]:
    condition = where.this
    return [*condition.flatten()] if isinstance(condition, exp.And) else [condition]


def _strip(tree: exp.Expr) -> str:
    """Return an expression without tables and quotes, in lower case except for texts."""
    copy = tree.copy()
    for column in [*copy.find_all(exp.Column)]:
        column.set("table", None)
        column.set("this", exp.to_identifier(column.name.casefold()))
    return copy.sql(dialect="duckdb", comments=False)
