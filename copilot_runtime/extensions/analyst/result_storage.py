"""Charts and downloads, each kept for the owner of the question."""

import hashlib
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from copilot_runtime.api.run_input import CURRENT_PATH
from copilot_runtime.base.errors import CopilotError, NotFound
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, require_object
from copilot_runtime.extensions.analyst.results import Chart, Download, number_names, to_plain
from copilot_runtime.extensions.analyst.sql.rules import Scope
from copilot_runtime.storage import ObjectNotFound, Storage
from copilot_runtime.storage.storage import open_storage

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from copilot_runtime.extensions.analyst.engine.engine import Engine
    from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery


_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")

_CLEARING = 3600.0
"""Seconds between two deletions of expired values."""

MOST_OF_ONE = 50
"""Maximum number of charts per owner."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ResultStore(Generic[T]):
    """Results of one kind by identifier, in memory, each for the owner of its scope.

    With a `url`, other processes find them as well. A key there is
    `<kind>/<digest of the owner>/<id>~<expiry time>.json`: it cannot be found without the owner,
    and expired values are recognised without a read.

    Args:
        kind: The first segment of the keys, a plural.
        decode: Returns a result from its fields as JSON.
        url: The URL of the storage, which is opened on first use; empty for none.
        most: Maximum number of results in memory.
        most_of_one: Maximum number of results per owner; the oldest are deleted.
        seconds: Lifetime of a result.
    """

    def __init__(
        self,
        kind: str,
        decode: Callable[[JsonObject], T],
        url: str = "",
        *,
        most: int,
        most_of_one: int,
        seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._kind = kind
        self._decode = decode
        self._url = url
        self._most = most
        self._most_of_one = most_of_one
        self._seconds = seconds
        self._clock = clock
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()
        self._cleared_at = 0.0
        self.path = ""
        """The path of the runtime's URL, for results that are made outside of requests."""

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self._url)

    @property
    def next_expiry(self) -> float:
        """The Unix time at which a result that is added now expires."""
        return self._clock() + self._seconds

    def write_url(self, name: str) -> str:
        """Return the URL of a result on this server."""
        return f"{CURRENT_PATH.get(self.path)}/analyst/{self._kind}/{name}"

    async def add(self, id: str, value: T, scope: Scope) -> None:
        """Store a result, a dataclass, for the user who asked for it."""
        entry = _Entry(value, scope.owner, self.next_expiry)
        self._entries[id] = entry
        own = [key for key, one in self._entries.items() if one.owner == scope.owner]
        for key in own[: -self._most_of_one]:
            del self._entries[key]
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
        if self._url:
            await self._put(id, entry)

    async def get(self, id: str, scope: Scope) -> T:
        """Return a result. Raises `NotFound`, also for another owner's result."""
        entry = self._entries.get(id)
        if entry is not None and entry.owner == scope.owner and entry.expires_at >= self._clock():
            return entry.value
        stored = await self._read(id, scope.owner) if self._url and _ID.fullmatch(id) else None
        if stored is None:
            noun = self._kind.removesuffix("s")
            raise NotFound(f"There is no such {noun} any more.", hint="Ask for it again.")
        return self._decode(stored)

    async def aclose(self) -> None:
        """Close the storage if it was opened."""
        if "_storage" in self.__dict__:
            await self._storage.aclose()
            del self.__dict__["_storage"]

    async def _put(self, id: str, entry: "_Entry[T]") -> None:
        """Write a result. Failures are logged only: this process has it in memory, too."""
        folder = self._name_folder(entry.owner)
        data = dumps(asdict(cast("DataclassInstance", entry.value)))
        try:
            await self._storage.put(f"{folder}{id}~{int(entry.expires_at)}.json", data)
            keys = await self._storage.find_by_prefix(folder)
            await self._storage.delete_many(keys[: -self._most_of_one])
            await self._clear()
        except CopilotError as error:
            logger.warning(
                "One of the %s is for this process alone, as it cannot be stored: %s",
                self._kind,
                error,
            )

    async def _read(self, id: str, owner: str | None) -> JsonObject | None:
        keys = await self._storage.find_by_prefix(f"{self._name_folder(owner)}{id}~")
        found = [key for key in keys if not self._has_expired(key)]
        try:
            data = await self._storage.get(found[-1]) if found else b""
        except ObjectNotFound:
            return None
        return require_object(loads(data), "A stored result") if data else None

    async def _clear(self) -> None:
        """Delete expired values, at most once an hour."""
        if self._clock() - self._cleared_at < _CLEARING:
            return
        self._cleared_at = self._clock()
        keys = await self._storage.find_by_prefix(f"{self._kind}/")
        await self._storage.delete_many(key for key in keys if self._has_expired(key))

    def _has_expired(self, key: str) -> bool:
        expires_at = key.rpartition("~")[2].removesuffix(".json")
        return expires_at.isdecimal() and int(expires_at) < self._clock()

    def _name_folder(self, owner: str | None) -> str:
        digest = hashlib.sha256(dumps(owner)).hexdigest()[:32]
        return f"{self._kind}/{digest}/"


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    value: T
    owner: str | None
    expires_at: float


def build_chart_store(
    url: str = "", *, seconds: float = 24 * 3600.0, clock: Callable[[], float] = time.time
) -> ResultStore[Chart]:
    """Return the store of charts."""
    limits = {"most": 500, "most_of_one": MOST_OF_ONE}
    return ResultStore(
        "charts", lambda fields: Chart(**fields), url, **limits, seconds=seconds, clock=clock
    )


Format = Literal["csv", "json"]

MOST_ROWS = 500_000
SECONDS = 3_600.0

_TOKEN_BYTES = 32
_MOST_CHARACTERS = 100
_BATCH = 1_000
_FORMULA = re.compile(r"[\t\r\n]|[\s\x00\u200b\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""The start of a spreadsheet formula, also after blanks and with full-width characters."""

MEDIA_TYPES: dict[Format, str] = {
    "csv": "text/csv; charset=utf-8; header=present",
    "json": "application/json",
}

GuardSql = Callable[[str, Scope], "GuardedQuery"]


@dataclass(frozen=True, slots=True)
class _Offer:
    download: Download
    sql: str
    """The SQL for display: it is guarded again with the current rules."""
    agent_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadStream:
    """A download in progress."""

    filename: str
    media_type: str
    chunks: AsyncGenerator[bytes]


class Downloads:
    """Downloads by token; see `ResultStore`.

    Args:
        engine: Runs the query when the file is fetched.
        guard: Guards SQL for a scope: returns the query, or raises `SqlRefused`.
        storage: The URL of the storage, or an empty text.
        seconds: Lifetime of a download.
    """

    def __init__(
        self, engine: "Engine", guard: GuardSql, storage: str = "", *, seconds: float = SECONDS
    ) -> None:
        self._engine = engine
        self._guard = guard
        self._entries = ResultStore(
            "downloads", _decode_entry, storage, most=5_000, most_of_one=100, seconds=seconds
        )

    def place(self, path: str) -> None:
        """Set the path of the runtime's URL."""
        self._entries.path = path

    async def create(
        self,
        query: "GuardedQuery",
        scope: Scope,
        *,
        filename: str,
        format: Format,
        row_count: int,
        columns: Sequence[str],
    ) -> Download:
        """Create a download of the rows of a query."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        expires_at = datetime.fromtimestamp(self._entries.next_expiry, UTC)
        download = Download(
            id=token,
            filename=choose_filename(filename, format),
            format=format,
            row_count=row_count,
            columns=list(columns),
            expires_at=expires_at.isoformat(timespec="seconds"),
            url=self._entries.write_url(token),
        )
        entry = _Offer(download, query.display_sql, scope.agent_name)
        await self._entries.add(token, entry, scope)
        return download

    async def open(self, id: str, scope: Scope) -> DownloadStream:
        """Return the stream of a download.

        Raises `NotFound`, also for another owner's token, or SQL errors.

        The rows are those that `scope` may see now, restricted to the agent of the original
        question.
        """
        entry = await self._entries.get(id, scope)
        scope = replace(scope, agent_name=entry.agent_name)
        query = self._guard(entry.sql, scope)
        await self._engine.explain(query)
        batches = self._engine.stream(query, limit=MOST_ROWS, batch_rows=_BATCH)
        download = entry.download
        write = _write_csv if download.format == "csv" else _write_json
        return DownloadStream(
            filename=download.filename,
            media_type=MEDIA_TYPES[download.format],
            chunks=write(download.columns, batches),
        )

    async def aclose(self) -> None:
        """Close the storage."""
        await self._entries.aclose()


def _decode_entry(stored: Mapping[str, Any]) -> _Offer:
    return _Offer(Download(**stored["download"]), stored["sql"], stored["agent_name"])


def choose_filename(name: str, format: Format) -> str:
    """Return a base name that is safe everywhere, with the extension of its format."""
    base = PurePosixPath(name.replace("\\", "/")).name
    stem = PurePosixPath(base).stem if base.lower().endswith((".csv", ".json", ".txt")) else base
    safe = re.sub(r"[^\w .()-]+", "_", stem).strip(" .")[:_MOST_CHARACTERS]
    return f"{safe or 'data'}.{format}"


async def _write_csv(
    columns: Sequence[str], batches: AsyncGenerator[Sequence[Sequence[Any]]]
) -> AsyncGenerator[bytes]:
    """Yield CSV in UTF-8, as defined by RFC 4180."""
    yield write_line(columns)
    try:
        async for rows in batches:
            yield b"".join(map(write_line, rows))
    finally:
        await batches.aclose()


def write_line(cells: Iterable[Any]) -> bytes:
    """Return one line of CSV. A text that a spreadsheet would execute is prefixed with `'`."""
    return (",".join(map(_write_cell, cells)) + "\r\n").encode()


def _write_cell(value: Any) -> str:
    plain = to_plain(value)
    if plain is None:
        return ""
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, int | float):
        return str(plain)
    text = plain if isinstance(plain, str) else dumps(plain).decode()
    # numbers that JSON cannot represent are texts here, and not formulas
    if isinstance(value, str) and _FORMULA.match(text):
        text = "'" + text
    if any(character in text for character in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


async def _write_json(
    columns: Sequence[str], batches: AsyncGenerator[Sequence[Sequence[Any]]]
) -> AsyncGenerator[bytes]:
    """Yield one list of objects."""
    names = number_names(columns)
    start = b"[\n"
    try:
        async for rows in batches:
            lines = [dumps(dict(zip(names, map(to_plain, row), strict=True))) for row in rows]
            if lines:
                yield start + b",\n".join(lines)
                start = b",\n"
    finally:
        await batches.aclose()
    yield b"\n]\n" if start == b",\n" else b"[]\n"
