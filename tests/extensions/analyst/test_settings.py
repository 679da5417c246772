"""The settings of the analyst, also by the variables that AXIS has for them."""

from pathlib import Path

import pytest

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.settings import Settings, load_settings

FILE = "analyst: {data: [data/*.csv], row_filters: {orders: owner = $user}}\n"


def load(folder: Path, text: str = FILE, **environ: str) -> Settings:
    path = folder / "copilot.yml"
    path.write_text(text)
    return load_settings(path, environ)


def test_there_is_no_analyst_by_default() -> None:
    assert load_settings(environ={}).analyst.name == ""


def test_the_variables_of_axis_name_the_agent_its_model_and_its_memory(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        COPILOT_ENABLED="true",
        COPILOT_MEMORY_ENABLED="0",
        LLM_MODEL_NAME="gpt-4o-mini",
    ).analyst

    assert (found.name, found.memory_enabled, found.model) == ("analyst", False, "gpt-4o-mini")
    assert found.row_filters == {"orders": "owner = $user"}


def test_copilot_enabled_switches_the_agent_off(tmp_path: Path) -> None:
    text = "analyst: {name: data, data: [shop.duckdb], model: gpt-4o}\n"

    assert load(tmp_path, text, LLM_MODEL_NAME="other").analyst.model == "gpt-4o"
    assert load(tmp_path, text, COPILOT_ENABLED="false").analyst.name == ""


def test_a_switch_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailed, match="COPILOT_ENABLED is 'maybe'"):
        load(tmp_path, COPILOT_ENABLED="maybe")
