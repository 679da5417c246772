"""Results with a user interface in A2UI where A2UI is not on."""

import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime import RunInput
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    Event,
)
from tests.agents.pages import asked_v1, page_v1, results
from tests.in_one_test import in_one_test
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

OPERATIONS = [{"version": "v0.9", "createSurface": {"surfaceId": "s"}}]
DRAWN = Activity(message_id="a2ui-surface-c", activity_type="a2ui-surface", content={})


def returning(value: Any, *more: Event) -> Any:
    """Return an agent whose tool `draw` returns this."""

    async def agent(run: RunInput) -> AsyncGenerator[Event, None]:
        yield ActionExecutionStart(call_id="c", name="draw")
        yield ActionExecutionArgs(call_id="c", delta="{}")
        yield ActionExecutionEnd(call_id="c")
        yield ActionExecutionResult(call_id="c", name="draw", result=json.dumps(value))
        for event in more:
            yield event

    return agent


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@in_one_test(
    "value",
    [
        {"a2ui_operations": OPERATIONS},
        {"a2ui_operations": OPERATIONS, "note": "for the model"},
        json.dumps({"a2ui_operations": OPERATIONS}),
    ],
    ids=["operations", "and more", "as a text"],
)
async def test_operations_that_nobody_draws_are_a_warning(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with browsing(agents={"it": returning(value)}) as browser:
        events = (await browser.run(agent="it")).events()

    assert results(events) == [json.dumps(value)]
    assert warnings(caplog) == [
        "Run r: the page does not draw the result of 'draw': it has operations of A2UI, which is "
        "not on for this agent. CopilotRuntime(a2ui=True) switches it on."
    ]


async def test_a_v1_page_is_no_other_case(caplog: pytest.LogCaptureFixture) -> None:
    async with page_v1(returning({"a2ui_operations": OPERATIONS})) as client:
        await asked_v1(client)

    assert [("A2UI" in warning) for warning in warnings(caplog)] == [True]


@in_one_test(
    ("value", "more"),
    [
        ({"a2ui_operations": OPERATIONS}, [DRAWN]),
        ({"a2ui_operations": []}, []),
        ([{"a2ui_operations": OPERATIONS}], []),
        ("What are a2ui_operations?", []),
        ({"weather": "mild"}, []),
    ],
    ids=["drawn by the agent", "none", "a list", "talk", "something else"],
)
async def test_other_results_are_none(
    value: Any, more: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    async with browsing(agents={"it": returning(value, *more)}) as browser:
        await browser.run(agent="it")

    assert warnings(caplog) == []
