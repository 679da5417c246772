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
from copilot_runtime.base.jsonvalue import as_list, get_text
from copilot_runtime.extensions.frameworks.remote.link import INFO, Link, is_success

MAX_ENTRIES = 128
"""Largest number of actions, and of agents, of one endpoint: providers accept no more."""

MAX_DESCRIPTION_LENGTH = 4000

_Entry = tuple[str, dict[str, Any]]

_NUMBERS = {"number": "number", "integer": "integer", "boolean": "boolean"}


@dataclass(frozen=True, slots=True)
class CatalogAction:
    """An action of the endpoint; `parameters` is the JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CatalogAgent:
    """An agent of the endpoint; `kind` is `langgraph`, `crewai`, or another type."""

    name: str
    description: str
    kind: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """The actions and agents of an endpoint; `failure` is set if the latest fetch failed."""

    actions: tuple[CatalogAction, ...] = ()
    agents: tuple[CatalogAgent, ...] = ()
    failure: CopilotError | None = None


def parse_catalog(body: Any) -> Catalog:
    """Return the catalog in the body of a response to `/info`. Raises `ValueError`.

    An action or an agent without a name is left out, and so are those above `MAX_ENTRIES`.
    """
    if not isinstance(body, dict) or not ("actions" in body or "agents" in body):
        raise ValueError("It has neither actions nor agents.")
    return Catalog(
        actions=tuple(
            CatalogAction(name, _description(item), build_schema(item.get("parameters")))
            for name, item in _limit_entries(body.get("actions"), "actions")
        ),
        agents=tuple(
            CatalogAgent(name, _description(item), get_text(item, "type"))
            for name, item in _limit_entries(body.get("agents"), "agents")
        ),
    )


def build_schema(parameters: Any) -> dict[str, Any]:
    """Return the JSON schema for parameters in CopilotKit's own notation.

    A JSON schema is returned as it is.
    """
    if isinstance(parameters, dict):
        schema = {"properties": {}, **parameters, "type": "object"}
        return schema if isinstance(schema["properties"], dict) else {**schema, "properties": {}}
    entries = _parse_entries(parameters, "parameters")
    return {
        "type": "object",
        "properties": {name: _build_parameter_schema(item) for name, item in entries},
        "required": [name for name, item in entries if item.get("required") is not False],
    }


def _build_parameter_schema(item: Mapping[str, Any]) -> dict[str, Any]:
    kind, description = get_text(item, "type"), get_text(item, "description")
    about = {"description": description} if description else {}
    if kind.endswith("[]"):
        return {"type": "array", "items": _build_plain_schema(kind[:-2], item), **about}
    return {**_build_plain_schema(kind, item), **about}


def _build_plain_schema(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "object":
        inner = item.get("attributes")
        return build_schema(inner) if inner else {"type": "object"}
    if kind in _NUMBERS:
        return {"type": _NUMBERS[kind]}
    choices = item.get("enum")
    return {"type": "string", **({"enum": choices} if isinstance(choices, list) else {})}


def _limit_entries(items: Any, what: str) -> list[_Entry]:
    entries = _parse_entries(items, what)
    if len(entries) > MAX_ENTRIES:
        logger.warning(
            "A remote endpoint offers %d %s; the first %d count.", len(entries), what, MAX_ENTRIES
        )
    return entries[:MAX_ENTRIES]


def _parse_entries(items: Any, what: str) -> list[_Entry]:
    candidates = as_list(items)
    entries: list[_Entry] = []
    for item in candidates:
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and name:
            entries.append((name, item))
    if nameless := len(candidates) - len(entries):
        logger.warning("A remote endpoint offers %d %s without a name, left out.", nameless, what)
    return entries


def _description(item: Mapping[str, Any]) -> str:
    return get_text(item, "description")[:MAX_DESCRIPTION_LENGTH]


logger = logging.getLogger(__name__)

_MAX_ENTRIES = 256
_HELP = ApiNotFound.help_url


@dataclass(slots=True)
class _CacheEntry:
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
        self._entries: OrderedDict[object, _CacheEntry] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks only weakly

    async def fetch_catalog(self, caller: Caller) -> Catalog:
        """Return the catalog for this caller. Raises nothing but `CancelledError`."""
        try:
            headers = await self._link.headers(caller)
        except Exception as error:  # any error of the application's hook
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

    def _lookup(self, caller_key: object, page: str | None) -> _CacheEntry:
        key = (caller_key, page)
        entry = self._entries.setdefault(key, _CacheEntry(caller_key))
        self._entries.move_to_end(key)
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)
        return entry

    def _start_fetch(
        self, entry: _CacheEntry, headers: Mapping[str, str], body: Mapping[str, Any]
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
        self, entry: _CacheEntry, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> None:
        try:
            async with asyncio.timeout(self._patience):
                entry.catalog = await self._fetch(headers, body)
                entry.is_valid = True
        except AuthenticationFailed as error:  # an answer, too: the last catalog is void
            entry.is_valid, entry.catalog = False, Catalog(failure=self._report(error))
            entry.expires_at = monotonic() + self._pause
        except Exception as error:  # any error, which must not fail the chat
            entry.catalog = replace(self._last(entry), failure=self._report(error))
            entry.expires_at = monotonic() + self._pause
        else:
            entry.expires_at = monotonic() + self._ttl

    def _last(self, entry: _CacheEntry) -> Catalog:
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
