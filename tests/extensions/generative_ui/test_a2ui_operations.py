"""Operations of A2UI are checked before a page gets them."""

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
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    check_operations,
    create_surface,
    delete_surface,
    group_by_surface,
    update_components,
    update_data_model,
)
from tests.agents.pages import asked_v1, page_v1, results
from tests.in_one_test import in_one_test
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

ROOT = {"id": "root", "component": "Text", "text": "Hi"}


def test_operations_that_this_runtime_writes_have_no_problem() -> None:
    operations = [
        create_surface("a"),
        update_components("a", [ROOT]),
        update_data_model("a", {"n": 1}),
        delete_surface("a"),
    ]
    assert check_operations(operations) is None


def test_a_component_may_change_without_its_type_and_the_version_may_be_left_out() -> None:
    change = {"surfaceId": "a", "components": [{"id": "root", "text": "Bye"}]}
    assert check_operations([{"updateComponents": change}]) is None


def test_operations_are_grouped_by_surface_in_their_order() -> None:
    first, second, third = create_surface("a"), create_surface("b"), delete_surface("a")
    assert group_by_surface([first, second, third]) == {"a": [first, third], "b": [second]}


@in_one_test(
    ("operations", "problem"),
    [
        ({}, "a2ui_operations is no array."),
        ([1], "a2ui_operations[0] is no object."),
        (
            [create_surface("a"), {"version": "v0.8", "createSurface": {"surfaceId": "a"}}],
            "a2ui_operations[1] is of version 'v0.8', and pages draw 'v0.9'.",
        ),
        (
            [{"version": "v0.9", "foo": {}}],
            "a2ui_operations[0] needs exactly one of createSurface, deleteSurface, "
            "updateComponents, updateDataModel.",
        ),
        (
            [{"version": "v0.9", "createSurface": []}],
            "a2ui_operations[0] has a createSurface that is no object.",
        ),
        (
            [{"version": "v0.9", "deleteSurface": {"surfaceId": ""}}],
            "a2ui_operations[0] has a deleteSurface without surfaceId.",
        ),
        (
            [update_components("a", [{"component": "Text"}])],
            "a2ui_operations[0] has an updateComponents whose components are no array of "
            "objects with an id.",
        ),
    ],
)
def test_a_problem_names_its_place(operations: object, problem: str) -> None:
    assert check_operations(operations) == problem


def test_more_operations_than_the_bound_are_refused() -> None:
    assert check_operations([create_surface("a")] * 3, max_operations=2) == (
        "a2ui_operations has 3 operations; at most 2 are drawn."
    )


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
