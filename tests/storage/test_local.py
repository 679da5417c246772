"""Objects as files: atomic, below their directory, safe between processes."""

import asyncio
import os
import secrets
import sys
import time
from pathlib import Path

import pytest

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse
from copilot_runtime.storage import LocalStorage, ObjectNotFound, StorageFailed
from copilot_runtime.storage import local as module
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def test_a_key_is_a_path_below_the_directory(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "new" / "directory")
    await storage.put("resources/common.Message.m1.json", b"{}")

    path = storage.path("resources/common.Message.m1.json")
    assert path == tmp_path / "new/directory/resources/common.Message.m1.json"
    assert path is not None
    assert path.read_bytes() == b"{}"
    await storage.aclose()


async def test_a_failed_write_leaves_the_old_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a.json", b"old")
    await storage.append("log", b"one\n")
    write = os.write

    def fill_disk(descriptor: int, data: bytes) -> int:
        if len(data) > 1:
            return write(descriptor, data[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", fill_disk)
    for work in (storage.put("a.json", b"new"), storage.append("log", b"two\n")):
        with pytest.raises(StorageFailed, match="No space left on device") as caught:
            await work
        assert caught.value.hint == "Make room there."
        assert str(tmp_path) not in caught.value.public
    monkeypatch.undo()
    assert await storage.get_many(["a.json", "log"]) == {"a.json": b"old", "log": b"one\n"}
    assert files(tmp_path) == [".~/lock", "a.json", "log"]


WRITERS = """
import asyncio, sys
from copilot_runtime.storage import LocalStorage, ObjectChanged
async def main():
    storage = LocalStorage(sys.argv[1])
    for number in range(100):
        await storage.append("log.jsonl", (sys.argv[2] + " %d " % number * 200 + "\\n").encode())
        while True:
            data, etag = await storage.read("n.json")
            try:
                await storage.put("n.json", b"%d" % (int(data) + 1), expected=etag)
                break
            except ObjectChanged:
                pass
    await storage.aclose()
asyncio.run(main())
"""


async def test_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("n.json", b"0")
    writers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", WRITERS, str(tmp_path), name)
        for name in "abc"
    ]
    assert [await writer.wait() for writer in writers] == [0, 0, 0]

    lines = (await storage.get("log.jsonl")).decode().splitlines()
    assert sorted(lines) == sorted(
        name + f" {number} " * 200 for name in "abc" for number in range(100)
    )
    assert await storage.get("n.json") == b"300"


@in_one_test("where", ["folder", "deep"])
async def test_a_symbolic_link_leads_nowhere(tmp_path: Path, where: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (tmp_path / "root" / "in").mkdir(parents=True)
    link = tmp_path / "root" / ("in/deep" if where == "deep" else "folder")
    link.symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "file").symlink_to(tmp_path / "outside" / "secret")
    storage = LocalStorage(tmp_path / "root")
    key = f"{link.relative_to(tmp_path / 'root')}/secret"

    for work in (
        storage.get(key),
        storage.put(key, b""),
        storage.append(key, b""),
        storage.delete(key),
        storage.exists(key),
        storage.find_by_prefix(key.removesuffix("secret")),
    ):
        with pytest.raises(Misuse, match="symbolic link is on the way"):
            await work
    for work in (storage.get("file"), storage.append("file", b"more")):
        with pytest.raises(Misuse, match="The object is a symbolic link"):
            await work
    assert await storage.list() == []
    assert not await storage.exists("file")
    await storage.put("file", b"a file in place of the link")
    assert (tmp_path / "outside" / "secret").read_text() == "secret"


async def test_a_folder_that_becomes_a_link_is_seen(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "root")
    await storage.put("folder/a", b"")
    (tmp_path / "root" / "folder").rename(tmp_path / "outside")
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "outside")
    with pytest.raises(Misuse, match="symbolic link"):
        await storage.put("folder/b", b"")


async def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    storage = LocalStorage(tmp_path / "data")
    await storage.put("a/b", b"1")
    assert (tmp_path / "disk" / "a" / "b").read_bytes() == b"1"


async def test_what_cannot_be_a_file_name_is_refused(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with pytest.raises(Misuse, match="No file can have this name: File name too long"):
        await storage.put("x" * 300, b"")
    with pytest.raises(Misuse, match="No file can have this name"):
        await storage.exists("ü" * 200)


async def test_an_object_is_no_folder(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a", b"1")
    await storage.put("b/c", b"1")

    for work in (storage.put("a/b", b""), storage.append("a/b", b""), storage.put("b", b"")):
        with pytest.raises(Misuse, match="cannot lie below another object"):
            await work
    for key in ("a/b", "a/b/c", "b"):
        with pytest.raises(ObjectNotFound):
            await storage.get(key)
        assert not await storage.exists(key)
    assert await storage.find_by_prefix("a/") == []


async def test_no_pipe_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    storage = LocalStorage(tmp_path)
    with pytest.raises(ObjectNotFound):
        await storage.get("pipe")
    assert await storage.list() == []


async def test_a_directory_that_may_not_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StorageFailed, match="may not be used: Permission denied") as caught:
        await LocalStorage(tmp_path).put("a", b"")
    assert "Give the user of this process the right" in str(caught.value.hint)
    assert caught.value.public == "The storage of knowledge may not be written."


async def test_a_broken_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "lstat", fail)
    with pytest.raises(CopilotError, match="failed: Input/output error"):
        await LocalStorage(tmp_path).etag("a")


async def test_only_what_the_prefix_lets_through_is_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    for key in ("resources/a/b", "resources/ab/c", "vectors/x", "resources/b"):
        await storage.put(key, b"")
    entered: list[str] = []
    scan = os.scandir

    def note(path: str) -> object:
        entered.append(str(Path(path).relative_to(tmp_path)))
        return scan(path)

    monkeypatch.setattr(os, "scandir", note)
    assert await storage.find_by_prefix("resources/a") == ["resources/a/b", "resources/ab/c"]
    assert sorted(entered) == ["resources", "resources/a", "resources/ab"]


async def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".~").mkdir()
    old, young = tmp_path / ".~" / "1-old", tmp_path / ".~" / "1-young"
    old.touch()
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    young.touch()

    await LocalStorage(tmp_path).put("a", b"")
    assert files(tmp_path) == [".~/1-young", ".~/lock", "a"]


async def test_a_folder_is_made_anew_when_another_process_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    replace, calls = os.replace, 0

    def lose_the_folder(source: str, target: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            Path(target).parent.rmdir()
        replace(source, target)

    monkeypatch.setattr(os, "replace", lose_the_folder)
    await storage.put("folder/a", b"1")
    assert await storage.get("folder/a") == b"1"

    def always(source: str, target: str) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "replace", always)
    with pytest.raises(StorageFailed, match="removed again and again"):
        await storage.put("folder/b", b"1")


@in_one_test(("fsync", "at_once", "at_end"), [("always", 4, 4), ("never", 0, 0)])
async def test_data_is_on_the_disk_when_the_policy_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: module.Fsync, at_once: int, at_end: int
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    storage = LocalStorage(tmp_path, fsync=fsync)
    await storage.put("a", b"1")
    await storage.append("b", b"1")
    assert len(synced) == at_once
    await storage.aclose()
    assert len(synced) == at_end


async def test_folders_that_others_remove_meanwhile_cost_no_write(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, fsync="always")

    async def put_and_delete(name: str) -> None:
        for _ in range(20):
            await storage.put(f"folder/{name}", b"1")
            await storage.append(f"folder/{name}.jsonl", b"{}\n")
            assert await storage.delete_many([f"folder/{name}", f"folder/{name}.jsonl"])

    await asyncio.gather(*map(put_and_delete, "abcd"))
    assert await storage.list() == []


async def test_what_another_writer_has_begun_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a", b"1")
    other = tmp_path / ".~" / "same"
    other.write_bytes(b"of another container")

    def repeat(_: int) -> str:
        return "same"

    monkeypatch.setattr(secrets, "token_hex", repeat)
    with pytest.raises(CopilotError):
        await storage.put("a", b"2")
    assert (other.read_bytes(), await storage.get("a")) == (b"of another container", b"1")


async def test_a_batch_is_on_the_disk_within_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, settled = asyncio.get_running_loop(), asyncio.Event()
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        if len(synced) == 2:
            loop.call_soon_threadsafe(settled.set)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.01)
    storage = LocalStorage(tmp_path / "root")
    await storage.put("a", b"1")
    await storage.put("b", b"1")
    await storage.delete("b")
    await settled.wait()
    assert synced == ["a", "root"]

    monkeypatch.setattr(module, "BATCH_SECONDS", 1000)
    await storage.append("a", b"2")
    await storage.aclose()
    assert synced[2:] == ["a", "root"]


async def test_many_files_are_synced_by_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: calls.append("sync"))
    monkeypatch.setattr(os, "fsync", calls.append)
    storage = LocalStorage(tmp_path)
    await storage.put_many({f"{number}.json": b"1" for number in range(200)})
    await storage.aclose()
    assert calls == ["sync"]


async def test_a_disk_that_does_not_sync_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    storage = LocalStorage(tmp_path)
    await storage.put("a", b"1")
    monkeypatch.setattr(os, "fsync", fail)
    await storage.aclose()
    assert "may not be on the disk: Input/output error." in caplog.text


async def test_without_flock_one_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "fcntl", None)
    storage = LocalStorage(tmp_path)
    etag = await storage.put("a", b"1")
    await storage.put("a", b"2", expected=etag)
    await storage.append("a", b"3")
    assert await storage.get("a") == b"23"


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailed, match="'often' is none of always, batch, never"):
        LocalStorage(tmp_path, fsync="often")  # pyright: ignore[reportArgumentType]
