"""The state that all questions of one runtime share: engine, permissions, memory and results."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from copilot_runtime.api.identity import OPERATE, Caller
from copilot_runtime.base.concurrency import call, retrieve_exception
from copilot_runtime.extensions.analyst.charts.image import ChartRenderer
from copilot_runtime.extensions.analyst.engine.datasets import Dataset, quote_name
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import Progress, read_source
from copilot_runtime.extensions.analyst.memory.entries import (
    find_lessons,
    render_compact,
    render_full,
)
from copilot_runtime.extensions.analyst.memory.memory import AnalystMemory, MemoryKey, MemoryStore
from copilot_runtime.extensions.analyst.prompt.context_folder import ContextFiles, ContextFolder
from copilot_runtime.extensions.analyst.prompt.layers import compose_system_prompt
from copilot_runtime.extensions.analyst.prompt.prepare import PreparedRequest, prepare_request
from copilot_runtime.extensions.analyst.prompt.schema_context import (
    SchemaExtras,
    build_schema_context,
)
from copilot_runtime.extensions.analyst.question import (
    Question,
    choose_dataset,
    is_safe,
    rank_datasets,
)
from copilot_runtime.extensions.analyst.result_storage import Downloads, build_chart_store
from copilot_runtime.extensions.analyst.scope_rules import ScopeRules
from copilot_runtime.extensions.analyst.semantic.catalog import MetricCatalog
from copilot_runtime.extensions.analyst.session import ResultCache, Services, Session, ThoughtStream
from copilot_runtime.extensions.analyst.settings import AnalystSettings
from copilot_runtime.extensions.analyst.spans import start_memory_span
from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery
from copilot_runtime.extensions.analyst.sql.rules import GuardRules, Scope
from copilot_runtime.extensions.analyst.sql.tables import RowFilters
from copilot_runtime.extensions.analyst.tools.call import TOOLS
from copilot_runtime.extensions.analyst.upkeep import Upkeep
from copilot_runtime.telemetry.span import NO_SPAN, Span
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, Telemetry

RowValues = Callable[[Caller], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Returns the values of the variables in row filters for a caller."""

_RETRY = 5.0
"""Minimum number of seconds before a question retries a failed load."""

_MOST_NAMES = 1_000

logger = logging.getLogger(__name__)


class Analyst:
    """The state shared by all questions: engine, row permissions, memory and stored results.

    Args:
        settings: The data sources and limits.
        row_values: Returns values of the variables in row filters, beside `$user`.
        operators: Users who may query the traces of runs.
        trace_file: The database file of the traces, for the source `traces`.
        telemetry: Records spans of questions.
    """

    def __init__(
        self,
        settings: AnalystSettings,
        *,
        row_values: RowValues | None = None,
        operators: Collection[str] = (),
        trace_file: str = "",
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self.settings = settings
        self.telemetry = telemetry
        self.progress: dict[str, Progress] = {}
        """Progress of the running copies, by source name."""
        self._row_values = row_values
        self._operators = frozenset(operators)
        filters = RowFilters.parse(settings.row_filters)
        self.engine: Engine = Engine(
            EngineOptions(
                folder=Path(settings.store),
                memory_limit=settings.memory_limit,
                threads=settings.threads,
                query_timeout=settings.query_timeout,
                concurrency=settings.concurrency,
            ),
            [read_source(one, trace_file) for one in settings.data],
            relate=lambda dataset, scope: self.rules.relate(dataset, scope),
            is_closed=lambda dataset: self.rules.find_gap(dataset) is not None,
        )
        self.rules: ScopeRules = ScopeRules(self.engine, filters)
        self.contexts = ContextFolder(settings.folder)
        self.memory = AnalystMemory(
            MemoryStore(Path(settings.store)), is_enabled=settings.memory_enabled
        )
        self.charts = build_chart_store(settings.files)
        self.renderer = ChartRenderer()
        self.downloads = Downloads(
            self.engine, self.guard_sql, settings.files, seconds=settings.download_ttl
        )
        self.contexts.files = ContextFiles(catalog=MetricCatalog.load(Path(settings.folder)))
        self.upkeep = Upkeep(self.engine, self.rules, self.contexts, interval=settings.refresh)
        self.services = Services(
            engine=self.engine,
            build_rules=self.build_rules,
            downloads=self.downloads,
            charts=self.charts,
            catalog=self.contexts.files.catalog,
            recall_memory=self.recall_memory if settings.memory_enabled else None,
            describe_metrics=self.describe_metrics,
            find_synonyms=self.find_synonyms,
            allow_save=settings.allow_save,
            approve_saves=settings.approve_saves,
            approval_rows=settings.approval_rows,
            query_timeout=settings.query_timeout,
        )
        self._cache = ResultCache()
        self._opening: asyncio.Task[None] | None = None
        self._failed_at = 0.0

    @property
    def tool_timeout(self) -> float:
        """Timeout of a tool call in seconds: a tool may run several queries."""
        return 4 * self.settings.query_timeout

    @property
    def active_tools(self) -> Sequence[str]:
        """The names of the tools that the settings enable."""
        hidden = set() if self.settings.allow_save else {"save_as_dataset"}
        hidden |= set() if self.settings.memory_enabled else {"recall_memory"}
        return [name for name in TOOLS if name not in hidden]

    @property
    def is_open(self) -> bool:
        """`True` if the data is loaded."""
        task = self._opening
        return task is not None and task.done() and task.exception() is None

    @property
    def is_loading(self) -> bool:
        """`True` if the data is being loaded for the first time."""
        return self._opening is not None and not self._opening.done()

    def start(self) -> None:
        """Start loading the data, unless it is loaded or being loaded."""
        task = self._opening
        if task is not None and (not task.done() or task.exception() is None):
            if task.done():
                self.upkeep.retry()
            return
        if task is not None and monotonic() - self._failed_at < _RETRY:
            return
        self._opening = asyncio.create_task(
            self._open(), name="analyst: load data", context=Context()
        )
        self._opening.add_done_callback(retrieve_exception)

    async def open(self) -> None:
        """Load the data and wait for it. Raises `ConfigurationFailed` or a source's error."""
        self.start()
        assert self._opening is not None
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        try:
            await self.engine.open(self._record_progress)
            self.upkeep.log_problems()
            await self.contexts.load(self._check_sql)
            self.upkeep.start()
        except Exception as error:
            self._failed_at = monotonic()
            self.progress.clear()
            logger.error("The analyst cannot load its data: %s", error)  # named
            raise

    async def aclose(self) -> None:
        """Stop all queries, and close everything."""
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening])
        self._opening = None
        await self.upkeep.aclose()
        await self.memory.aclose()
        await self.engine.aclose()
        await self.charts.aclose()
        await self.downloads.aclose()

    def find_failing_checks(self) -> Sequence[str]:
        """Return `data` if loading failed, otherwise `data:NAME` for each source with a problem."""
        has_failed = self._opening is not None and self._opening.done() and not self.is_open
        return (
            ["data"] if has_failed else [f"data:{one.name}" for one in self.upkeep.list_problems()]
        )

    def _record_progress(self, progress: Progress) -> None:
        self.progress[progress.source] = progress
        if progress.is_done:
            self.progress.pop(progress.source)

    async def build_scope(self, caller: Caller, agent_name: str | None = None) -> Scope:
        """Return the scope of a caller, from their identity and never from request content."""
        await self.engine.follow()  # another process may have written data sets
        values = {} if self._row_values is None else await call(self._row_values, caller)
        return Scope(
            user=caller.user,
            values=values,
            agent_name=agent_name,
            is_operator=caller.identity.allows(OPERATE) or caller.user in self._operators,
        )

    def build_rules(self, scope: Scope) -> GuardRules:
        """Return the tables, row filters and functions that SQL of a scope may use."""
        return self.rules.build(scope)

    def guard_sql(self, sql: str, scope: Scope) -> GuardedQuery:
        """Guard SQL for a scope, and return the query. Raises `SqlRefused`."""
        return self.rules.guard(sql, scope)

    async def _check_sql(self, sql: str) -> None:
        """Raise `CopilotError` if an operator's SQL does not fit the data."""
        await self.engine.explain(self.guard_sql(sql, Scope(is_operator=True)))

    async def prepare(self, question: Question, message: str) -> PreparedRequest:
        """Collect skills, examples and history for a question, without querying the data."""
        files = await self.contexts.refresh()
        settings = self.settings
        return prepare_request(
            message,
            question.history,
            skills=files.skills.values(),
            examples=files.examples,
            agent_name=question.agent_name,
            dataset_label=question.dataset_label,
            data_context=question.data_context,
            history_limit=settings.history_limit,
            history_unit=settings.history_unit,
            max_skills=settings.max_skills,
            max_examples=settings.sql_examples,
            is_safe=is_safe,
        )

    async def open_session(
        self,
        scope: Scope,
        *,
        question: Question | None = None,
        message: str = "",
        thoughts: ThoughtStream | None = None,
        span: Span = NO_SPAN,
    ) -> Session:
        """Wait until the data is loaded, and return the session for the tools of a question."""
        thoughts = thoughts or ThoughtStream()
        await self._wait(thoughts)
        catalog = (await self.contexts.refresh()).catalog
        if catalog is not self.services.catalog:
            self.services = replace(self.services, catalog=catalog)
            self._cache = ResultCache()
        label = question.dataset_label if question else ""
        dataset = choose_dataset(
            self.engine.list_datasets(scope), label, message, self.find_synonyms
        )
        return Session(
            services=self.services,
            scope=scope,
            dataset="" if dataset is None else dataset.name,
            question=message,
            thoughts=thoughts,
            span=span,
            cache=self._cache,
            last_sql=question.last_sql if question else None,
        )

    async def _wait(self, thoughts: ThoughtStream) -> None:
        self.start()
        task = self._opening
        assert task is not None
        while not task.done():
            await asyncio.wait([task], timeout=1.0)
            for one in [] if task.done() else self.progress.values():
                rows = "" if one.rows is None else f": {one.rows:,} rows so far"
                thoughts.emit("observation", f"Loading {one.source}{rows}.", node_name="load")
        await asyncio.shield(task)

    async def write_instructions(
        self, session: Session, question: Question, prepared: PreparedRequest, instructions: str
    ) -> str:
        """Return the system prompt for a question: static layers first, then the data."""
        return compose_system_prompt(
            self.active_tools,
            schema=await self.describe_schema(session, question, prepared),
            context=prepared.context_snippets,
            skills=prepared.skills_injection,
            instructions=instructions,
        )

    async def describe_schema(
        self, session: Session, question: Question, prepared: PreparedRequest
    ) -> str:
        """Render the schema of a question's data for the model, within the caller's scope."""
        files = self.contexts.files
        if not session.dataset:
            return "<schema>\nThere is no data that this person may see.\n</schema>"
        dataset = session.find_dataset()
        table = await self.engine.describe(dataset.name, session.scope)
        about = f"{session.question} {question.last_sql or ''}"
        others = [one for one in session.list_datasets() if one.name != dataset.name]
        tables = [dataset, *rank_datasets(others, about, self.find_synonyms)]
        notes = (files.catalog.render_metrics(one.columns, one.name) for one in tables)
        remembered = await self.memory.recall(self.build_memory_key(dataset, session.scope))
        return build_schema_context(
            table,
            SchemaExtras(
                label=question.dataset_label,
                description=dataset.description,
                totals=dataset.totals,
                others=tables[1:],
                hints=files.hints,
                metric_notes="\n".join(dict.fromkeys("\n".join(filter(None, notes)).splitlines())),
                memory=render_compact(remembered),
                agent_name=question.agent_name,
                last_sql=question.last_sql or "",
                examples=prepared.sql_examples_injection,
                user=session.scope.user,
                today=datetime.now(UTC).date().isoformat(),
            ),
        )

    async def recall_memory(self, dataset: Dataset, scope: Scope) -> str:
        """Return the memory of a data set for a scope, as text."""
        key = self.build_memory_key(dataset, scope)
        return render_full(await self.memory.recall(key), dataset.name)

    def describe_metrics(self, dataset: Dataset, metric: str | None) -> str:
        """Return the metrics of a data set, or one of them, as text."""
        catalog = self.contexts.files.catalog
        return catalog.describe_metrics(dataset.columns, metric, dataset.name)

    def find_synonyms(self, table: str) -> Mapping[str, str]:
        """Return the operator's synonyms for the columns of a table: synonym to column."""
        synonyms = self.contexts.files.hints.list_synonyms(table)
        return {word.lower(): column for column, words in synonyms.items() for word in words}

    def find_dataset(self, name: str, scope: Scope) -> Dataset:
        """Return a data set that a scope may see. Raises `NotFound`."""
        return Session(services=self.services, scope=scope).find_dataset(name)

    async def count_rows(self, scope: Scope) -> Mapping[str, int]:
        """Return the number of rows of each data set that a scope may see."""
        rules = self.build_rules(scope)
        counts: dict[str, int] = {}
        for one in self.engine.list_datasets(scope):
            rule = rules.tables[one.name]
            if rule.row_filter is None and scope.agent_name is None:
                counts[one.name] = one.row_count
            else:
                counts[one.name] = (await self.engine.describe(one.name, scope)).row_count
        return counts

    async def list_agent_names(self, scope: Scope) -> Sequence[str] | None:
        """Return the agents whose rows a caller may see; `None` if no table has such rows."""
        await self.open()
        rules = self.build_rules(every := replace(scope, agent_name=None))
        tables = [name for name, rule in rules.tables.items() if rule.has_column("source_name")]
        if not tables:
            return None
        names: set[str] = set()
        for table in tables:
            sql = f"SELECT DISTINCT source_name FROM {quote_name(table)}"
            found = await self.engine.run(self.guard_sql(sql, every), limit=_MOST_NAMES)
            names |= {str(row[0]) for row in found.rows if row[0] is not None}
        return sorted(names)

    def build_memory_key(self, dataset: Dataset, scope: Scope) -> MemoryKey:
        """Return the key under which memory of a data set is stored for a scope."""
        return MemoryKey(
            table=dataset.name,
            fingerprint=dataset.fingerprint,
            agent=scope.agent_name,
            owner=scope.owner,
        )

    def remember(self, session: Session, request: Span) -> None:
        """Record an answered question in memory, in the background."""
        if not (session.sql_executed and self.memory.is_enabled):
            return
        for dataset, turn in find_lessons(session):
            key = self.build_memory_key(dataset, session.scope)
            span = start_memory_span(self.telemetry, request, dataset.name)
            self.memory.start_recording(key, turn, span)
