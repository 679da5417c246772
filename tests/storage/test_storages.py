"""What holds for every storage."""

import asyncio
from pathlib import Path

import pytest

from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.storage import (
    LocalStorage,
    MemoryStorage,
    ObjectChanged,
    ObjectNotFound,
    Storage,
)
from copilot_runtime.storage.jsonlines import (
    JsonLines,
    NewLines,
    Position,
    encode_lines,
    salvage_lines,
)
from copilot_runtime.storage.s3 import S3Storage
from copilot_runtime.storage.storage import copy_objects, open_storage
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


async def test_what_is_put_is_read_again(storage: Storage) -> None:
    await storage.put("a/b.bin", b"\x00old")
    await storage.put("a/b.bin", b"\x00new")

    assert await storage.get("a/b.bin") == b"\x00new"
    assert (await storage.read("a/b.bin", 2))[0] == b"ew"
    assert await storage.exists("a/b.bin")
    assert not await storage.exists("a")


async def test_an_object_that_is_not_there_is_named(storage: Storage) -> None:
    with pytest.raises(ObjectNotFound, match=r"There is no object 'a/none\.json'\."):
        await storage.get("a/none.json")
    assert not await storage.delete("a/none.json")
    assert await storage.etag("a/none.json") == ""
    assert await storage.list() == []


async def test_many_are_written_and_read_at_once(storage: Storage) -> None:
    etags = await storage.put_many({"a.json": b"1", "b.json": b"2"})

    assert await storage.get_many(["b.json", "none.json", "a.json"]) == {
        "b.json": b"2",
        "a.json": b"1",
    }
    assert [*await storage.get_many(["b.json", "a.json"])] == ["b.json", "a.json"]
    assert etags == await storage.find_many_etags(["a.json", "b.json"])
    assert etags == await storage.find_etags()


async def test_what_is_deleted_is_gone(storage: Storage) -> None:
    await storage.put("a/b/c.json", b"1")

    assert await storage.delete("a/b/c.json")
    assert not await storage.exists("a/b/c.json")
    assert await storage.list() == []
    await storage.append("log", b"1")
    assert await storage.delete("log")
    assert not await storage.delete("log")
    await storage.put_many({"1.json": b"1", "2.json": b"2"})
    assert await storage.delete_many(["1.json", "none.json", "2.json"]) == ["1.json", "2.json"]
    assert await storage.list() == []
    await storage.put("a/b", b"a folder without objects stands in nobody's way")
    assert await storage.list() == ["a/b"]


async def test_keys_are_listed_in_the_order_of_their_last_writes(storage: Storage) -> None:
    if not isinstance(storage, S3Storage):  # its clock has seconds, and names decide in one
        await storage.put("z.txt", b"")
    for key in ("a/one.json", "a/two/b.json", "ab.json", "z.txt"):
        await storage.put(key, b"again")

    assert await storage.list() == ["a/one.json", "a/two/b.json", "ab.json", "z.txt"]
    assert await storage.find_by_prefix("a/") == ["a/one.json", "a/two/b.json"]
    assert await storage.find_by_prefix("a") == ["a/one.json", "a/two/b.json", "ab.json"]
    assert await storage.find_by_prefix("a/", "/") == ["a/one.json", "a/two/"]
    assert await storage.find_by_prefix("a/o") == ["a/one.json"]
    assert await storage.find_by_prefix("none/") == []
    await storage.append("log", b"1")
    assert await storage.find_by_prefix(".~") == []
    await storage.delete("log")
    assert await storage.find_by_extension(".json") == ["a/one.json", "a/two/b.json", "ab.json"]


async def test_an_etag_changes_with_every_write(storage: Storage) -> None:
    etags: set[str] = set()
    for data in (b"1", b"2", b"3"):
        etags.add(await storage.put("a.bin", data))
        await storage.append("a.bin", b"x")
        etags.add(await storage.etag("a.bin"))
    assert len(etags) == 6
    assert (await storage.read("a.bin"))[1] == await storage.etag("a.bin")


async def test_a_conditional_write_needs_the_object_that_it_expects(storage: Storage) -> None:
    first = await storage.put("a.json", b"1", expected="")
    with pytest.raises(ObjectChanged, match=r"'a\.json' was changed by another writer"):
        await storage.put("a.json", b"2", expected="")

    second = await storage.put("a.json", b"2", expected=first)
    with pytest.raises(ObjectChanged):
        await storage.put("a.json", b"3", expected=first)
    await storage.delete("a.json")
    with pytest.raises(ObjectChanged):
        await storage.put("a.json", b"3", expected=second)
    assert not await storage.exists("a.json")


async def test_of_writers_who_expect_the_same_one_succeeds(storage: Storage) -> None:
    async def count_up() -> None:
        while True:
            data, etag = await storage.read("n.json")
            try:
                await storage.put("n.json", b"%d" % (int(data) + 1), expected=etag)
            except ObjectChanged:
                continue
            return

    await storage.put("n.json", b"0")
    await asyncio.gather(*(count_up() for _ in range(10)))
    assert await storage.get("n.json") == b"10"


async def test_appends_of_many_tasks_lose_nothing(storage: Storage) -> None:
    lines = [b"%d " % number * 300 + b"\n" for number in range(40)]
    await asyncio.gather(*(storage.append("log.jsonl", line) for line in lines))
    assert sorted((await storage.get("log.jsonl")).splitlines(True)) == sorted(lines)


async def test_what_was_appended_is_part_of_the_object(storage: Storage) -> None:
    await storage.append("a.log", b"1")
    await storage.append("a.log", b"2")
    assert (await storage.list(), await storage.find_by_prefix("a")) == (["a.log"], ["a.log"])
    assert (await storage.read("a.log", 1))[0] == b"2"
    assert await storage.exists("a.log")
    etag = await storage.etag("a.log")
    assert await storage.find_etags() == {"a.log": etag}

    etag = await storage.put("a.log", b"0", expected=etag)
    assert await storage.read("a.log") == (b"0", etag)
    await storage.append("a.log", b"3")
    assert await storage.get("a.log") == b"03"
    with pytest.raises(ObjectChanged):
        await storage.put("a.log", b"", expected=etag)


async def test_what_is_appended_to_lines_begins_in_a_line_of_its_own(storage: Storage) -> None:
    await storage.put("log.jsonl", b'{"a":1}\n{"to')
    await storage.append("log.jsonl", b"")
    assert await storage.get("log.jsonl") == b'{"a":1}\n{"to'

    await storage.append("log.jsonl", b'{"b":2}\n')
    await storage.append("log.jsonl", b'{"c":3}')
    await storage.append("log.jsonl", b'{"d":4}\n')
    data = await storage.get("log.jsonl")
    assert data == b'{"a":1}\n{"to\n{"b":2}\n{"c":3}\n{"d":4}\n'
    assert [(await storage.read("log.jsonl", start))[0] for start in range(len(data) + 2)] == [
        data[start:] for start in range(len(data) + 2)
    ]


async def test_what_is_appended_to_no_lines_is_joined(storage: Storage) -> None:
    await storage.append("log.txt", b"a")
    await storage.append("log.txt", b"b")
    assert await storage.get("log.txt") == b"ab"


async def test_nothing_is_appended_to_a_json_value(storage: Storage) -> None:
    with pytest.raises(Misuse, match="it is one JSON value"):
        await storage.append("a.json", b"1")


async def test_objects_are_copied_with_progress(storage: Storage) -> None:
    for number in range(5):
        await storage.put(f"a/{number}.json", b"1")
    await storage.put("b.json", b"1")
    target, done = MemoryStorage(), list[tuple[int, int]]()

    def note(copied: int, total: int) -> None:
        done.append((copied, total))

    copied = await copy_objects(storage, target, "a/", progress=note, at_once=2)
    assert (copied, done) == (5, [(2, 5), (4, 5), (5, 5)])
    assert await target.list() == [f"a/{number}.json" for number in range(5)]
    assert await copy_objects(storage, target) == 6


async def test_a_log_tells_of_what_was_written_with_it(storage: Storage) -> None:
    etags = await storage.put_with_log(
        {"a.json": b"1", "b.json": b"2"}, "log.jsonl", lambda etags: "".join(etags).encode()
    )
    assert etags == await storage.find_many_etags(["a.json", "b.json"])
    assert await storage.get("log.jsonl") == b"a.jsonb.json"


@in_one_test(
    "key",
    ["", "/etc/passwd", "../a", "a/../../b", "a//b", "a/", "./a", "a\\b", "a\x00b", "a\nb", ".~/x"],
)
async def test_a_key_that_leads_elsewhere_is_refused(storage: Storage, key: str) -> None:
    for work in (
        storage.put(key, b""),
        storage.get(key),
        storage.delete(key),
        storage.exists(key),
        storage.append(key, b""),
    ):
        with pytest.raises(Misuse, match="is no key of an object") as caught:
            await work
        assert "relative path" in str(caught.value.hint)


@pytest.mark.parametrize("key", ["common.Message.%2E%25.json", "a b/ä#?&=.json", "日本/語.txt"])
async def test_keys_may_have_any_other_character(storage: Storage, key: str) -> None:
    await storage.put(key, b"1")
    assert (await storage.list(), await storage.get(key)) == ([key], b"1")


def read_values(lines: NewLines) -> list[JsonObject]:
    return [*salvage_lines(lines.data)]


async def test_of_lines_that_many_add_each_is_read_once_in_one_order(storage: Storage) -> None:
    one, two = JsonLines(storage, "log.jsonl"), JsonLines(storage, "log.jsonl")
    assert await one.read_new() == NewLines(b"", False, Position())
    assert one.is_missing
    await one.append(encode_lines([]))
    await one.append(encode_lines([{"a": 1}]))
    await two.append(encode_lines([{"b": 2}, {"c": 3}]))
    seen: list[JsonObject] = []
    for _ in range(2):
        for lines in (one, two):
            new = await lines.read_new()
            seen += read_values(new) if lines is one else []
            lines.advance(new)
        await one.append(encode_lines([{"d": 4}]))
    assert seen == [{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}]


async def test_lines_that_nobody_has_applied_are_read_again(storage: Storage) -> None:
    lines = JsonLines(storage, "log.jsonl")
    await lines.append(encode_lines([{"a": 1}]))
    assert await lines.read_new() == await lines.read_new()
    assert read_values(await lines.read_new()) == [{"a": 1}]


async def test_lines_that_were_written_anew_are_read_anew(storage: Storage) -> None:
    one, two = JsonLines(storage, "log.jsonl"), JsonLines(storage, "log.jsonl")
    await one.append(encode_lines([{"a": 1}] * 2000 + [{"b": 2}]))
    assert one.is_long(2)
    two.advance(await two.read_new())
    one.advance(await one.read_new())
    await one.rewrite(lambda: encode_lines([{"a": 1}, {"b": 2}]))
    assert not one.is_long(2)
    assert await one.read_new() == NewLines(b"", False, (await two.read_new()).position)

    new = await two.read_new()
    assert (new.is_anew, read_values(new)) == (True, [{"a": 1}, {"b": 2}])
    two.advance(new)
    await two.rewrite(lambda: b"")
    await one.append(encode_lines([{"c": 3}]))
    new = await two.read_new()
    assert read_values(new) == [{"c": 3}]
    two.advance(new)
    await storage.delete("log.jsonl")
    new = await two.read_new()
    assert (new.is_anew, new.data) == (True, b"")
    two.advance(new)
    assert two.is_missing


async def test_lines_that_others_have_added_are_not_overwritten(storage: Storage) -> None:
    lines = JsonLines(storage, "log.jsonl")
    await storage.append("log.jsonl", b'{"a":1}\n')
    lines.advance(await lines.read_new())
    await storage.append("log.jsonl", b'{"b":2}\n')
    await lines.rewrite(lambda: b"{}\n")
    assert await storage.get("log.jsonl") == b'{"a":1}\n{"b":2}\n'


async def test_a_line_that_a_crash_has_torn_costs_no_other(storage: Storage) -> None:
    await storage.put("log.jsonl", b'{"a":1}\n[1]\nnull\n{"b":')
    lines = JsonLines(storage, "log.jsonl")
    new = await lines.read_new()
    assert read_values(new) == [{"a": 1}]
    lines.advance(new)

    await lines.append(b"")
    await lines.append(encode_lines([{"c": 3}]))
    assert read_values(await lines.read_new()) == [{"c": 3}]
    assert read_values(await JsonLines(storage, "log.jsonl").read_new()) == [{"a": 1}, {"c": 3}]


def test_an_address_names_a_storage(tmp_path: Path) -> None:
    local = open_storage(f"local:{tmp_path}/a?fsync=never")
    assert isinstance(local, LocalStorage)
    assert local.root == tmp_path / "a"
    assert isinstance(open_storage("memory"), MemoryStorage)
    bucket = open_storage("s3://bucket/a%20b/?region=eu-west-1&endpoint=https://minio.example")
    assert isinstance(bucket, S3Storage)
    assert (bucket.bucket, bucket.prefix) == ("bucket", "a b")


@in_one_test(
    ("address", "message"),
    [
        ("", "The storage '' has no kind"),
        (":x", "has no kind"),
        ("disk:/x", "No storage named 'disk'. Known: local, memory, s3"),
        ("local:", "names no path"),
        ("local:x?fsync=often", "'often' is none of always, batch, never"),
        ("local:x?sync=always", "has a parameter 'sync' that it does not know"),
        ("memory:x", "'memory' has no address"),
        ("s3:bucket", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket?regoin=x", "has a parameter 'regoin'"),
        ("s3://bucket?endpoint=minio:9000", "is no address of a server"),
    ],
)
def test_an_address_that_names_none_is_refused(address: str, message: str) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        open_storage(address)
    assert message in caught.value.message
