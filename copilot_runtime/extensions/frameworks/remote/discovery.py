"""Fetches and caches the catalog of a remote endpoint: its actions and agents.

An endpoint may offer different things to different callers. So the cache key is everything that the
request contains: headers, properties and the URL of the page.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from copilot_runtime.api.identity import Caller
from copilot_runtime.base.errors import (
    RUN_FAILED,
    ApiNotFound,
    AuthenticationFailed,
    CopilotError,
    NetworkError,
)
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.frameworks.remote.catalog import Catalog, parse_catalog
from copilot_runtime.extensions.frameworks.remote.link import INFO, Link, is_success

logger = logging.getLogger(__name__)

_MAX_ENTRIES = 256
_HELP = ApiNotFound.help_url


@dataclass(slots=True)
class _Entry:
    """One cached catalog, or the failure in place of it.

    `caller_key` is the cache key without the URL of the page. `expires_at` is a monotonic time.
    """

    caller_key: object
    catalog: Catalog = field(default_factory=Catalog)
    is_valid: bool = False
    expires_at: float = 0.0
    task: "asyncio.Task[None] | None" = None


class Discovery:
    """Caches a catalog for `ttl` seconds, and a failure for `pause` seconds.

    A request takes at most `patience` seconds. While an endpoint is down, its last catalog is
    returned together with the failure.
    """

    def __init__(self, link: Link, *, ttl: float, pause: float, patience: float) -> None:
        self._link = link
        self._ttl = ttl
        self._pause = pause
        self._patience = patience
        self._entries: OrderedDict[object, _Entry] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks only weakly

    async def fetch_catalog(self, caller: Caller) -> Catalog:
        """Return the catalog for this caller. Raises nothing but `CancelledError`."""
        try:
            headers = await self._link.headers(caller)
        except Exception as error:  # of the application's hook
            return Catalog(failure=self._report(error))
        page = {"frontendUrl": caller.url} if caller.url else {}
        body = {"properties": {**caller.properties}, **page}
        caller_key = (*sorted(headers.items()), dumps(body["properties"]))
        entry = self._lookup(caller_key, caller.url)
        if monotonic() >= entry.expires_at:
            await asyncio.wait([self._start_fetch(entry, headers, body)])
        return entry.catalog

    async def aclose(self) -> None:
        """Cancel the requests under way."""
        loop = asyncio.get_running_loop()
        tasks = [task for task in self._tasks if task.get_loop() is loop]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _lookup(self, caller_key: object, page: str | None) -> _Entry:
        key = (caller_key, page)
        entry = self._entries.setdefault(key, _Entry(caller_key))
        self._entries.move_to_end(key)
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)
        return entry

    def _start_fetch(
        self, entry: _Entry, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> "asyncio.Task[None]":
        """Return the task that fetches; all callers with the same key share it."""
        task = entry.task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            work = self._refresh(entry, headers, body)
            task = entry.task = asyncio.create_task(work, name=f"discover:{self._link.safe_url}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return task

    async def _refresh(
        self, entry: _Entry, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> None:
        try:
            async with asyncio.timeout(self._patience):
                entry.catalog = await self._fetch(headers, body)
                entry.is_valid = True
        except AuthenticationFailed as error:  # an answer, too: the last catalog is void
            entry.is_valid, entry.catalog = False, Catalog(failure=self._report(error))
            entry.expires_at = monotonic() + self._pause
        except Exception as error:  # whatever it is, it must not cost a chat
            entry.catalog = replace(self._last(entry), failure=self._report(error))
            entry.expires_at = monotonic() + self._pause
        else:
            entry.expires_at = monotonic() + self._ttl

    def _last(self, entry: _Entry) -> Catalog:
        """Return the last catalog of this page, or else of another page of the same caller."""
        if entry.is_valid:
            return entry.catalog
        others = reversed(self._entries.values())
        key = entry.caller_key
        matches = (other.catalog for other in others if other.is_valid and other.caller_key == key)
        return next(matches, Catalog())

    async def _fetch(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> Catalog:
        status, answer = await self._link.json(INFO, body, headers)
        url = f"{self._link.safe_url}/{INFO.first}"
        if status in (404, 405):
            raise ApiNotFound(
                f"Failed to find CopilotKit API endpoint at url {url} when fetching CopilotKit "
                f"info.\n\nSee more: [{_HELP}]({_HELP})",
                hint="Is it the URL of `add_fastapi_endpoint`, and is that server up to date?",
            )
        if not is_success(status):
            hint = f"{url} answered {status}. {answer['error'] or 'It gave no reason.'}"
            if status in (401, 403):
                raise AuthenticationFailed("A remote endpoint refuses this request.", hint=hint)
            raise CopilotError("Unknown error occurred", hint=hint)
        try:
            return parse_catalog(answer)
        except ValueError as error:
            raise NetworkError(
                "A remote endpoint answered with something else than what it offers.",
                hint=f"{url} is no remote endpoint of CopilotKit. {error}",
            ) from error

    def _report(self, error: Exception) -> CopilotError:
        """Log a failure; return the error without its details."""
        if isinstance(error, TimeoutError):
            error = NetworkError(
                "A remote endpoint did not say in time what it offers.",
                status_code=504,
                hint=f"It took longer than {self._patience:g} s.",
            )
        if isinstance(error, CopilotError):
            hint = f" ({error.hint})" if error.hint else ""
            logger.warning("Remote endpoint %s: %s%s", self._link.safe_url, error.message, hint)
            return error
        logger.error("Remote endpoint %s could not be asked", self._link.safe_url, exc_info=error)
        return CopilotError(RUN_FAILED.message)
