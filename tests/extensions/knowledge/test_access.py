"""What a policy denies cannot be found out by any route.

Each route is asked in two worlds. One has secrets, and in the other they never were. Whoever may
not read them gets the same in both: the same results, scores, counts, classes, and errors.
"""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection
from typer.testing import CliRunner

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.actions.execute import execute
from copilot_runtime.api import ActionContext, RunInput
from copilot_runtime.api.messages import MediaPart, TextMessage
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.events import EventFilter, ResourceEvent, Subscription
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    hash_values,
    identify_file,
    shorten_uri,
)
from copilot_runtime.extensions.knowledge.policies import (
    AccessDenied,
    Decision,
    Policy,
    PolicyFile,
    build_actor,
    conversation_identifier,
    load_policy,
)
from copilot_runtime.extensions.knowledge.policies.document import read_rules
from copilot_runtime.extensions.knowledge.policies.rego import RegoPolicy
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.knowledge.retrieval import KnowledgeRetriever
from copilot_runtime.storage import MemoryStorage
from copilot_runtime.testing import Client
from tests.extensions.knowledge.library import WordCounter, write_pages
from tests.extensions.mcp.server.clients import over_http, text_of
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

ADA, BOB_IRI = "https://x.example/ada", "https://x.example/bob"
SCHEMA = "https://schema.org/"
THREAD = "t1"

PUBLIC, SECRET, MISSING = "common.Message.ada", "hr.Record.ada", "hr.Record.none"
HIDDEN_CHILD = "common.Folder.open/hr.Record.nested"
OF_BOB = f"{conversation_identifier('bob', THREAD)}/file.Upload.u1"
OF_NOBODY = f"{conversation_identifier(None, 'other')}/file.Upload.u1"

NAME = f"common.Message.{hash_values(ADA)}"
IN_OPEN_FILE = f"{identify_file('open/staff.html')}/{NAME}"
IN_HIDDEN_FILE = f"{identify_file('hr/pay.html')}/{NAME}"

POLICY = """
rules:
  - {allow: read, resources: "**"}
  - {deny: all, types: hr.Record, except: {users: eve}}
  - {deny: all, files: hr/pay.html, except: {users: eve}}
"""

READERS = {
    SECRET: build_actor("eve"),
    HIDDEN_CHILD: build_actor("eve"),
    IN_HIDDEN_FILE: build_actor("eve"),
    OF_BOB: build_actor("bob"),
    OF_NOBODY: build_actor(None, "other"),
}
"""Who may read each of the secrets."""

STRANGERS = {"ann": build_actor("ann", THREAD), "nobody": build_actor(None, THREAD)}


def quads(*triples: str) -> str:
    return "".join(f"{triple} .\n" for triple in triples)


def resource(uri: str, content: str, format: Any = "text", **fields: Any) -> Resource:
    parent, _, last = uri.rpartition("/")
    kind, _, name = last.rpartition(".")
    return Resource(Identifier(kind, name, parent), content, format, fields=fields)


def person(iri: str, *more: str) -> str:
    return quads(f"<{iri}> <{RDF_TYPE}> <{SCHEMA}Person>", *more)


RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"

COMMON = [
    resource(PUBLIC, person(ADA, f'<{ADA}> <{SCHEMA}name> "Ada"'), "nquads", title="Ada"),
    resource("common.Document.d/common.Chunk.c", "The library opens at nine.", title="Hours"),
    resource("common.Folder.open", "A folder of open things.", title="Open"),
    resource(IN_OPEN_FILE, person(ADA), "nquads", title="Ada", source="open/staff.html"),
]
SECRETS = [
    resource(
        SECRET,
        person(
            ADA,
            f'<{ADA}> <{SCHEMA}netWorth> "4711 zebra"',
            f"<{ADA}> <{RDF_TYPE}> <{SCHEMA}Patient>",
            f"<{ADA}> <{SCHEMA}knows> <{BOB_IRI}>",
            f"<{BOB_IRI}> <{RDF_TYPE}> <{SCHEMA}Person>",
        ),
        "nquads",
        title="Zebra",
        source="/secret/zebra.html",
    ),
    resource(
        IN_HIDDEN_FILE,
        person(ADA, f'<{ADA}> <{SCHEMA}award> "zebra"'),
        "nquads",
        title="Zebra",
        source="hr/pay.html",
    ),
    resource(HIDDEN_CHILD, "The library opens at nine for the zebra.", title="Zebra"),
    resource(OF_BOB, "The zebra of Bob: the library opens at nine.", title="Zebra"),
    resource(OF_NOBODY, "The zebra of nobody opens at nine.", title="Zebra"),
]


@pytest.fixture(params=["yaml", "cedar", "rego"])
def policy(request: pytest.FixtureRequest, tmp_path: Path) -> Policy:
    """The same policy in each language."""
    kind: str = request.param
    if kind != "yaml":
        pytest.importorskip({"cedar": "cedarpy", "rego": "regopy"}[kind])
    path = tmp_path / f"policy.{kind}"
    path.write_text(LANGUAGES[kind])
    loaded = load_policy(path)
    request.addfinalizer(loaded.close)
    return loaded


LANGUAGES = {
    "yaml": POLICY,
    "cedar": 'permit(principal, action in [Action::"read", Action::"list"], resource);\n'
    "forbid(principal, action, resource)\n"
    'when { resource.type == "hr.Record" || resource.path == "hr/pay.html" }\n'
    'unless { principal == User::"eve" };',
    "rego": 'package copilot\nimport rego.v1\nallow if input.action in {"read", "list"}\n'
    'deny if {\n input.resource.type == "hr.Record"\n input.actor.name != "eve"\n}\n'
    'deny if {\n input.resource.path == "hr/pay.html"\n input.actor.name != "eve"\n}',
}


@dataclass
class Worlds:
    """Knowledge with secrets, and the same without."""

    full: Knowledge
    empty: Knowledge


async def build(policy: Policy, resources: list[Resource]) -> Knowledge:
    knowledge = Knowledge(MemoryStorage(), embedder=WordCounter(), policy=policy)
    knowledge.path = "/graphql"
    await knowledge.resources.put_many(resources)
    await knowledge.update()
    for user in ("ann", None):
        conversation = conversation_identifier(user, THREAD)
        await knowledge.memory.append(conversation, *(resource.id for resource in resources))
    if len(resources) > len(COMMON):  # in the other world, these have never said a word
        for user, thread_id in (("bob", THREAD), (None, "other")):
            conversation = conversation_identifier(user, thread_id)
            await knowledge.memory.append(conversation, *(it.id for it in resources))
    return knowledge


@pytest.fixture
async def worlds(policy: Policy) -> AsyncIterator[Worlds]:
    # secrets come first and in between, so that an order or a number would give them away
    full = [SECRETS[0], *COMMON, *SECRETS[1:]]
    made = Worlds(await build(policy, full), await build(policy, COMMON))
    yield made
    await made.full.aclose()
    await made.empty.aclose()


Route = Callable[[Knowledge, Actor], Awaitable[Any]]


async def outcome(route: Route, knowledge: Knowledge, actor: Actor) -> str:
    """Return all that somebody gets: an answer, or an error with all its words."""
    try:
        answer = await route(knowledge, actor)
    except CopilotError as error:
        answer = error.report()
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", repr(answer))


QUERIES = ["zebra", "The library opens at nine.", "4711", "Ada", ""]
PATTERNS = [
    ("?", "?", "?"),
    (f"<{ADA}>", "?", "?"),
    ("?", f"{SCHEMA}netWorth", "?"),
    ("?", "rdf:type", "schema:Patient"),
    ("?", "?", BOB_IRI),
]
SPARQL = [
    "SELECT * WHERE { ?s ?p ?o } ORDER BY ?s ?p ?o",
    "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }",
    "SELECT (COUNT(DISTINCT ?p) AS ?n) WHERE { ?s ?p ?o }",
    "ASK { ?s schema:netWorth ?o }",
    "ASK { ?s schema:knows ?o FILTER NOT EXISTS { ?s schema:name 'Ada' } }",
    "SELECT ?s WHERE { GRAPH ?g { ?s ?p ?o } }",
    "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }",
    f"DESCRIBE <{ADA}>",
    "SELECT (1/COUNT(?o) AS ?n) WHERE { ?s schema:netWorth ?o }",
]
URIS = [
    SECRET,
    HIDDEN_CHILD,
    IN_HIDDEN_FILE,
    OF_BOB,
    OF_NOBODY,
    f"cld:{SECRET}",
    "common.Folder.open/../x.Y.z",
]


def search(text: str, **more: Any) -> Route:
    return lambda knowledge, actor: knowledge.search(text, actor=actor, **more)


def routes() -> Mapping[str, Route]:
    """Every way to ask for knowledge in Python, by name."""
    found: dict[str, Route] = {}
    for text in QUERIES:
        found[f"search {text}"] = search(text)
        found[f"search one {text}"] = search(text, limit=1)
        found[f"search all {text}"] = search(text, threshold=-1, limit=0, diversity=0.5)
        found[f"search tokens {text}"] = search(text, max_tokens=20)
    for uri in (*URIS, PUBLIC, MISSING, "common.Folder.open", "common.User.bob"):
        found[f"search below {uri}"] = search("zebra nine", prefix=uri)
        found[f"get {uri}"] = lambda knowledge, actor, uri=uri: knowledge.get(uri, actor=actor)
        found[f"list below {uri}"] = lambda knowledge, actor, uri=uri: knowledge.find_resources(
            actor=actor, prefix=uri
        )
    for kind in ("", "hr.Record", "file.Upload", "common.Message"):
        found[f"search type {kind}"] = search("zebra", type=kind)
        found[f"list type {kind}"] = lambda knowledge, actor, kind=kind: knowledge.find_resources(
            actor=actor, type=kind
        )
    for pattern in PATTERNS:
        found[f"find {pattern}"] = lambda knowledge, actor, it=pattern: knowledge.find(
            it, actor=actor
        )
        found[f"triples {pattern}"] = lambda knowledge, actor, it=pattern: knowledge.triples(
            it, actor=actor
        )
    for query in SPARQL:
        found[f"sparql {query}"] = lambda knowledge, actor, query=query: knowledge.sparql(
            query, actor=actor
        )
    for kind in ("", "Person", "Patient", "schema:Patient"):
        found[f"subjects {kind}"] = lambda knowledge, actor, kind=kind: knowledge.subjects(
            kind, actor=actor
        )
    found["ontology"] = lambda knowledge, actor: knowledge.ontology(actor=actor)
    found["ontology as Turtle"] = lambda knowledge, actor: knowledge.ontology_turtle(actor=actor)
    found["picture"] = lambda knowledge, actor: knowledge.picture(actor=actor)
    found["sources"] = lambda knowledge, actor: knowledge.list_sources(actor=actor)
    found["retrieval"] = retrieve
    for user, thread_id in (("ann", THREAD), ("bob", THREAD), (None, THREAD), (None, "other")):
        uri = conversation_identifier(user, thread_id)
        found[f"memory of {uri}"] = lambda knowledge, actor, uri=uri: knowledge.memory.read(
            uri, access=knowledge.access(actor)
        )
        found[f"window of {uri}"] = lambda knowledge, actor, uri=uri: knowledge.memory.window(
            uri, 40, access=knowledge.access(actor)
        )
    found["memories"] = lambda knowledge, actor: knowledge.memory.conversations(
        access=knowledge.access(actor, "list")
    )
    for name, arguments in TOOLS:
        found[f"tool {name} {arguments}"] = use_tool(name, arguments)
    return found


TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("search_content", {"input": ["zebra", "nine"]}),
    ("query_by_pattern", {"subject": ADA}),
    ("query_by_pattern", {"predicate": "schema:netWorth"}),
    ("get_ontology", {}),
    ("get_subjects", {}),
    ("get_subjects", {"type": "Patient"}),
    ("recall", {"input": ["zebra"]}),
]


async def retrieve(knowledge: Knowledge, actor: Actor) -> Any:
    question = TextMessage(id="1", role="user", content="When does the zebra open at nine?")
    run = RunInput(thread_id=THREAD, run_id="r", messages=[question], user=actor.name or None)
    return await KnowledgeRetriever(knowledge).retrieve(run)


def use_tool(name: str, arguments: dict[str, Any]) -> Route:
    """Return what calls a tool as an agent does that acts for somebody."""

    async def call(knowledge: Knowledge, actor: Actor) -> Any:
        context = ActionContext(
            thread_id=THREAD,
            run_id="r",
            call_id="c",
            properties={},
            headers={},
            user=actor.name or None,
        )
        [action] = [action for action in knowledge.tools() if action.name == name]
        return (await execute(action, json.dumps(arguments), context, timeout=30)).result

    return call


@in_one_test("stranger", STRANGERS)
async def test_no_route_in_python_shows_what_is_denied(worlds: Worlds, stranger: str) -> None:
    actor = STRANGERS[stranger]
    differing: list[str] = []
    for name, route in routes().items():
        answers = [await outcome(route, it, actor) for it in (worlds.full, worlds.empty)]
        if answers[0] != answers[1] or "zebra" in answers[0].lower().replace(name.lower(), ""):
            differing.append(f"{name}: {answers[0]} != {answers[1]}")

    assert differing == []


@in_one_test("uri", READERS)
async def test_who_may_read_a_secret_finds_it(worlds: Worlds, uri: str) -> None:
    actor = READERS[uri]
    found = await worlds.full.search("zebra", actor=actor, limit=0)

    assert uri in [passage.id for passage in found]
    assert (await worlds.full.get(uri, actor=actor)) is not None
    assert uri in map(str, await worlds.full.find_resources(actor=actor))


async def test_who_may_read_a_secret_sees_it_in_the_graph(worlds: Worlds) -> None:
    eve, full = READERS[SECRET], worlds.full

    assert len(await full.triples(("?", "schema:netWorth", "?"), actor=eve)) == 1
    assert (await full.sparql(SPARQL[3], actor=eve)).boolean is True
    assert "Patient" in await full.ontology_turtle(actor=eve)
    assert ADA in await full.subjects("Patient", actor=eve)
    assert "Patient" not in await full.ontology_turtle(actor=STRANGERS["ann"])


async def test_a_memory_shows_its_owner_what_the_owner_may_read(worlds: Worlds) -> None:
    memory = worlds.full.memory
    conversation = conversation_identifier("ann", THREAD)
    ann, bob = (worlds.full.access(build_actor(it, THREAD)) for it in ("ann", "bob"))

    found = await memory.read(conversation, access=ann)

    assert [*map(str, found)] == [resource.uri for resource in COMMON]
    with pytest.raises(AccessDenied):
        await memory.read(conversation, access=bob)
    with pytest.raises(AccessDenied):
        await memory.append(conversation, COMMON[0].id, access=bob)
    with pytest.raises(AccessDenied):
        await memory.forget(conversation, access=bob)


async def test_a_hidden_resource_and_one_that_is_not_there_get_the_same_answer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.yml"
    path.write_text("default: allow\nrules: [{deny: all, resources: common.Folder.hidden/**}]")
    hidden = "common.Folder.hidden"
    knowledge = await build(
        load_policy(path), [resource(hidden, "x"), resource(f"{hidden}/common.Chunk.c", "x")]
    )
    runtime = CopilotRuntime(DemoAdapter(pace=0), knowledge=knowledge, authenticate=sign_in)
    found: list[list[str]] = []
    async with Client(runtime, headers={"x-user": "ann"}) as client:
        served = Served(client, {"x-user": "ann"})
        for uri in (hidden, hidden.replace("hidden", "absent")):
            doors = [await served.read(f"/graphql/knowledge/{it}/{uri}") for it in SHOWING]
            doors.append(await served.read(f"/graphql/knowledge/context/{uri}", "POST"))
            doors += [await served.ask(query % uri) for query in NAMING]
            found.append([it.replace(uri, "URI") for it in doors])

    assert found[0] == found[1]
    assert [it[:3] for it in found[0][:3]] == ["404"] * 3
    assert '{"resource":null}' in found[0][3]


async def test_only_owners_and_the_system_write(worlds: Worlds) -> None:
    resources = worlds.full.resources
    bob, ann = (worlds.full.policy.access(build_actor(it), "write") for it in ("bob", "ann"))
    mine = resource(f"{conversation_identifier('bob', THREAD)}/file.Upload.u2", "mine")

    for access, other in ((ann, mine), (bob, COMMON[0]), (bob, SECRETS[0])):
        with pytest.raises(AccessDenied):
            await resources.put(other, access=access)
        with pytest.raises(AccessDenied):
            await resources.delete(other.uri, access=access)
    assert await resources.put(mine, access=bob)
    assert not await resources.has(f"{OF_BOB}2")


async def test_a_link_to_a_hidden_file_shows_nothing_of_it(tmp_path: Path) -> None:
    pages, policy = tmp_path / "pages", tmp_path / "policy.yml"
    (pages / "hr").mkdir(parents=True)
    (pages / "hr/pay.md").write_text("The zebra earns 4711 pounds.")
    (pages / "link.md").symlink_to("hr/pay.md")
    (pages / "folder").symlink_to("hr")
    policy.write_text(f"default: allow\nrules: [{{deny: all, files: {pages}/hr}}]")
    for source in (pages, f"{pages}/*.md", f"{pages}/**/*.md", f"{pages}/*/*.md"):
        knowledge = Knowledge("memory", embedder=WordCounter(), policy=policy, sources=[source])
        await knowledge.ingest()
        assert await knowledge.search("zebra", actor=STRANGERS["ann"], threshold=-1) == []
        await knowledge.aclose()


async def test_a_policy_that_hides_nothing_changes_no_count(tmp_path: Path) -> None:
    pages, policy = write_pages(tmp_path), tmp_path / "policy.yml"
    (pages / "copy.html").write_text((pages / "library.html").read_text() + "More.")
    policy.write_text("default: allow")
    counts: set[int] = set()
    for chosen in (None, policy):
        knowledge = Knowledge("memory", embedder=WordCounter(), policy=chosen, sources=[pages])
        await knowledge.ingest()
        shown = await knowledge.find_resources(actor=STRANGERS["ann"])
        counts |= {len(shown), knowledge.status().resources}
        await knowledge.aclose()

    assert len(counts) == 1


async def test_a_file_that_may_not_be_read_is_as_if_it_were_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.policies.file.LOOK_EVERY", 0)
    pages, policy = write_pages(tmp_path), tmp_path / "policy.yml"
    (pages / "secret.html").write_text(
        (pages / "library.html").read_text().replace("head librarian", "keeper of the safe")
    )
    policy.write_text("default: allow")
    knowledge = Knowledge(MemoryStorage(), embedder=WordCounter(), policy=policy, sources=[pages])
    await knowledge.ingest()
    [secret] = await knowledge.search("safe 4711", limit=1)
    document = secret.id.rpartition("/")[0]
    policy.write_text(f"default: allow\nrules: [{{deny: all, files: {pages}/secret*}}]")
    ways: list[Route] = [
        lambda knowledge, actor: knowledge.list_sources(actor=actor),
        lambda knowledge, actor: knowledge.find_resources(actor=actor),
        lambda knowledge, actor: knowledge.ontology_turtle(actor=actor),
        lambda knowledge, actor: knowledge.get(document, actor=actor),
        search("The safe opens at nine.", threshold=-1, limit=0),
        lambda knowledge, actor: knowledge.triples("? ? ?", actor=actor),
        lambda knowledge, actor: knowledge.sparql(SPARQL[0], actor=actor),
    ]

    async def look() -> list[str]:
        return [await outcome(way, knowledge, STRANGERS["ann"]) for way in ways]

    for _ in range(2):  # a change is taken once it has stayed
        knowledge.policy.decide(STRANGERS["ann"], "read", document)
    with_secret = await look()
    for name in ("secret.md", "secret.html"):
        (pages / name).unlink()
    await knowledge.ingest()
    without = await look()
    await knowledge.aclose()

    assert with_secret == without
    assert ("rules.md" in with_secret[0], "secret" in with_secret[0]) == (True, False)


@in_one_test(
    "rules",
    ["", "default: allow", "rules: [{allow: read}, {deny: all, files: PAGES/b*, users: eve}]"],
)
async def test_what_each_of_the_readable_files_says_of_a_thing_is_found(
    tmp_path: Path, rules: str
) -> None:
    pages, policy = tmp_path / "pages", tmp_path / "policy.yml"
    pages.mkdir()
    for name, more in {
        "a": '"jobTitle": "Head of the library", "description": "Keeps maps and old sea charts"',
        "b": '"award": "zebra medal"',
        "c": '"knowsAbout": "walrus"',
        "d": '"jobTitle": "Head of the library"',
    }.items():
        thing = f'"@context": "{SCHEMA}", "@type": "Person", "@id": "{ADA}", "name": "Ada", {more}'
        script = f'<script type="application/ld+json">{{{thing}}}</script>'
        (pages / f"{name}.html").write_text(f"<!doctype html><title>{name}</title>{script}")
    policy.write_text(rules.replace("PAGES", str(pages)))
    knowledge = Knowledge(
        "memory", embedder=WordCounter(), policy=policy if rules else None, sources=[pages]
    )
    await knowledge.ingest()
    said = {
        "zebra": "zebra medal",
        "walrus": "walrus",
        "charts": "sea charts",
        "head": "sea charts",
    }
    for user in ("ann", "eve"):
        for asked, text in said.items():
            found = await knowledge.search(asked, actor=build_actor(user), limit=1)
            hidden = user == "eve" and "deny" in rules
            assert len(found) == (not (hidden and asked == "zebra"))
            assert all(text in it.text for it in found)
            assert ("zebra medal" in "".join(it.text for it in found)) is not hidden
            if rules and asked == "head":
                assert "a%2Ehtml" in found[0].id
    await knowledge.aclose()


@in_one_test(
    ("kind", "rules"),
    [
        ("yml", "default: allow\nrules: [{deny: all, files: PAGES/caf\u00e9}]"),
        ("yml", "default: allow\nrules: [{deny: all, files: 'PAGES/*/pay*'}]"),
        ("yml", "default: allow\nrules: [{deny: all, files: 'PAGES/caf*/*.md'}]"),
        (
            "cedar",
            "permit (principal, action, resource);"
            'forbid (principal, action, resource) when { resource.path like "PAGES/caf\u00e9/*" };',
        ),
        (
            "rego",
            "package copilot\nimport rego.v1\nallow := true\n"
            'deny if startswith(input.resource.path, "PAGES/caf\u00e9/")',
        ),
    ],
)
async def test_renaming_a_file_beside_hidden_ones_opens_none(
    tmp_path: Path, kind: str, rules: str
) -> None:
    pages, policy = tmp_path / "pages", tmp_path / f"policy.{kind}"
    (pages / "cafe\u0301").mkdir(parents=True)
    names = ["pay 2026.md", "pay-2027.md", "pay\n8.md", "pay\u30009.md", "pay\\&#.md"]
    names.append(os.fsdecode(b"pay\xff.md"))
    for name in (*(f"cafe\u0301/{it}" for it in names), "hr.md"):
        (pages / name).write_text(f"# {name!a}\n\nAnn earns 100 pounds.\n")
    policy.write_text(rules.replace("PAGES", str(pages)))
    knowledge = Knowledge(MemoryStorage(), embedder=WordCounter(), policy=policy, sources=[pages])
    for rename in (lambda: None, lambda: (pages / "hr.md").rename(pages / "rules.md")):
        rename()
        await knowledge.ingest()
        ann = build_actor("ann")
        found = await knowledge.search("Ann earns pounds", actor=ann, threshold=-1)
        files = await knowledge.list_sources(actor=ann)
        assert (len(found), len(files)) == (1, 1)
    await knowledge.aclose()


async def test_rules_that_change_apply_to_searches_graphs_and_followers_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.policies.file.LOOK_EVERY", 0)
    path = tmp_path / "policy.yml"
    path.write_text("default: allow")
    knowledge = await build(load_policy(path), [*COMMON, *SECRETS])
    ann = STRANGERS["ann"]

    async def look() -> list[int]:
        return [
            len(await knowledge.search("zebra", actor=ann, type="hr.Record")),
            len(await knowledge.triples(PATTERNS[1], actor=ann)),
            len(await knowledge.find_resources(actor=ann, type="hr.Record")),
            "Patient" in await knowledge.ontology_turtle(actor=ann),
        ]

    before = await look()
    with knowledge.events.subscribe(EventFilter(access=knowledge.access(ann))) as events:
        path.write_text(POLICY)
        for _ in range(2):  # a change is taken once it has stayed
            knowledge.policy.access(ann, "read").allows(SECRET)
        after = await look()
        await knowledge.resources.put_many([resource(SECRET, "new"), resource("a.B.c", "new")])
        await knowledge.events.publish(
            ResourceEvent(detail_type="RESOURCE_DELETE", resources=(END,))
        )
        seen = [str(it) async for one in take_until(events, END) for it in one.resources]
    await knowledge.aclose()

    assert (before, after) == ([2, 6, 2, True], [0, 2, 0, False])
    assert seen == ["a.B.c"]


async def get_secret(knowledge: Knowledge, actor: Actor) -> Any:
    return await knowledge.get(SECRET, actor=actor)


async def search_secret(knowledge: Knowledge, actor: Actor) -> Any:
    return await knowledge.search("zebra", actor=actor, type="hr.Record")


async def match_secret(knowledge: Knowledge, actor: Actor) -> Any:
    return await knowledge.triples(PATTERNS[1], actor=actor)


@in_one_test("way", [get_secret, search_secret, match_secret])
async def test_the_first_request_after_an_idle_time_is_answered_by_the_policy_of_now(
    tmp_path: Path, way: Route
) -> None:
    path, seconds = tmp_path / "policy.yml", [0.0]
    path.write_text("default: allow")
    policy = PolicyFile(path, read_rules, clock=lambda: seconds[0])
    knowledge = await build(policy, [*COMMON, *SECRETS])
    before = await outcome(way, knowledge, STRANGERS["ann"])

    path.write_text("default: allow\nrules: [{deny: all, users: ann}]")
    os.utime(path, (1, 1))
    seconds[0] = 20.0
    after = await outcome(way, knowledge, STRANGERS["ann"])
    await knowledge.aclose()

    assert ("4711 zebra" in before, "4711" in after, "Zebra" in after) == (True, False, False)


END = Identifier("common.Note", "end")


async def take_until(events: Subscription, last: Identifier) -> AsyncIterator[ResourceEvent]:
    async for event in events:
        if last in event.resources:
            return
        yield event


async def test_events_are_those_of_what_may_be_read(worlds: Worlds) -> None:
    knowledge = worlds.full
    access = knowledge.access(STRANGERS["ann"])
    with knowledge.events.subscribe(EventFilter(access=access)) as events:
        await knowledge.resources.put_many(
            [resource(SECRET, "changed"), resource("common.Note.n", "new")]
        )
        await knowledge.resources.delete(OF_BOB)
        await knowledge.resources.get([SECRET, PUBLIC])  # what others read is nobody's business
        await knowledge.resources.delete("common.Note.n")
        seen = [await anext(events) for _ in range(2)]

    assert [(it.detail_type, [*map(str, it.resources)]) for it in seen] == [
        ("RESOURCE_PUT", ["common.Note.n"]),
        ("RESOURCE_DELETE", ["common.Note.n"]),
    ]


class Observed(Policy):
    """A policy of somebody's own, which may be slow: it notes who is asked on an event loop."""

    def __init__(self) -> None:
        self.on_loop: list[str] = []
        self.questions: list[str] = []

    @property
    def generation(self) -> int:
        self.note("generation")
        return 0

    def decide(self, actor: Actor, action: AccessAction, uri: str) -> Decision:
        self.note(uri)
        self.questions.append(uri)
        return Decision(not uri.startswith("hr."), "")

    def note(self, what: str) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self.on_loop.append(what)


async def test_no_route_asks_a_policy_on_the_event_loop(tmp_path: Path) -> None:
    policy = Observed()
    knowledge = await build(policy, [*COMMON, *SECRETS])
    pages = Knowledge(MemoryStorage(), policy=policy, sources=[write_pages(tmp_path)])
    await pages.ingest()
    ann = STRANGERS["ann"]
    asking: dict[str, list[str]] = {}

    for name, route in {**routes(), **WRITES}.items():
        await outcome(route, knowledge, ann)
        asking[name] = [*policy.on_loop]
        policy.on_loop.clear()
    await pages.list_sources(actor=ann)
    await pages.search("safe", actor=ann)
    runtime = CopilotRuntime(
        DemoAdapter(pace=0), knowledge=knowledge, authenticate=sign_in, settings=Settings()
    )
    async with Client(runtime, headers={"x-user": "ann"}) as client:
        served = Served(client, {"x-user": "ann"})
        for query in GRAPHQL:
            await served.ask(query)
        for path in PATHS:
            await served.read(f"/graphql/knowledge{path}")
    await knowledge.aclose()
    await pages.aclose()

    assert {name: uris for name, uris in asking.items() if uris} == {}
    assert policy.on_loop == []
    assert len(policy.questions) > 100


async def attach(knowledge: Knowledge, actor: Actor) -> Any:
    uri = f"{conversation_identifier(actor.name, THREAD)}/file.Upload.{'0' * 32}"
    await knowledge.resources.put(resource(uri, "", name="zebra.txt", state="searchable"))
    address = f"/graphql/knowledge/files/{uri}"
    parts = [MediaPart(kind="document", source="url", value=address)]
    question = TextMessage(id="1", role="user", content="", parts=parts)
    run = RunInput(thread_id=THREAD, run_id="r", messages=[question], user=actor.name or None)
    files = knowledge.files()
    assert files is not None
    return [it async for it in files.store_files(run)]


async def follow(knowledge: Knowledge, actor: Actor) -> Any:
    access = knowledge.access(actor)
    with knowledge.events.subscribe(EventFilter(access=access)) as events:
        await knowledge.resources.put(resource("a.B.c", "new"))
        return await anext(events)


WRITES: Mapping[str, Route] = {
    "put": lambda knowledge, actor: knowledge.resources.put(
        resource("a.B.d", "x"), access=knowledge.access(actor, "write")
    ),
    "put many": lambda knowledge, actor: knowledge.resources.put_many(
        [resource("a.B.d", "y"), resource("a.B.e", "x")], access=knowledge.access(actor, "write")
    ),
    "has": lambda knowledge, actor: knowledge.resources.has(
        "a.B.d", access=knowledge.access(actor)
    ),
    "delete": lambda knowledge, actor: knowledge.resources.delete(
        "a.B.d", access=knowledge.access(actor, "delete")
    ),
    "remember": lambda knowledge, actor: knowledge.memory.append(
        conversation_identifier("ann", "t9"), COMMON[0].id, access=knowledge.access(actor, "write")
    ),
    "forget": lambda knowledge, actor: knowledge.memory.forget(
        conversation_identifier("ann", "t9"), access=knowledge.access(actor, "delete")
    ),
    "attach": attach,
    "follow": follow,
}
"""Ways to write that a policy is asked about, and to follow what others write."""


async def test_a_list_judges_each_resource_once_and_only_those_in_question() -> None:
    policy = Observed()
    knowledge = await build(policy, [*COMMON, *SECRETS])
    policy.questions.clear()

    found = await knowledge.find_resources(actor=STRANGERS["ann"], type="common.Chunk")
    await knowledge.find_resources(
        actor=STRANGERS["ann"], type="common.Chunk", prefix="common.Folder.open"
    )
    await knowledge.aclose()

    assert [*map(str, found)] == ["common.Document.d/common.Chunk.c"]
    assert policy.questions == ["common.Document.d/common.Chunk.c"] * 2


HIDDEN, UNKNOWN = "hr.Record.r", "hr.Record.q"
ASKING = [
    ("resources/{}", shorten_uri(HIDDEN), "0" * 16),
    *(
        (door, HIDDEN, UNKNOWN)
        for door in (
            *("resources/{}", "files/{}", "context/{}", "resources?prefix={}"),
            *("search?q=zebra&prefix={}", "search?q=zebra&type=hr.Record&prefix={}"),
        )
    ),
]


@in_one_test("accept", ["application/json", "text/html"])
async def test_a_hidden_and_an_unknown_name_are_answered_and_judged_alike(accept: str) -> None:
    policy = Observed()
    knowledge = await build(policy, [resource(HIDDEN, "zebra")])
    runtime = CopilotRuntime(DemoAdapter(pace=0), knowledge=knowledge, authenticate=sign_in)
    headers = {"x-user": "ann", "accept": accept}
    async with Client(runtime, headers=headers) as client:
        for door, *names in ASKING:
            found: list[Any] = []
            for name in names:
                policy.questions.clear()
                path = f"/graphql/knowledge/{door.format(name)}"
                answer = await client.request("GET", path, headers=headers)
                body = answer.body.decode().replace(name, "NAME")
                found.append((answer.status, answer.headers, body, len(policy.questions)))
            assert found[0] == found[1], door
            assert "zebra" not in found[0][2]


async def test_a_judge_that_hangs_does_not_stop_the_event_loop() -> None:
    pytest.importorskip("regopy")
    module = "package copilot\nimport rego.v1\ndefault allow := true"
    policy = RegoPolicy({"policy.rego": module}, timeout=0.5)
    knowledge = await build(policy, COMMON)
    ann, others = STRANGERS["ann"], asyncio.Event()
    waiting = [get_public, search_secret, match_secret]
    waiting += [way for name, way in WRITES.items() if name != "follow"]

    os.kill(policy.process_id, signal.SIGSTOP)
    asking = asyncio.gather(*(outcome(way, knowledge, ann) for way in waiting))
    turns = 0
    while not asking.done():
        turns += 1
        if turns == 20:
            assert await knowledge.search("nine")  # the system itself waits for nobody
            others.set()
        await asyncio.sleep(0)
    answers = await asking
    policy.close()
    await knowledge.aclose()

    assert others.is_set()
    assert "nine" not in "".join(answers).lower()


async def get_public(knowledge: Knowledge, actor: Actor) -> Any:
    return await knowledge.get(PUBLIC, actor=actor)


async def test_a_policy_is_read_anew_beside_the_event_loop(tmp_path: Path) -> None:
    path, seconds, reads = tmp_path / "policy.yml", [0.0], list[bool]()
    path.write_text("default: allow")

    def read(path: Path) -> Policy:
        observed = Observed()
        observed.note("read")
        reads.append(bool(observed.on_loop))
        return read_rules(path)

    policy = PolicyFile(path, read, clock=lambda: seconds[0])
    knowledge = await build(policy, COMMON)
    reads.clear()
    ways = [*routes().values(), *WRITES.values()]
    for at, way in enumerate(ways):
        os.utime(path, (at, at))
        seconds[0] += 1
        await outcome(way, knowledge, STRANGERS["ann"])
    await knowledge.aclose()

    assert len(reads) > len(ways) / 2
    assert not any(reads)


class Restless(Observed):
    """A policy of which no two looks see the same rules."""

    looks = 0

    @property
    def generation(self) -> int:
        self.looks += 1
        return self.looks


async def test_a_policy_that_changes_at_every_moment_breaks_no_route() -> None:
    knowledge = await build(Restless(), [*COMMON, *SECRETS])
    answers = [await outcome(way, knowledge, STRANGERS["ann"]) for way in routes().values()]
    await knowledge.aclose()

    assert len(answers) == len(routes())
    assert "4711 zebra" not in "".join(answers)


class Fickle(Policy):
    """Allows each resource once: whatever comes later, its rules have changed."""

    def __init__(self) -> None:
        self.questions: set[str] = set()

    @property
    def generation(self) -> int:
        return len(self.questions)

    def decide(self, actor: Actor, action: AccessAction, uri: str) -> Decision:
        allowed = uri not in self.questions or uri == PUBLIC
        self.questions.add(uri)
        return Decision(allowed, "")


async def test_what_is_denied_between_a_search_and_its_reading_is_left_out() -> None:
    knowledge = await build(Fickle(), COMMON)
    found = await knowledge.search("nine Ada", actor=STRANGERS["ann"], threshold=-1)
    prompted = await knowledge.find(("?", "?", "?"), actor=STRANGERS["ann"])
    await knowledge.aclose()

    assert [it.id for it in found] == [it.id for it in prompted] == [PUBLIC]


async def test_a_rule_for_an_agent_applies_where_it_acts(tmp_path: Path) -> None:
    path = tmp_path / "policy.yml"
    path.write_text("rules: [{allow: read, agents: helper, resources: 'hr.Record.*'}]")
    knowledge = await build(load_policy(path), [*COMMON, *SECRETS])

    async def ask(agent: str) -> tuple[str, int]:
        context = ActionContext(
            thread_id=THREAD, run_id="r", call_id="c", properties={}, headers={}, agent=agent
        )
        [tool] = [it for it in knowledge.tools() if it.name == "search_content"]
        found = await execute(tool, '{"input": ["zebra 4711"]}', context, timeout=30)
        question = TextMessage(id="1", role="user", content="zebra 4711")
        run = RunInput(thread_id=THREAD, run_id="r", messages=[question], agent=agent)
        return found.result, len(await KnowledgeRetriever(knowledge).retrieve(run))

    denied, allowed = await ask("other"), await ask("helper")
    await knowledge.aclose()

    assert denied == ("No results found.", 0)
    assert SECRET in allowed[0]
    assert allowed[1] == 1


@in_one_test("user", ["ann", "eve"])
async def test_a_program_gets_of_a_tool_what_its_user_may_read(policy: Policy, user: str) -> None:
    runtime = CopilotRuntime(
        DemoAdapter(pace=0),
        knowledge=await build(policy, [*COMMON, *SECRETS]),
        authenticate=sign_in,
        settings=Settings(threads="memory", serve_mcp=True, serve_remote=True),
    )
    headers, arguments = {"x-user": user}, {"input": ["zebra", "ada"]}
    async with serving(runtime.app(path=PATH)) as port:
        browser = Browser(port)
        async with over_http(browser, headers) as session:
            by_mcp = text_of(await session.call_tool("search_content", arguments))
        body = {"name": "search_content", "arguments": arguments}
        answer = await browser.ask("POST", "/actions/execute", body, headers)
        by_endpoint = answer.body.decode()

    for found in (by_mcp, by_endpoint):
        assert (PUBLIC if user == "ann" else IN_HIDDEN_FILE) in found
        assert (SECRET in found) is (user == "eve")
        assert OF_BOB not in found
        assert (IN_HIDDEN_FILE in found) is (user == "eve")


def test_the_command_line_shows_what_a_user_may_read(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yml"
    policy.write_text(POLICY)
    storage = f"local:{tmp_path / 'store'}"
    settings = tmp_path / "copilot.yml"
    settings.write_text(f"knowledge: {{storage: '{storage}', policy: '{policy}'}}")

    async def stock() -> None:
        knowledge = Knowledge(storage, policy=policy)
        await knowledge.resources.put_many([*COMMON, *SECRETS])
        await knowledge.update()
        await knowledge.aclose()

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(
            cli, ["knowledge", *arguments, "--json", "--config", str(settings)]
        )
        assert done.exit_code == 0, done.output
        return done.stdout

    asyncio.run(stock())
    for command in (("search", "zebra"), ("graph", "?", "?", "?"), ("ontology",)):
        everything, shown = run(*command), run(*command, "--as", "ann")
        assert re.search("zebra|Patient", everything), command
        assert not re.search("zebra|Patient", shown), command


def sign_in(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-user")


GRAPHQL = [
    "{ resources(limit: 100) { total resources { id type tokens } } }",
    '{ resources(type: "hr.Record") { total resources { id } } }',
    '{ resources(prefix: "common.Folder.open") { total resources { id } } }',
    '{ resources(prefix: "common.User.bob") { total resources { id } } }',
    *(f'{{ resource(id: "{uri}") {{ id text content fields }} }}' for uri in (*URIS, MISSING)),
    '{ search(input: ["zebra", "nine"], limit: 100, threshold: -1) { id title text url score } }',
    '{ search(input: ["zebra"], prefix: "common.User.bob") { id score } }',
    "{ graph(limit: 100) { triples { subject predicate object } resources { id } cut } }",
    '{ graph(predicate: "schema:netWorth") { triples { object } resources { id } cut } }',
    *(
        f"{{ graph(sparql: {json.dumps(query)}) {{ variables rows boolean cut "
        "triples { subject predicate object } } }"
        for query in SPARQL
    ),
    "{ ontology { turtle svg classes { iri name instances properties } } }",
]
PATHS = [
    "",
    "/search?q=zebra",
    "/search?q=nine&limit=100",
    "/search?q=zebra&prefix=common.User.bob",
    "/search?q=zebra&type=hr.Record",
    "/resources",
    "/resources?type=hr.Record",
    "/resources?prefix=common.Folder.open&limit=1",
    *(
        f"/resources/{uri}"
        for uri in (SECRET, MISSING, HIDDEN_CHILD, IN_HIDDEN_FILE, OF_BOB, PUBLIC)
    ),
    *(f"/files/{uri}" for uri in (OF_BOB, OF_NOBODY, SECRET)),
    "/ontology",
    "/ontology.svg",
]


SHOWING = ("resources", "context")
NAMING = (
    '{ resource(id: "%s") { id } }',
    '{ contextWindow(id: "%s") { id } }',
    'mutation { optimizeContextWindow(id: "%s") { successful } }',
)
"""The ways to name one resource."""


@dataclass
class Served:
    """A client of a runtime with knowledge, who has signed in or not."""

    client: Client
    headers: dict[str, str]

    async def ask(self, query: str) -> str:
        body = {"query": query}
        answer = await self.client.request("POST", "/graphql", json=body, headers=self.headers)
        return f"{answer.status} {answer.body.decode()}"

    async def read(self, path: str, method: str = "GET") -> str:
        answer = await self.client.request(method, path, headers=self.headers)
        return f"{answer.status} {answer.body.decode()}"


@in_one_test("user", ["ann", ""])
async def test_no_route_of_a_server_shows_what_is_denied(worlds: Worlds, user: str) -> None:
    answers: list[dict[str, str]] = []
    for knowledge in (worlds.full, worlds.empty):
        runtime = CopilotRuntime(
            DemoAdapter(pace=0),
            knowledge=knowledge,
            authenticate=sign_in,
            settings=Settings(threads="memory"),
        )
        headers = {"x-user": user} if user else {}
        found: dict[str, str] = {}
        async with Client(runtime, headers=headers) as client:
            served = Served(client, headers)
            for query in GRAPHQL:
                found[query] = await served.ask(query)
            for path in PATHS:
                found[path] = await served.read(f"/graphql/knowledge{path}")
            found["/health/ready"] = await served.read("/health/ready")
            found["chat"] = (await client.say("When does the zebra open at nine?")).text
        answers.append(found)

    differing = [
        f"{name}: {answer} != {answers[1][name]}"
        for name, answer in answers[0].items()
        if answer != answers[1][name] or "zebra of" in answer
    ]
    assert differing == []
