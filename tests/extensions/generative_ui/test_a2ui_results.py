"""Operations of A2UI in the results of tools become surfaces behind them."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime import RunInput
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
)
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    create_surface,
    delete_surface,
    update_components,
)
from copilot_runtime.extensions.generative_ui.options import A2ui
from tests.in_one_test import in_one_test
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

A, B = create_surface("a"), create_surface("b")


def returning(value: Any) -> Any:
    """Return an agent whose tool `draw` returns this."""

    async def agent(run: RunInput) -> AsyncGenerator[Event, None]:
        yield ActionExecutionStart(call_id="c", name="draw")
        yield ActionExecutionArgs(call_id="c", delta="{}")
        yield ActionExecutionEnd(call_id="c")
        yield ActionExecutionResult(call_id="c", name="draw", result=json.dumps(value))

    return agent


async def draw(value: Any, options: A2ui | None) -> list[Any]:
    """Return what follows the end of the call: types, and messages with their content."""
    async with browsing(agents={"it": returning(value)}, a2ui=options) as browser:
        events = (await browser.run(agent="it")).events()
    return [
        (event["messageId"], event["content"])
        if event["type"] == "ACTIVITY_SNAPSHOT"
        else event["type"]
        for event in events
        if event["type"] in {"TOOL_CALL_RESULT", "ACTIVITY_SNAPSHOT", "RUN_FINISHED"}
    ]


def surrounded(*surfaces: Any) -> list[Any]:
    return ["TOOL_CALL_RESULT", *surfaces, "RUN_FINISHED"]


@in_one_test(
    "value",
    [
        {"a2ui_operations": [A]},
        {"a2ui_operations": [A], "note": 1},
        json.dumps({"a2ui_operations": [A]}),
    ],
    ids=["operations", "and more", "as a text"],
)
async def test_a_surface_follows_the_result_that_it_is_in(value: Any) -> None:
    surface = ("a2ui-surface-c", {"a2ui_operations": [A]})
    assert await draw(value, A2ui()) == surrounded(surface)


async def test_each_surface_of_a_result_is_a_message() -> None:
    gone = delete_surface("a")
    assert await draw({"a2ui_operations": [A, B, gone]}, A2ui()) == surrounded(
        ("a2ui-surface-a-c", {"a2ui_operations": [A, gone]}),
        ("a2ui-surface-b-c", {"a2ui_operations": [B]}),
    )


async def test_operations_that_cannot_be_drawn_are_a_failed_surface() -> None:
    error = "a2ui_operations[1] has a deleteSurface without surfaceId."
    content = {"status": "failed", "error": error, "maxAttempts": 3}
    assert await draw({"a2ui_operations": [A, delete_surface("")]}, A2ui()) == surrounded(
        ("a2ui-surface-c", content)
    )


async def test_what_is_no_operation_at_all_is_left_out() -> None:
    surface = ("a2ui-surface-c", {"a2ui_operations": [A]})
    assert await draw({"a2ui_operations": [1, A, None]}, A2ui()) == surrounded(surface)
    assert await draw({"a2ui_operations": None}, A2ui()) == surrounded()


async def test_a_result_beyond_the_bound_is_a_failed_surface() -> None:
    error = "The result is longer than 20 bytes."
    content = {"status": "failed", "error": error, "maxAttempts": 3}
    assert await draw({"a2ui_operations": [A]}, A2ui(max_bytes=20)) == surrounded(
        ("a2ui-surface-c", content)
    )


async def test_a_recovery_without_success_is_a_failed_surface() -> None:
    value = {"code": "a2ui_recovery_exhausted", "error": "No root.", "attempts": 3}
    content = {"status": "failed", "error": "No root.", "attempts": 3, "maxAttempts": 3}
    assert await draw(value, A2ui()) == surrounded(("a2ui-surface-c", content))


@in_one_test(
    ("value", "options"),
    [
        ({"a2ui_operations": []}, A2ui()),
        ([A], A2ui()),
        ({"a2ui_operations": [A]}, A2ui(enabled=False)),
        ({"a2ui_operations": [A]}, A2ui(agents=["other"])),
        ({"a2ui_operations": [A]}, None),
    ],
    ids=["nothing", "no object", "off", "another agent", "no option and no catalog"],
)
async def test_nothing_is_drawn(value: Any, options: A2ui | None) -> None:
    assert await draw(value, options) == surrounded()


@in_one_test(
    "components",
    [
        [{"id": "root", "component": "Column", "children": ["a", "root"]}, {"id": "a"}],
        [{"id": "root", "component": "Card", "child": "a"}, {"id": "a", "child": "root"}],
        [{"id": "root", "component": "Tabs", "tabs": [{"title": "x", "child": "root"}]}],
        [{"id": "root", "component": "List", "children": {"componentId": "root", "path": "/x"}}],
    ],
    ids=["list", "two", "tabs", "template"],
)
async def test_a_component_inside_itself_is_a_failed_surface(components: list[Any]) -> None:
    update = update_components("a", components)
    [_, (_, content), _] = await draw({"a2ui_operations": [A, update]}, A2ui())

    assert content["status"] == "failed"
    assert "is inside itself" in content["error"]


async def test_a_text_that_happens_to_be_an_id_is_no_reference() -> None:
    update = update_components("a", [{"id": "root", "component": "Heading", "content": "root"}])
    surface = ("a2ui-surface-c", {"a2ui_operations": [A, update]})
    assert await draw({"a2ui_operations": [A, update]}, A2ui()) == surrounded(surface)
