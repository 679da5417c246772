"""A runtime with knowledge, as clients of every protocol meet it."""

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient
from typer.testing import CliRunner

from copilot_runtime import CopilotRuntime, DemoAdapter, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import ResultMessage
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier, identify_file, name_file
from copilot_runtime.extensions.knowledge.policies import user_identifier
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.testing import Client
from tests.extensions.knowledge.ingestion.pdf import make_pdf
from tests.extensions.knowledge.library import ADA, LIBRARY, library
from tests.in_one_test import in_one_test

anyio = pytest.mark.anyio
PROTOCOL = "graphql-transport-ws"


def sign_in(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-user")


def runtime(knowledge: Knowledge | None, **more: Any) -> CopilotRuntime:
    settings = Settings(threads="memory", **more.pop("settings", {}))
    adapter = more.pop("adapter", None) or DemoAdapter(pace=0)
    return CopilotRuntime(adapter, knowledge=knowledge, settings=settings, **more)


@contextmanager
def serve(served: CopilotRuntime) -> Generator[TestClient]:
    """Serve a runtime, and wait until its knowledge is up to date."""
    with TestClient(served.app()) as client:
        wait_until_ready(client)
        yield client


def wait_until_ready(client: TestClient) -> dict[str, Any]:
    while (found := client.get("/health/ready").json()["knowledge"])["state"] == "updating":
        sleep(0.01)
    return found


@pytest.fixture
def client(pages: Path) -> Iterator[TestClient]:
    with serve(runtime(library(pages), authenticate=sign_in)) as client:
        yield client


def ask(client: TestClient, query: str, user: str = "", **variables: Any) -> Any:
    body = {"query": query, "variables": variables}
    headers = {"x-user": user} if user else {}
    return client.post("/graphql", json=body, headers=headers).json()


def read(client: TestClient, path: str, **more: Any) -> Any:
    return client.get(f"/graphql/knowledge{path}", **more).json()


def test_readiness_says_what_is_loaded(client: TestClient) -> None:
    assert client.get("/health/ready").json()["knowledge"] == {"state": "ready"}


def test_an_update_that_fails_is_said_and_the_server_serves(
    pages: Path, caplog: pytest.LogCaptureFixture
) -> None:
    knowledge = library(pages)
    knowledge.sources.append(str(pages.parent / "gone"))
    with TestClient(runtime(knowledge).app()) as client:
        found = wait_until_ready(client)

        assert client.get("/health/ready").status_code == 200
        assert read(client, "")["state"] == "failed"
    assert found == {"state": "failed"}  # the reason is for the log: it names files
    assert "gone" in caplog.text


def test_a_key_that_is_missing_is_logged_and_the_state_is_incomplete(
    pages: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with TestClient(runtime(library(pages, embedder="openai")).app()) as client:
        assert wait_until_ready(client) == {"state": "incomplete"}
        assert read(client, "")["state"] == "incomplete"
        assert client.get("/graphql/knowledge/ontology.svg").status_code == 200

    assert caplog.text.count("Knowledge is incomplete") == 1
    assert "There is no API key for OpenAI. Set OPENAI_API_KEY" in caplog.text


@anyio
async def test_a_question_is_answered_from_what_is_known_with_a_link_that_opens(
    pages: Path,
) -> None:
    served = runtime(library(pages))
    async with Client(served) as chat:
        answer = await chat.say("For how many weeks are books lent?")
        link = re.search(r"\]\((/graphql/knowledge/resources/[^)#]+)#here\)", answer.text)
        assert link is not None
        page = await chat.request("GET", link[1], headers={"accept": "text/html"})

    shown = page.body.decode()
    assert "Books are lent for four weeks." in answer.text
    assert page.status == 200
    assert len(link[1]) < 60
    assert "House rules" in shown


def test_a_link_opens_the_document_at_the_passage(pages: Path) -> None:
    (pages / "guide.md").write_text(
        "# Guide\n\n## Wi-Fi\n\nAsk for a voucher.\n\n## Lockers\n\nLockers take a coin.\n"
    )
    with serve(runtime(library(pages))) as client:
        found = read(client, "/search", params={"q": "lockers coin"})["results"][0]
        page = client.get(found["url"], headers={"accept": "text/html"}).text

    assert found["url"].endswith("#here")
    assert re.findall("<h2>Guide . (.+?)</h2>", page) == ["Wi-Fi", "Lockers"]
    assert re.findall('<article( id="here")?>(.+?)</article>', page) == [
        ("", "Ask for a voucher."),
        (' id="here"', "Lockers take a coin."),
    ]


def test_a_cited_pdf_opens_at_its_page(pages: Path) -> None:
    (pages / "guide.pdf").write_bytes(make_pdf("Ask for a voucher.", "Lockers take a coin."))
    with serve(runtime(library(pages, base="https://mill.example/"))) as client:
        found = read(client, "/search", params={"q": "lockers coin"})["results"][0]
        page = client.get(found["url"], headers={"accept": "text/html"}).text

    assert '<h2>Page 2</h2><article id="here">Lockers' in page
    assert '<a href="https://mill.example/guide.pdf#page=2"' in page


@anyio
async def test_the_page_gets_the_sources_and_the_thread_no_passage(pages: Path) -> None:
    served = runtime(library(pages))
    async with Client(served) as chat:
        await chat.say("For how many weeks are books lent?")
        thread = await chat.request("GET", f"/graphql/threads/{chat.thread_id}/events")

    events = thread.json()["events"]
    activities = [event for event in events if event["type"] == "ACTIVITY_SNAPSHOT"]
    assert [each["activityType"] for each in activities] == ["sources"]
    assert activities[0]["content"]["sources"][0]["title"] == "House rules"
    assert "They are not instructions" not in str(events)


@anyio
async def test_a_client_of_v1_is_answered_from_what_is_known(pages: Path) -> None:
    async with Client(runtime(library(pages)), protocol="graphql") as chat:
        answer = await chat.say("For how many weeks are books lent?")

    assert "Books are lent for four weeks." in answer.text


def test_knowledge_of_the_settings_is_served(pages: Path, tmp_path: Path) -> None:
    section = {"storage": f"local:{tmp_path / 'store'}", "sources": [str(pages)]}
    with serve(runtime(None, settings={"knowledge": section})) as client:
        found = read(client, "/search", params={"q": "dogs wait outside"})

    assert found["results"][0]["title"] == "House rules"


def test_what_was_taken_in_is_there_after_a_restart(pages: Path, tmp_path: Path) -> None:
    def make() -> CopilotRuntime:
        return runtime(library(pages, storage=f"local:{tmp_path / 'store'}"))

    with serve(make()) as client:
        before = read(client, "/resources")
    (pages / "rules.md").unlink()
    with serve(make()) as client:
        after = read(client, "/resources")

    assert (before["total"], after["total"]) == (4, 3)


def test_a_policy_hides_what_was_taken_in_before_it(
    pages: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy, settings = tmp_path / "policy.yml", tmp_path / "copilot.yml"
    section = {"storage": f"local:{tmp_path / 'store'}", "embedder": "hashing"}
    query = '{ graph(predicate: "schema:employee") { triples { object } } }'

    def ingest() -> str:
        settings.write_text(json.dumps({"knowledge": section}))
        command = ["knowledge", "ingest", str(pages), "--config", str(settings)]
        return CliRunner().invoke(cli, command).stdout

    def look(user: str) -> tuple[int, int]:
        made = runtime(None, settings={"knowledge": section}, authenticate=sign_in)
        with serve(made) as client:
            graph = ask(client, query, user)
            found = read(client, "/search", params={"q": "librarian"}, headers={"x-user": user})
        return len(found["results"]), len(graph["data"]["graph"]["triples"])

    ingest()
    assert look("ann")[1] == 1
    section["policy"] = str(policy)
    rule = f"{{deny: all, files: {pages}/library.html, except: {{users: helen}}}}"
    policy.write_text(f"default: allow\nrules: [{rule}]")
    assert look("ann") == (0, 0)
    assert "Things from before the policy are hidden: 2." in caplog.text
    assert "changed" in ingest()
    assert (look("ann"), look("helen")[1]) == ((0, 0), 1)


def test_a_rule_that_hides_nothing_is_logged_at_the_start(
    pages: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = identify_file(name_file(pages / "library.html"))
    wrong = {
        f"{file}x/**": "hides nothing",
        f"{file}": "hides names alone",
        "common.{user}.x": "hides nothing",
    }
    right = [f"{file}/**", "common.Folder.*/**", "common.User.ann/**", "tool.ToolFunction.x"]
    rules = [
        *({"deny": "all", "resources": uri} for uri in (*wrong, *right)),
        {"deny": "list", "resources": str(file)},
        {"deny": "all", "types": "hr.Salary"},
        {"allow": "all", "resources": "hr.Salary.*", "except": {"resources": "a.B.c"}},
        {"deny": "all", "files": str(pages), "types": "common.Document"},
        {"deny": "all", "files": [str(tmp_path / "real"), str(pages / "*.html"), "gone"]},
    ]
    (tmp_path / "real").mkdir()
    policy = tmp_path / "policy.yml"
    policy.write_text(json.dumps({"default": "allow", "rules": rules}))

    with serve(runtime(library(pages, policy=policy))):
        found = re.findall("(hides [a-z ]+): (.*?) match", caplog.text)

    assert found == [
        *((reason, uri) for uri, reason in wrong.items()),
        ("hides nothing", "everything of type hr.Salary"),
        ("hides nothing", "a.B.c"),
        ("hides names alone", f"{pages} of type common.Document"),
        ("hides nothing", str(tmp_path / "real")),
    ]


def test_data_of_the_analyst_that_the_policy_hides_are_named(
    pages: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (pages / "pay.csv").write_text("name,pay\nAda,100\n")
    policy = tmp_path / "policy.yml"
    policy.write_text(f"default: allow\nrules: [{{deny: all, files: {pages}/pay.csv}}]")
    analyst = {"name": "analyst", "data": [f"pay={pages}/*.csv"], "store": str(tmp_path / "data")}
    with serve(runtime(library(pages, policy=policy), settings={"analyst": analyst})):
        assert f"The policy hides {pages}/pay.csv; to analyst.data" in caplog.text


@anyio
async def test_what_was_said_earlier_is_recalled_in_its_thread_and_nowhere_else(
    pages: Path,
) -> None:
    question = {"input": ["my umbrella is where"]}
    turns = [
        say("Noted."),
        say("Nice."),
        call("recall", question),
        say("There."),
        call("recall", question),
        say("No."),
    ]
    served = runtime(library(pages), adapter=ScriptedAdapter(*turns), authenticate=sign_in)
    async with Client(served, headers={"x-user": "ann"}) as ann:
        await ann.say("My umbrella is in the cellar.")
        await ann.say("The weather is fine today, I think.")
        recalled = (await ann.say("Where is my umbrella?")).tool_calls[0].result
        thread = ann.thread_id
        eve = ann.another(headers={"x-user": "eve"}, thread_id=thread)
        stolen = (await eve.say("Where is it?")).tool_calls[0].result

    found = json.loads(recalled or "")["results"]
    assert found[0]["text"] == "My umbrella is in the cellar."
    assert found[0]["title"] == "user"
    assert "Where is my umbrella?" not in str(found)  # the question itself
    assert stolen == "No results found."


class Librarian:
    """An agent of another maker: it calls a tool of this server, and repeats the result."""

    async def run(self, run: RunInput) -> Events:
        results = [it.result for it in run.messages if isinstance(it, ResultMessage)]
        question = {"input": ["dogs wait outside"]}
        for event in say(results[-1]) if results else call("search_content", question):
            yield event


@anyio
async def test_an_agent_uses_the_tools_as_the_user_of_its_run(pages: Path) -> None:
    served = runtime(library(pages), agents={"librarian": Librarian()})
    async with Client(served, agent="librarian") as chat:
        answer = await chat.say("May my dog come in?")

    assert [tool.name for tool in answer.tool_calls] == ["search_content"]
    assert "Dogs wait outside." in answer.text


# ---- HTTP ----


def test_a_resource_is_a_page_for_browsers_and_json_for_programs(client: TestClient) -> None:
    found = read(client, "/search", params={"q": "Ada Byron head librarian"})["results"][0]
    page = client.get(found["url"], headers={"accept": "text/html"})
    value = client.get(found["url"]).json()

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<h1>Ada Byron</h1>" in page.text
    assert "library.html" in page.text
    assert value["title"] == "Ada Byron"
    assert value["subjects"] == [ADA]
    assert ["type", "common.Message"] in value["provenance"]


def test_nothing_of_a_resource_is_markup(pages: Path) -> None:
    (pages / "evil.md").write_text(
        "# <script>alert(1)</script>\n\n<img src=x onerror=alert(2)> about zebras", "utf-8"
    )
    with serve(runtime(library(pages))) as client:
        found = read(client, "/search", params={"q": "zebras"})["results"][0]
        page = client.get(found["url"], headers={"accept": "text/html"}).text

    assert "<script" not in page
    assert "<img" not in page


def test_resources_are_listed_a_page_at_a_time(client: TestClient) -> None:
    first = read(client, "/resources", params={"limit": 3})
    rest = read(client, "/resources", params={"limit": 3, "offset": 3})
    things = read(client, "/resources", params={"type": "common.Message"})

    assert first["total"] == rest["total"] == 4
    assert len({row["id"] for row in first["resources"] + rest["resources"]}) == 4
    assert things["total"] == 2


def test_the_status_names_the_files_and_what_became_of_them(pages: Path) -> None:
    (pages / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    with serve(runtime(library(pages))) as client:
        status = read(client, "")

    states = {Path(source["name"]).name: source["state"] for source in status["sources"]}
    assert states == {
        "broken.pdf": "failed",
        "library.html": "taken in",
        "rules.md": "taken in",
        "secret.md": "taken in",
    }
    assert all(source["message"] for source in status["sources"] if source["state"] == "failed")


def test_the_ontology_is_turtle_and_a_picture(client: TestClient) -> None:
    turtle = client.get("/graphql/knowledge/ontology")
    picture = client.get("/graphql/knowledge/ontology.svg")

    assert turtle.headers["content-type"].startswith("text/turtle")
    assert "schema:LibraryShape" in turtle.text
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "<svg" in picture.text


@in_one_test(
    ("path", "status"),
    [
        ("/search", 400),
        ("/search?q=", 400),
        (f"/search?q={'a' * 2001}", 413),
        ("/search?q=dogs&limit=many", 400),
        ("/search?q=dogs&limit=-1", 400),
        ("/resources/common.Message.none", 404),
        ("/resources/what", 404),
        ("/elsewhere", 404),
        ("/search/more", 404),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_sentence(
    client: TestClient, path: str, status: int
) -> None:
    answer = client.get(f"/graphql/knowledge{path}")

    assert answer.status_code == status
    assert len(answer.json()["message"]) > 10


def test_knowledge_is_read_only_over_http(client: TestClient) -> None:
    answer = client.post("/graphql/knowledge/resources", json={})

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    head = client.head("/graphql/knowledge/resources")
    assert (head.status_code, head.content) == (200, b"")


def test_without_knowledge_there_is_nothing_to_find() -> None:
    with TestClient(runtime(None).app()) as client:
        assert client.get("/graphql/knowledge").status_code == 404
        assert "knowledge" not in client.get("/health/ready").json()
        assert "Knowledge" not in re.sub(
            r"<a id=\"knowledge\" class=\"place\" href=\"\">.*", "", client.get("/").text
        )


# ---- what a policy denies ----

ROUTES: dict[str, Callable[[TestClient, str, str], str]] = {
    "search": lambda client, user, uri: str(
        read(client, "/search", params={"q": "the diary of ann"}, headers={"x-user": user})
    ),
    "list": lambda client, user, uri: str(read(client, "/resources", headers={"x-user": user})),
    "resource": lambda client, user, uri: str(
        read(client, f"/resources/{quote(uri, safe='')}", headers={"x-user": user})
    ),
    "graphql search": lambda client, user, uri: str(
        ask(client, '{ search(input: ["the diary of ann"]) { text } }', user)
    ),
    "graphql resources": lambda client, user, uri: str(
        ask(client, "{ resources { resources { id } } }", user)
    ),
    "graphql resource": lambda client, user, uri: str(
        ask(client, "query ($id: String!) { resource(id: $id) { text } }", user, id=uri)
    ),
    "graphql graph": lambda client, user, uri: str(
        ask(client, '{ graph(predicate: "schema:text") { triples { object } } }', user)
    ),
    "graphql sparql": lambda client, user, uri: str(
        ask(client, '{ graph(sparql: "SELECT ?o { ?s schema:text ?o }") { rows } }', user)
    ),
    "graphql ontology": lambda client, user, uri: str(ask(client, "{ ontology { turtle } }", user)),
    "chat": lambda client, user, uri: (
        client.post(
            "/graphql/agent/default/run",
            headers={"x-user": user},
            json={
                "threadId": f"t-{user}",
                "runId": f"r-{user}",
                "state": None,
                "tools": [],
                "context": [],
                "forwardedProps": {},
                "messages": [{"id": "1", "role": "user", "content": "The diary of ann, please"}],
            },
        ).text
    ),
}


@pytest.fixture
def diary(pages: Path) -> Iterator[tuple[TestClient, str]]:
    """Serve a library with a diary that belongs to ann."""
    knowledge = library(pages)
    content = (
        "<https://mill.example/id/diary> a <https://schema.org/Diary>; "
        '<https://schema.org/text> "the diary of ann says midnight" .'
    )
    owner = str(user_identifier("ann"))
    resource = Resource(Identifier("common.Message", "diary", owner), content, "turtle")
    with TestClient(runtime(knowledge, authenticate=sign_in).app()) as client:
        portal = client.portal
        assert portal is not None
        portal.call(knowledge.resources.put, resource)
        portal.call(knowledge.update)
        wait_until_ready(client)
        yield client, resource.uri


@in_one_test("route", ROUTES)
def test_what_belongs_to_somebody_is_shown_to_nobody_else(
    diary: tuple[TestClient, str], route: str
) -> None:
    client, uri = diary
    look = ROUTES[route]
    words = ("midnight", "Diary", "common.User.ann")

    assert any(word in look(client, "ann", uri) for word in words)
    for stranger in ("eve", ""):
        assert [word for word in words if word in look(client, stranger, uri)] == []


def test_a_resource_that_may_not_be_read_is_not_found(
    diary: tuple[TestClient, str],
) -> None:
    client, uri = diary
    path = f"/graphql/knowledge/resources/{quote(uri, safe='')}"
    answer = client.get(path, headers={"x-user": "eve"})
    page = client.get(path, headers={"x-user": "eve", "accept": "text/html"})

    assert answer.status_code == page.status_code == 404
    assert answer.json()["message"] == "There is no such resource."
    assert "<h1>There is no such document</h1>" in page.text


# ---- GraphQL ----


def test_graphql_has_resources_search_graph_and_ontology(client: TestClient) -> None:
    query = """{
        resources(type: "common.Message") { total resources { id type tokens } }
        search(input: ["books lent weeks"], limit: 1) { title text url score }
        graph(predicate: "schema:employee") { triples { subject object } resources { title } cut }
        ontology { turtle classes { iri instances } }
    }"""
    found = ask(client, query)["data"]

    assert found["resources"]["total"] == 2
    assert found["search"][0]["title"] == "House rules"
    assert found["graph"] == {
        "triples": [{"subject": f"<{LIBRARY}>", "object": f"<{ADA}>"}],
        "resources": [{"title": "Mill Library"}],
        "cut": False,
    }
    assert {"iri": "https://schema.org/Person", "instances": 1} in found["ontology"]["classes"]


def test_graphql_shows_one_resource_with_all_that_is_stored(client: TestClient) -> None:
    query = "query ($id: String!) { resource(id: $id) { title format content subjects version } }"
    rows = read(client, "/resources", params={"type": "common.Message"})["resources"]
    found = [ask(client, query, id=row["id"])["data"]["resource"] for row in rows]

    assert {each["title"] for each in found} == {"Mill Library", "Ada Byron"}
    assert {each["format"] for each in found} == {"jsonld"}
    assert ask(client, query, id="common.Message.none")["data"] == {"resource": None}


@in_one_test("uri", ["\x00", "x" * 6000, "common.Message.a\x7fb", "\\", "ü" * 200])
def test_a_name_that_nothing_can_have_is_that_of_no_resource(client: TestClient, uri: str) -> None:
    missing = client.get("/graphql/knowledge/resources/common.Message.none")
    found = client.get(f"/graphql/knowledge/resources/{quote(uri, safe='')}")
    query = "query ($id: String!) { resource(id: $id) { text } }"

    assert (found.status_code, found.json()) == (404, missing.json())
    assert ask(client, query, id=uri)["data"] == {"resource": None}


def test_graphql_answers_sparql(client: TestClient) -> None:
    rows = '{ graph(sparql: "SELECT ?n { ?s schema:jobTitle ?n }") { variables rows boolean } }'
    yes = '{ graph(sparql: "ASK { ?s schema:jobTitle ?n }") { boolean } }'

    assert ask(client, rows)["data"]["graph"] == {
        "variables": ["n"],
        "rows": [['"head librarian"']],
        "boolean": None,
    }
    assert ask(client, yes)["data"]["graph"]["boolean"] is True


def test_graphql_shows_the_memory_of_a_conversation_to_its_owner(pages: Path) -> None:
    knowledge = library(pages)
    query = """query { memory(threadId: "t1") {
        conversation
        items { id tokens }
        window(budget: 100) { conversation { tokens } context { id } tools { id } trimmed tokens }
        recall(input: ["umbrella"]) { text }
    } }"""
    chat = "common.User.ann/common.Conversation.t1"
    with TestClient(runtime(knowledge, authenticate=sign_in).app()) as client:
        wait_until_ready(client)
        assert client.portal is not None
        item = Identifier("common.Message", "m1", chat, tokens=12)
        client.portal.call(knowledge.memory.append, chat, item)
        ann, eve, nobody = (
            ask(client, query, user)["data"]["memory"] for user in ("ann", "eve", "")
        )

    assert ann["items"] == [{"id": f"{chat}/common.Message.m1", "tokens": 12}]
    assert ann["window"] == {
        "conversation": [{"tokens": 12}],
        "context": [],
        "tools": [],
        "trimmed": [],
        "tokens": 12,
    }
    assert ann["recall"] == eve["items"] == nobody["items"] == []
    assert nobody["conversation"] == "common.Conversation.t1"


@in_one_test("thread", [r"é\u0000x", r"\u202e"])
def test_graphql_refuses_the_memory_of_what_can_be_no_thread(pages: Path, thread: str) -> None:
    with TestClient(runtime(library(pages)).app()) as client:
        answer = ask(client, f'{{ memory(threadId: "{thread}") {{ conversation }} }}')

    assert [it["message"] for it in answer["errors"]] == [
        "The thread id has characters that are no text."
    ]


@in_one_test(
    ("field", "words"),
    [
        ("search(input: []) { id }", "1 to 10 texts"),
        (f'search(input: ["{"a" * 10_001}"]) {{ id }}', "characters"),
        ('search(input: ["a"], limit: 1000) { id }', "limit is 1000"),
        ("resources(limit: 0) { total }", "limit is 0"),
        ("resources(offset: -1) { total }", "offset is -1"),
        ('graph(subject: "\\"open") { cut }', ""),
        ('graph(subject: "Lena") { cut }', "schema:name; ? stands for anything."),
        ('graph(sparql: "SELECT ?n { ?n a schm:Car }") { cut }', "Did you mean schema:?"),
        ('graph(sparql: "INSERT DATA { <a:b> <a:b> <a:b> }") { cut }', "Ask with SELECT, ASK"),
    ],
)
def test_what_graphql_cannot_answer_is_an_error_with_a_code(
    client: TestClient, field: str, words: str
) -> None:
    (error,) = ask(client, f"{{ {field} }}")["errors"]

    assert words in error["message"]
    assert error["extensions"]["code"] != "UNKNOWN"


def test_a_request_asks_for_so_many_fields_of_knowledge(client: TestClient) -> None:
    fields = " ".join(f'a{number}: search(input: ["a"]) {{ id }}' for number in range(11))
    errors = ask(client, f"{{ {fields} }}")["errors"]

    assert errors[0]["extensions"]["code"] == "LIMIT_EXCEEDED"


def test_without_knowledge_the_schema_is_the_one_of_before() -> None:
    query = "{ __schema { queryType { fields { name } } subscriptionType { fields { name } } } }"
    with TestClient(runtime(None).app()) as client:
        found = ask(client, query)["data"]["__schema"]

    names = [field["name"] for field in found["queryType"]["fields"]]
    assert names[:3] == ["hello", "availableAgents", "loadAgentState"]
    assert {"resources", "search", "graph", "ontology", "memory"}.isdisjoint(names)
    assert "resourceEvents" not in [it["name"] for it in found["subscriptionType"]["fields"]]


def test_a_subscription_follows_what_is_done_to_resources_one_may_read(pages: Path) -> None:
    knowledge = library(pages)
    query = """subscription { resourceEvents(detailTypes: ["RESOURCE_PUT"]) {
        detailType resources source } }"""
    with TestClient(runtime(knowledge, authenticate=sign_in).app()) as client:
        wait_until_ready(client)
        assert client.portal is not None
        with client.websocket_connect("/graphql", [PROTOCOL], headers={"x-user": "eve"}) as socket:
            socket.send_json({"type": "connection_init"})
            socket.receive_json()
            socket.send_json({"id": "1", "type": "subscribe", "payload": {"query": query}})
            followers = knowledge.events._subscriptions  # pyright: ignore[reportPrivateUsage]
            while not followers:
                sleep(0.01)
            for owner in (str(user_identifier("ann")), ""):
                resource = Resource(Identifier("common.Message", "note", owner), "a note")
                client.portal.call(knowledge.resources.put, resource)
            event = socket.receive_json()["payload"]["data"]["resourceEvents"]

    assert event["resources"] == ["common.Message.note"]
    assert event["detailType"] == "RESOURCE_PUT"


# ---- the console ----


def test_the_page_knowledge_has_no_data_and_only_its_own_script(client: TestClient) -> None:
    page = client.get("/knowledge")

    assert page.status_code == 200
    assert 'data-endpoint="/graphql"' in page.text
    assert "Ada" not in page.text
    assert set(re.findall(r"https?://[\w.]+", page.text)) == {"http://www.w3.org"}
    assert "script-src 'sha256-" in page.headers["content-security-policy"]
    assert 'href="/knowledge"' in client.get("/").text


def test_where_clients_are_at_the_root_browsers_get_the_page_and_programs_the_data(
    pages: Path,
) -> None:
    with serve(runtime(library(pages), settings={"path": "/"})) as client:
        page = client.get("/knowledge", headers={"accept": "text/html"})
        data = client.get("/knowledge", headers={"accept": "application/json"})
        found = client.get("/knowledge/search", params={"q": "dogs wait outside"}).json()

    assert "Search by meaning" in page.text
    assert data.json()["resources"] == 4
    assert found["results"][0]["url"].startswith("/knowledge/resources/")


def test_a_mounted_runtime_links_below_its_path_and_asks_the_dependencies(pages: Path) -> None:
    def need_key(key: str = Header("")) -> None:
        if key != "open":
            raise HTTPException(401)

    host = FastAPI()
    knowledge = library(pages)
    runtime(knowledge).mount(host, "/api/copilot", dependencies=[Depends(need_key)])
    with TestClient(host, root_path="/proxy") as client:
        assert client.portal is not None
        client.portal.call(knowledge.update)
        path = "/proxy/api/copilot/knowledge/search"
        refused = client.get(path, params={"q": "dogs"})
        found = client.get(path, params={"q": "dogs wait"}, headers={"key": "open"}).json()

        assert refused.status_code == 401
        link = found["results"][0]["url"]
        assert link.startswith("/proxy/api/copilot/knowledge/resources/")
        assert client.get(link, headers={"key": "open"}).status_code == 200


def test_links_begin_with_the_address_that_readers_of_other_pages_use(pages: Path) -> None:
    section = {"link": "https://chat.example.com/"}
    with serve(runtime(library(pages), settings={"knowledge": section})) as client:
        found = read(client, "/search", params={"q": "dogs wait outside"})

    assert found["results"][0]["url"].startswith(
        "https://chat.example.com/graphql/knowledge/resources/"
    )


def test_the_page_is_there_only_with_the_console(pages: Path) -> None:
    served = runtime(library(pages), settings={"console": False})
    with TestClient(served.app()) as client:
        assert client.get("/knowledge", headers={"accept": "text/html"}).status_code == 404


def test_tools_are_offered_with_the_actions_of_the_application(pages: Path) -> None:
    served = runtime(library(pages), adapter=ScriptedAdapter(), settings={"serve_remote": True})
    with serve(served) as client:
        info = client.post("/graphql/info", json={"properties": {}}).json()

    names = {action["name"] for action in info.get("actions", [])}
    assert {"search_content", "get_ontology"} <= names
