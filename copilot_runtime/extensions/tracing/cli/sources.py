"""Sources for `copilot-runtime traces`: a trace store, or a server by its URL."""

import asyncio
import json
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from time import time_ns
from typing import Any, TypeVar, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

from copilot_runtime.base.errors import ConfigurationFailed, NetworkError, NotFound
from copilot_runtime.cli.options import SIGN_IN_HINT
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.extensions.tracing.build import build_store
from copilot_runtime.extensions.tracing.extension import find_trace_place
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.extensions.tracing.stats import compute_stats
from copilot_runtime.extensions.tracing.store.records import Record, decode_span
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.extensions.tracing.store.traces import (
    TraceFilter,
    TraceSummary,
    encode_summary,
    parse_filter,
)
from copilot_runtime.security.loopback import is_loopback

T = TypeVar("T")
Values = Mapping[str, str]
"""A trace filter as texts by parameter name, as `parse_filter` reads them."""

_PAGE = 200
_POLL_SECONDS = 1.0
_LATE = 60 * 10**9
"""Nanoseconds after its end within which a span written late is still reported."""
_PATIENCE = 60.0
"""Timeout for a server's response, in seconds."""


class StoreSource:
    """Reads a trace store, even while servers write to it."""

    def __init__(self, address: str, *, is_new: bool = False) -> None:
        self._address = address
        self._check(is_new=is_new)

    def list_traces(self, values: Values, limit: int) -> Iterator[dict[str, Any]]:
        """Yield encoded trace summaries, the newest first."""
        filter, before = parse_filter(values), ""
        while limit > 0:
            size = min(limit, _PAGE)
            page = self._run(partial(_list_page, filter=filter, limit=size, before=before))
            yield from map(encode_summary, page)
            limit -= len(page)
            if len(page) < size:
                return
            before = page[-1].trace_id

    def get_trace(self, trace_id: str) -> list[Record]:
        """Return the spans of a trace. Raises `NotFound`."""
        spans = self._run(lambda store: store.get_trace(trace_id))
        if not spans:
            raise NotFound(f"There is no trace {trace_id[:100]!r} in {self._address}.")
        return spans

    def query(self, query: str, values: Values, limit: int) -> list[list[Record]]:
        """Return the spans of each trace that a JMESPath matches, the newest trace first."""
        from copilot_runtime.extensions.tracing.http.endpoint import group_traces

        filter = parse_filter(values)
        return group_traces(self._run(lambda store: store.query_spans(query, filter, limit=limit)))

    def stats(self, values: Values, limit: int) -> dict[str, Any]:
        """Return statistics of the newest traces."""
        filter = parse_filter(values)
        spans = self._run(lambda store: store.query_spans("", filter, limit=limit))
        return asdict(compute_stats(spans))

    def tail(self, values: Values) -> Iterator[Record]:
        """Yield spans of traces as they are written, until the iterator is closed."""
        return _drive(self._follow(values))

    def delete(self, trace_id: str) -> None:
        """Delete a trace. Raises `NotFound`."""
        if not self._run(lambda store: store.delete_trace(trace_id)):
            raise NotFound(f"There is no trace {trace_id[:100]!r} in {self._address}.")

    def add_spans(self, records: Sequence[Record]) -> None:
        """Write spans to the store."""

        async def add(store: TraceStore) -> None:
            for record in records:
                store.add(decode_span(record))

        self._run(add)

    async def _follow(self, values: Values) -> AsyncGenerator[Record, None]:
        store, since = self._open(), time_ns()
        written: dict[tuple[str, str], int] = {}
        """End times of the spans already yielded that may be read again."""
        try:
            while True:
                now = time_ns()
                for trace_id in await _list_since(store, values, since):
                    for span in await store.get_trace(trace_id):
                        key, end = (trace_id, span["span_id"]), span["end_time_unix_nano"]
                        if key not in written and end >= since:
                            written[key] = end
                            yield span
                since = max(since, now - _LATE)
                written = {key: end for key, end in written.items() if end >= since}
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            await store.aclose()

    def _run(self, work: Callable[[TraceStore], Awaitable[T]]) -> T:
        async def open_and_work() -> T:
            store = self._open()
            try:
                return await work(store)
            finally:
                await store.aclose()

        return asyncio.run(open_and_work())

    def _open(self) -> TraceStore:
        # no retention limits here: only servers delete expired or surplus traces
        store = build_store(TelemetryOptions(store=self._address, retention=0, max_traces=0))
        assert isinstance(store, TraceStore)
        return store

    def _check(self, *, is_new: bool) -> None:
        kind, _, place = self._address.partition(":")
        if kind == "memory":
            raise ConfigurationFailed(
                "The traces are in the memory of a server, which other programs cannot read.",
                hint="Ask the server: --url http://127.0.0.1:8000/graphql. Or set telemetry.store "
                "to sqlite:PATH. With --workers or --reload, they are in .copilot/traces.db of its "
                "folder.",
            )
        if kind == "none":
            raise ConfigurationFailed(
                "No traces are kept: the setting telemetry.store is none.",
                hint="Set it to sqlite:PATH, or give --store.",
            )
        if kind not in ("sqlite", "jsonl") or not place:
            raise ConfigurationFailed(
                f"{self._address!r} is not a trace store.",
                hint="Give --store sqlite:PATH or --store jsonl:FOLDER.",
            )
        if not is_new and not Path(place).exists():
            raise ConfigurationFailed(
                f"There is no file {place!r}.", hint="Give --store, such as sqlite:traces.db."
            )


class ServerSource:
    """Reads traces from a running server by its runtime's URL; the default path is /graphql."""

    def __init__(self, url: str, headers: Sequence[str] = ()) -> None:
        url = url if "://" in url else f"http://{url}"
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationFailed(
                f"{url!r} is not a runtime URL, such as http://127.0.0.1:8000/graphql."
            )
        self._url = url.rstrip("/") if parts.path else f"{url}/graphql"
        self._headers = dict(map(split_header, headers))
        is_local = parts.hostname == "localhost" or is_loopback(parts.hostname)
        direct = [ProxyHandler({})] if is_local else []
        self._opener = build_opener(*direct, HTTPHandler, HTTPSHandler, _NoRedirects)

    def list_traces(self, values: Values, limit: int) -> Iterator[dict[str, Any]]:
        """Yield encoded trace summaries, the newest first."""
        before = ""
        while limit > 0:
            page = {**values, "limit": str(min(limit, _PAGE)), "before": before}
            found = self._get("", page)
            yield from found["traces"]
            limit -= len(found["traces"])
            before = found["next"] or ""
            if not before:
                return

    def get_trace(self, trace_id: str) -> list[Record]:
        """Return the spans of a trace. Raises `NotFound`."""
        return self._get(f"/{quote(trace_id, safe='')}")["spans"]

    def query(self, query: str, values: Values, limit: int) -> list[list[Record]]:
        """Return the spans of each trace that a JMESPath matches, the newest trace first."""
        body = {"query": query, "limit": limit, **values}
        with self._ask("POST", "/query", json.dumps(body).encode()) as answer:
            return [it["spans"] for it in json.load(answer)["traces"]]

    def stats(self, values: Values, limit: int) -> dict[str, Any]:
        """Return statistics of the newest traces."""
        return self._get("/stats", {**values, "limit": str(limit)})

    def tail(self, values: Values) -> Iterator[Record]:
        """Yield spans as they end, until the server closes the stream."""
        query = {name: values[name] for name in ("trace_id", "thread_id") if values.get(name)}
        with self._ask("GET", f"/stream?{urlencode(query)}") as answer:
            name = ""
            for line in answer:
                field, _, value = line.decode(errors="replace").rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data" and name == "span_end":
                    yield json.loads(value)

    def delete(self, trace_id: str) -> None:
        """Delete a trace. Raises `NotFound`."""
        with self._ask("DELETE", f"/{quote(trace_id, safe='')}"):
            pass

    def _get(self, path: str, values: Values | None = None) -> Any:
        query = urlencode({name: value for name, value in (values or {}).items() if value})
        with self._ask("GET", f"{path}?{query}" if query else path) as answer:
            return json.load(answer)

    @contextmanager
    def _ask(self, method: str, path: str, body: bytes | None = None) -> Generator[HTTPResponse]:
        """Send a request and yield its response. Raises `CopilotError` for network errors, error
        statuses and invalid responses, also from the block.
        """
        headers = {"content-type": "application/json", **self._headers}
        request = Request(f"{self._url}/traces{path}", body, headers, method=method)  # noqa: S310  # http or https
        try:
            with self._opener.open(request, timeout=_PATIENCE) as answer:
                yield cast("HTTPResponse", answer)
        except HTTPError as error:
            raise _explain(error, self._url) from None
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise NetworkError(
                f"There is no server at {self._url}: {reason}.",
                hint="Start it with `copilot-runtime serve`, or give its --url.",
            ) from None
        except (ValueError, LookupError, TypeError):  # not JSON, or of another shape
            raise NetworkError(
                f"The response of {self._url} does not contain traces.",
                hint="Give the URL of the runtime, as <CopilotKit runtimeUrl> has it.",
            ) from None


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects: headers such as Authorization are only for the given server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return `None`: do not follow the redirect."""


TraceSource = StoreSource | ServerSource
"""A source of traces. Results have the format of the REST routes."""


def open_source(
    settings: Settings, url: str | None, store: str | None, headers: Sequence[str] = ()
) -> TraceSource:
    """Return the server at `url`, or else the store `store`, by default that of the settings."""
    if url is not None:
        if store is not None:
            raise ConfigurationFailed("Give --url or --store, and not both.")
        return ServerSource(url, headers)
    return StoreSource(store or find_address(settings))


def find_address(settings: Settings) -> str:
    """Return the address of the store; with `memory`, it may be the file shared by workers."""
    kind, path = find_trace_place(settings)
    is_other = settings.telemetry.store == "memory" and kind == "sqlite"
    return f"sqlite:{path}" if is_other else settings.telemetry.store


async def _list_since(store: TraceStore, values: Values, since: int) -> Sequence[str]:
    """Return the ids of the traces with a span that ended since a time, the oldest first."""
    filter, found = parse_filter({**values, "since": str(since)}), list[str]()
    while page := await store.list_traces(filter, limit=_PAGE, before=found[-1] if found else ""):
        found += [summary.trace_id for summary in page]
    return found[::-1]


async def _list_page(
    store: TraceStore, *, filter: TraceFilter, limit: int, before: str
) -> Sequence[TraceSummary]:
    return await store.list_traces(filter, limit=limit, before=before)


def split_header(line: str) -> tuple[str, str]:
    """Return the name and value of a header. Raises `ConfigurationFailed`."""
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise ConfigurationFailed(f"{line!r} is not a header, such as 'Authorization: Bearer ...'.")
    return name.strip(), value.strip()


def _explain(error: HTTPError, url: str) -> Exception:
    try:
        body = json.load(error)
        message = body.get("message") or body.get("error") or error.reason
    except (ValueError, AttributeError):
        message = error.reason
    if 300 <= error.code < 400:
        message = f"It is at {error.headers.get('location', 'another address')}."
    hints = {
        401: SIGN_IN_HINT,
        403: "The setting telemetry.operators of the server names who may read traces.",
        404: f"Is {url} the URL of the runtime, as <CopilotKit runtimeUrl> has it?",
    }
    if "trace" in str(message) and error.code == 404:
        return NotFound(str(message))
    return NetworkError(f"{error.code} {message}", hint=hints.get(error.code))


def _drive(spans: AsyncGenerator[Record, None]) -> Iterator[Record]:
    """Iterate over an async generator from synchronous code."""
    with asyncio.Runner() as runner:

        async def step() -> Record:
            return await anext(spans)

        try:
            while True:
                yield runner.run(step())
        finally:
            runner.run(spans.aclose())
