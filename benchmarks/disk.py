"""Measure what an answer of 200 tokens, 20 a second, adds to the files of a server.

    .venv/bin/python -m benchmarks.disk

Rounds of 100 answers at one time, each in a thread of its own. After each round, the pages that
the tables have are counted: what stays of an answer is what `runs` has more; the journal holds
answers under way, and its pages are used again.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import closing
from pathlib import Path

import httpx

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import ChatRequest
from copilot_runtime.api.events import Event

_ROUNDS = 4
_ANSWERS = 100
_TOKENS = [f"token{number} " for number in range(200)]
_PACE = 0.05


class _PacedModel:
    async def stream(self, request: ChatRequest) -> AsyncGenerator[Event, None]:
        for event in say(_TOKENS, id=f"answer-{request.run_id}"):
            await asyncio.sleep(_PACE)
            yield event


def main() -> None:
    """Print the kB of each table after each round."""
    print(f"{len(''.join(_TOKENS)) / 1000:.1f} kB of text in each of {_ANSWERS} answers a round")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> None:
    settings = Settings(
        threads=f"sqlite:{folder}/threads.db",
        telemetry=Settings().telemetry.model_copy(update={"store": f"sqlite:{folder}/traces.db"}),
    )
    runtime = CopilotRuntime(_PacedModel(), settings=settings)
    transport = httpx.ASGITransport(runtime.lazy_app())
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for number in range(_ROUNDS):
                await asyncio.gather(*(_chat(client, f"{number}-{n}") for n in range(_ANSWERS)))
                print(_read_files(folder))
    finally:
        await runtime.aclose()


async def _chat(client: httpx.AsyncClient, id: str) -> None:
    message = {"id": f"question-{id}", "role": "user", "content": "What do we know of ferries?"}
    run = {"threadId": id, "runId": id, "messages": [message], "tools": [], "context": []}
    answer = await client.post(
        "/graphql/agent/default/run",
        json={**run, "forwardedProps": {}, "state": {}},
        headers={"accept": "text/event-stream"},
        timeout=60,
    )
    assert "RUN_FINISHED" in answer.text, answer.text


def _read_files(folder: Path) -> Mapping[str, Mapping[str, int]]:
    return {path.name: _read_sizes(path) for path in sorted(folder.glob("*.db"))}


def _read_sizes(path: Path) -> Mapping[str, int]:
    """Return how many kB each larger table has, and the file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        rows = connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall()
    sizes = {name: size // 1000 for name, size in rows if size > 20_000}
    return {**sizes, "file": path.stat().st_size // 1000}


if __name__ == "__main__":
    main()
