"""The schema at the root of the repository is the one that is served."""

from pathlib import Path

from graphql import build_schema
from graphql.utilities import find_breaking_changes

from copilot_runtime.transports.graphql.schema import sdl

ROOT = Path(__file__).parent.parent


def test_the_schema_file_is_up_to_date() -> None:
    assert (ROOT / "schema.graphql").read_text(encoding="utf-8") == sdl(), (
        "write it anew: copilot-runtime schema > schema.graphql"
    )


def test_the_schema_file_of_a_runtime_with_knowledge_is_up_to_date() -> None:
    path = ROOT / "schema.knowledge.graphql"

    assert path.read_text(encoding="utf-8") == sdl(knowledge=True), (
        "write it anew: copilot-runtime schema --knowledge > schema.knowledge.graphql"
    )


def test_the_schema_file_of_a_runtime_with_traces_is_up_to_date() -> None:
    path = ROOT / "schema.traces.graphql"

    assert path.read_text(encoding="utf-8") == sdl(traces=True), (
        "write it anew: copilot-runtime schema --traces > schema.traces.graphql"
    )


def test_knowledge_only_adds_to_the_schema() -> None:
    without, with_knowledge = (
        build_schema(sdl(knowledge=knowledge)) for knowledge in (False, True)
    )

    assert find_breaking_changes(without, with_knowledge) == []
