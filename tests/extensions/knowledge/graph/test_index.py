"""A graph that follows its resources, and shows each asker what they may see."""

import asyncio
import itertools
import json
import time
from typing import Any

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.access import FULL_ACCESS
from copilot_runtime.extensions.knowledge.graph import GraphIndex, GraphItem, Ontology, Pattern
from copilot_runtime.extensions.knowledge.graph.content import (
    decode_rdfjs,
    encode_copilot_ld_line,
    read_content,
)
from copilot_runtime.extensions.knowledge.graph.derivation import derive_ontology
from copilot_runtime.extensions.knowledge.graph.table import Snapshot
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.rdf.terms import parse_triples
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import MemoryStorage, ObjectChanged
from tests.extensions.knowledge.graph.scenes import PEOPLE, Only, build, fill, names, turtle
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

INDEX = "graphs/index.jsonl"
SHAPES = "graphs/ontology.ttl"


async def test_an_update_takes_in_what_is_new_changed_and_gone() -> None:
    storage = MemoryStorage()
    resources, graph = ResourceIndex(storage), GraphIndex(storage)
    await fill(resources, PEOPLE)

    first = await graph.update(resources)
    await fill(resources, {"m1": 'ex:alice schema:name "Alice Jones" .', "m4": "ex:d a ex:D ."})
    await resources.delete("common.Message.m3")
    second = await graph.update(resources)

    assert (first.added, first.changed, first.removed) == (3, 0, 0)
    assert (second.added, second.changed, second.removed) == (1, 1, 1)
    assert names(await graph.find()) == ["m1", "m2", "m4"]
    assert await graph.find('? ? "Alice Smith"') == []
    assert names(await graph.find('? ? "Alice Jones"')) == ["m1"]
    assert await graph.find("? schema:email ?") == []


def link(*pairs: tuple[int, int]) -> str:
    return "\n".join(f"_:b{one} ex:knows _:b{other} ." for one, other in pairs)


TANGLES = {
    "all know each other": link(*itertools.permutations(range(10), 2)),
    "a long circle": link(*((row, (row + 1) % 1000) for row in range(1000))),
    "two with ten alike": link(*((20 + row % 2, row) for row in range(20))),
    "all know each other, and a text has the name of one": "\n".join(
        [link(*itertools.permutations(range(10), 2))]
        + [f'_:b{row} ex:label "_:b0" .' for row in range(10)]
    ),
}


@pytest.mark.timeout(60)
@in_one_test("content", TANGLES.values(), ids=TANGLES)
async def test_nodes_without_a_name_stop_nothing_however_many_refer_to_each_other(
    content: str,
) -> None:
    start = time.perf_counter()
    found = read_content(f"@prefix ex: <urn:ex:> .\n{content}", "turtle", "m1")
    again = read_content(f"@prefix ex: <urn:ex:> .\n{content}", "turtle", "m1")

    assert time.perf_counter() - start < 5
    assert found == again
    assert len(found) == len(content.splitlines())
    assert "_:" not in "".join(subject for subject, _, _ in found)


async def test_nodes_that_are_alike_have_the_same_names_in_every_order() -> None:
    lines = link((0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 4)).splitlines()
    read = [
        set(read_content("\n".join(["@prefix ex: <urn:ex:> .", *some]), "turtle", "m1"))
        for some in (lines, lines[::-1])
    ]

    assert read[0] == read[1]
    assert len(read[0]) == 6


async def test_a_second_update_changes_no_byte() -> None:
    storage = MemoryStorage()
    resources = ResourceIndex(storage)
    await fill(resources, PEOPLE)
    await GraphIndex(storage).update(resources)
    before = await storage.get_many(await storage.list())

    report = await GraphIndex(storage).update(resources)

    assert (report.added, report.changed, report.removed) == (0, 0, 0)
    assert await storage.get_many(await storage.list()) == before


def process_of(graph: GraphIndex) -> int:
    """Return the number of the process that answers SPARQL."""
    (view,) = graph._evaluator._views.values()  # pyright: ignore[reportPrivateUsage]
    assert view._process is not None  # pyright: ignore[reportPrivateUsage]
    return view._process.pid  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return of how many rows an ontology was derived, each time."""
    sizes: list[int] = []

    def derive(snapshot: Snapshot, *rest: Any) -> Ontology:
        sizes.append(len(snapshot))
        return derive_ontology(snapshot, *rest)

    monkeypatch.setattr("copilot_runtime.extensions.knowledge.graph.index.derive_ontology", derive)
    return sizes


async def test_what_has_no_triples_leaves_the_graph_as_it_was(derived: list[int]) -> None:
    storage = MemoryStorage()
    graph, resources = await build(PEOPLE, storage), ResourceIndex(storage)
    access = Only("m1")
    await graph.triples(access=access)
    await graph.sparql("ASK {}")
    process, questions, ontology = process_of(graph), access.questions, await storage.etag(SHAPES)

    upload = "common.User.ann/common.Conversation.t1/file.Upload.u1"
    await resources.put(Resource(Identifier("common.Chunk", "1", upload), "The text of a file"))
    added = await graph.update(resources)
    await resources.put(Resource(Identifier("common.Chunk", "1", upload), "Another text of it"))
    changed = await graph.update(resources)
    await resources.delete(f"{upload}/common.Chunk.1")
    removed = await graph.update(resources)
    await graph.sparql("ASK {}")
    await graph.triples(access=access)

    assert (added.added, changed.changed, removed.removed) == (1, 1, 1)
    assert derived == [7]
    assert await storage.etag(SHAPES) == ontology
    assert process_of(graph) == process
    assert access.questions == questions
    await graph.aclose()


async def test_other_words_for_the_same_triples_change_nothing(derived: list[int]) -> None:
    storage = MemoryStorage()
    graph, resources = await build(PEOPLE, storage), ResourceIndex(storage)
    text = f"# a comment of the same length as none\n{PEOPLE['m3']}"
    await resources.put(turtle("m3", text, (await graph.find())[2].tokens))

    report = await graph.update(resources)

    assert report.changed == 1
    assert derived == [7]


async def test_triples_may_go_and_come_again(derived: list[int]) -> None:
    storage = MemoryStorage()
    graph, resources = await build(PEOPLE, storage), ResourceIndex(storage)

    await fill(resources, {"m1": "# nothing"})
    await graph.update(resources)
    assert names(await graph.find()) == ["m2", "m3"]
    assert await graph.has("common.Message.m1")
    assert await GraphIndex(storage).has("common.Message.m1")

    await fill(resources, {"m1": PEOPLE["m1"]})
    await graph.update(resources)
    assert sorted(names(await graph.find())) == ["m1", "m2", "m3"]
    assert await GraphIndex(storage).find() == await graph.find()
    assert derived == [7, 4, 7]


async def test_an_ontology_is_never_older_than_the_triples(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    graph, resources = await build(PEOPLE, storage), ResourceIndex(storage)
    await fill(resources, {"m4": "ex:new a ex:Newcomer ."})
    with monkeypatch.context() as killed:
        killed.setattr(graph, "_store_ontology", fail)
        with pytest.raises(RuntimeError, match="killed"):
            await graph.update(resources)
    assert await graph.stored_ontology() == ""

    await GraphIndex(storage).update(resources)

    assert "Newcomer" in await graph.stored_ontology()


async def fail() -> None:
    raise RuntimeError("killed")


async def test_items_that_no_resource_made_outlive_updates() -> None:
    storage = MemoryStorage()
    graph = await build(PEOPLE, storage)
    own = GraphItem(Identifier("my.Item", "i"), parse_triples(["<urn:s> <urn:p> <urn:o> ."]))
    await graph.add(own)

    report = await graph.update(ResourceIndex(storage))

    assert report.removed == 0
    assert await graph.find("urn:s ? ?") == [own.identifier]
    assert await graph.stored_ontology() == await graph.ontology_turtle()


async def test_progress_is_told() -> None:
    storage = MemoryStorage()
    resources = ResourceIndex(storage)
    await fill(resources, {f"m{number}": f"ex:s{number} a ex:T ." for number in range(600)})
    steps: list[tuple[int, int]] = []

    await GraphIndex(storage).update(resources, lambda done, total: steps.append((done, total)))

    assert steps == [(500, 600), (600, 600)]


async def test_a_new_process_has_the_same_graph_in_the_same_order() -> None:
    storage = MemoryStorage()
    graph = await build({**PEOPLE, "m9": 'ex:z schema:x "1", "2"@en, 3, <urn:x>, ex:y .'}, storage)
    await fill(ResourceIndex(storage), {"m1": PEOPLE["m1"] + " ex:alice schema:x 5 ."})
    await graph.update(ResourceIndex(storage))

    again = GraphIndex(storage)

    assert await again.triples(limit=0) == await graph.triples(limit=0)
    assert names(await again.find()) == ["m1", "m2", "m3", "m9"]


async def test_what_another_process_writes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.graph.index._REFRESH_SECONDS", 0)
    storage = MemoryStorage()
    reader = await build(PEOPLE, storage)
    resources = ResourceIndex(storage)

    await fill(resources, {"m4": "ex:new a schema:Person ."})
    await GraphIndex(storage).update(resources)
    assert names(await reader.find("? a schema:Person")) == ["m1", "m4"]

    await resources.delete("common.Message.m1")
    await GraphIndex(storage).update(resources)
    assert names(await reader.find("? a schema:Person")) == ["m4"]


async def test_a_torn_or_broken_line_costs_its_resource_and_is_taken_in_anew() -> None:
    storage = MemoryStorage()
    await build(PEOPLE, storage)
    lines = (await storage.get(INDEX)).splitlines(keepends=True)
    broken = b'{"id":"x","identifier":{"type":"a.B","name":"c"},"triples":"no triple"}\n'
    await storage.put(INDEX, broken + b"[]\n" + b"".join(lines[:2]) + lines[2][:40])

    graph = GraphIndex(storage)
    assert names(await graph.find()) == ["m1", "m2"]
    report = await graph.update(ResourceIndex(storage))

    assert report.added == 1
    assert names(await graph.find()) == ["m1", "m2", "m3"]
    assert names(await GraphIndex(storage).find()) == ["m1", "m2", "m3"]


async def test_content_that_cannot_be_read_harms_no_other_and_is_tried_once() -> None:
    storage = MemoryStorage()
    resources = ResourceIndex(storage)
    await fill(resources, {"m1": "ex:alice is broken", "m2": PEOPLE["m2"]})
    graph = GraphIndex(storage)

    report = await graph.update(resources)

    assert report.added == 2
    assert list(report.failed) == ["common.Message.m1"]
    assert report.failed["common.Message.m1"].startswith(
        "The content of 'common.Message.m1' is no turtle: "
    )
    assert (await graph.update(resources)).failed == {}
    assert names(await graph.find()) == ["m2"]


@in_one_test(
    ("format", "content"),
    [
        ("nquads", '<urn:s> <urn:p> "o" <urn:g> .'),
        ("turtle", '<urn:s> <urn:p> "o" .'),
        ("jsonld", '{"@id": "urn:s", "urn:p": "o"}'),
    ],
)
async def test_triples_are_read_in_every_format(format: str, content: str) -> None:
    resources = ResourceIndex(MemoryStorage())
    identifier = Identifier("common.Message", "m1")
    await resources.put(Resource(identifier, content, format))  # pyright: ignore
    graph = GraphIndex(MemoryStorage())
    await graph.update(resources)

    assert await graph.triples() == parse_triples(['<urn:s> <urn:p> "o" .'])


async def test_no_remote_context_is_fetched() -> None:
    resources = ResourceIndex(MemoryStorage())
    content = '{"@context": "http://127.0.0.1:1/", "@id": "urn:s", "name": "o"}'
    await resources.put(Resource(Identifier("common.Message", "m1"), content, "jsonld"))

    report = await GraphIndex(MemoryStorage()).update(resources)

    assert "No LoadDocumentCallback" in report.failed["common.Message.m1"]


async def test_conversations_and_tools_are_not_looked_into() -> None:
    storage = MemoryStorage()
    resources = ResourceIndex(storage)
    for uri in ("common.Conversation", "tool.ToolFunction", "common.Agent"):
        await resources.put(Resource(Identifier(uri, "c1"), "<urn:a> <urn:b> <urn:c> .", "turtle"))
    child = Identifier("common.Message", "m1", "common.Conversation.c1")
    await resources.put(Resource(child, "<urn:a> <urn:b> <urn:c> .", "turtle"))

    assert (await GraphIndex(storage).update(resources)).added == 0


async def test_files_of_a_conversation_are_looked_into() -> None:
    storage = MemoryStorage()
    resources = ResourceIndex(storage)
    upload = "common.User.ann/common.Conversation.c1/file.Upload.u1"
    child = Identifier("common.Message", "m1", upload)
    await resources.put(Resource(child, "<urn:a> <urn:b> <urn:c> .", "turtle"))

    assert (await GraphIndex(storage).update(resources)).added == 1


async def test_anonymous_items_have_the_same_names_in_every_run() -> None:
    text = 'ex:a schema:x [ schema:y "1" ], [ schema:y "2" ] ; schema:z [ schema:w [] ] .'
    one = await build({"m1": text})
    other = await build({"m1": text})
    elsewhere = await build({"m2": text})

    assert await one.triples(limit=0) == await other.triples(limit=0)
    assert await one.triples(limit=0) != await elsewhere.triples(limit=0)
    assert await one.count() == 6


async def test_a_statement_about_a_statement_is_held_and_found() -> None:
    text = 'ex:a schema:x <<( ex:b schema:y _:c )>>, <<( ex:b schema:y "c d" )>> .'
    graph = await build({"m1": text})

    assert names(await graph.find("ex:a schema:x ?")) == ["m1"]
    assert {str(triple.object) for triple in await graph.triples()} >= {
        '<https://example.invalid/b> <https://schema.org/y> "c d"'
    }
    assert "_:" not in str(await graph.triples())


async def test_items_can_be_added_without_resources() -> None:
    storage = MemoryStorage()
    graph = GraphIndex(storage)
    item = GraphItem(
        Identifier("common.Message", "m1", tokens=3), parse_triples(["<urn:s> <urn:p> <urn:o> ."])
    )
    await graph.add(item)
    await graph.add(item)

    assert await graph.has("common.Message.m1")
    assert not await graph.has(Identifier("common.Message", "m2"))
    assert await graph.get(["common.Message.m2", "common.Message.m1"]) == [item.identifier]
    assert await graph.get(None) == []
    assert await graph.query(Pattern("urn:s"), Filter(max_tokens=3)) == [item.identifier]
    assert (await GraphIndex(storage).find())[0].tokens == 3
    with pytest.raises(Misuse, match="ids must be an array or null"):
        await graph.get("common.Message.m1")


async def test_old_lines_are_dropped_once_they_are_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copilot_runtime.storage.jsonlines._FEW_LINES", 2)
    storage = MemoryStorage()
    resources, graph = ResourceIndex(storage), GraphIndex(storage)
    sizes: list[int] = []
    for number in range(6):
        await fill(resources, {"m1": f"ex:s schema:x {number} .", "m2": "ex:t schema:x 1 ."})
        await graph.update(resources)
        sizes.append((await storage.get(INDEX)).count(b"\n"))

    assert max(sizes) <= 6
    assert names(await graph.find("ex:s schema:x 5")) == ["m1"]
    assert names(await GraphIndex(storage).find("ex:s schema:x 5")) == ["m1"]


async def test_lines_that_another_process_dropped_are_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.graph.index._REFRESH_SECONDS", 0)
    monkeypatch.setattr("copilot_runtime.storage.jsonlines._FEW_LINES", 2)
    storage = MemoryStorage()
    reader, writer = await build(PEOPLE, storage), GraphIndex(storage)
    resources = ResourceIndex(storage)
    for number in range(12):
        await fill(resources, {"m1": f"ex:s schema:x {number} ."})
        await writer.update(resources)
        if number % 5 == 0:
            assert names(await reader.find(f"ex:s schema:x {number}")) == ["m1"]

    assert names(await reader.find("ex:s schema:x 11")) == ["m1"]
    assert names(await reader.find()) == ["m1", "m2", "m3"]


async def test_lines_are_not_dropped_while_somebody_else_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.storage.jsonlines._FEW_LINES", -100)

    class Contended(MemoryStorage):
        async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
            if key == INDEX:
                raise ObjectChanged(key)
            return await super().put(key, data, expected=expected)

    graph = await build(PEOPLE, Contended())
    assert names(await graph.find()) == ["m1", "m2", "m3"]


async def test_what_an_access_may_see_is_forgotten_after_many_others() -> None:
    graph = await build(PEOPLE)
    access = Only("m1")
    for name in ("m1", *(f"other{number}" for number in range(300)), "m1"):
        await graph.find("? ? ?", Filter(access=access if name == "m1" else Only(name)))

    assert access.questions == 6


async def test_an_index_of_copilot_ld_can_be_read_and_written() -> None:
    storage = MemoryStorage()
    graph = await build(PEOPLE, storage)
    table = graph._table  # pyright: ignore[reportPrivateUsage]
    lines = [encode_copilot_ld_line(holder, table) for holder in table.holders.values()]
    copy = MemoryStorage()
    await copy.put(INDEX, b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    assert await GraphIndex(copy).triples(limit=0) == await graph.triples(limit=0)


@in_one_test("term", [{"termType": "Variable", "value": "x"}, {}, "x"])
def test_quads_that_are_none_are_refused(term: object) -> None:
    quad = {"subject": {"termType": "NamedNode", "value": "urn:s"}, "predicate": term}
    with pytest.raises(Misuse, match="This is no quad of RDF/JS"):
        decode_rdfjs([quad])


async def test_statements_about_statements_survive_the_form_of_rdfjs() -> None:
    triples = parse_triples(['<urn:s> <urn:p> <<( <urn:a> <urn:b> "c"@en )>> .'])
    storage = MemoryStorage()
    graph = GraphIndex(storage)
    await graph.add(GraphItem(Identifier("common.Message", "m1"), triples))
    table = graph._table  # pyright: ignore[reportPrivateUsage]
    line = encode_copilot_ld_line(table.holders["common.Message.m1"], table)

    assert decode_rdfjs(line["quads"]) == triples


async def test_queries_go_on_while_an_update_runs() -> None:
    storage = MemoryStorage()
    graph = await build(PEOPLE, storage)
    resources = ResourceIndex(storage)
    await fill(resources, {f"n{number}": f"ex:s{number} a ex:T ." for number in range(1500)})

    update = asyncio.create_task(graph.update(resources))
    counts: list[int] = []
    while not update.done():
        counts.append(len(await graph.find("? a ex:T")))
        await asyncio.sleep(0)

    assert counts == sorted(counts)
    assert len(await graph.find("? a ex:T")) == 1500


class Halting(ResourceIndex):
    """Resources that are read only once somebody says so."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self.reached, self.free = asyncio.Event(), asyncio.Event()

    async def get(self, *args: Any, **options: Any) -> list[Resource]:
        self.reached.set()
        await self.free.wait()
        return await super().get(*args, **options)


async def test_not_even_the_first_query_waits_for_an_update() -> None:
    storage = MemoryStorage()
    resources = Halting(storage)
    await fill(resources, {"n1": "ex:s a ex:T ."})
    graph = GraphIndex(storage)
    update = asyncio.create_task(graph.update(resources))
    await resources.reached.wait()

    assert await graph.find("? a ex:T") == []
    resources.free.set()
    await update
    assert names(await graph.find("? a ex:T")) == ["n1"]


async def test_nobody_finds_what_they_may_not_see() -> None:
    graph = await build(PEOPLE)
    access = Only("m1", "m2")

    assert names(await graph.find("? ? ?", Filter(access=access))) == ["m1", "m2"]
    assert await graph.find("? schema:email ?", Filter(access=access)) == []
    assert names(await graph.find("ex:alice ? ?", Filter(access=access, limit=5))) == ["m1"]
    assert len(await graph.triples(access=access, limit=0)) == 6
    assert await graph.count(access) == 6
    assert await graph.count(FULL_ACCESS) == 7
    assert await graph.count(Only()) == 0
    assert await graph.subjects(access=Only("m3")) == {}


async def test_what_is_hidden_does_not_use_up_a_limit() -> None:
    texts = {f"m{number}": f"ex:s{number} a ex:T ." for number in range(3000)}
    graph = await build(texts)
    filter = Filter(access=Only("m7", "m2999"), limit=2)

    assert names(await graph.find("? a ex:T", filter)) == ["m7", "m2999"]
    assert len(await graph.triples("? a ex:T", Only("m7", "m2999"), limit=2)) == 2


async def test_a_wide_answer_shows_nothing_that_hidden_triples_lead_to() -> None:
    graph = await build(PEOPLE)
    pattern = Pattern(object='"a@x"')

    assert names(await graph.find(pattern, wide=True)) == ["m1", "m3"]
    assert await graph.find(pattern, Filter(access=Only("m1")), wide=True) == []


async def test_an_access_is_asked_once_for_each_resource_until_something_changes() -> None:
    storage = MemoryStorage()
    graph = await build(PEOPLE, storage)
    access = Only("m1")
    for _ in range(5):
        await graph.find("? ? ?", Filter(access=access))
    assert access.questions == 3

    await fill(ResourceIndex(storage), {"m3": "ex:c schema:x 1 ."})
    await graph.update(ResourceIndex(storage))
    await graph.find("? ? ?", Filter(access=access))
    assert access.questions == 6


async def test_the_same_triple_in_two_resources_stays_while_one_of_them_says_it() -> None:
    storage = MemoryStorage()
    text = "ex:a schema:knows ex:b ."
    graph = await build({"m1": text, "m2": text}, storage)
    assert names(await graph.find("ex:a ? ?")) == ["m1", "m2"]
    assert await graph.count() == 1

    await ResourceIndex(storage).delete("common.Message.m1")
    await graph.update(ResourceIndex(storage))

    assert names(await graph.find("ex:a ? ?")) == ["m2"]


async def test_a_resource_keeps_its_tokens_and_subjects() -> None:
    storage = MemoryStorage()
    identifier = Identifier("common.Message", "m1", tokens=9, subjects=("urn:s",))
    await ResourceIndex(storage).put(Resource(identifier, "<urn:s> <urn:p> 1 .", "turtle"))
    graph = GraphIndex(storage)
    await graph.update(ResourceIndex(storage))

    (found,) = await GraphIndex(storage).find()

    assert (found.tokens, found.subjects) == (9, ("urn:s",))


async def test_a_text_is_no_part_of_the_graph() -> None:
    storage = MemoryStorage()
    resources = ResourceIndex(storage)
    await resources.put(Resource(Identifier("common.Message", "m1"), "<urn:a> <urn:b> <urn:c> ."))
    await resources.put(turtle("m2", "ex:a a ex:B ."))
    graph = GraphIndex(storage)

    assert (await graph.update(resources)).added == 2
    assert names(await graph.find()) == ["m2"]


async def test_subjects_have_all_their_types() -> None:
    graph = await build({"m1": "ex:x a schema:Person, schema:Patient .", "m2": "ex:a a ex:Drug ."})

    assert await graph.subjects() == {
        "https://example.invalid/x": ("https://schema.org/Person", "https://schema.org/Patient"),
        "https://example.invalid/a": ("https://example.invalid/Drug",),
    }
    assert list(await graph.subjects("schema:Patient")) == ["https://example.invalid/x"]
    assert list(await graph.subjects("https://schema.org/Person")) == ["https://example.invalid/x"]
    assert list(await graph.subjects("Drug")) == ["https://example.invalid/a"]
    assert await graph.subjects("schema:Nope") == {}
    assert await graph.subjects("Nope") == {}


async def test_an_empty_graph_has_no_subjects() -> None:
    graph = GraphIndex(MemoryStorage())
    assert await graph.stored_ontology() == ""
    assert await graph.subjects() == {}
    assert await graph.subjects("schema:Person") == {}


@in_one_test("subject", ["schema:Person", "schema:PersonShape"])
async def test_other_names_of_a_class_mean_it_as_well(subject: str) -> None:
    label = f'{subject} skos:altLabel "Individual" .'
    both = ["https://example.invalid/alice", "https://example.invalid/bob"]

    from_operator = await build(PEOPLE, vocabulary=label)
    from_graph = await build({**PEOPLE, "m4": label})

    for graph in (from_operator, from_graph):
        assert list(await graph.subjects("schema:Person")) == both
        assert list(await graph.subjects("Individual")) == both
        assert list(await graph.subjects("schema:Individual")) == both[1:]
    assert list(await from_graph.subjects("schema:Person", Only("m1", "m2"))) == both[:1]


async def test_what_is_removed_is_in_no_answer_and_no_ontology() -> None:
    graph = await build({"m1": "ex:a a schema:Mill .", "m2": "ex:b a schema:Shop ."})
    await graph.remove(["common.Message.m1", "common.Message.never"])

    assert names(await graph.find("? ? ?")) == ["m2"]
    assert "Mill" not in await graph.stored_ontology()
    assert "Shop" in await graph.stored_ontology()
