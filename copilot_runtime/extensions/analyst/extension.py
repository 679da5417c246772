"""An agent that answers questions about data, and its tools for other agents and programs."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, cast

from copilot_runtime.app.extension import Contribution, Core, Extension, PrivateState
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.transports.transport import Services

_PACKAGES = ("duckdb", "plotly", "pytz", "rapidfuzz", "sqlglot", "sse_starlette", "vl_convert")
"""Required modules, which are located without being imported."""


_WORKERS_FILES = ".copilot/charts"
"""Folder that several workers share instead of charts and downloads in memory."""


class AnalystExtension(Extension):
    """Adds the analyst of the settings, and the parts that the program's analysts need."""

    name = "analyst"
    requires = ("frameworks", "generative_ui", "scenarios")

    def __init__(self) -> None:
        self._analysts: set[Any] = set()

    def build(self, core: Core) -> Contribution:
        settings = narrow_settings(core.settings)
        if settings.analyst.name:
            add_analyst(core)
        found = {name: one for name, one in core.agents.lasting.items() if _has_data(one)}
        if not found:
            return Contribution()
        self._analysts = {cast("Any", one).analyst for one in found.values()}
        from copilot_runtime.extensions.analyst.http.access import AnalystAccess
        from copilot_runtime.extensions.analyst.source import AnalystTools

        return Contribution(
            parts={AnalystAccess: AnalystAccess(core.agents.current)},
            sources=[AnalystTools(found, share=settings.analyst.share_tools)],
            endpoints=[_make_endpoint],
            page="/data",
            schema="copilot_runtime.extensions.analyst.graphql",
        )

    def place(self, path: str) -> None:
        for analyst in self._analysts:
            analyst.charts.path = analyst.downloads.results.path = path

    def list_private_state(self, settings: CoreSettings) -> Sequence[PrivateState]:
        section = narrow_settings(settings).analyst
        if not section.name or section.files or settings.workers > 1:
            return []
        text = (
            "Servers that share these threads in PostgreSQL have charts and downloads of their own."
        )
        return [PrivateState("charts", text, "Set analyst.files to s3://BUCKET/PREFIX.")]

    def list_worker_variables(self, settings: CoreSettings) -> Mapping[str, str]:
        section = narrow_settings(settings).analyst
        return {} if section.files else {"COPILOT_ANALYST_FILES": f"local:{_WORKERS_FILES}"}

    async def count_bytes(self, owner: str, *, is_prefix: bool = False) -> Mapping[str, int]:
        counts = [
            await asyncio.to_thread(analyst.engine.count_bytes, owner, is_prefix=is_prefix)
            for analyst in self._analysts
        ]
        return {"saved data": sum(counts)} if counts else {}


def add_analyst(core: Core) -> None:
    """Add an agent that answers questions about data, as the settings say.

    Raises `MissingPackage` without the extra `analyst`.
    """
    check_packages()
    from copilot_runtime.extensions.analyst.agent import AnalystAgent
    from copilot_runtime.extensions.analyst.analyst import Analyst

    settings = narrow_settings(core.settings)
    kind, _, path = settings.telemetry.store.partition(":")
    analyst = Analyst(
        settings.analyst,
        operators=settings.telemetry.operators,
        trace_file=path if kind == "sqlite" else "",
        telemetry=core.telemetry,
    )
    agent = AnalystAgent(analyst, core.adapter, load_secret=core.load_shared_secret)
    core.agents.add_agent(settings.analyst.name, agent)


def check_packages() -> None:
    """Raise `MissingPackage` if a required package is not installed."""
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise MissingPackage("The analyst", package, "analyst")


def _has_data(agent: Any) -> bool:
    return bool(getattr(agent, "has_data", False))


def _make_endpoint(services: Services) -> object:
    from copilot_runtime.extensions.analyst.http.endpoint import AnalystEndpoint

    return AnalystEndpoint(services)
