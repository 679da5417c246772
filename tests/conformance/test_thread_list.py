"""The thread lists of CopilotKit's own clients are told of changes, whichever server made them."""

import asyncio
from pathlib import Path

import pytest

from copilot_runtime import Settings
from tests import npm
from tests.conformance.test_genui import CLIENTS, HERE
from tests.conformance.v1.node import need_node
from tests.processes import running
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


async def test_lists_of_all_clients_show_what_another_server_does_without_being_asked(
    tmp_path: Path,
) -> None:
    need_node()
    await asyncio.to_thread(npm.install, HERE)
    settings = Settings(threads=f"sqlite:{tmp_path / 'threads.db'}")
    async with browsing(settings=settings) as first, browsing(settings=settings) as second:
        packages = [f"core-{client}" for client in CLIENTS]
        base = f"http://127.0.0.1:{second.where}{second.base}"
        command = ["node", "--experimental-websocket", "threads.mjs", base, *packages]
        with running(command, cwd=HERE) as program:

            async def see(threads: str) -> None:
                lines = "|".join(f"{package} {threads}" for package in packages)
                for _ in packages:
                    await asyncio.to_thread(program.until, f"^({lines})$")

            await see(r"\[\]")
            await first.run(thread="t")
            await see(r'\["t"\]')
            await first.ask("PATCH", "/threads/t", {"name": "Paris"})
            await see(r'\["Paris"\]')
            await first.ask("POST", "/threads/t/archive", {})
            await see(r"\[\]")
            await first.ask("PATCH", "/threads/t", {"archived": False})
            await see(r'\["Paris"\]')
            await first.ask("DELETE", "/threads/t", {})
            await see(r"\[\]")
