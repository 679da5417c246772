"""The same tools through the SDKs of other makers."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.api.events import Interrupt
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from tests.adapters.provider import saying, serving, text
from tests.extensions.analyst.analysts import (
    ask,
    build_analyst,
    list_activities,
    list_thoughts,
    read_text,
)
from tests.extensions.frameworks import sdk_model
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

SQL = json.dumps({"sql": "SELECT sum(amount) AS total FROM orders"})
SAVE = json.dumps({"name": "mine", "sql": "SELECT * FROM orders"})


def play_sdk(items: list[Any]) -> list[Any]:
    if any(isinstance(one, dict) and one.get("type") == "function_call_output" for one in items):
        return [sdk_model.text("It is 100.")]
    return [sdk_model.call("run_sql", SQL)]


async def play_pydantic(messages: list[Any], info: Any) -> AsyncIterator[Any]:
    from pydantic_ai.models.function import DeltaToolCall

    assert {tool.name for tool in info.function_tools} >= {"run_sql", "plot_data"}
    if any(part.part_kind == "tool-return" for part in messages[-1].parts):
        yield "It is 100."
    else:
        yield {0: DeltaToolCall("run_sql", SQL, tool_call_id="c1")}


def build_model(framework: str) -> Any:
    if framework == "openai-agents":
        return sdk_model.PlayingModel(play_sdk)
    from pydantic_ai.models.function import FunctionModel

    return FunctionModel(stream_function=play_pydantic)


@in_one_test("framework", ["openai-agents", "pydantic-ai"])
async def test_a_framework_answers_with_the_same_tools(tmp_path: Path, framework: str) -> None:
    analyst = build_analyst(tmp_path, framework=framework)
    agent = AnalystAgent(analyst, ScriptedAdapter(), model=build_model(framework))
    events = [event async for event in agent.run(ask("What is the sum?"))]
    await analyst.aclose()

    assert read_text(events) == "It is 100."
    (table,) = list_activities(events, "analyst-table")
    assert table["rows"] == [[100]]
    kinds = [kind for kind, _ in list_thoughts(events)]
    assert kinds == ["reasoning", "tool_use", "observation", "success"]


async def test_the_agents_sdk_asks_the_server_of_the_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the one of `OPENAI_BASE_URL`, which is unreachable here."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-machine")
    analyst = build_analyst(tmp_path, framework="openai-agents")
    async with serving() as provider:
        provider.answer(saying(text("It is 100.")))
        adapter = OpenAIAdapter("qwen", base_url=f"{provider.url}/v1", api_key="sk-ours")
        agent = AnalystAgent(analyst, adapter)
        events = [event async for event in agent.run(ask("What is the sum?"))]
        await adapter.aclose()
    await analyst.aclose()

    assert read_text(events) == "It is 100."
    (request,) = provider.requests
    assert request.body["model"] == "qwen"
    assert request.headers["authorization"] == "bearer sk-ours"


async def test_the_agents_sdk_refuses_the_adapter_of_another_api(tmp_path: Path) -> None:
    analyst = build_analyst(tmp_path, framework="openai-agents")
    agent = AnalystAgent(analyst, ScriptedAdapter())
    with pytest.raises(ConfigurationFailed, match="cannot use a ScriptedAdapter"):
        _ = [event async for event in agent.run(ask("What is the sum?"))]
    await analyst.aclose()


async def test_a_framework_asks_before_it_saves(tmp_path: Path) -> None:
    analyst = build_analyst(tmp_path, framework="openai-agents")
    model = sdk_model.PlayingModel(lambda _: [sdk_model.call("save_as_dataset", SAVE)])
    agent = AnalystAgent(analyst, ScriptedAdapter(), model=model)
    events = [event async for event in agent.run(ask("Keep all of it"))]

    assert [one.value["tool"] for one in events if isinstance(one, Interrupt)] == [
        "save_as_dataset"
    ]
    assert len(analyst.engine.datasets) == 1
    await analyst.aclose()
