"""The file of memories: shared by processes, and never in the way."""

import asyncio
from pathlib import Path

import duckdb
import pytest

from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.extensions.analyst.memory.duckdb_store import FILE, DuckDbMemoryStore
from copilot_runtime.extensions.analyst.memory.store import MemoryKey

pytestmark = pytest.mark.anyio

KEY = MemoryKey(table="orders", fingerprint="0123456789ab", agent="a", owner="ann")


def _add(text: str | None) -> str:
    return f"{text or ''}x"


async def test_two_stores_share_a_file(tmp_path: Path) -> None:
    first, second = DuckDbMemoryStore(tmp_path), DuckDbMemoryStore(tmp_path)

    assert await first.read("ann") == {}
    await asyncio.gather(*(store.update(KEY, _add) for store in (first, second) * 3))

    assert await first.read("ann") == await second.read("ann") == {KEY: "xxxxxx"}
    await second.update(KEY, lambda _: None)
    assert await first.read("ann") == {}
    await first.aclose()
    await second.aclose()


async def test_while_another_program_has_the_file_open_it_waits_in_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = DuckDbMemoryStore(tmp_path, patience=0)
    await store.update(KEY, _add)
    assert await store.read("ann") == {KEY: "x"}

    with _Lock():
        await store.update(KEY, _add)
        assert await store.read("ann") == {KEY: "xx"}
        assert caplog.text.count("Another program has") == 1
    await store.update(KEY, _add)

    assert await DuckDbMemoryStore(tmp_path).read("ann") == {KEY: "xxx"}
    await store.aclose()


class _Lock:
    """Makes DuckDB find the file locked, as for a second process."""

    def __init__(self) -> None:
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise duckdb.IOException("IO Error: Could not set lock on file: Conflicting lock")

        self._patch.setattr(duckdb, "connect", refuse)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


async def test_a_broken_file_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def list_files() -> list[Path]:
        return [*tmp_path.iterdir()]

    (tmp_path / FILE).write_bytes(b"no database" * 1_000)
    store = DuckDbMemoryStore(tmp_path)

    assert await store.read("ann") == {}
    await store.update(KEY, _add)

    assert await store.read("ann") == {KEY: "x"}
    [aside] = (file for file in list_files() if ".broken-" in file.name)
    assert aside.read_bytes() == b"no database" * 1_000
    assert "cannot be read" in caplog.text
    await store.aclose()


async def test_a_folder_that_cannot_be_made_is_an_error_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = DuckDbMemoryStore(tmp_path / "file" / "folder")

    with pytest.raises(StoreFailed) as caught:
        await store.update(KEY, _add)
    assert str(tmp_path) not in f"{caught.value.message}{caught.value.hint}"
    await store.aclose()


async def test_a_change_that_raises_disturbs_no_other(tmp_path: Path) -> None:
    def fail(_: str | None) -> str:
        raise KeyError("a mistake")

    store = DuckDbMemoryStore(tmp_path)
    results = await asyncio.gather(
        store.update(KEY, fail), store.update(KEY, _add), return_exceptions=True
    )

    assert [type(result) for result in results] == [KeyError, type(None)]
    assert await store.read("ann") == {KEY: "x"}
    await store.aclose()


async def test_what_is_cancelled_half_way_disturbs_no_other(tmp_path: Path) -> None:
    store = DuckDbMemoryStore(tmp_path)
    task = asyncio.create_task(store.update(KEY, _add))
    await asyncio.sleep(0)
    task.cancel()

    await store.update(KEY, _add)

    assert (await store.read("ann"))[KEY] in ("x", "xx")
    await store.aclose()
