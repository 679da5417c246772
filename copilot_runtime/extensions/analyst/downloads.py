"""Downloads behind tokens: the SQL stays on the server, and only its owner may fetch the rows."""

import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.analyst.result_storage import ResultStorage
from copilot_runtime.extensions.analyst.results import Download
from copilot_runtime.extensions.analyst.scope import Scope
from copilot_runtime.extensions.analyst.tools.values import number_names, to_plain

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.engine.engine import Engine
    from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery

Format = Literal["csv", "json"]

MOST_OF_ONE = 100
"""Maximum number of unexpired downloads per owner; the oldest are dropped first."""

MOST_DOWNLOADS = 5_000
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
class _Entry:
    download: Download
    sql: str
    """The SQL for display: it is guarded again with the current rules."""
    owner: str | None
    agent_name: str | None
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadStream:
    """A download in progress."""

    filename: str
    media_type: str
    chunks: AsyncGenerator[bytes]


class Downloads:
    """Downloads by token, in memory; with a `storage`, other processes find them, too.

    Args:
        engine: Runs the query when the file is fetched.
        guard: Guards SQL for a scope: returns the query, or raises `SqlRefused`.
        seconds: Lifetime of a download.
        url: URL prefix of tokens, relative to the runtime's URL.
    """

    def __init__(
        self,
        engine: "Engine",
        guard: GuardSql,
        storage: ResultStorage | None = None,
        *,
        seconds: float = SECONDS,
        url: str = "analyst/downloads/",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._guard = guard
        self._storage = storage
        self._seconds = seconds
        self._url = url
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

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
        self._expire()
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        expires_at = self._clock() + self._seconds
        download = Download(
            id=token,
            filename=choose_filename(filename, format),
            format=format,
            row_count=row_count,
            columns=list(columns),
            expires_at=datetime.fromtimestamp(expires_at, UTC).isoformat(timespec="seconds"),
            url=self._url + token,
        )
        entry = _Entry(download, query.display_sql, scope.owner, scope.agent_name, expires_at)
        self._entries[token] = entry
        own = [id for id, one in self._entries.items() if one.owner == scope.owner]
        for id in own[:-MOST_OF_ONE]:
            del self._entries[id]
        while len(self._entries) > MOST_DOWNLOADS:
            self._entries.popitem(last=False)
        if self._storage is not None:
            await self._storage.put(scope.owner, token, asdict(entry), expires_at)
        return download

    async def open(self, id: str, scope: Scope) -> DownloadStream:
        """Return the stream of a download.

        Raises `NotFound`, also for another owner's token, or SQL errors.

        The rows are those that `scope` may see now, restricted to the agent of the original
        question.
        """
        entry = await self._find(id, scope.owner)
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

    async def _find(self, id: str, owner: str | None) -> _Entry:
        entry = self._entries.get(id)
        if entry is None and self._storage is not None:
            entry = _decode_entry(await self._storage.get(owner, id))
        if entry is None or entry.owner != owner or entry.expires_at < self._clock():
            raise NotFound("There is no such download any more.", hint="Ask for it again.")
        return entry

    def _expire(self) -> None:
        now = self._clock()
        for id in [id for id, one in self._entries.items() if one.expires_at < now]:
            del self._entries[id]


def _decode_entry(stored: Any) -> _Entry | None:
    if stored is None:
        return None
    return _Entry(**(stored | {"download": Download(**stored["download"])}))


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
