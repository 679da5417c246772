"""Several servers of one store of threads, in this process."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pytest

from copilot_runtime import Settings
from copilot_runtime.extensions.cluster.carriers import postgres
from copilot_runtime.extensions.cluster.carriers.postgres import PostgresCarrier
from tests.extensions.cluster.kills.proxy import Proxy
from tests.wire_agui.http import Browser
from tests.wire_agui.server import browsing


@asynccontextmanager
async def sharing(
    shared: Mapping[str, Any],
    *models: Any,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncGenerator[list[Browser], None]:
    """Serve the same threads by several servers, and yield a browser at each."""
    async with AsyncExitStack() as stack:
        chosen = Settings(**shared, **settings)
        yield [
            await stack.enter_async_context(browsing(model, settings=chosen, **(options or {})))
            for model in models
        ]


_POSTGRES = ".s.PGSQL.5432"


class Machine(NamedTuple):
    """A browser at a server, and the way by which others reach that server."""

    browser: Browser
    way: Proxy


class CutServers:
    """Starts servers of one store: what carries their messages passes a proxy, the store does not.

    `shared` is as the fixture of that name yields it.
    """

    def __init__(self, shared: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self._shared = shared
        self._monkeypatch = monkeypatch

    @asynccontextmanager
    async def sharing(self, *served: Any, **settings: Any) -> AsyncGenerator[list[Machine], None]:
        """Serve a model, or options of a runtime in a dict, by a server each."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            machines: list[Machine] = []
            for one in served:
                options = one if isinstance(one, dict) else {"adapter": one}
                place = Path(stack.enter_context(TemporaryDirectory(dir=folder)))
                start = stack.enter_async_context
                machines.append(await self._serve(start, place, options, settings))
            yield machines

    async def _serve(
        self, start: Any, folder: Path, options: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Machine:
        chosen: dict[str, Any] = {**self._shared, **settings}
        threads, carrier = chosen["threads"], chosen.get("carrier", "")
        if threads.startswith("sqlite:"):
            return await self._serve_file(start, folder, options, chosen)
        if carrier:
            way = Proxy(Path(carrier.removeprefix("unix://")))
            await start(way.listening(folder / "redis.sock"))
            chosen["carrier"] = f"unix://{folder}/redis.sock"
        else:
            way = await self._divert_postgres(start, folder, threads)
        return Machine(await start(browsing(settings=Settings(**chosen), **options)), way)

    async def _serve_file(
        self, start: Any, folder: Path, options: Mapping[str, Any], chosen: Mapping[str, Any]
    ) -> Machine:
        """Serve threads of a file, and put a proxy where the socket of the server was."""
        file = folder.parent / "threads.db"  # a short path: the sockets are beside it
        before = {*file.parent.glob("*-socket-*")}
        own: dict[str, Any] = {**chosen, "threads": f"sqlite:{file}"}
        browser = await start(browsing(settings=Settings(**own), **options))
        await browser.connect()  # so it has started
        [path] = {*file.parent.glob("*-socket-*")} - before
        way = Proxy(path.rename(folder / "moved"))
        await start(way.listening(path))
        return Machine(browser, way)

    async def _divert_postgres(self, start: Any, folder: Path, url: str) -> Proxy:
        """Let the next server carry its messages through a proxy, and return that."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        way = Proxy(Path(query["host"], _POSTGRES))
        await start(way.listening(folder / _POSTGRES))
        diverted = urlunsplit(parts._replace(query=urlencode({**query, "host": str(folder)})))
        carrier = PostgresCarrier(diverted)
        self._monkeypatch.setattr(postgres, "PostgresCarrier", {url: carrier}.__getitem__)
        return way
