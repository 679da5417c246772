"""Who else gets the analyst's tools, and who may ask about what is kept of runs."""

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
