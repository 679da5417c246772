"""The index of resources: what is stored, in which version, and who may do what."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.access import Access, AccessDenied
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex, VersionConflict
from copilot_runtime.storage import LocalStorage, MemoryStorage, Storage, StorageFailed
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

CONVERSATION = Resource(Identifier("common.Conversation", "c1"), fields={"agent_id": "a"})
MESSAGE = Resource(Identifier("common.Message", "m1", CONVERSATION.uri), "hello", role="user")
LONGER = Resource(Identifier("common.Conversation", "c10"))
MESSAGE_KEY = f"resources/{MESSAGE.uri}.json"


class Only(Access):
    """Allows some URIs."""

    def __init__(self, *uris: str) -> None:
        self._uris = uris

    @property
    def key(self) -> tuple[str, ...]:
        return self._uris

    def allows(self, uri: str) -> bool:
        return uri in self._uris


@pytest.fixture(params=["memory", "local"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    storage = MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path / "objects")
    yield storage
    await storage.aclose()


@pytest.fixture
async def resources(storage: Storage) -> ResourceIndex:
    index = ResourceIndex(storage)
    await index.put_many([CONVERSATION, MESSAGE, LONGER])
    return index


async def uris(resources: ResourceIndex) -> list[str]:
    return [str(id) for id in await resources.find_all()]


async def test_each_resource_is_compact_json_in_an_object_of_its_own(
    resources: ResourceIndex,
) -> None:
    assert await resources.storage.find_by_prefix("resources/") == [
        "resources/common.Conversation.c1.json",
        MESSAGE_KEY,
        "resources/common.Conversation.c10.json",
    ]
    assert await resources.storage.get(MESSAGE_KEY) == (
        b'{"id":{"type":"common.Message","name":"m1","parent":"common.Conversation.c1","tokens":2},'
        b'"role":"user","content":"hello"}'
    )


async def test_what_was_put_is_got(resources: ResourceIndex) -> None:
    graph = Resource(
        Identifier("common.Message", "g", subjects=("https://a.example",), score=0.5, tokens=9),
        "<a> <b> <c> .",
        "turtle",
        fields={"title": "A", "place": {"page": 3}},
    )
    await resources.put(graph)

    [found] = await resources.get([graph.id])
    assert found == graph
    assert (found.id.tokens, found.id.subjects, found.id.score) == (9, ("https://a.example",), None)
    assert found.version == graph.version
    assert await resources.get(None) == []


async def test_resources_come_in_the_order_of_their_ids(resources: ResourceIndex) -> None:
    found = await resources.get(
        [MESSAGE.uri, "common.Message.none", f"cld:{CONVERSATION.uri}", MESSAGE.id]
    )
    assert found == [MESSAGE, CONVERSATION, MESSAGE]


async def test_ids_are_a_list(resources: ResourceIndex) -> None:
    with pytest.raises(Misuse, match="ids must be an array or null"):
        await resources.get("common.Message.m1")


async def test_a_prefix_ends_where_a_name_does(resources: ResourceIndex) -> None:
    assert [str(id) for id in await resources.find_by_prefix("cld:common.Conversation.c1")] == [
        "common.Conversation.c1",
        "common.Conversation.c1/common.Message.m1",
    ]
    with pytest.raises(Misuse, match="prefix is required"):
        await resources.find_by_prefix("")


async def test_resources_are_found_by_type_with_their_tokens(resources: ResourceIndex) -> None:
    [found] = await resources.find_by_type("common.Message")
    assert (found, found.tokens) == (MESSAGE.id, 2)
    assert len(await resources.find_by_type("common.Conversation")) == 2


async def test_a_resource_is_there_or_not(resources: ResourceIndex) -> None:
    assert await resources.has(MESSAGE.id.urn)
    assert not await resources.has("common.Message.none")


async def test_deleting_takes_along_what_is_below(resources: ResourceIndex) -> None:
    removed = await resources.delete(CONVERSATION.id)
    assert [str(id) for id in removed] == [CONVERSATION.uri, MESSAGE.uri]
    assert await uris(resources) == [LONGER.uri]
    assert await resources.storage.find_by_prefix("resources/") == [
        "resources/common.Conversation.c10.json"
    ]
    assert await resources.delete(CONVERSATION.id) == []
    assert await resources.delete_many([LONGER.id, MESSAGE.id]) == [LONGER.id]


async def test_versions_tell_what_has_changed(resources: ResourceIndex) -> None:
    before = dict(await resources.versions())
    changed = Resource(MESSAGE.id, "hello again")
    await resources.put(changed)
    await resources.delete(LONGER.id)

    after = await resources.versions()
    assert before[MESSAGE.uri].version == MESSAGE.version
    assert after[MESSAGE.uri].version == changed.version
    assert (after[MESSAGE.uri].type, after[MESSAGE.uri].tokens) == ("common.Message", 2)
    assert before[CONVERSATION.uri] == after[CONVERSATION.uri]
    assert LONGER.uri not in after


async def test_a_put_of_the_same_changes_no_byte(resources: ResourceIndex) -> None:
    async def contents() -> dict[str, tuple[bytes, str]]:
        return await resources.storage.read_many(await resources.storage.list())

    before = await contents()
    assert await resources.put_many([CONVERSATION, MESSAGE, LONGER]) == 0
    assert not await ResourceIndex(resources.storage).put(MESSAGE)
    assert not await resources.put(MESSAGE, expected=MESSAGE.version)
    assert await resources.put_many([]) == 0
    assert await contents() == before


async def test_of_two_writers_with_one_version_the_second_is_told(resources: ResourceIndex) -> None:
    one, two = Resource(MESSAGE.id, "one"), Resource(MESSAGE.id, "two")
    assert await resources.put(one, expected=MESSAGE.version)
    with pytest.raises(VersionConflict, match="was expected") as caught:
        await ResourceIndex(resources.storage).put(two, expected=MESSAGE.version)
    assert caught.value.version == one.version
    assert caught.value.status_code == 409
    with pytest.raises(VersionConflict, match="it was to be new"):
        await resources.put(two, expected="")
    with pytest.raises(VersionConflict, match="is not there"):
        await resources.put(Resource(Identifier("a.B", "c")), expected=MESSAGE.version)
    assert await resources.put(Resource(Identifier("a.B", "c")), expected="")


async def test_a_writer_between_reading_and_writing_is_noticed(resources: ResourceIndex) -> None:
    read, other = resources.storage.read_many, Resource(MESSAGE.id, "other")

    class Race(MemoryStorage):
        async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
            if expected is not None:
                await super().put(key, other.data)
            return await super().put(key, data, expected=expected)

    storage = Race()
    await storage.put(MESSAGE_KEY, MESSAGE.data)
    with pytest.raises(VersionConflict) as caught:
        await ResourceIndex(storage).put(Resource(MESSAGE.id, "mine"), expected=MESSAGE.version)
    assert caught.value.version == other.version
    assert await read([MESSAGE_KEY])


async def test_concurrent_puts_all_arrive(storage: Storage) -> None:
    indexes = [ResourceIndex(storage) for _ in range(4)]
    await asyncio.gather(
        *(
            index.put(Resource(Identifier("a.B", f"{number % 7}"), f"{writer} {number}"))
            for writer, index in enumerate(indexes)
            for number in range(30)
        )
    )
    for index in [*indexes, ResourceIndex(storage)]:
        versions = await index.versions()
        assert sorted(versions) == [f"a.B.{number}" for number in range(7)]
        found = await index.get([*versions])
        assert [resource.version for resource in found] == [
            versions[resource.uri].version for resource in found
        ]


async def test_what_another_index_wrote_is_seen(resources: ResourceIndex) -> None:
    other = ResourceIndex(resources.storage)
    assert len(await other.find_all()) == 3
    await resources.put(Resource(Identifier("a.B", "c")))
    await resources.delete(MESSAGE.id)
    assert await uris(other) == [CONVERSATION.uri, LONGER.uri, "a.B.c"]
    await other.aclose()
    assert await uris(resources) == [CONVERSATION.uri, LONGER.uri, "a.B.c"]


async def test_a_catalog_with_many_old_lines_is_written_anew(resources: ResourceIndex) -> None:
    for number in range(1005):
        await resources.put(Resource(MESSAGE.id, f"{number}"))
    other = ResourceIndex(resources.storage)
    assert len(await other.find_all()) == 3
    assert len((await resources.storage.get("catalog.jsonl")).splitlines()) < 10
    await other.put(LONGER)
    await resources.put(Resource(MESSAGE.id, "the last"))
    assert dict(await other.versions()) == dict(await resources.versions())
    await resources.aclose()
    before = await resources.storage.etag("catalog.jsonl")
    await resources.aclose()
    assert await resources.storage.etag("catalog.jsonl") == before
    assert await ResourceIndex(resources.storage).versions() == await resources.versions()


async def test_a_reader_without_the_right_to_write_reads_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class ReadOnly(MemoryStorage):
        async def append(self, key: str, data: bytes) -> None:
            raise StorageFailed("read-only")

    storage = ReadOnly()
    await storage.put(MESSAGE_KEY, MESSAGE.data)
    await storage.put("catalog.jsonl", b"")
    resources = ResourceIndex(storage)
    await resources.versions()
    assert await resources.get([MESSAGE.uri]) == [MESSAGE]
    assert "The catalog of resources is not mended: read-only" in caplog.text


async def test_a_catalog_that_is_written_anew_loses_no_line_of_others() -> None:
    class Race(MemoryStorage):
        async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
            if expected:
                await ResourceIndex(self).put(LONGER)
            return await super().put(key, data, expected=expected)

    storage = Race()
    resources = ResourceIndex(storage)
    for number in range(1004):
        await resources.put(Resource(MESSAGE.id, f"{number}"))
    assert await uris(resources) == [MESSAGE.uri, LONGER.uri]


async def test_many_resources_are_put_and_got(resources: ResourceIndex) -> None:
    many = [Resource(Identifier("a.B", f"{number}"), "x") for number in range(1200)]
    assert await resources.put_many(many) == 1200
    assert await resources.get([resource.id for resource in many]) == many
    assert await resources.put_many(many) == 0
    await resources.storage.delete("catalog.jsonl")
    assert len(await ResourceIndex(resources.storage).find_by_type("a.B")) == 1200


async def test_a_lost_catalog_is_rebuilt(resources: ResourceIndex) -> None:
    before = dict(await resources.versions())
    await resources.storage.delete("catalog.jsonl")
    again = ResourceIndex(resources.storage)
    assert dict(await again.versions()) == before
    assert dict(await ResourceIndex(resources.storage).versions()) == before


@pytest.mark.parametrize(
    ("before_it", "share"),
    [(b"", 0.95), (b"", 0.5), (b"", 0), (b"\x00" * 50, 1), (b"no json\n[]\n{}\n", 1)],
)
async def test_a_damaged_catalog_is_mended(
    resources: ResourceIndex, before_it: bytes, share: float
) -> None:
    before = dict(await resources.versions())
    data = await resources.storage.get("catalog.jsonl")
    await resources.storage.put("catalog.jsonl", before_it + data[: int(len(data) * share)])

    again = ResourceIndex(resources.storage)
    await again.put(Resource(Identifier("a.B", "new")))
    await again.reconcile()
    versions = dict(await ResourceIndex(resources.storage).versions())
    assert versions.pop("a.B.new")
    assert versions == before


async def test_what_is_put_behind_a_line_that_a_killed_process_has_torn_is_found(
    resources: ResourceIndex,
) -> None:
    await resources.storage.put(
        "catalog.jsonl", await resources.storage.get("catalog.jsonl") + b'{"id":"a.B.torn","vers'
    )
    await resources.put(Resource(Identifier("a.B", "one")))
    await resources.put(Resource(Identifier("a.B", "two")))

    for index in (resources, ResourceIndex(resources.storage)):
        assert (await uris(index))[3:] == ["a.B.one", "a.B.two"]


class SlowStorage(MemoryStorage):
    """Lets another task do something whenever etags are asked for."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def find_many_etags(self, keys: Iterable[str]) -> dict[str, str]:
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            await meanwhile()
        return await super().find_many_etags(keys)


async def test_who_looks_while_another_writes_keeps_the_newer_entry() -> None:
    storage = SlowStorage()
    one, two = ResourceIndex(storage), ResourceIndex(storage)
    await one.versions()

    async def write_and_look() -> None:
        await two.put(Resource(MESSAGE.id, "newer"))
        await one.versions()

    storage.meanwhile = write_and_look
    await one.put(Resource(MESSAGE.id, "older"))
    [found] = await one.get([MESSAGE.uri])
    assert (await one.versions())[MESSAGE.uri].version == found.version
    assert dict(await one.versions()) == dict(await ResourceIndex(storage).versions())


async def test_a_put_of_what_was_just_put_writes_nothing(resources: ResourceIndex) -> None:
    new = Resource(Identifier("a.B", "c"), "new")
    assert await resources.put(new)
    before = await resources.storage.find_etags()
    assert not await resources.put(new)
    assert await resources.get([new.uri]) == [new]
    assert await resources.storage.find_etags() == before


async def test_deleting_nothing_asks_the_storage_nothing(
    resources: ResourceIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    for method in ("etag", "find_etags", "delete_many", "read", "append"):
        monkeypatch.setattr(resources.storage, method, refuse)
    assert await resources.delete_many([]) == []


async def test_deleting_takes_along_what_only_the_catalog_has_below(
    resources: ResourceIndex,
) -> None:
    await resources.storage.delete(MESSAGE_KEY)
    await resources.delete_many([CONVERSATION.uri, "a.B.none"])
    assert await uris(resources) == [LONGER.uri]


async def test_reconciling_that_failed_is_done_again(resources: ResourceIndex) -> None:
    await resources.storage.put("resources/a.B.c.json", Resource(Identifier("a.B", "c")).data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources.storage, "find_etags", None)
        with pytest.raises(TypeError):
            await resources.reconcile()
    assert not resources.is_reconciled
    assert await resources.reconcile() == 1
    assert resources.is_reconciled


async def test_what_was_changed_by_hand_is_noticed(resources: ResourceIndex) -> None:
    changed = Resource(MESSAGE.id, "by hand")
    await resources.storage.put(MESSAGE_KEY, changed.data)
    await resources.storage.delete("resources/common.Conversation.c10.json")

    assert await resources.get([MESSAGE.uri, LONGER.uri]) == [changed]
    versions = await resources.versions()
    assert versions[MESSAGE.uri].version == changed.version
    assert LONGER.uri not in versions
    assert await resources.reconcile() == 0


async def test_reconciling_takes_in_what_was_copied_there(resources: ResourceIndex) -> None:
    new = Resource(Identifier("a.B", "c"), "copied")
    await resources.storage.put("resources/a.B.c.json", new.data)
    await resources.storage.put("resources/notes.txt", b"no resource")
    await resources.storage.put("resources/broken.json", b"{")
    await resources.storage.delete(MESSAGE_KEY)

    assert await resources.reconcile() == 2
    assert await uris(resources) == [CONVERSATION.uri, LONGER.uri, "a.B.c"]


async def test_nobody_does_what_is_not_allowed(resources: ResourceIndex) -> None:
    nothing, message = Only(), Only(MESSAGE.uri)
    for work in (
        resources.get([MESSAGE.uri], access=nothing),
        resources.get([MESSAGE.uri, LONGER.uri], access=message),
        resources.has(MESSAGE.uri, access=nothing),
        resources.put(MESSAGE, access=nothing),
        resources.put(MESSAGE, access=nothing, expected=""),
        resources.put_many([MESSAGE, LONGER], access=message),
        resources.delete(MESSAGE.uri, access=nothing),
        resources.delete(CONVERSATION.uri, access=Only(CONVERSATION.uri)),
        resources.delete_many([MESSAGE.uri, LONGER.uri], access=message),
    ):
        with pytest.raises(AccessDenied, match=r"^Access denied$"):
            await work
    assert len(await uris(resources)) == 3
    assert await resources.find_all(access=message) == [MESSAGE.id]
    assert await resources.find_by_prefix(CONVERSATION.uri, access=message) == [MESSAGE.id]
    assert await resources.find_by_type("common.Message", access=nothing) == []


def test_a_resource_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(Misuse, match="A content cannot be 'html'"):
        Resource(MESSAGE.id, format="html")  # pyright: ignore[reportArgumentType]
    with pytest.raises(Misuse, match="A resource has 'content' of its own"):
        Resource(MESSAGE.id, fields={"content": "x"})


@in_one_test("data", [b"", b"{", b"[]", b"{}", b'{"id":{"type":"a.B"}}', CONVERSATION.data])
async def test_what_is_no_resource_stands_in_nobody_s_way(
    resources: ResourceIndex, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await resources.storage.put(MESSAGE_KEY, data)
    assert await resources.get([CONVERSATION.uri, MESSAGE.uri]) == [CONVERSATION]
    assert MESSAGE_KEY in caplog.text
    assert await uris(resources) == [CONVERSATION.uri, LONGER.uri]
    assert await resources.put(MESSAGE, expected="")
    assert await resources.get([MESSAGE.uri]) == [MESSAGE]


WRITER = """
import asyncio, sys
from copilot_runtime.storage import LocalStorage
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.extensions.knowledge.identifiers import Identifier
async def main():
    resources = ResourceIndex(LocalStorage(sys.argv[1]))
    number = int(sys.argv[2])
    while True:
        number += 1
        await resources.put(Resource(Identifier("a.B", f"n{number}"), "x" * 500))
        await resources.put_many(
            Resource(Identifier("a.B", f"{number}-{part}", "a.B.many"), "x" * 50)
            for part in range(5)
        )
        await resources.put(Resource(Identifier("a.B", "same"), f"{number}"))
        await resources.delete(f"a.B.n{number - 3}")
        print(number, flush=True)
asyncio.run(main())
"""


async def test_a_writer_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    done = 0
    for round in range(8):
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(tmp_path), str(done), stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout is not None
        for _ in range(3 + round * 3):
            done = int(await writer.stdout.readline())
        writer.kill()
        rest = await writer.stdout.read()
        await writer.wait()
        done = int((rest.split() or [done])[-1])

        resources = ResourceIndex(LocalStorage(tmp_path))
        versions = await resources.versions()
        assert all(f"a.B.n{number}" in versions for number in (done - 1, done))
        assert f"a.B.many/a.B.{done}-4" in versions
        await resources.reconcile()
        found = await resources.get([*versions])
        assert {resource.uri: resource.version for resource in found} == {
            uri: entry.version for uri, entry in versions.items()
        }
        assert len(found) == len(await resources.storage.find_by_prefix("resources/"))
        done += 10
        await resources.aclose()
