"""Backups that are cut off, changed, or made by somebody who means harm: nothing is put back."""

import asyncio
import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.operations.backup import archive as archives
from copilot_runtime.extensions.operations.backup.archive import (
    ArchiveReader,
    ArchiveWriter,
    BackupRefused,
)
from copilot_runtime.extensions.operations.backup.backup import restore_backup, write_backup
from copilot_runtime.extensions.operations.backup.record import Record, Row, StoredObject
from copilot_runtime.extensions.operations.backup.sources import select_sources
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.storage import LocalStorage
from copilot_runtime.threads.export import export_threads
from copilot_runtime.threads.url import build_store
from tests.extensions.operations.stores import build_settings, fill
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

KEY = b"0123456789abcdef"


def ignore(progress: object) -> None:
    """Show no progress."""


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a good backup, signed, and not packed."""
    folder = tmp_path_factory.mktemp("good")

    async def make() -> None:
        settings = build_settings(folder)
        await fill(settings)
        await write_backup(select_sources(settings), folder / "good", ignore, key=KEY)

    asyncio.run(make())
    return gzip.decompress((folder / "good").read_bytes())


async def refuse(data: bytes, folder: Path, key: bytes = b"") -> str:
    """Return why a backup is refused, after making sure that nothing was put back."""
    (folder / "bad").write_bytes(data)
    new = build_settings(folder / "new")
    with pytest.raises(CopilotError) as caught:
        await restore_backup(select_sources(new), folder / "bad", ignore, key=key)
    await check_empty(new)
    assert isinstance(caught.value, BackupRefused), caught.value
    return caught.value.message


async def check_empty(settings: Settings) -> None:
    async with aclosing(build_store(settings.threads)) as threads:
        assert [line async for line in export_threads(threads)] == []
    assert await LocalStorage(settings.knowledge.storage[6:]).list() == []


def write(*records: tuple[str, Record], parts: Sequence[str] = ("threads", "knowledge")) -> bytes:
    """Return an archive whose checksums are right, whatever is in it."""
    out = io.BytesIO()
    writer = ArchiveWriter(out, tuple(parts))
    for part, record in records:
        writer.add(part, record)
    writer.finish()
    return out.getvalue()


async def test_what_is_cut_off_anywhere_is_refused(backup: bytes, tmp_path: Path) -> None:
    packed = gzip.compress(backup, mtime=0)
    end = len(backup.rstrip(b"\0"))
    for data in (backup[:end], packed):
        for part in range(20):
            assert "refused" in await refuse(data[: len(data) * part // 20], tmp_path)
    assert "cut off" in await refuse(backup[:end], tmp_path)
    assert "does not end" in await refuse(backup[: end + 1_000], tmp_path)
    assert "cut off" in await refuse(packed[:-12], tmp_path)


async def test_what_was_changed_anywhere_is_refused(backup: bytes, tmp_path: Path) -> None:
    end = len(backup.rstrip(b"\0"))
    for place in range(600, end, end // 37):
        changed = backup[:place] + bytes([backup[place] ^ 1]) + backup[place + 1 :]
        if backup[place] and not _is_padding(backup, place):
            await refuse(changed, tmp_path, KEY)
    assert "does not end" in await refuse(backup + b"more" * 5_000, tmp_path)


def _is_padding(data: bytes, place: int) -> bool:
    """Return whether a byte is in a field of a header that is not read, such as its owner."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return any(one.offset + 100 <= place < one.offset_data for one in tar.getmembers())


async def test_only_who_has_the_key_can_sign(backup: bytes, tmp_path: Path) -> None:
    unsigned = write(("threads", Row("secret", {"value": "mine"})))
    assert "signature" in await refuse(unsigned, tmp_path, KEY)
    assert "signature" in await refuse(backup, tmp_path, KEY + b"x")
    (tmp_path / "good.tar").write_bytes(backup)
    new = build_settings(tmp_path / "new")
    await restore_backup(select_sources(new), tmp_path / "good.tar", ignore, key=KEY)


@in_one_test(
    ("field", "value"),
    [
        ("name", "../../etc/passwd"),
        ("name", "/etc/passwd"),
        ("name", "knowledge/00000009.object"),
        ("type", tarfile.SYMTYPE),
        ("type", tarfile.LNKTYPE),
        ("type", tarfile.GNUTYPE_SPARSE),
        ("type", tarfile.CHRTYPE),
        ("linkname", "/etc/passwd"),
    ],
)
async def test_entries_that_lead_elsewhere_are_refused(
    field: str, value: str | bytes, backup: bytes, tmp_path: Path
) -> None:
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(backup)) as old,
        tarfile.TarFile(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as new,
    ):
        for number, member in enumerate(old.getmembers()):
            data = old.extractfile(member)
            if number == 1:
                setattr(member, field, value)
            new.addfile(member, data)
    assert "refused" in await refuse(out.getvalue(), tmp_path)


_THREAD = {"owner": "", "thread": "t", "agent": "a", "name": None, "archived": False}
_TIMES = {"created": 1, "updated": 2, "last_run": None}
_API_KEY = {
    "id": "k",
    "name": "n",
    "user_id": "u",
    "tenant": "",
    "roles": "[]",
    "created_at": 1.0,
    "salt": b"s",
    "hash": b"h",
}


@in_one_test(
    "record",
    [
        ("knowledge", StoredObject("../../evil", b"x")),
        ("knowledge", StoredObject("/etc/cron.d/evil", b"x")),
        ("knowledge", StoredObject(".~lock/evil", b"x")),
        ("knowledge", Row("thread", {})),
        ("threads", StoredObject("x", b"")),
        ("threads", Row("run", {"key": "before its thread"})),
        ("threads", Row("users; DROP TABLE threads", {})),
        ("threads", Row("thread", {**_THREAD, **_TIMES, "thread": "x" * 501})),
        ("threads", Row("thread", {**_THREAD, **_TIMES, "created": "yesterday"})),
        ("threads", Row("thread", _THREAD)),
    ],
)
async def test_records_that_no_store_takes_are_refused(
    record: tuple[str, Record], tmp_path: Path
) -> None:
    good = ("threads", Row("thread", {**_THREAD, **_TIMES}))
    assert "refused" in await refuse(write(good, record), tmp_path)


@in_one_test(
    ("part", "record"),
    [
        ("events", Row("events", {"number": 1, "id); DROP TABLE log; --": 1})),
        ("events", Row("sqlite_master", {"name": "x"})),
        ("audit", StoredObject("/../../evil", b"x")),
        ("audit", StoredObject("x.lock", b"x")),
        ("keys", Row("key", {"id": "k", "hash": "no bytes"})),
        ("keys", Row("key", _API_KEY | {"roles": "{"})),
        ("keys", Row("key", _API_KEY | {"roles": "[1]"})),
        ("keys", Row("key", _API_KEY | {"expires_at": 1e300})),
        ("plans", Row("event", {"number": 1})),
    ],
)
async def test_records_of_the_other_parts_are_checked_too(
    part: str, record: Record, tmp_path: Path
) -> None:
    assert "refused" in await refuse(write((part, record), parts=[part]), tmp_path)


async def test_a_key_or_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    key = ("keys", Row("key", _API_KEY))
    file = ("audit", StoredObject(".jsonl", b""))
    for record in (key, file):
        assert "twice" in await refuse(write(record, record, parts=[record[0]]), tmp_path)


async def test_an_archive_of_a_time_that_no_calendar_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives.time, "time", lambda: 1e300)
    late = write()
    monkeypatch.undo()
    assert "its header is damaged" in await refuse(late, tmp_path)


async def test_a_bomb_is_refused_before_it_fills_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_SMALL", 1 << 20)
    bomb = write(*(("knowledge", StoredObject(f"{n}", bytes(1 << 20))) for n in range(8)))
    assert len(bomb) < 40_000
    assert "more than 200 times" in await refuse(bomb, tmp_path)
    # what is not packed is as large as it says
    (tmp_path / "bad").write_bytes(gzip.decompress(bomb))
    with (tmp_path / "bad").open("rb") as file:
        assert sum(1 for _ in ArchiveReader(file).read()) == 8


@pytest.mark.stalls(reason="The test packs and reads archives itself.")
async def test_a_small_file_takes_no_more_memory_than_a_good_one(tmp_path: Path) -> None:
    values = b'["thread",{"id":[' + b"[]," * 600_000 + b"[]]}]\n"
    texts = b'["thread",{"id":[' + b'"",' * 600_000 + b'""]}]\n'
    tables = b"".join(b'["%d",{}]\n' % number for number in range(60))
    for lines in (values, texts, tables):
        assert "too many" in await refuse(pack("threads/00000001.jsonl", lines), tmp_path)
    (tmp_path / "bad").write_bytes(
        write(("audit", StoredObject("x", bytes(30 << 20))), parts=["audit"])
    )
    tracemalloc.start()
    with (tmp_path / "bad").open("rb") as file:
        assert [part for part, _ in ArchiveReader(file).read()] == ["audit"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 15 << 20


def pack(name: str, data: bytes) -> bytes:
    """Return the begin of an archive, with one entry."""
    out = io.BytesIO(gzip.decompress(write()))
    with tarfile.open(fileobj=out) as tar:
        out.seek(tar.getmember("manifest.json").offset)
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    out.write(entry.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512))
    out.truncate()
    return gzip.compress(out.getvalue())


async def test_a_row_that_no_restore_would_take_is_named_by_the_backup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archives, "_LONGEST_LINE", 1000)
    with pytest.raises(BackupRefused, match="A run of the threads is larger"):
        write(("threads", Row("run", {"log": b"x" * 1000})))


async def test_other_files_and_later_formats_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for data in (b"", b"hello", b"x" * 999, bytes(5_000), gzip.compress(b"x" * 600)):
        assert "it is not a backup of copilot-runtime" in await refuse(data, tmp_path)
    assert "refused" in await refuse(b"\x1f\x8b" + b"x" * 999, tmp_path)
    monkeypatch.setattr(archives, "FORMAT", 2)
    later = write()
    monkeypatch.undo()
    assert "reads format 1" in await refuse(later, tmp_path)
