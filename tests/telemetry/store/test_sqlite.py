"""Traces in SQLite: one file for several processes, which outlives whatever happens to them."""

import logging
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from unittest.mock import Mock

import pytest

from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.build import TelemetryOptions, build_store
from copilot_runtime.telemetry.store.jsonlines import JsonLinesTraceStore
from copilot_runtime.telemetry.store.sqlite import SqliteTraceStore
from copilot_runtime.telemetry.store.store import ThreadedTraceStore
from tests.telemetry.store.spans import make_chat, make_span

pytestmark = pytest.mark.anyio

DAY = 86_400 * 10**9


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqliteTraceStore]:
    made = SqliteTraceStore(tmp_path / "traces.db", days=0)
    yield made
    await made.aclose()


async def test_several_stores_use_one_file(tmp_path: Path) -> None:
    stores = [SqliteTraceStore(tmp_path / "traces.db", days=0) for _ in range(3)]
    for number in range(300):
        stores[number % 3].add(make_chat("t", f"s{number}", {semconv.USAGE_INPUT_TOKENS: 1}))
    for store in stores:
        await store.flush()

    [summary] = await stores[0].list_traces()
    assert (summary.spans, summary.input_tokens) == (300, 300)
    for store in stores:
        await store.aclose()


async def test_a_process_that_is_killed_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from copilot_runtime.telemetry.store.sqlite import SqliteTraceStore
from tests.telemetry.store.spans import make_span
async def main():
    store = SqliteTraceStore(sys.argv[1], days=0)
    for number in range(1000):
        store.add(make_span("t", f"s{number}"))
    await store.flush()
    print("flushed", flush=True)
    while True:
        store.add(make_span("u", f"s{number}"))
        number += 1
        await store.flush()
asyncio.run(main())
"""
    file = tmp_path / "traces.db"
    with subprocess.Popen(  # noqa: ASYNC220  # nothing else runs here
        [sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"flushed\n"
        process.send_signal(signal.SIGKILL)

    store = SqliteTraceStore(file, days=0)
    store.add(make_span("t", "after"))
    assert len(await store.get_trace("t")) == 1001
    await store.aclose()
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("content", ["text", "database", "newer"])
async def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    file = tmp_path / "traces.db"
    if content == "text":
        file.write_text("These are notes. " * 100)
    else:
        await SqliteTraceStore(file).list_traces() if content == "newer" else None
        with sqlite3.connect(file) as connection:
            if content == "newer":
                connection.execute("UPDATE schema_version SET version = 99")
            else:
                connection.execute("CREATE TABLE notes(text)")
    before = file.read_bytes()

    store = SqliteTraceStore(file)
    store.add(make_span("t", "a"))
    with pytest.raises(ConfigurationFailed, match=r"traces\.db (is no store|was written by a new)"):
        await store.list_traces()
    assert store.is_failing
    await store.aclose()
    assert store.dropped == 1
    if content != "newer":
        assert file.read_bytes() == before


async def test_a_file_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = SqliteTraceStore(tmp_path / "file" / "traces.db")
    with pytest.raises(ConfigurationFailed, match=r"Set telemetry\.store to a file"):
        await store.get_trace("t")
    await store.aclose()


async def test_a_full_disk_costs_nothing_that_fits_into_memory(
    store: SqliteTraceStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.add(make_span("t", "first"))
    await store.flush()
    writer = store._open_writer()  # pyright: ignore[reportPrivateUsage]
    [pages] = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    with caplog.at_level(logging.WARNING):
        for number in range(2):
            store.add(make_span("t", f"large{number}", attributes={"x": "y" * 100_000}))
            await store.flush()
    assert store.is_failing
    assert len(await store.get_trace("t")) == 1
    assert [one for one in caplog.messages if "full" in one] == [
        "Traces cannot be kept: database or disk is full"
    ]

    writer.execute("PRAGMA max_page_count = 100000")
    assert len(await store.get_trace("t")) == 3
    assert (store.is_failing, store.dropped) == (False, 0)


async def test_what_is_old_or_too_much_goes_while_the_server_runs(tmp_path: Path) -> None:
    now = [10 * DAY]
    store = SqliteTraceStore(tmp_path / "t.db", days=2, max_traces=3, clock=lambda: now[0])
    for day in range(10):
        store.add(make_span(f"t{day}", "a", start=day * DAY + 1, end=day * DAY + 2))
    await store.flush()
    assert [one.trace_id for one in await store.list_traces()] == ["t9", "t8"]

    for hour in range(5):
        store.add(make_span(f"u{hour}", "a", start=10 * DAY + hour, end=10 * DAY + hour))
    now[0] += 60 * 10**9
    await store.flush()
    assert [one.trace_id for one in await store.list_traces()] == ["u4", "u3", "u2"]
    await store.aclose()


async def test_others_can_read_the_file_with_sql(store: SqliteTraceStore) -> None:
    about = {semconv.CONVERSATION_ID: "th", semconv.REQUEST_MODEL: "gpt"}
    store.add(make_chat("t", "a", {**about, semconv.USAGE_INPUT_TOKENS: 5}))
    agent = {semconv.CONVERSATION_ID: "th", semconv.USAGE_INPUT_TOKENS: 5}
    store.add(make_span("t", "root", attributes=agent, error="boom"))
    await store.flush()

    with sqlite3.connect(store.path) as reader:
        rows = reader.execute("SELECT span_id, name, model, status FROM spans ORDER BY 1")
        assert rows.fetchall() == [("a", "chat gpt", "gpt", 0), ("root", "work", None, 2)]
        rows = reader.execute("SELECT session_id, llm_calls, input_tokens, errors FROM sessions")
        assert rows.fetchall() == [("th", 1, 5, 1)]


async def test_what_comes_faster_than_it_is_written_is_counted(
    store: SqliteTraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.telemetry.store.store.MAX_PENDING", 10)
    monkeypatch.setattr(ThreadedTraceStore, "_start_thread", Mock())
    for number in range(15):
        store.add(make_span("t", f"s{number}"))
    assert store.dropped == 5
    assert len(await store.get_trace("t")) == 10


def test_the_setting_says_where_traces_are_kept(tmp_path: Path) -> None:
    stores = {
        kind: build_store(TelemetryOptions(store=kind))
        for kind in ("none", f"sqlite:{tmp_path}/a", f"jsonl:{tmp_path}/b")
    }
    assert [type(store) for store in stores.values()] == [
        type(None),
        SqliteTraceStore,
        JsonLinesTraceStore,
    ]
