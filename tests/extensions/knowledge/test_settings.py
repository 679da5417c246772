"""The section `knowledge` of the settings, and what is said of a wrong one."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings, knowledge
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    MissingPackage,
    UnknownName,
)
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.settings import load_settings
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def load(text: str, folder: Path, **environ: str) -> Settings:
    file = folder / "copilot.yml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, environ)


def test_without_storage_and_sources_there_is_no_knowledge() -> None:
    settings = Settings(threads="memory")

    assert settings.knowledge.address == ""
    assert CopilotRuntime(ScriptedAdapter(), settings=settings).find(Knowledge) is None


def test_sources_alone_are_enough(tmp_path: Path) -> None:
    settings = load(f"knowledge: {{sources: {tmp_path}}}", tmp_path)

    assert settings.knowledge.address == "local:.copilot/knowledge"
    assert settings.knowledge.sources == (str(tmp_path),)


def test_the_environment_sets_what_the_file_sets(tmp_path: Path) -> None:
    variables = {
        "COPILOT_KNOWLEDGE_STORAGE": "memory",
        "COPILOT_KNOWLEDGE_SOURCES": "a, b",
        "COPILOT_KNOWLEDGE_EMBEDDER_OPTIONS": '{"dimensions": 64}',
        "COPILOT_KNOWLEDGE_TOOLS": "search_content",
        "COPILOT_KNOWLEDGE_RETRIEVAL": "false",
    }
    knowledge = load("knowledge: {storage: 'local:x'}", tmp_path, **variables).knowledge

    assert knowledge.storage == "memory"
    assert knowledge.sources == ("a", "b")
    assert knowledge.embedder_options == {"dimensions": 64}
    assert knowledge.tools == ("search_content",)
    assert knowledge.retrieval is False


@in_one_test(
    ("environ", "address"),
    [
        ({"STORAGE_TYPE": "s3", "S3_BUCKET": "b"}, "s3://b"),
        ({"STORAGE_TYPE": "s3", "S3_BUCKET": "b", "S3_REGION": "eu-1"}, "s3://b?region=eu-1"),
        ({"STORAGE_TYPE": "local"}, ""),
        ({"STORAGE_TYPE": "memory"}, ""),
        ({"STORAGE_TYPE": "s3"}, ""),
        ({"STORAGE_TYPE": "gcs", "S3_BUCKET": "b"}, ""),
    ],
)
def test_the_variables_of_copilot_ld_say_where_knowledge_is(
    environ: dict[str, str], address: str, tmp_path: Path
) -> None:
    assert load("", tmp_path, **environ).knowledge.address == address


@in_one_test(("kind", "address"), [("local", "local:.copilot/knowledge"), ("memory", "memory")])
def test_they_change_where_sources_go(kind: str, address: str, tmp_path: Path) -> None:
    settings = load("knowledge: {sources: pages}", tmp_path, STORAGE_TYPE=kind)

    assert settings.knowledge.address == address


def test_a_storage_of_the_settings_wins_over_them(tmp_path: Path) -> None:
    environ = {"STORAGE_TYPE": "s3", "S3_BUCKET": "b"}
    settings = load("knowledge: {storage: memory}", tmp_path, **environ)

    assert settings.knowledge.storage == "memory"


@in_one_test("kind", ["supabase", "s3"])
def test_a_storage_that_we_have_not_is_refused_where_there_are_sources(
    kind: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationFailed, match="STORAGE_TYPE"):
        load("knowledge: {sources: pages}", tmp_path, STORAGE_TYPE=kind)


@in_one_test(
    ("text", "words"),
    [
        ("base: nowhere", "it is not an IRI, such as https://example.com/"),
        ("base: 'https://a b'", "it is not an IRI"),
        ("tools: [search]", "there is no tool 'search'; there are search_content"),
        ("link: example.com", "it is not an address, such as https://chat.example.com"),
        ("retrieval_threshold: 2", "retrieval_threshold"),
        ("retrieval_limit: 0", "retrieval_limit"),
        ("sources: {a: b}", "knowledge.sources"),
        ("embedder: ''", "knowledge.embedder"),
        ("embedder_options: sk-secret", "not a JSON object"),
        ("storages: memory", "Did you mean 'knowledge.storage'?"),
    ],
)
def test_a_wrong_setting_is_named_with_the_way_out(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailed) as failure:
        load(f"knowledge:\n  {text}", tmp_path)

    assert words in failure.value.message
    assert "line 2" in failure.value.message
    assert "sk-secret" not in failure.value.message


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"sources": "pages"}, "sources is one path, and not a list", "Write sources=['pages']"),
    ({"sources": ["no/such"]}, "There is no file or folder 'no/such'", "knowledge.sources"),
    ({"embedder": "hasing"}, "No embedder named 'hasing'", ""),
    ({"policy": "no.yml"}, "no.yml", ""),
]


@in_one_test(("arguments", "words", "way_out"), CASES)
def test_what_cannot_work_is_said_when_it_is_made(
    arguments: dict[str, Any], words: str, way_out: str
) -> None:
    with pytest.raises(CopilotError) as failure:
        Knowledge("memory", **arguments)

    assert words in failure.value.message
    assert way_out in f"{failure.value.message} {failure.value.hint}"


def test_a_name_of_an_embedder_is_looked_up_before_it_is_needed() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'hashing'"):
        Knowledge("memory", embedder="hashin")


def find_nothing(name: str) -> None:
    del name


def test_a_package_that_is_missing_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.knowledge.find_spec", find_nothing)
    with pytest.raises(MissingPackage, match=r"pip install 'copilot-runtime\[knowledge\]'"):
        Knowledge("memory")


@in_one_test(
    ("given", "words"),
    [
        ("pages", "knowledge is a path, and not a Knowledge object"),
        (5, "knowledge is an int, and not a Knowledge object"),
        (Knowledge, "of copilot_runtime.knowledge"),
    ],
)
def test_a_runtime_says_what_is_no_knowledge(given: Any, words: str) -> None:
    with pytest.raises(ConfigurationFailed) as failure:
        CopilotRuntime(ScriptedAdapter(), knowledge=given, settings=Settings(threads="memory"))

    assert words in f"{failure.value.message} {failure.value.hint}"


def test_questions_of_the_settings_are_offered_by_the_page() -> None:
    section = {"storage": "memory", "suggestions": ["Who leads the library?"]}
    settings = Settings(threads="memory", knowledge=section)  # pyright: ignore[reportArgumentType]  # as a file has it
    app = CopilotRuntime(ScriptedAdapter(), settings=settings).app()

    assert "Who leads the library?" in TestClient(app).get("/").text


def test_wrong_options_of_the_graph_are_said_when_it_is_made() -> None:
    settings = KnowledgeSettings(graph_options={"sparql_store": "tape"})
    with pytest.raises(ConfigurationFailed, match="graph_options"):
        Knowledge("memory", settings=settings)


async def test_limits_of_sparql_are_those_of_the_settings() -> None:
    settings = KnowledgeSettings(graph_options={"sparql": {"length": 10}})
    knowledge = Knowledge("memory", settings=settings)
    with pytest.raises(CopilotError, match="at most 10 characters"):
        await knowledge.sparql("SELECT * { ?s ?p ?o }")


@in_one_test("name", knowledge.__all__)
def test_each_public_name_is_importable(name: str) -> None:
    assert getattr(knowledge, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Knowlege'"):
        _ = getattr(knowledge, "Knowlege")  # noqa: B009
