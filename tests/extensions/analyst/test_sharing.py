"""The settings of the analyst, and who else gets its tools."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.api import Caller
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.extensions.analyst.settings import AnalystSettings
from copilot_runtime.extensions.analyst.source import AnalystTools
from copilot_runtime.extensions.settings import Settings, load_settings
from tests.extensions.analyst.analysts import ask, build_analyst

pytestmark = pytest.mark.anyio


def share(analyst: Analyst, *, share: bool) -> AnalystTools:
    return AnalystTools({"analyst": AnalystAgent(analyst, ScriptedAdapter())}, share=share)


async def test_programs_get_the_tools_and_chats_only_if_they_are_shared(tmp_path: Path) -> None:
    analyst = build_analyst(tmp_path)
    program = ask("", agent=None, request_type="Action")
    chat = ask("Hi", agent=None)

    names = [one.name for one in await share(analyst, share=False).actions(program)]
    assert "run_sql" in names and len(names) == 11  # memory is off
    assert await share(analyst, share=False).actions(chat) == ()
    assert await share(analyst, share=True).actions(chat)
    assert await share(analyst, share=True).actions(ask("Hi")) == ()


async def test_a_program_reads_the_rows_of_its_caller(tmp_path: Path) -> None:
    analyst = build_analyst(tmp_path, row_filters={"orders": "owner = $user"})
    run = ask("", agent=None, request_type="Action", user="ann")
    tools = {one.name: one.run for one in await share(analyst, share=False).actions(run)}
    read = tools["run_sql"]
    assert read is not None
    arguments = {"sql": "SELECT sum(amount) AS total FROM orders"}
    result = await read(arguments, run.action_context("c"))
    await analyst.aclose()

    assert '"total":30' in result


async def test_processes_that_start_together_have_the_data_that_one_of_them_copies(
    tmp_path: Path,
) -> None:
    analysts = [build_analyst(tmp_path) for _ in range(2)]
    await asyncio.gather(*(one.open() for one in analysts))
    first, second = analysts

    async def list_names(analyst: Analyst) -> list[str]:
        scope = await analyst.build_scope(Caller(user="ann"))
        return [one.name for one in analyst.engine.list_datasets(scope)]

    assert await list_names(second) == await list_names(first) == ["orders"]
    saved = await first.engine.save("mine", "SELECT 1 AS n", owner="ann")
    assert await list_names(second) == ["orders", saved.name]
    for one in analysts:
        await one.aclose()


async def test_traces_are_for_operators_alone(tmp_path: Path) -> None:
    file = tmp_path / "traces.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE traces (id TEXT, seconds REAL)")
        database.execute("INSERT INTO traces VALUES ('t', 1.5)")
    analyst = Analyst(
        AnalystSettings(name="analyst", data=("traces",), store=str(tmp_path / "store")),
        operators=["op"],
        trace_file=str(file),
    )
    await analyst.open()
    seen = {
        user: [
            one.name
            for one in analyst.engine.list_datasets(await analyst.build_scope(Caller(user=user)))
        ]
        for user in ("op", "ann", None)
    }
    await analyst.aclose()

    assert seen == {"op": ["traces"], "ann": [], None: []}


def test_traces_need_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailed, match="keeps none in a file"):
        Analyst(AnalystSettings(name="a", data=("traces",), store=str(tmp_path)))


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
