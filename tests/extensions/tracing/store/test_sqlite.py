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

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.tracing.build import build_store
from copilot_runtime.extensions.tracing.options import TelemetryOptions
from copilot_runtime.extensions.tracing.store.jsonlines import JsonLinesTraceStore
from copilot_runtime.extensions.tracing.store.sqlite import SqliteTraceStore
from copilot_runtime.extensions.tracing.store.store import ThreadedTraceStore
from copilot_runtime.telemetry import semconv
from tests.extensions.tracing.store import make_chat, make_span
from tests.in_one_test import in_one_test

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
from copilot_runtime.extensions.tracing.store.sqlite import SqliteTraceStore
from tests.extensions.tracing.store import make_span
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


@in_one_test("content", ["text", "database", "newer", "older"])
async def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    file = tmp_path / "traces.db"
    if content == "text":
        file.write_text("These are notes. " * 100)
    else:
        is_ours = content != "database"
        await SqliteTraceStore(file).list_traces() if is_ours else None
        with sqlite3.connect(file) as connection:
            if is_ours:
                version = 99 if content == "newer" else 1
                connection.execute("UPDATE schema_version SET version = ?", (version,))
            else:
                connection.execute("CREATE TABLE notes(text)")
    before = file.read_bytes()

    store = SqliteTraceStore(file)
    store.add(make_span("t", "a"))
    with pytest.raises(
        ConfigurationFailed,
        match=r"traces\.db (is not a trace store|was written by an? (newer|older))",
    ):
        await store.list_traces()
    assert store.is_failing
    await store.aclose()
    assert store.dropped == 1
    if content in ("text", "database"):
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
    assert caplog.messages[-1] == "Traces are kept again."
    assert (store.is_failing, store.dropped) == (False, 0)


async def test_another_one_that_holds_the_file_makes_no_reader_wait(
    store: SqliteTraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.tracing.store.sqlite._BUSY_MILLISECONDS", 50)
    store.add(make_span("t", "first"))
    await store.flush()
    with sqlite3.connect(store.path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        store.add(make_span("t", "second"))
        assert [span["span_id"] for span in await store.get_trace("t")] == ["first"]
        assert store.is_failing
        monkeypatch.setattr(
            "copilot_runtime.extensions.tracing.store.sqlite._BUSY_MILLISECONDS", 600_000
        )
        assert len(await store.get_trace("t")) == 1
        other.execute("COMMIT")
    assert len(await store.get_trace("t")) == 2
    assert (store.is_failing, store.dropped) == (False, 0)


async def test_a_span_that_can_never_be_written_costs_only_itself(
    store: SqliteTraceStore, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        span = make_span("t", f"s{number}")
        if number == 2:
            del span.kind
        store.add(span)
    with caplog.at_level(logging.WARNING):
        assert [one["span_id"] for one in await store.get_trace("t")] == ["s0", "s1", "s3", "s4"]
    assert (store.dropped, store.is_failing) == (1, False)
    store.add(make_span("t", "more"))
    assert len(await store.get_trace("t")) == 5


async def test_a_file_that_is_deleted_is_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "traces.db"
    store = SqliteTraceStore(path, days=0)
    store.add(make_chat("a", "s1", {}))
    assert await store.get_trace("a") != []
    for file in (path, tmp_path / "traces.db-wal", tmp_path / "traces.db-shm"):
        file.unlink(missing_ok=True)
    store.add(make_chat("b", "s2", {}))
    assert await store.get_trace("b") != []
    assert await store.get_trace("a") == []
    await store.aclose()
    assert await SqliteTraceStore(path, days=0).get_trace("b") != []
    assert "are gone: another file is begun" in caplog.text


async def test_nobody_else_may_read_the_file(store: SqliteTraceStore) -> None:
    store.add(make_span("t", "a"))
    await store.flush()
    modes = {path.name: path.stat().st_mode & 0o777 for path in store.path.parent.iterdir()}
    assert modes == dict.fromkeys(("traces.db", "traces.db-wal", "traces.db-shm"), 0o600)


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
    monkeypatch.setattr("copilot_runtime.extensions.tracing.store.store.MAX_PENDING", 10)
    monkeypatch.setattr(ThreadedTraceStore, "_start_thread", Mock())
    for number in range(15):
        store.add(make_span("t", f"s{number}"))
    assert store.dropped == 5
    assert len(await store.get_trace("t")) == 10

    monkeypatch.setattr("copilot_runtime.extensions.tracing.store.store.MAX_PENDING_SIZE", 25_000)
    for number in range(5):
        store.add(make_span("u", f"s{number}", content={"text": ["x" * 10_000]}))
    assert store.dropped == 8
    assert len(await store.get_trace("u")) == 2
    store.add(make_span("u", "more", content={"text": "x" * 20_000}))
    assert (len(await store.get_trace("u")), store.dropped) == (3, 8)


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
