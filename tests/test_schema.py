"""The schema at the root of the repository is the one that is served."""

from pathlib import Path

from graphql import OperationType, build_schema
from graphql.utilities import find_breaking_changes

from copilot_runtime.transports.graphql.schema import sdl
from tests.in_one_test import in_one_test

ROOT = Path(__file__).parent.parent


def list_root_fields(text: str) -> dict[OperationType, set[str]]:
    schema = build_schema(text)
    roots = {kind: schema.get_root_type(kind) for kind in OperationType}
    return {kind: {*root.fields} for kind, root in roots.items() if root is not None}


def test_the_schema_file_is_up_to_date() -> None:
    assert (ROOT / "schema.graphql").read_text(encoding="utf-8") == sdl(), (
        "write it anew: copilot-runtime develop schema > schema.graphql"
    )


def test_the_schema_file_of_a_runtime_with_knowledge_is_up_to_date() -> None:
    path = ROOT / "schema.knowledge.graphql"

    assert path.read_text(encoding="utf-8") == sdl(knowledge=True), (
        "write it anew: copilot-runtime develop schema --knowledge > schema.knowledge.graphql"
    )


@in_one_test("part", ["knowledge", "traces", "plans", "tools"])
def test_a_part_only_adds_to_the_schema(part: str) -> None:
    without, with_part = build_schema(sdl()), build_schema(sdl(**{part: True}))

    assert find_breaking_changes(without, with_part) == []


def test_traces_add_three_queries_and_a_subscription() -> None:
    plain, traced = list_root_fields(sdl()), list_root_fields(sdl(traces=True))
    added = {kind: names - plain[kind] for kind, names in traced.items()}

    assert added == {
        OperationType.QUERY: {"traces", "trace", "traceStats"},
        OperationType.MUTATION: set(),
        OperationType.SUBSCRIPTION: {"spans"},
    }
