"""The system prompt: its layers, their order and their size."""

from copilot_runtime.extensions.analyst.prompt.layers import (
    MOST_STATIC_TOKENS,
    STATIC,
    TOOLS,
    build_layers,
    compose_system_prompt,
)
from copilot_runtime.extensions.knowledge.tokens import count_tokens
from tests.in_one_test import in_one_test


def test_static_layers_come_first_and_skills_last() -> None:
    layers = build_layers(TOOLS, schema="<schema/>", skills="<skills/>")

    names = [layer.name for layer in layers]
    assert names == [
        *("base", "tools", "duckdb_notes", "capabilities", "safety"),
        *("schema", "skills"),
    ]


def test_static_layers_with_all_tools_stay_within_their_budget() -> None:
    texts = [layer.text for layer in build_layers(TOOLS) if layer.name in STATIC]

    assert sum(map(len, texts)) / 4 <= MOST_STATIC_TOKENS
    assert sum(map(count_tokens, texts)) <= MOST_STATIC_TOKENS


@in_one_test(
    ("tools", "has_notes"),
    [(["summarize_data"], False), (["run_sql"], True), (["plot_data"], True), ([], False)],
)
def test_dialect_notes_are_for_tools_that_take_sql(tools: list[str], has_notes: bool) -> None:
    assert ("# DuckDB SQL" in compose_system_prompt(tools)) is has_notes


def test_a_tool_that_is_not_active_is_not_spoken_of() -> None:
    prompt = compose_system_prompt(["summarize_data", "run_sql"])

    assert [name for name in TOOLS if name in prompt] == ["summarize_data", "run_sql"]
    assert "prepare downloads" not in prompt
