"""Traces as JSON Lines: files by day, and what may stand in them."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from copilot_runtime.errors import StoreFailed
from copilot_runtime.telemetry.store.jsonlines import JsonLinesTraceStore
from tests.telemetry.store.spans import make_span

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
    assert len([one for one in caplog.messages if "no spans" in one]) == 1
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
