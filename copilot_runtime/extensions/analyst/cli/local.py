"""A server of this process, on this machine only, for questions where no other one runs."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config import Settings, load_settings

_NAME = "analyst"
_OF_A_QUESTION = {"threads": "memory", "console": False}
"""Settings of such a server: it leaves no conversation behind."""


def read_local_settings(config: Path | None, data: Sequence[str], folder: Path) -> Settings:
    """Return settings with an analyst. Data that a command names is copied into `folder`.

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
    """Yield the URL of a server of this process, and the name of its analyst."""
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
    """Leave out of the log what is printed here anyhow."""
    package = logging.getLogger("copilot_runtime")
    before = package.level
    package.setLevel(logging.ERROR)
    try:
        yield
    finally:
        package.setLevel(before)


class _Server(uvicorn.Server):
    """A server that signals when it can be reached. Ctrl-C is for the command, not for it."""

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
