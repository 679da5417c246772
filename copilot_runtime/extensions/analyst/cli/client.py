"""A client for the analyst's REST routes on a running server."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode

import uvicorn

from copilot_runtime.agui.outcome import decode_refusal
from copilot_runtime.base.errors import ConfigurationFailed, NetworkError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_objects
from copilot_runtime.cli.agent_client import find_sign_in_hint, parse_header, parse_url
from copilot_runtime.extensions.settings import Settings, load_settings
from copilot_runtime.http.client import Exchange, Upstream

_OK = (200, 204)


class AnalystClient:
    """Reads data sets, charts and downloads, and reads and changes memory.

    All methods raise `NetworkError` for a server that cannot be reached, that has no analyst, or
    that refuses the request, with the server's reason.

    Args:
        url: The same URL as the `runtimeUrl` of `<CopilotKit>`.
        headers: Lines such as `Name: value`, sent with each request.
    """

    def __init__(self, url: str, headers: Sequence[str] = ()) -> None:
        self.url = parse_url(url).rstrip("/")
        self.headers = headers
        self._headers = dict(map(parse_header, headers))
        self._upstream = Upstream("Runtime", idle_timeout=120, max_retries=0)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._upstream.aclose()

    async def list_datasets(self) -> JsonObject:
        """Return `datasets`, and `progress` of those that are still loading."""
        return await self._request_json("GET", "analyst/datasets")

    async def list_memories(self, table: str = "") -> Sequence[JsonObject]:
        """Return the memory entries of a table, or of all tables."""
        query = f"?{urlencode({'table': table})}" if table else ""
        return as_objects(
            (await self._request_json("GET", f"analyst/memory{query}")).get("memories")
        )

    async def change_memory(self, id: str, values: Mapping[str, Any]) -> None:
        """Change `text` or `is_pinned` of a memory entry."""
        await self._request("PATCH", f"analyst/memory/{_quote(id)}", dumps(dict(values)))

    async def forget(self, id: str) -> None:
        """Delete memory entries."""
        await self._request("DELETE", f"analyst/memory/{_quote(id)}")

    async def read(self, path: str) -> bytes:
        """Return a file of the server, such as the PNG of a chart."""
        return await self._request("GET", path)

    async def _request_json(self, method: str, path: str) -> JsonObject:
        text = await self._request(method, path)
        try:
            return as_object(loads(text))
        except ValueError:
            raise self._explain(200, text) from None

    async def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {**self._headers, "content-type": "application/json"}
        exchange = Exchange(self._upstream, method, f"{self.url}/{path}", body, headers)
        async with exchange as response:
            text = await response.text()
        if response.status not in _OK:
            raise self._explain(response.status, text)
        return text

    def _explain(self, status: int, text: bytes) -> NetworkError:
        """Return the error for an unexpected response, with the server's reason."""
        refusal = decode_refusal(text)
        if refusal is None or refusal.message.startswith("There is nothing at"):
            return NetworkError(
                f"{self.url} has no analyst: it answered {status}.",
                hint="The URL is the one that <CopilotKit runtimeUrl> gets, and the server needs "
                "the setting analyst.name.",
            )
        hint = find_sign_in_hint(status, self._headers)
        return NetworkError(refusal.message, status_code=status, hint=hint)


def _quote(part: str) -> str:
    return quote(part, safe="")


_NAME = "analyst"
_OF_A_QUESTION = {"threads": "memory", "console": False}
"""Settings of a temporary server, which stores no conversations."""


def read_local_settings(config: Path | None, data: Sequence[str], folder: Path) -> Settings:
    """Return settings with an analyst. Data named on the command line is copied into `folder`.

    Raises `ConfigurationFailed` if there is no data.
    """
    if config is not None:
        os.environ["COPILOT_CONFIG"] = str(config)
    section = load_settings().analyst
    values: dict[str, Any] = {**section.model_dump(), "name": section.name or _NAME}
    if data:
        values |= {"data": tuple(data), "store": str(folder)}
    elif not section.data:
        raise ConfigurationFailed(
            "There is no data to ask about.",
            hint="Name files, as in --data sales.csv; or write them into analyst.data of "
            "copilot.yml; or name a server that runs, with --url.",
        )
    return load_settings(overrides={**_OF_A_QUESTION, "analyst": values})


@asynccontextmanager
async def serve_here(config: Path | None, data: Sequence[str]) -> AsyncGenerator[tuple[str, str]]:
    """Yield the URL of a server in this process, and the name of its analyst."""
    from copilot_runtime.cli.serve import build_runtime
    from copilot_runtime.config.loader import adapter_name

    with _log_errors_only(), TemporaryDirectory(prefix="analyst-") as folder:
        settings = read_local_settings(config, data, Path(folder))
        runtime = build_runtime(adapter_name(settings), settings)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            app = runtime.lazy_app()
            server = _Server(uvicorn.Config(app, log_config=None, access_log=False))
            task = asyncio.create_task(server.serve([listener]), name="local server")
            try:
                start = asyncio.create_task(server.is_up.wait())
                await asyncio.wait((task, start), return_when=asyncio.FIRST_COMPLETED)
                start.cancel()
                if task.done():
                    await task
                    raise ConfigurationFailed("The analyst did not start; the log says why.")
                port = listener.getsockname()[1]
                yield f"http://127.0.0.1:{port}{settings.path}", settings.analyst.name
            finally:
                server.should_exit = True
                await asyncio.wait((task,), timeout=settings.stop_timeout)


@contextmanager
def _log_errors_only() -> Generator[None]:
    """Log only errors: everything else is already printed on the terminal."""
    package = logging.getLogger("copilot_runtime")
    before = package.level
    package.setLevel(logging.ERROR)
    try:
        yield
    finally:
        package.setLevel(before)


class _Server(uvicorn.Server):
    """A server that signals its readiness. Ctrl-C is handled by the command."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
