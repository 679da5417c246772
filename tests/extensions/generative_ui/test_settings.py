"""What the settings say of interfaces of models, under what a program gives."""

import json
from pathlib import Path

import pytest

from copilot_runtime import CopilotRuntime
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.generative_ui.options import (
    A2ui,
    A2uiRecovery,
    GenerativeUi,
    OpenGenerativeUi,
)
from copilot_runtime.extensions.settings import load_settings
from tests.in_one_test import in_one_test

CATALOG = {"catalogId": "https://acme.example/catalog", "components": {"Text": {}}}


def build(variables: dict[str, str], a2ui: bool | None = None) -> A2ui | None:
    agents = {"weather": AguiAgent("http://127.0.0.1:9/")}
    settings = load_settings(None, {"COPILOT_THREADS": "memory", **variables})
    return CopilotRuntime(agents=agents, settings=settings, a2ui=a2ui).get(GenerativeUi).a2ui


def test_every_setting_of_a2ui_is_an_option(tmp_path: Path) -> None:
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    variables = {
        "AGENTS": "weather",
        "INJECT_TOOL": "draw",
        "TOOL_NAMES": "render_a2ui, paint",
        "CATALOG": str(tmp_path / "catalog.json"),
        "DEFAULT_CATALOG_ID": "d",
        "PROGRESS_TOKENS": "false",
        "MAX_ATTEMPTS": "2",
        "DEBUG_EXPOSURE": "verbose",
        "CARDS": "false",
        "MAX_OPERATIONS": "5",
        "MAX_BYTES": "6",
    }

    assert build({f"COPILOT_A2UI_{name}": text for name, text in variables.items()}) == A2ui(
        agents=("weather",),
        inject_tool="draw",
        tool_names=("render_a2ui", "paint"),
        schema=CATALOG,
        default_catalog_id="d",
        recovery=A2uiRecovery(show_progress_tokens=False, max_attempts=2, debug_exposure="verbose"),
        cards=False,
        max_operations=5,
        max_bytes=6,
    )


@in_one_test(
    ("variables", "expected"),
    [
        ({}, None),
        ({"COPILOT_A2UI_ENABLED": "true"}, A2ui()),
        ({"COPILOT_A2UI_ENABLED": "false"}, A2ui(enabled=False)),
        ({"COPILOT_A2UI_INJECT_TOOL": "true"}, A2ui(inject_tool=True)),
        ({"COPILOT_A2UI_INJECT_TOOL": "false"}, A2ui(inject_tool=False)),
    ],
)
def test_a_switch_is_a_switch(variables: dict[str, str], expected: A2ui | None) -> None:
    assert build(variables) == expected


def test_a_switch_in_the_file_is_no_name(tmp_path: Path) -> None:
    (tmp_path / "copilot.yml").write_text("threads: memory\na2ui:\n  inject_tool: true\n")
    settings = load_settings(tmp_path / "copilot.yml", {})

    runtime = CopilotRuntime(
        agents={"weather": AguiAgent("http://127.0.0.1:9/")}, settings=settings
    )

    assert runtime.get(GenerativeUi).a2ui == A2ui(inject_tool=True)


def test_what_a_program_gives_counts_more() -> None:
    assert build({"COPILOT_A2UI_ENABLED": "false"}, a2ui=True) == A2ui()


@in_one_test(
    ("text", "problem"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is not JSON"),
        ("1", "is no object"),
    ],
)
def test_a_catalog_that_is_none_is_refused(text: str | None, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigurationFailed, match=problem):
        build({"COPILOT_A2UI_CATALOG": str(path)})


def test_open_generative_ui_is_switched_on_for_agents() -> None:
    variables = {"ENABLED": "true", "AGENTS": "weather"}
    settings = load_settings(
        None,
        {
            "COPILOT_THREADS": "memory",
            **{f"COPILOT_OPEN_GENERATIVE_UI_{name}": text for name, text in variables.items()},
        },
    )
    agents = {"weather": AguiAgent("http://127.0.0.1:9/")}

    options = CopilotRuntime(agents=agents, settings=settings).get(GenerativeUi)

    assert options.open_generative_ui == OpenGenerativeUi(agents=("weather",))
