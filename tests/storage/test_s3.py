"""Objects in a bucket: appends that lose nothing, and errors that say what to do."""

import asyncio
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import ObjectChanged, ObjectNotFound, StorageFailed
from copilot_runtime.storage import s3 as module
from copilot_runtime.storage.s3 import APPENDS, AppendSegment, S3Storage, _StoredObject  # pyright: ignore[reportPrivateUsage]
from tests.in_one_test import in_one_test
from tests.storage.conftest import OpenBucket

pytestmark = pytest.mark.anyio


def line(writer: int, number: int) -> bytes:
    return b"%d %d " % (writer, number) * 30 + b"\n"


async def segments(storage: S3Storage) -> list[str]:
    return [meta["path"] for meta in await storage._store.list(APPENDS).collect_async()]  # pyright: ignore[reportPrivateUsage]


async def test_ten_writers_lose_nothing_while_it_is_merged(
    open_bucket: OpenBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGE_AFTER", 4)
    writers = [open_bucket() for _ in range(10)]
    reader = open_bucket()
    sizes: list[int] = []

    async def write(writer: int) -> None:
        for number in range(5):
            await writers[writer].append("log.jsonl", line(writer, number))

    async def read() -> None:
        while not sizes or sizes[-1] < 50:
            try:
                sizes.append((await reader.get("log.jsonl")).count(b"\n"))
            except ObjectNotFound:
                sizes.append(0)

    await asyncio.gather(*map(write, range(10)), asyncio.wait_for(read(), 300))
    for writer in writers:
        await writer.aclose()

    lines = (await reader.get("log.jsonl")).splitlines(True)
    assert sorted(lines) == sorted(line(a, b) for a in range(10) for b in range(5))
    for writer in range(10):
        own = [one for one in lines if one.startswith(b"%d " % writer)]
        assert own == [line(writer, number) for number in range(5)]
    assert sizes == sorted(sizes)
    assert len(await segments(reader)) < 50


WRITER = """
import asyncio, sys
from copilot_runtime.storage.storage import open_storage
async def main():
    storage = open_storage(sys.argv[1])
    for number in range(10):
        await storage.append("log.jsonl", f"{sys.argv[2]} {number}\\n".encode())
    await storage.aclose()
asyncio.run(main())
"""


async def test_processes_lose_nothing_of_each_other(
    open_bucket: OpenBucket, s3_server: str, s3_bucket: str
) -> None:
    address = f"s3://{s3_bucket}/some/prefix?region=us-east-1&endpoint={s3_server}"
    writers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, address, str(name))
        for name in range(3)
    ]
    assert [await writer.wait() for writer in writers] == [0, 0, 0]
    lines = (await open_bucket().get("log.jsonl")).decode().splitlines()
    assert sorted(lines) == sorted(f"{name} {number}" for name in range(3) for number in range(10))


async def test_appends_at_the_same_time_are_one_segment(open_bucket: OpenBucket) -> None:
    storage = open_bucket()
    await asyncio.gather(*(storage.append("log", line(0, number)) for number in range(40)))
    assert len(await segments(storage)) <= 2
    assert await storage.get("log") == b"".join(line(0, number) for number in range(40))


async def test_what_a_writer_did_not_wait_for_is_written_or_not(open_bucket: OpenBucket) -> None:
    storage = open_bucket()
    task = asyncio.create_task(storage.append("log", b"1"))
    await asyncio.sleep(0)
    task.cancel()
    await storage.append("log", b"2")
    assert await storage.get("log") == b"12"


async def test_merging_keeps_the_content(open_bucket: OpenBucket) -> None:
    storage, other = open_bucket(), open_bucket()
    assert not await storage.merge("log")
    for number in range(3):
        await storage.append("log", b"%d" % number)
        await other.append("log", b"%d" % number)
    assert await storage.merge("log")
    assert await segments(storage) == []
    await other.append("log", b"3")
    assert await other.get("log") == b"0011223"
    assert await other.merge("log")
    assert not await other.merge("log")
    assert await storage.get("log") == b"0011223"


async def test_a_merge_that_broke_off_doubles_nothing(open_bucket: OpenBucket) -> None:
    class Killed(BaseException):
        pass

    class KilledStorage(S3Storage):
        async def _delete_segments(self, key: str, segments: object) -> None:
            if segments:
                raise Killed

    storage = open_bucket()
    killed = open_bucket(KilledStorage)
    await storage.append("log", b"1")
    await storage.append("log", b"2")
    with pytest.raises(Killed):
        await killed.merge("log")
    assert len(await segments(storage)) == 2
    assert await storage.get("log") == b"12"
    await storage.append("log", b"3")
    assert await storage.merge("log")
    assert (await storage.get("log"), await segments(storage)) == (b"123", [])


async def test_of_two_who_merge_one_does(open_bucket: OpenBucket) -> None:
    one, two = open_bucket(), open_bucket()
    for number in range(4):
        await one.append("log", b"%d" % number)
    await asyncio.gather(one.merge("log"), two.merge("log"), one.merge("log"))
    assert await two.get("log") == b"0123"


class Overtaken(S3Storage):
    """Others append and merge whenever it has listed the segments."""

    others: tuple[S3Storage, S3Storage]
    times = 1

    async def _find_segments(self, key: str) -> list[AppendSegment]:
        segments = await super()._find_segments(key)
        if self.times:
            self.times -= 1
            one, two = self.others
            await one.merge(key)
            await two.append(key, b"x")
            await two.merge(key)
            await one.append(key, b"y")
        return segments


async def test_a_reader_that_is_overtaken_by_merges_begins_anew(open_bucket: OpenBucket) -> None:
    writer, reader = open_bucket(), open_bucket(Overtaken)
    assert isinstance(reader, Overtaken)
    reader.others = open_bucket(), open_bucket()
    await writer.append("log", b"1")
    assert await reader.get("log") == b"1xy"


async def test_a_reader_that_is_always_overtaken_gives_up(open_bucket: OpenBucket) -> None:
    reader = open_bucket(Overtaken)
    assert isinstance(reader, Overtaken)
    reader.others, reader.times = (open_bucket(), open_bucket()), 1000
    await reader.append("log", b"1")
    with pytest.raises(StorageFailed, match="changes too fast to be read"):
        await reader.get("log")


async def test_a_merge_that_fails_costs_nobody_an_append(
    open_bucket: OpenBucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(S3Storage):
        async def merge(self, key: str) -> bool:
            raise StorageFailed("no right to delete")

    monkeypatch.setattr(module, "MERGE_AFTER", 1)
    storage = open_bucket(Failing)
    await storage.append("log", b"1")
    await storage.aclose()
    assert await open_bucket().get("log") == b"1"
    assert "Appended segments of log are not merged yet: no right to delete" in caplog.text


async def test_more_writers_than_the_marks_can_name_are_merged_in_turns(
    open_bucket: OpenBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_WRITERS", 2)
    writers = [open_bucket() for _ in range(5)]
    for number, writer in enumerate(writers):
        await writer.append("log", b"%d" % number)
    assert await writers[0].merge("log")
    assert len(await segments(writers[0])) == 3
    assert await writers[1].get("log") == b"01234"
    await writers[1].put("log", b"new")
    assert (await writers[2].get("log"), await segments(writers[2])) == (b"new", [])


async def test_segments_of_processes_that_have_ended_are_merged(
    open_bucket: OpenBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGE_AFTER", 3)
    for number in range(4):
        storage = open_bucket()
        await storage.append("log", b"%d" % number)
        await storage.aclose()
    assert len(await segments(open_bucket())) < 3
    assert await open_bucket().get("log") == b"0123"


@in_one_test("condition", ["none", "if-match", "if-none-match"])
async def test_a_server_that_ignores_conditions_is_refused(
    open_bucket: OpenBucket, condition: str
) -> None:
    class Careless(S3Storage):
        """Writes to a server that knows one condition, or none."""

        async def _put(self, key: str, data: bytes, expected: str | None, marks: str = "") -> str:
            heeds = condition == ("if-match" if expected else "if-none-match")
            return await super()._put(key, data, expected if heeds else None, marks)

    storage = open_bucket(Careless)
    await open_bucket().put("a.json", b"1")
    assert await storage.get("a.json") == b"1"
    for work in (
        storage.put("a.json", b"2"),
        storage.put("a.json", b"2", expected=""),
        storage.put_many({"a.json": b"2"}),
        storage.append("log.jsonl", b"{}"),
    ):
        with pytest.raises(StorageFailed, match="ignores the conditions of writes") as caught:
            await work
        assert "If-Match and If-None-Match" in str(caught.value.hint)
    assert await open_bucket().list() == ["a.json"]


async def test_a_server_that_knows_no_condition_is_refused(s3_bucket: str) -> None:
    with server_that_answers(501, "<Error><Code>NotImplemented</Code></Error>") as endpoint:
        storage = S3Storage(s3_bucket, endpoint=endpoint, retry_config={"max_retries": 0})
        with pytest.raises(StorageFailed, match="ignores the conditions of writes"):
            await storage.append("log.jsonl", b"{}")


class CountingStorage(S3Storage):
    """Counts the bytes that it reads."""

    bytes_read = 0

    async def _get(self, key: str, start: int = 0) -> _StoredObject:
        base = await super()._get(key, start)
        self.bytes_read += len(base.data)
        return base


async def test_of_a_log_only_what_is_new_is_read(open_bucket: OpenBucket) -> None:
    writer, reader = open_bucket(), open_bucket(CountingStorage)
    assert isinstance(reader, CountingStorage)
    await writer.put("log.jsonl", b"x" * 9_999 + b"\n")
    expected = await writer.get("log.jsonl")
    for number in range(3):
        await writer.append("log.jsonl", line(0, number))
        expected += line(0, number)
    size = len(line(0, 2))
    for _ in range(2):
        reader.bytes_read = 0
        assert (await reader.read("log.jsonl", len(expected) - size))[0] == line(0, 2)
        assert reader.bytes_read <= size + 1
        for start in (0, 1, 9_999, 10_000, 10_001, 10_005, len(expected), len(expected) + 5):
            assert (await reader.read("log.jsonl", start))[0] == expected[start:]
        await writer.merge("log.jsonl")


async def test_an_object_that_changes_between_two_requests_is_read_again(
    open_bucket: OpenBucket,
) -> None:
    class Changing(S3Storage):
        changes = 1

        async def _get(self, key: str, start: int = 0) -> _StoredObject:
            if self.changes:
                self.changes -= 1
                raise ObjectChanged(key)
            return await super()._get(key, start)

    storage = open_bucket(Changing)
    await storage.put("a.bin", b"12")
    assert (await storage.read("a.bin", 1))[0] == b"2"


async def test_what_others_put_among_the_segments_is_left_alone(open_bucket: OpenBucket) -> None:
    storage = open_bucket()
    for name in ("notes.txt", "1-2", "x-y-z", "1-a-1-else", "1-a-1/below"):
        await storage._put(f"{APPENDS}log.jsonl/{name}", b"stray", None)  # pyright: ignore[reportPrivateUsage]
    await asyncio.wait_for(storage.append("log.jsonl", b"1\n"), 60)
    assert await storage.get("log.jsonl") == b"1\n"
    assert await storage.list() == ["log.jsonl"]
    assert await storage.merge("log.jsonl")
    assert await storage.delete("log.jsonl")
    assert len(await segments(storage)) == 5


async def test_an_append_ends_when_its_writer_does(open_bucket: OpenBucket) -> None:
    class Broken(S3Storage):
        async def _count_segments(self, key: str) -> int:
            raise RuntimeError("a mistake of ours")

    storage = open_bucket(Broken)
    with pytest.raises(StorageFailed, match=r"data to append to 'log' was not written"):
        await storage.append("log", b"1")
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        await storage.aclose()


async def test_an_append_ends_when_the_process_does(open_bucket: OpenBucket) -> None:
    class Slow(S3Storage):
        begun = asyncio.Event()

        async def _count_segments(self, key: str) -> int:
            self.begun.set()
            return await asyncio.Event().wait()

    storage = open_bucket(Slow)
    append = asyncio.create_task(storage.append("log", b"1"))
    assert isinstance(storage, Slow)
    await storage.begun.wait()
    [writer] = [task for task in asyncio.all_tasks() if "_write_log" in repr(task)]
    writer.cancel()
    with pytest.raises(StorageFailed, match="was not written"):
        await append


async def test_logs_at_rest_are_forgotten(
    open_bucket: OpenBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_LOGS", 3)
    storage = open_bucket()
    for number in range(8):
        await storage.append(f"{number}.jsonl", b"1\n")
    await storage.append("0.jsonl", b"2\n")
    assert len(storage._logs) <= 4  # pyright: ignore[reportPrivateUsage]
    assert await storage.merge("0.jsonl")
    await storage.append("0.jsonl", b"3\n")
    assert await storage.get("0.jsonl") == b"1\n2\n3\n"


async def test_a_deletion_that_broke_off_leaves_no_part(open_bucket: OpenBucket) -> None:
    class Killed(BaseException):
        pass

    class KilledStorage(S3Storage):
        async def _delete_segments(self, key: str, segments: object) -> None:
            raise Killed

    storage = open_bucket()
    await storage.put("log", b"1")
    await storage.append("log", b"2")
    with pytest.raises(Killed):
        await open_bucket(KilledStorage).delete("log")
    assert await storage.get("log") == b""
    assert await storage.delete("log")
    assert (await storage.list(), await segments(storage)) == ([], [])


async def test_resources_live_in_a_bucket(open_bucket: OpenBucket) -> None:
    one, two = ResourceIndex(open_bucket()), ResourceIndex(open_bucket())
    resource = Resource(Identifier("a.B", "c"), "hello")
    assert await one.put(resource)
    assert not await two.put(resource)
    assert await two.put(Resource(resource.id, "hello again"), expected=resource.version)
    assert [found.content for found in await one.get([resource.uri])] == ["hello again"]
    assert [*await one.versions()] == ["a.B.c"]
    assert await one.delete("a.B.c") == [resource.id]
    assert await two.find_all() == []
    await one.aclose()


# errors


async def test_a_bucket_that_is_not_there(s3_server: str, s3_bucket: str) -> None:
    storage = S3Storage("nowhere", region="us-east-1", endpoint=s3_server)
    for work in (
        storage.get("a.json"),
        storage.put("a.json", b""),
        storage.append("log", b""),
        storage.list(),
        storage.put_many({"a.json": b"", "b.json": b""}),
    ):
        with pytest.raises(
            StorageFailed, match="There is no bucket 'nowhere' at http://"
        ) as caught:
            await work
        assert caught.value.public == "The storage of knowledge failed."


async def test_a_server_that_cannot_be_reached(s3_bucket: str) -> None:
    storage = S3Storage(s3_bucket, endpoint="http://127.0.0.1:1", retry_config={"max_retries": 0})
    with pytest.raises(StorageFailed, match=r"at http://127\.0\.0\.1:1 failed: .*error sending"):
        await storage.get("a.json")
    with pytest.raises(StorageFailed):
        await storage.append("log", b"1")


async def test_no_credentials(
    s3_server: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    storage = S3Storage(
        s3_bucket,
        endpoint=s3_server,
        metadata_endpoint="http://127.0.0.1:1",
        retry_config={"max_retries": 0},
    )
    with pytest.raises(StorageFailed, match="there are no credentials") as caught:
        await storage.get("a.json")
    assert "AWS_ACCESS_KEY_ID" in str(caught.value.hint)


@contextmanager
def server_that_answers(status: int, body: str) -> Generator[str]:
    """Serve one answer to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@in_one_test(
    ("status", "body", "message"),
    [
        (
            400,
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'us-east-1' is "
            "wrong; expecting 'eu-west-1'</Message><Region>eu-west-1</Region></Error>",
            "is not in the region 'us-east-1': it is in 'eu-west-1'.",
        ),
        (301, "<Error><Code>PermanentRedirect</Code></Error>", "is not in the region 'us-east-1'."),
        (403, "<Error><Code>AccessDenied</Code></Error>", "may not be used: AccessDenied."),
        (403, "<Error><Code>SignatureDoesNotMatch</Code></Error>", "SignatureDoesNotMatch"),
        (401, "", "may not be used: access denied."),
        (400, "<Error><Code>ExpiredToken</Code></Error>", "may not be used: ExpiredToken."),
        (400, "<Error><Code>InvalidRequest</Code></Error>", "failed: InvalidRequest."),
        (503, "<Error><Code>SlowDown</Code></Error>", "failed: SlowDown."),
    ],
)
async def test_what_a_server_refuses_is_said_in_words(
    s3_bucket: str, status: int, body: str, message: str
) -> None:
    with server_that_answers(status, body) as endpoint:
        storage = S3Storage(s3_bucket, endpoint=endpoint, retry_config={"max_retries": 0})
        with pytest.raises(StorageFailed) as caught:
            await storage.get("a.json")
    assert message in caught.value.message


async def test_a_conflict_is_no_failure(open_bucket: OpenBucket) -> None:
    storage = open_bucket()
    etag = await storage.put("a.json", b"1")
    await storage.put("a.json", b"2")
    with pytest.raises(ObjectChanged):
        await open_bucket().put("a.json", b"3", expected=etag)


async def test_a_key_named_twice_is_deleted_once(open_bucket: OpenBucket) -> None:
    """Else the second deletion may come too late, and say that there was nothing."""
    deleted: list[str] = []

    class Noting(S3Storage):
        async def delete(self, key: str) -> bool:
            deleted.append(key)
            return await super().delete(key)

    storage = open_bucket(Noting)
    await storage.put("a.json", b"1")
    assert await storage.delete_many(["a.json", "b.json", "a.json"]) == ["a.json"]
    assert deleted == ["a.json", "b.json"]
