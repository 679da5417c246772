"""Traces as JSON Lines: files by day, and what may stand in them."""

import json
import logging
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.extensions.tracing.store import TraceFilter
from copilot_runtime.extensions.tracing.store.jsonlines import JsonLinesTraceStore
from tests.extensions.tracing.store import make_span

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that is set by hand."""

    def __init__(self, text: str) -> None:
        self.set(text)

    def set(self, text: str) -> None:
        self.now = int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e9)

    def __call__(self) -> int:
        return self.now


def list_lines(folder: Path) -> list[Path]:
    return list(folder.glob("*.jsonl"))


async def test_a_file_begins_at_midnight_utc(tmp_path: Path) -> None:
    clock = Clock("2026-01-31T23:59:59")
    store = JsonLinesTraceStore(tmp_path / "a" / "b", clock=clock)
    store.add(make_span("t1", "a"))
    await store.flush()
    clock.set("2026-02-01T00:00:00")
    store.add(make_span("t1", "b", start=200))

    assert [span["span_id"] for span in await store.get_trace("t1")] == ["a", "b"]
    lines = {path.name: path.read_text() for path in list_lines(tmp_path / "a" / "b")}
    assert sorted(lines) == ["2026-01-31.jsonl", "2026-02-01.jsonl"]
    assert json.loads(lines["2026-02-01.jsonl"])["span_id"] == "b"
    await store.aclose()


async def test_files_of_old_days_go_while_the_server_runs(tmp_path: Path) -> None:
    clock = Clock("2026-01-01T12:00:00")
    store = JsonLinesTraceStore(tmp_path, days=2, clock=clock)
    (tmp_path / "notes.jsonl").write_text("")
    for day in range(1, 6):
        clock.set(f"2026-01-0{day}T12:00:00")
        store.add(make_span(f"t{day}", "a"))
        await store.flush()

    assert sorted(path.name for path in list_lines(tmp_path)) == [
        *(f"2026-01-0{day}.jsonl" for day in (3, 4, 5)),
        "notes.jsonl",
    ]
    await store.aclose()


async def test_half_a_line_costs_nothing_but_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = JsonLinesTraceStore(tmp_path, clock=Clock("2026-01-01T12:00:00"))
    file = tmp_path / "2026-01-01.jsonl"
    file.write_text('5\n{"id": "a", "span": {"trace_id": "t", "span_id": "a"}}\n{"trace_id": "t", ')
    with caplog.at_level(logging.WARNING):
        store.add(make_span("t", "b"))
        assert [span["span_id"] for span in await store.get_trace("t")] == ["a", "b"]
        assert len(await store.list_traces()) == 1

    assert file.read_text().count("\n") == 4
    assert len([one for one in caplog.messages if "not spans" in one]) == 1
    await store.aclose()


async def test_several_stores_write_into_one_folder(tmp_path: Path) -> None:
    stores = [JsonLinesTraceStore(tmp_path) for _ in range(3)]
    for number in range(300):
        stores[number % 3].add(make_span("t", f"s{number}"))
    for store in stores:
        await store.flush()

    assert len(await stores[0].get_trace("t")) == 300
    assert await stores[0].delete_trace("t")
    assert await stores[1].get_trace("t") == []
    for store in stores:
        await store.aclose()


async def test_a_folder_that_cannot_be_used_breaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    store = JsonLinesTraceStore(tmp_path / "file")
    store.add(make_span("t", "a"))
    await store.flush()

    assert store.is_failing
    assert await store.get_trace("t") == []
    (tmp_path / "file").unlink()
    assert len(await store.get_trace("t")) == 1
    assert not store.is_failing
    (tmp_path / "file" / "2026-01-01.jsonl").mkdir()
    with pytest.raises(StoreFailed):
        await store.list_traces()
    await store.aclose()


def run_program(program: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, cwd=Path.cwd()
    )


_PROGRAM = """
import asyncio, resource, sys
from copilot_runtime.extensions.tracing.store.jsonlines import JsonLinesTraceStore
from tests.extensions.tracing.store import make_span
async def main():
    store = JsonLinesTraceStore(sys.argv[1], days=0)
"""


async def test_a_process_that_is_killed_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    program = f"""{_PROGRAM}
    for number in range(1000):
        store.add(make_span("t", f"s{{number}}"))
    await store.flush()
    print("flushed", flush=True)
    while True:
        for number in range(100):
            store.add(make_span("u", f"s{{number}}"))
        await store.flush()
asyncio.run(main())
"""
    store = JsonLinesTraceStore(tmp_path, days=0)
    with run_program(program, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"flushed\n"
        assert len(await store.get_trace("t")) == 1000
        process.kill()

    store.add(make_span("t", "after"))
    assert len(await store.get_trace("t")) == 1001
    assert len(await store.get_trace("u")) in range(101)
    await store.aclose()


async def test_what_a_full_disk_takes_half_is_taken_back_and_written_later(tmp_path: Path) -> None:
    program = f"""{_PROGRAM}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    store.add(make_span("t", "first"))
    await store.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    for number in range(2):
        store.add(make_span("t", f"large{{number}}", attributes={{"x": "y" * 10_000}}))
        await store.flush()
    print(store.is_failing, len(await store.get_trace("t")), flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    await store.flush()
    print(store.is_failing, len(await store.get_trace("t")), store.dropped, flush=True)
    await store.aclose()
asyncio.run(main())
"""
    with run_program(program, tmp_path) as process:
        output, _ = process.communicate()
    assert output.decode().splitlines() == ["True 1", "False 3 0"]
    [file] = list_lines(tmp_path)
    assert [json.loads(line)["span_id"] for line in file.read_text().splitlines()] == [
        *("first", "large0", "large1")
    ]


async def test_what_was_deleted_is_gone_for_other_processes_as_well(tmp_path: Path) -> None:
    one, other = (JsonLinesTraceStore(tmp_path, days=0) for _ in range(2))
    for number in range(10):
        one.add(make_span(f"t{number}", "a", start=100 + number, resource={"id": "x"}))
    await one.flush()
    assert len(await other.list_traces()) == 10

    assert await one.delete_trace("t3")
    one.add(make_span("t3", "a", start=500))
    await one.flush()
    found = await other.query_spans("[?name=='work']", limit=2)
    assert [span["trace_id"] for span in found] == ["t9", "t3"]
    assert await other.delete_traces(before=115) == 4
    assert len(await one.list_traces()) == 6
    for store in (one, other):
        await store.aclose()


async def test_a_file_that_somebody_wrote_anew_is_read_anew(tmp_path: Path) -> None:
    store = JsonLinesTraceStore(tmp_path, clock=Clock("2026-01-01T12:00:00"))
    for number in range(3):
        store.add(make_span(f"t{number}", "a", start=100 + number))
    assert len(await store.get_trace("t1")) == 1
    file = tmp_path / "2026-01-01.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(reversed(lines)))

    assert [span["trace_id"] for span in await store.get_trace("t2")] == ["t2"]
    file.write_text(lines[0])
    assert [one.trace_id for one in await store.list_traces()] == ["t0"]
    file.unlink()
    assert list(await store.list_traces()) == []
    await store.aclose()


async def test_files_are_read_by_nobody_else(tmp_path: Path) -> None:
    store = JsonLinesTraceStore(tmp_path / "traces")
    for name in ("t", "u"):
        store.add(make_span(name, "a"))
    assert await store.delete_trace("t")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "traces").iterdir()}
    assert modes == {0o600}
    assert (tmp_path / "traces").stat().st_mode & 0o777 == 0o700
    await store.aclose()


async def test_a_hundred_days_are_read_with_few_open_files(tmp_path: Path) -> None:
    for day in range(100):
        text = f'{{"trace_id": "t", "span_id": "s{day}", "start_time_unix_nano": {1000 + day}}}\n'
        (tmp_path / f"{date(2026, 1, 1) + timedelta(days=day)}.jsonl").write_text(text)
    store = JsonLinesTraceStore(tmp_path, days=0)
    assert [span["span_id"] for span in await store.get_trace("t")] == [
        f"s{day}" for day in range(100)
    ]
    assert len(await store.query_spans("[?name=='']", TraceFilter(text=""))) == 100
    await store.aclose()
