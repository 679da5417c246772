"""The operator's hints on tables and columns: meanings and synonyms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints

from copilot_runtime.config.yaml_model import parse_yaml_model
from copilot_runtime.extensions.analyst.prompt.untrusted import quote_line

MOST_DESCRIPTION = 200
"""Maximum length of a description or a query hint, in characters."""

MOST_MEANINGS = 6
"""Maximum number of described values; for values without a meaning, `MOST_VALUES` applies."""
MOST_VALUES = 8

_MOST_MEANING = 60
_MOST_SYNONYMS = 20


def _read_texts(value: Any) -> Any:
    """Accept a single text as a list, and convert other YAML scalars to text."""
    if isinstance(value, list):
        return [str(item) if isinstance(item, int | float) else item for item in value]
    return [value] if isinstance(value, str) else value


def _read_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): "" if item is None else str(item) for key, item in value.items()}
    if isinstance(value, list):
        return [str(item) for item in value]
    return value


def _read_metrics(value: Any) -> Any:
    if isinstance(value, list):
        return [{"name": item} if isinstance(item, str) else item for item in value]
    return value


Texts = Annotated[list[str], BeforeValidator(_read_texts)]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class ColumnHint(BaseModel):
    """A hint about a column."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    description: str = ""
    values: Annotated[dict[str, str] | list[str], BeforeValidator(_read_values)] = []
    """The meanings of values, or the list of possible values."""
    query_hint: str = ""
    synonyms: Texts = []
    """Other words for the column; they are also used to repair wrong names in SQL."""


class MetricHint(BaseModel):
    """A hint about a metric whose columns are called `METRIC__SIGNAL`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    description: str = ""
    signals: list[ColumnHint] = []

    def list_columns(self) -> Sequence[ColumnHint]:
        """Return the hints about its columns, by full column name."""
        return [
            hint.model_copy(update={"name": f"{self.name}__{hint.name}"}) for hint in self.signals
        ]

    def describe(self) -> str:
        """Return the hint as a line."""
        return f"{self.name}: {self.description}" if self.description else self.name


class TableHint(BaseModel):
    """A hint about a table. The name `*` applies to every table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    description: str = ""
    query_hint: str = ""
    synonyms: Texts = []
    columns: list[ColumnHint] = []
    metrics: Annotated[list[MetricHint], BeforeValidator(_read_metrics)] = []
    """Metrics with their columns, or sentences about metrics."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tables: list[TableHint] = []
    agent_context: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaHints:
    """All hints of a file. Names are case-insensitive."""

    tables: Sequence[TableHint] = ()
    agent_context: Mapping[str, str] = field(default_factory=dict[str, str])
    """Background on agents whose rows are queried, by agent name."""

    def find_columns(self, table: str) -> Mapping[str, ColumnHint]:
        """Return the hints about the columns of a table, by lower-case name."""
        tables = self._list_tables(table)
        signals = [
            hint for one in tables for metric in one.metrics for hint in metric.list_columns()
        ]
        columns = [hint for one in tables for hint in one.columns]
        return {hint.name.lower(): hint for hint in (*signals, *columns)}

    def list_synonyms(self, table: str) -> Mapping[str, Sequence[str]]:
        """Return the synonyms of a table's columns, by column name."""
        return {
            hint.name: hint.synonyms[:_MOST_SYNONYMS]
            for hint in self.find_columns(table).values()
            if hint.synonyms
        }

    def render(self, table: str, columns: Sequence[str]) -> str:
        """Return the hints about a table and its existing columns, one line each."""
        lines: list[str] = []
        for one in self._list_tables(table):
            about = " ".join(part for part in (one.description, one.query_hint) if part)
            if about:
                lines.append(f"- {quote_line(about, MOST_DESCRIPTION)}")
            if one.synonyms:
                lines.append(f"- Also called: {_join(one.synonyms[:MOST_VALUES])}")
            metrics = [quote_line(item.describe(), MOST_DESCRIPTION) for item in one.metrics]
            lines += [f"- Metric: {text}" for text in metrics]
        hints = self.find_columns(table)
        for column in columns:
            if (hint := hints.get(column.lower())) and (text := _describe(hint)):
                lines.append(f"- {quote_line(column)}: {text}")
        return "\n".join(lines)

    def render_agent(self, agent_name: str | None) -> str:
        """Return the background on an agent, as one line."""
        text = self.agent_context.get(agent_name or "", "")
        return quote_line(text, 2 * MOST_DESCRIPTION)

    def _list_tables(self, table: str) -> Sequence[TableHint]:
        """Return the hints for every table, followed by those for this one."""
        general = [one for one in self.tables if one.name == "*"]
        return [*general, *(one for one in self.tables if one.name.lower() == table.lower())]


def parse_hints(text: str, source: str) -> SchemaHints:
    """Return the hints of a file. Raises `ConfigurationFailed` with the line of each mistake."""
    file = parse_yaml_model(_File, text.removeprefix("\ufeff"), source)
    return SchemaHints(tables=file.tables, agent_context=file.agent_context)


def _describe(hint: ColumnHint) -> str:
    parts = [quote_line(hint.description, MOST_DESCRIPTION)]
    if isinstance(hint.values, dict):
        parts += [
            f"{quote_line(value)} = {quote_line(meaning, _MOST_MEANING)}"
            for value, meaning in [*hint.values.items()][:MOST_MEANINGS]
        ]
        more = len(hint.values) - MOST_MEANINGS
    else:
        if hint.values:
            parts.append(f"values: {_join(hint.values[:MOST_VALUES])}")
        more = len(hint.values) - MOST_VALUES
    if more > 0:
        parts.append(f"+{more} more values")
    parts.append(quote_line(hint.query_hint, MOST_DESCRIPTION))
    if hint.synonyms:
        parts.append(f"also called {_join(hint.synonyms[:MOST_VALUES])}")
    return "; ".join(part for part in parts if part)


def _join(texts: Sequence[str]) -> str:
    return ", ".join(quote_line(text) for text in texts)
