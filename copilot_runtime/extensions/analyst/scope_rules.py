"""The guard rules of each scope: its tables, with their row filters, and its functions."""

from collections.abc import Sequence
from typing import NamedTuple

from copilot_runtime.extensions.analyst.engine.datasets import Dataset, quote_name
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery, guard_sql
from copilot_runtime.extensions.analyst.sql.rules import (
    GuardRules,
    Scope,
    TableRule,
    list_safe_functions,
)
from copilot_runtime.extensions.analyst.sql.syntax_tree import list_functions
from copilot_runtime.extensions.analyst.sql.tables import RowFilters

_MOST_RULES = 256
"""Maximum number of scopes with cached rules."""


class _Entry(NamedTuple):
    """The rules of a scope."""

    state: object
    """The data sets for which they were built."""
    rules: GuardRules
    relations: dict[str, str]
    """Data set → the SQL of its rows that the scope may read."""


class ScopeRules:
    """Builds the rules of scopes, and caches them until the data sets change."""

    def __init__(self, engine: Engine, filters: RowFilters) -> None:
        self._engine = engine
        self._filters = filters
        self._entries: dict[str, _Entry] = {}
        self._gaps: dict[str, tuple[str, str | None]] = {}

    @property
    def is_open(self) -> bool:
        """`True` if every user may query all rows of the operator's data."""
        return not (self._filters.filters or any(it.for_operators for it in self._engine.sources))

    def build(self, scope: Scope) -> GuardRules:
        """Return the current rules of a scope."""
        return self._find(scope).rules

    def _find(self, scope: Scope) -> _Entry:
        engine = self._engine
        datasets = engine.list_datasets(scope)
        state = tuple((one.name, one.physical, one.version) for one in datasets)
        entry = self._entries.get(scope.key)
        if entry is not None and entry.state == state:
            return entry
        rules = GuardRules(
            tables={one.name: self._build_table(one) for one in datasets},
            functions=list_safe_functions(list_functions()),
            filter_tables={
                one.name: one.physical for one in engine.datasets.values() if not one.is_saved
            },
        )
        self._entries.pop(scope.key, None)
        self._entries[scope.key] = entry = _Entry(state, rules, {})
        while len(self._entries) > _MOST_RULES:
            del self._entries[next(iter(self._entries))]
        return entry

    def find_gap(self, dataset: Dataset) -> str | None:
        """Return why a data set is closed (its row filter is invalid), or `None` if it is open.

        A saved data set needs no filter, because its owner could read the rows. A data set for
        operators does not need the filter for `*`.
        """
        if dataset.is_saved or self._is_for_all_operators(dataset):
            return None
        return self._find_gap(dataset)

    def list_open(self) -> Sequence[str]:
        """Return the data sets without a row filter, if other data sets have one."""
        if not self._filters.filters:
            return []
        return [
            one.name
            for one in self._engine.datasets.values()
            if not (one.is_saved or one.for_operators)
            and self._filters.find(one.name, one.columns) is None
            and self._find_gap(one) is None
        ]

    def guard(self, sql: str, scope: Scope) -> GuardedQuery:
        """Guard SQL for a scope, and return the query. Raises `SqlRefused`."""
        return guard_sql(sql, self.build(scope), scope)

    def relate(self, dataset: Dataset, scope: Scope) -> str:
        """Return the SQL subquery for the rows of a data set that a scope may read."""
        entry = self._find(scope)
        if (relation := entry.relations.get(dataset.name)) is None:
            query = guard_sql(f"SELECT * FROM {quote_name(dataset.name)}", entry.rules, scope)
            relation = entry.relations[dataset.name] = f"({query.sql})"
        return relation

    def _build_table(self, dataset: Dataset) -> TableRule:
        condition = None
        if not dataset.is_saved and self._find_gap(dataset) is None:
            condition = self._filters.find(dataset.name, dataset.columns)
        elif self.find_gap(dataset) is not None:
            condition = "FALSE"
        return TableRule(physical=dataset.physical, columns=dataset.columns, row_filter=condition)

    def _is_for_all_operators(self, dataset: Dataset) -> bool:
        return dataset.for_operators and dataset.name.lower() not in self._filters.filters

    def _find_gap(self, dataset: Dataset) -> str | None:
        version, gap = self._gaps.get(dataset.name, ("", None))
        if version != dataset.version:
            gap = self._filters.find_gap(dataset.name, dataset.columns, dataset.first_types)
            gap = gap or self._find_lost_filter(dataset)
            self._gaps[dataset.name] = (dataset.version, gap)
        return gap

    def _find_lost_filter(self, dataset: Dataset) -> str | None:
        """Return why a table is closed: another one of its file or sheet has a row filter."""
        filters = self._filters.filters
        origin = next((it for it in dataset.origins if it.lower() in filters), None)
        if origin is None or dataset.name.lower() in filters:
            return None
        return f"It has no row filter, and the table {origin!r} of its file has one."
