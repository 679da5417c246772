"""Open all parts of a runtime in order, and close them in reverse order."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.api.hooks import call_quietly
from copilot_runtime.app.extension import Core, Extension
from copilot_runtime.app.maintenance import delete_old_threads, find_threads_state, warn_of_key
from copilot_runtime.base.outages import Outage, log_failures
from copilot_runtime.config.loader import list_unused_credentials
from copilot_runtime.security.loopback import LISTENER
from copilot_runtime.telemetry.genai import count_from_zero
from copilot_runtime.telemetry.logs import add_fallback_handler
from copilot_runtime.threads.store import ThreadsState
from copilot_runtime.transports.transport import Transport

logger = logging.getLogger(__name__)


class Lifecycle:
    """Opens and closes the parts of a runtime, and reports their health."""

    def __init__(
        self, core: Core, extensions: Sequence[Extension], transports: Sequence[Transport]
    ) -> None:
        self._core = core
        self._extensions = extensions
        self._transports = transports
        self._outage = Outage(logger, "The threads")

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None, None]:
        """Open all parts, and close them at the end."""
        settings = self._core.settings
        add_fallback_handler(settings.log_level, settings.log_format, settings.log_debug)
        if (listener := LISTENER.get()) is not None:
            self._core.guard.listen(listener)
        self._core.guard.warn_of_proxies()
        for credential in list_unused_credentials(settings):
            logger.warning("%s %s", *credential)
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._open()
            tasks += self._start_maintenance()
            for extension in self._phase("last"):
                await extension.open()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for extension in self._phase("last"):
                await call_quietly(extension.aclose)
            for transport in self._transports:
                await call_quietly(transport.aclose)
            await self.aclose()

    async def _open(self) -> None:
        for extension in self._phase("first"):
            await extension.open()
        self._core.conversations.open()
        await self._core.threads.open()
        for extension in self._phase("parts"):
            await extension.open()
        count_from_zero(self._core.telemetry, [DEFAULT_AGENT, *self._core.agents.lasting])
        for agent in self._core.agents.lasting.values():
            await agent.open()
        for transport in self._transports:
            await transport.open()

    def _phase(self, when: str) -> Sequence[Extension]:
        return [one for one in self._extensions if one.opens == when]

    def _start_maintenance(self) -> Sequence[asyncio.Task[None]]:
        core = self._core
        old = delete_old_threads(core.threads, core.settings.thread_retention, self._expire)
        return (
            asyncio.create_task(old, name="delete old threads"),
            asyncio.create_task(warn_of_key(core.adapter), name="check key"),
        )

    async def _expire(self, before: float) -> None:
        for extension in self._extensions:
            with log_failures(logger, "The extension %s kept old data", extension.name):
                await extension.expire(before)

    async def aclose(self) -> None:
        """Stop all runs, then close every part. A part that fails is only logged."""
        core, runtime = self._core, self._core.conversations.runtime
        await core.conversations.aclose()
        parts = (
            *(core.adapter, *core.agents.lasting.values(), *runtime.middleware),
            *(*runtime.stages, *runtime.sources, runtime.bus),
            *reversed(self._extensions),
        )
        for part in parts:
            await call_quietly(part.aclose)

    async def find_threads_state(self) -> ThreadsState:
        """Return the state of the thread store: reachable, read-only or unreachable."""
        return await find_threads_state(self._core.threads, self._outage)

    def describe_health(self) -> Mapping[str, Any]:
        """Return the fields of `/health/ready` that extensions add."""
        found: dict[str, Any] = {}
        for extension in self._extensions:
            with log_failures(logger, "The health of the extension %s is unknown", extension.name):
                found |= extension.describe_health()
        return found

    def find_failing_checks(self) -> Sequence[str]:
        """Return the distinct names of the failing parts."""
        core = self._core
        agents = core.agents.lasting.values()
        problems = [
            *core.adapter.find_failing_checks(),
            *(name for agent in agents for name in agent.find_failing_checks()),
        ]
        if core.guard.has_login:  # strangers learn no names of tools
            problems = [problem.partition(":")[0] for problem in problems]
        parts = [name for one in self._extensions for name in _find_failing_checks(one)]
        return [*parts, *dict.fromkeys(problems)]


def _find_failing_checks(extension: Extension) -> Sequence[str]:
    """Return the failing checks of an extension, or its name if they cannot be determined."""
    with log_failures(logger, "The checks of the extension %s failed", extension.name):
        found = extension.find_failing_checks()
        return [found] if isinstance(found, str) else [*map(str, found)]
    return [extension.name]
