"""`copilot-runtime knowledge search`, `graph` and `ontology`."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource
from tests.commands import read_messages
from tests.extensions.knowledge.library import ADA, LIBRARY, write_pages
from tests.in_one_test import in_one_test

Run = Callable[..., Result]
CHAT = "common.User.ann/common.Conversation.t1"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return where the library is, with a note that belongs to ann."""
    folder = tmp_path_factory.mktemp("library")
    address = f"local:{folder / 'store'}"

    async def fill() -> None:
        knowledge = Knowledge(address, sources=[write_pages(folder)])
        note = Resource(Identifier("common.Message", "note", "common.User.ann"), "Buy umbrellas.")
        await knowledge.resources.put(note)
        await knowledge.memory.append(CHAT, Identifier("common.Message", "m1", CHAT, tokens=12))
        await knowledge.memory.append(CHAT, Identifier("common.Message", "m2", CHAT, tokens=8))
        await knowledge.ingest()
        await knowledge.aclose()

    asyncio.run(fill())
    return address


@pytest.fixture
def run(store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return a function that runs a command with the library."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COPILOT_KNOWLEDGE_STORAGE", store)

    def call(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(cli, ["knowledge", *arguments], input=input)

    return call


def test_a_search_is_a_table_with_the_best_first(run: Run) -> None:
    lines = run("search", "For how many weeks are books lent?").stdout.splitlines()

    assert lines[0].split() == ["SCORE", "TITLE", "TEXT", "RESOURCE"]
    assert "House rules" in lines[1]
    assert "common.Document." in lines[1]


def test_a_search_is_json_for_programs(run: Run) -> None:
    found = json.loads(run("search", "head librarian", "--json", "--limit", "1").stdout)

    assert found["results"][0]["title"] == "Ada Byron"
    assert found["results"][0]["score"] > 0


def test_a_search_without_the_key_of_the_embedder_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_KNOWLEDGE_EMBEDDER", "openai:text-embedding-3-small")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    result = run("search", "dogs")

    assert result.exit_code == 1
    assert str(result.exception) == "There is no API key for OpenAI."


def test_a_search_as_a_user_shows_what_this_user_may_read(run: Run) -> None:
    shown = {
        user: "common.User.ann" in run("search", "umbrellas", "--as", user).stdout
        for user in ("ann", "eve", "")
    }

    assert shown == {"ann": True, "eve": False, "": False}
    assert "common.User.ann" in run("search", "umbrellas").stdout  # the operator


def test_nothing_found_is_said_where_no_pipe_reads_it(run: Run) -> None:
    found = run("search", "dogs", "--threshold", "0.99")

    assert (found.stdout, read_messages(found)) == ("", "Nothing was found.\n")


def test_a_pattern_shows_triples(run: Run) -> None:
    table = run("graph", LIBRARY, "schema:employee", "?").stdout
    found = json.loads(run("graph", "?", "schema:employee", "?", "--json").stdout)

    assert f"<{ADA}>" in table
    assert found == {"triples": [[f"<{LIBRARY}>", "<https://schema.org/employee>", f"<{ADA}>"]]}


def test_a_pattern_may_be_in_one_argument(run: Run) -> None:
    assert run("graph", "? schema:employee ?").stdout == (
        run("graph", "?", "schema:employee", "?").stdout
    )
    assert ADA in run("graph", '? schema:name "Ada Byron"').stdout


@in_one_test(
    ("predicate", "guess"),
    [
        ("schema:nam", " Did you mean schema:name?"),
        ("<https://schema.org/employe>", " Did you mean schema:employee?"),
        ("schema:price", ""),
        ("foaf:x", ""),
        ("urn:x", ""),
        ("a", ""),
        ("schema:name", ""),
        ("?", ""),
    ],
)
def test_a_predicate_that_no_triple_has_is_guessed(run: Run, predicate: str, guess: str) -> None:
    found = run("graph", "?", predicate, '"nobody"')

    assert read_messages(found) == f"No triple fits the pattern.{guess}\n"


def test_a_prefix_that_there_is_not_is_named(run: Run) -> None:
    found = run("graph", "?", "foo:bar", "?")

    assert read_messages(found).startswith("No triple fits the pattern. There is no prefix 'foo'. ")
    assert "Known are dct, ex, foaf, owl, rdf, rdfs, schema" in found.stderr


@in_one_test(
    ("query", "message", "hint"),
    [
        ("SELECT ?n { ?p a schm:Person }", "no prefix 'schm'", "Did you mean schema:? Known are"),
        ("SELECT ?n {\n?n a\r\n:Person }", "no prefix ''", "PREFIX : <https://…>"),
        ("SELECT ?n { ?p a 'ü', x-y.z:a.b }", "no prefix 'x-y.z'", "PREFIX x-y.z: <https://…>"),
        ("SELECT ?n { ?p a }", "This is no SPARQL: error at 1:", ""),
    ],
)
def test_what_is_no_sparql_says_why(run: Run, query: str, message: str, hint: str) -> None:
    error = run("graph", "--sparql", query).exception

    assert isinstance(error, CopilotError)
    assert message in error.message
    assert hint in (error.hint or "")


def test_a_predicate_is_guessed_of_those_that_the_user_may_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "policy.yml").write_text("default: deny\n", encoding="utf-8")
    (tmp_path / "copilot.yml").write_text("knowledge: {policy: policy.yml}\n", encoding="utf-8")
    found = run("graph", "?", "schema:nam", "?", "--as", "eve")

    assert read_messages(found) == "No triple fits the pattern.\n"


def test_an_answer_that_is_too_large_says_so(run: Run, tmp_path: Path) -> None:
    options = "knowledge: {graph_options: {sparql: {bytes: %d}}}\n"
    query = ("graph", "--sparql", "SELECT ?name { ?who schema:name ?name } ORDER BY ?name")
    (tmp_path / "copilot.yml").write_text(options % 5, encoding="utf-8")
    nothing = run(*query)
    (tmp_path / "copilot.yml").write_text(options % 12, encoding="utf-8")
    one = run(*query)

    assert nothing.stdout == ""
    assert read_messages(nothing).startswith("The first result alone is larger than the 5 bytes")
    assert "sparql.bytes in the setting knowledge.graph_options" in nothing.stderr
    assert "Ada Byron" in one.stdout
    assert read_messages(one).startswith("There is more, and it is larger than the 12 bytes")


def test_a_query_that_takes_too_long_is_no_guess(run: Run, tmp_path: Path) -> None:
    options = "knowledge: {graph_options: {sparql: {length: 5}}}\n"
    (tmp_path / "copilot.yml").write_text(options, encoding="utf-8")

    assert read_messages(run("graph", "?", "schema:nam", "?")) == "No triple fits the pattern.\n"


def test_terms_are_as_short_as_a_pattern_may_have_them(run: Run) -> None:
    values = (
        *("schema:name", "5", "true", '"a"@en', '"2026-01-01"^^xsd:date', '"x"^^schema:Text'),
        "<<( schema:a schema:b schema:c )>>",
    )
    bound = " ".join(f"({value} AS ?v{number})" for number, value in enumerate(values))
    shown = run("graph", "--sparql", f"SELECT {bound} {{}}").stdout

    assert shown.splitlines()[1].split()[:6] == [
        "schema:name",
        "5",
        "true",
        '"a"@en',
        "2026-01-01",
        '"x"^^schema:Text',
    ]
    assert "<https://schema.org/a> <https://schema.org/b> <https://schema.org/c>" in shown
    assert (
        f"<{LIBRARY}>  schema:employee  <{ADA}>" in run("graph", "?", "schema:employee", "?").stdout
    )


def test_sparql_shows_rows_triples_or_an_answer(run: Run) -> None:
    select = "SELECT ?name { ?who schema:jobTitle ?job; schema:name ?name }"

    assert run("graph", "--sparql", select).stdout.split() == ["NAME", '"Ada', 'Byron"']
    assert run("graph", "--sparql", "-", input=select).stdout.split()[0] == "NAME"
    assert run("graph", "--sparql", "ASK { ?s schema:jobTitle ?o }").stdout == "yes\n"
    assert run("graph", "--sparql", "ASK { ?s schema:price ?o }").stdout == "no\n"
    construct = "CONSTRUCT { ?s schema:jobTitle ?o } WHERE { ?s schema:jobTitle ?o }"
    assert ADA in run("graph", "--sparql", construct).stdout
    found = json.loads(run("graph", "--sparql", select, "--json").stdout)
    assert found["rows"] == [{"name": '"Ada Byron"'}]


def test_an_answer_that_is_cut_off_says_so(run: Run) -> None:
    found = run("graph", "--sparql", "SELECT * { ?s ?p ?o }", "--limit", "1")

    assert "--limit 2 shows it" in found.stderr


@in_one_test("arguments", [[], ["?"], ["?", "?"], ["?", "?", "?", "--sparql", "ASK {}"]])
def test_a_query_is_either_a_pattern_or_sparql(run: Run, arguments: list[str]) -> None:
    failure = run("graph", *arguments).exception

    assert isinstance(failure, CopilotError)
    assert "copilot-runtime knowledge graph '?' rdf:type schema:Person" in str(failure.hint)


def test_the_ontology_is_a_table_turtle_json_or_a_picture(run: Run) -> None:
    table = run("ontology").stdout
    found = json.loads(run("ontology", "--json").stdout)

    assert table.split()[:3] == ["CLASS", "INSTANCES", "PROPERTIES"]
    assert "name, jobTitle" in table or "jobTitle, name" in table
    assert {each["class"] for each in found["classes"]} == {
        "https://schema.org/Library",
        "https://schema.org/Person",
    }
    assert not any(it["inverse"] for each in found["classes"] for it in each["properties"])
    assert "schema:PersonShape" in run("ontology", "--ttl").stdout
    assert "<svg" in run("ontology", "--svg").stdout


def test_only_one_form_of_an_ontology_can_be_written(run: Run) -> None:
    assert "Only one of" in str(run("ontology", "--svg", "--ttl").exception)


def test_knowledge_in_the_memory_of_a_server_cannot_be_read_from_here(run: Run) -> None:
    failure = run("search", "dogs", "--storage", "memory").exception

    assert "in the memory of a server" in str(failure)


@in_one_test(
    "arguments",
    [
        ["search", "dogs"],
        ["search", "dogs", "--json"],
        ["graph", "?", "?", "?"],
        ["graph", "--sparql", "SELECT * { ?s ?p ?o }"],
        ["graph", "--sparql", "ASK { ?s ?p ?o }"],
        ["ontology"],
        ["ontology", "--svg"],
        ["ontology", "--ttl"],
    ],
)
def test_a_place_without_knowledge_is_named_with_the_way_out(
    run: Run, tmp_path: Path, arguments: list[str]
) -> None:
    result = run(*arguments, "--storage", "local:nope")

    assert (result.exit_code, result.stdout) == (1, "")
    assert isinstance(result.exception, CopilotError)
    assert str(result.exception).startswith("There is no knowledge in local:nope (looked in ")
    assert "`copilot-runtime knowledge ingest FOLDER`" in str(result.exception.hint)
    assert not (tmp_path / "nope").exists()


def test_vectors_of_another_embedder_are_not_searched_in_silence(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_KNOWLEDGE_EMBEDDER", "tei:http://127.0.0.1:9")
    result = run("search", "dogs")

    assert result.exit_code == 1
    assert " was embedded by tei" in str(result.exception)
    assert run("graph", "?", "schema:employee", "?").exit_code == 0


def test_what_has_nothing_in_common_with_a_search_is_no_result(run: Run) -> None:
    assert "0.000" not in run("search", "xylophone").stdout
    assert "0.000" in run("search", "xylophone", "--threshold", "0").stdout


def test_classes_that_somebody_may_not_read_are_none_and_no_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "policy.yml").write_text("default: deny\n", encoding="utf-8")
    (tmp_path / "copilot.yml").write_text("knowledge: {policy: policy.yml}\n", encoding="utf-8")

    assert read_messages(run("ontology", "--as", "eve")) == "There are no classes yet.\n"
    assert (
        read_messages(run("graph", "?", "?", "?", "--as", "eve")) == "No triple fits the pattern.\n"
    )


def test_memories_are_listed_shown_and_cut_to_a_budget(run: Run) -> None:
    assert run("memory").stdout.split() == ["CONVERSATION", CHAT]
    nothing = " ".join(read_messages(run("memory", "--as", "eve")).split())
    threads = "Chats are stored as threads instead: see `copilot-runtime"
    assert nothing.startswith(f"There are no memories. {threads} operate threads list`")
    assert threads in " ".join(run("memory", "--help").stdout.split())
    assert json.loads(run("memory", "--json").stdout) == {"conversations": [CHAT]}
    rows = [line.split() for line in run("memory", CHAT).stdout.splitlines()]
    assert rows[1:] == [
        ["memory", "12", f"{CHAT}/common.Message.m1"],
        ["memory", "8", f"{CHAT}/common.Message.m2"],
    ]
    window = json.loads(run("memory", CHAT, "--budget", "100", "--json").stdout)
    assert [item["tokens"] for item in window["conversation"]] == [12, 8]
    assert window["left_out"] == []


def test_a_memory_of_somebody_else_is_refused(run: Run) -> None:
    assert str(run("memory", CHAT, "--as", "eve").exception) == "Access denied"
    assert str(run("memory", CHAT, "--as", "eve", "--forget").exception) == "Access denied"


def test_a_memory_can_be_removed(run: Run) -> None:
    other = "common.Conversation.other"

    assert "Removed 0 memories" in run("memory", other, "--forget").stderr
    assert read_messages(run("memory", other)) == "This memory is empty.\n"


def test_what_is_for_one_conversation_needs_one(run: Run) -> None:
    assert str(run("memory", "--forget").exception) == "Which conversation is meant?"


@in_one_test("command", ["search", "graph", "ontology", "memory"])
def test_help_shows_examples(run: Run, command: str) -> None:
    assert f"copilot-runtime knowledge {command} " in run(command, "--help").stdout
