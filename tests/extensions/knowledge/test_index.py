"""Plain and buffered indexes of identifiers."""

import asyncio
from uuid import UUID

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    contains,
    decode_identifier,
    encode_identifier,
    hash_short,
    hash_values,
    parse_identifier,
)
from copilot_runtime.extensions.knowledge.index import BufferedIndex, Filter, IndexBase, Item
from copilot_runtime.extensions.knowledge.resource_types import (
    create_resource,
    describe,
    to_resource,
)
from copilot_runtime.extensions.knowledge.tokens import count_json_tokens, count_tokens
from copilot_runtime.storage import MemoryStorage, StorageFailed
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

A, B, C = (
    Identifier("a.B", name, tokens=tokens) for name, tokens in (("a", 10), ("b", 20), ("c", 5))
)


class FullStorage(MemoryStorage):
    """Takes no more than it is told to."""

    full = True

    async def append(self, key: str, data: bytes) -> None:
        if self.full:
            raise StorageFailed("no space")
        await super().append(key, data)


async def lines(storage: MemoryStorage) -> list[bytes]:
    return (await storage.get("index.jsonl")).splitlines() if await storage.list() else []


async def test_what_is_added_is_found_after_a_restart() -> None:
    storage = MemoryStorage()
    index = IndexBase(storage)
    await index.add(Item(A, {"note": [1]}), Item(B))
    await index.add(Item(Identifier("a.B", "a", tokens=1)))

    for found in (index, IndexBase(storage)):
        assert [(str(id), id.tokens) for id in await found.query()] == [("a.B.a", 1), ("a.B.b", 20)]
        assert await found.get(["a.B.b", "a.B.none", A]) == [B, A]
        assert await found.get(None) == []
        assert await found.has(A)
        assert not await found.has("a.B.none")
    assert (await lines(storage))[0] == (
        b'{"id":"a.B.a","identifier":{"type":"a.B","name":"a","parent":"","tokens":10},"note":[1]}'
    )
    assert (await IndexBase(storage).load())["a.B.b"].fields == {}


async def test_ids_are_a_list() -> None:
    with pytest.raises(Misuse, match="ids must be an array or null"):
        await IndexBase(MemoryStorage()).get("a.B.a")
    with pytest.raises(Misuse, match="ids must be an array or null"):
        await IndexBase(MemoryStorage()).get(A)  # pyright: ignore[reportArgumentType]


async def test_first_the_prefix_then_the_limit_then_the_tokens() -> None:
    index = IndexBase(MemoryStorage())
    await index.add(Item(A), Item(B), Item(C), Item(Identifier("a.B", "d", "a.B.b", tokens=1)))

    assert len(await index.query(filter=Filter(prefix="a.B.b", limit=1))) == 1
    assert await index.query(filter=Filter(limit=2, max_tokens=10)) == [A]
    assert await index.query(filter=Filter(max_tokens=12)) == [A]


async def test_the_id_of_a_line_is_that_of_its_identifier() -> None:
    storage = MemoryStorage()
    await storage.put("index.jsonl", b'{"id":"old","identifier":{"type":"a.B","name":"a"}}\n{"torn')
    assert await IndexBase(storage).query() == [A]


async def test_a_line_without_an_item_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = MemoryStorage()
    await IndexBase(storage).add(Item(A))
    await storage.append("index.jsonl", b'{"id":"a.B.c"}\n')
    assert await IndexBase(storage).query() == [A]
    assert "index.jsonl has a line without an item: identifier must be an object." in caplog.text


async def test_items_are_found_at_once_and_written_when_there_are_enough() -> None:
    storage = MemoryStorage()
    index = BufferedIndex(storage, max_items=2)
    await index.add(Item(A))
    assert (await index.query(), await lines(storage)) == ([A], [])
    await index.add(Item(B))
    assert len(await lines(storage)) == 2
    await index.add(Item(C))
    assert await index.flush() == 1
    assert await index.flush() == 0
    await index.aclose()
    assert len(await lines(storage)) == 3


async def test_items_are_written_when_it_is_time() -> None:
    class NotingStorage(MemoryStorage):
        written = asyncio.Event()

        async def append(self, key: str, data: bytes) -> None:
            await super().append(key, data)
            self.written.set()

    storage = NotingStorage()
    index = BufferedIndex(storage, flush_interval=0.01)
    await index.add(Item(A))
    await index.add(Item(B))
    await storage.written.wait()
    assert len(await lines(storage)) == 2
    await index.aclose()


async def test_closing_writes_what_is_left() -> None:
    storage = MemoryStorage()
    index = BufferedIndex(storage)
    await index.add(Item(A))
    await index.aclose()
    assert len(await lines(storage)) == 1
    await index.add(Item(B))
    await index.aclose()
    assert len(await lines(storage)) == 2


async def test_a_failed_write_loses_nothing() -> None:
    storage = FullStorage()
    index = BufferedIndex(storage, max_items=2)
    await index.add(Item(A))
    with pytest.raises(StorageFailed):
        await index.add(Item(B))
    with pytest.raises(StorageFailed):
        await index.flush()
    assert await index.query() == [A, B]

    storage.full = False
    assert await index.flush() == 2
    await index.aclose()
    assert await IndexBase(storage).query() == [A, B]


async def test_a_full_buffer_that_could_not_be_written_is_tried_again() -> None:
    class OnceFull(FullStorage):
        written = asyncio.Event()

        async def append(self, key: str, data: bytes) -> None:
            await super().append(key, data)
            self.written.set()

    storage = OnceFull()
    index = BufferedIndex(storage, flush_interval=0.01, max_items=1)
    with pytest.raises(StorageFailed):
        await index.add(Item(A))
    storage.full = False
    await storage.written.wait()
    assert len(await lines(storage)) == 1
    await index.aclose()


async def test_a_failed_write_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class OnceFull(FullStorage):
        tries = 0
        written = asyncio.Event()

        async def append(self, key: str, data: bytes) -> None:
            self.tries += 1
            self.full = self.tries == 1
            await super().append(key, data)
            self.written.set()

    storage = OnceFull()
    index = BufferedIndex(storage, flush_interval=0.01)
    await index.add(Item(A))
    await storage.written.wait()
    assert "1 items of index.jsonl could not be written. They are tried again in 0.01 s." in (
        caplog.text
    )
    await index.aclose()
    assert len(await lines(storage)) == 1


async def test_what_is_added_during_a_write_is_written_next() -> None:
    class SlowStorage(MemoryStorage):
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def append(self, key: str, data: bytes) -> None:
            self.begun.set()
            await self.go_on.wait()
            await super().append(key, data)

    storage = SlowStorage()
    index = BufferedIndex(storage)
    await index.add(Item(A))
    flush = asyncio.create_task(index.flush())
    await storage.begun.wait()
    await index.add(Item(B))
    storage.go_on.set()
    assert await flush == 1
    await index.aclose()
    assert len(await lines(storage)) == 2


@in_one_test("name", ["a.b.c", "a/b", "100%", "%2E", "x:y", "Zoë", "a%2Fb.c/d%25"])
def test_a_name_is_read_as_it_was_written(name: str) -> None:
    identifier = Identifier("common.Message", name, "common.Conversation.c1")
    assert parse_identifier(str(identifier)) == identifier
    assert parse_identifier(identifier.urn) == identifier
    child = Identifier("plan.Task", "t", str(identifier))
    assert parse_identifier(child.urn) == child


def test_a_urn_is_a_uri_in_a_namespace() -> None:
    identifier = Identifier("plan.Task", "t1", "cld:common.Conversation.c1/common.Message.m1")
    assert str(identifier) == "common.Conversation.c1/common.Message.m1/plan.Task.t1"
    assert identifier.urn == f"cld:{identifier}"


@in_one_test("uri", ["", "a", "a.b", "a..b", ".a.b", "a.b.", "cld:", "a.A.1/", "a.A.1/b"])
def test_what_names_nothing_is_refused(uri: str) -> None:
    with pytest.raises(Misuse, match="names no resource"):
        parse_identifier(uri)


def test_an_identifier_has_a_type_and_a_name() -> None:
    with pytest.raises(Misuse, match="Resource name must not be null"):
        Identifier("a.B", "")
    with pytest.raises(Misuse, match=r'must not be null: \{"type":"","name":"n"\}'):
        Identifier("", "n")


def test_a_dotted_type_keeps_its_first_two_words() -> None:
    assert parse_identifier("common.Message.x.y.m1") == Identifier("common.Message", "m1")


def test_an_identifier_is_json_and_back() -> None:
    identifier = Identifier(
        "a.B", "n", "c.D.p", tokens=3, score=0.5, subjects=("https://a.example/1",)
    )
    encoded = encode_identifier(identifier)
    assert [*encoded] == ["type", "name", "parent", "subjects", "tokens", "score"]
    again = decode_identifier(encoded)
    assert (again, again.tokens, again.score, again.subjects) == (
        identifier,
        3,
        0.5,
        ("https://a.example/1",),
    )
    assert encode_identifier(Identifier("a.B", "n")) == {"type": "a.B", "name": "n", "parent": ""}


@in_one_test("value", [None, "a.B.n", {}, {"type": "a.B"}, {"name": "n"}])
def test_json_without_a_name_is_refused(value: object) -> None:
    with pytest.raises(Misuse):
        decode_identifier(value)


def test_a_parent_contains_only_what_is_below_it() -> None:
    assert contains("a.B.c1", "a.B.c1")
    assert contains("a.B.c1", "a.B.c1/d.E.f")
    assert not contains("a.B.c1", "a.B.c10")
    assert not contains("a.B.c1", "a.B.c1x/d.E.f")


def test_long_hashes_begin_with_the_short_ones() -> None:
    assert hash_values("common.Message", "hello").startswith(hash_short("common.Message", "hello"))
    assert len(hash_values("x")) == 32
    assert hash_values("a", "", None, "b") == hash_values("a", "b")


def test_results_are_cut_where_a_budget_ends() -> None:
    found = [Identifier("a.B", name, tokens=tokens) for name, tokens in (("a", 10), ("b", 20))]
    assert Filter(max_tokens=29).cut(found) == found[:1]
    assert Filter(max_tokens=30).cut(found) == found
    assert Filter(limit=1).cut(found) == found[:1]
    with pytest.raises(Misuse, match=r'Identifier missing tokens field: \{"type":"a\.B"'):
        Filter(max_tokens=30).cut([Identifier("a.B", "c")])


def test_a_filter_lets_types_and_prefixes_through() -> None:
    message = Identifier("common.Message", "m1", "common.Conversation.c1")
    assert Filter(type="common.Message", prefix="common.Conversation.c1").matches(message)
    assert not Filter(type="common.Conversation").matches(message)
    assert not Filter(prefix="common.Conversation.c").matches(message)


def test_tokens_are_estimated() -> None:
    assert count_tokens("Hello, world!") == 7
    assert count_tokens("\ufeff \u3000") == 0
    assert count_json_tokens({"a": [1, 2]}) == 3


def test_a_name_is_that_of_the_id_or_the_object() -> None:
    by_id = create_resource("common.Message", {"id": {"name": "x.y.z"}, "name": "other"})
    by_field = create_resource("common.Agent", {"name": "planner"}, parent="a.B.c")
    assert create_resource("common.Agent", {"name": "a.b"}).id.name == "a.b"
    assert (by_id.uri, by_field.uri) == ("common.Message.z", "a.B.c/common.Agent.planner")
    assert by_id.fields == {"name": "other"}


def test_without_a_name_each_object_is_another_or_equal_ones_are_the_same() -> None:
    message = {"role": "user", "content": "hello"}
    assert UUID(create_resource("common.Message", message).id.name).version == 4
    first, second = (create_resource("common.Message", message, naming="content") for _ in "12")
    assert first.uri == second.uri
    short = create_resource("common.Message", message, naming="content", digits=8)
    assert short.uri == "common.Message.c7794722"
    assert UUID(create_resource("common.Message", {}, naming="content").id.name).version == 4


def test_tokens_are_counted_unless_they_are_there() -> None:
    assert create_resource("common.Message", {"content": "Hello, world!"}).id.tokens == 7
    assert create_resource("common.Message", {"id": {"tokens": 3}, "content": "Hi"}).id.tokens == 3
    assert create_resource("tool.ToolFunction", {"name": "search"}).id.tokens == 0


def test_types_have_rules_of_their_own() -> None:
    assert create_resource("common.Assistant", {"name": "a"}).role == "system"
    assert create_resource("common.Assistant", {"name": "a", "role": "user"}).role == "user"
    tool = create_resource("tool.ToolFunction", {"id": {"name": "search"}, "parameters": {}})
    assert tool.fields == {"name": "search", "parameters": {}}
    renamed = create_resource("tool.ToolFunction", {"id": {"name": "old"}, "name": "a.search"})
    assert (renamed.id.name, renamed.fields["name"]) == ("search", "a.search")
    assert create_resource("tool.ToolFunction", {}).fields["name"]


def test_an_object_is_read_by_the_type_of_its_id() -> None:
    task = to_resource({"id": {"type": "plan.Task", "name": "t", "parent": "cld:a.B.c"}, "done": 1})
    assert (task.uri, task.fields) == ("a.B.c/plan.Task.t", {"done": 1})
    subjects = to_resource({"id": {"type": "common.Message", "subjects": ["https://a.example", 1]}})
    assert subjects.id.subjects == ("https://a.example",)


@in_one_test(
    ("fields", "message"),
    [
        ({}, "Object must have an identifier"),
        ({"id": {}}, "Object must have an identifier"),
        ({"id": "common.Message.m1"}, "Object must have an identifier"),
        ({"id": {"type": "common.Mesage"}}, "Unknown type: common.Mesage"),
    ],
)
def test_an_object_without_a_type_that_is_known_is_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(Misuse, match=message):
        to_resource(fields)


def test_a_description_has_four_sections() -> None:
    assert describe({"evaluation": "Done well.", "purpose": " Do it. ", "instructions": ""}) == (
        "**Purpose:** Do it.\n\n**Evaluation:** Done well."
    )
    assert describe({}) == ""
