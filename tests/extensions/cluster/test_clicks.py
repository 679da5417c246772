"""A click in a surface comes again to another server: the agent finds it in its old place."""

from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.api.messages import ActionExecutionMessage
from copilot_runtime.extensions.generative_ui.options import A2ui
from tests.extensions.cluster.sharing import sharing
from tests.extensions.generative_ui.agui_agent import clicking
from tests.extensions.generative_ui.test_a2ui_clicks import CALL, RESULT, WEATHER
from tests.wire_agui.http import user

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("history", ["client", "server"])
async def test_a_click_reaches_the_agent_once_across_all_servers(
    tmp_path: Path, history: Any
) -> None:
    models = (ScriptedAdapter(call("getWeather", id="w1")), ScriptedAdapter(say("Sunny")))
    fields = {"tools": [WEATHER], "forwardedProps": clicking()}
    options, shared = {"a2ui": A2ui()}, {"threads": f"sqlite:{tmp_path / 'threads.db'}"}
    async with sharing(shared, *models, options=options, history=history) as (first, second):
        await first.run(run="r1", **fields)
        await second.run(run="r2", messages=[user(), CALL, RESULT], **fields)
    calls = [
        message.name
        for message in models[1].requests[0].messages
        if isinstance(message, ActionExecutionMessage)
    ]

    assert calls == ["log_a2ui_event", "getWeather"]
