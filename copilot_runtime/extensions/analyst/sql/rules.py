"""What one person's SQL may read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from copilot_runtime.extensions.analyst.results import Column


@dataclass(frozen=True, kw_only=True)
class TableRule:
    """A table that may be read: `physical` is its qualified, quoted name in the engine."""

    physical: str
    columns: Sequence[Column] = ()
    row_filter: str | None = None
    """The operator's SQL condition with `$variables`; None lets every row be read."""

    def has_column(self, name: str) -> bool:
        """Return whether there is a column of this name, in whatever case."""
        return any(column.name.lower() == name for column in self.columns)


@dataclass(frozen=True, kw_only=True)
class GuardRules:
    """The tables and functions of one scope, and how large its SQL may be."""

    tables: Mapping[str, TableRule]
    functions: frozenset[str]
    """Lower-case names, as `list_safe_functions` filters those of the engine."""
    filter_tables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Physical names of tables that only row filters may read."""
    max_chars: int = 20_000
    max_depth: int = 100
    max_nodes: int = 6_000

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Return each table's name by its name in lower case: SQL does not tell cases apart."""
        return {name.lower(): name for name in self.tables}
