"""Our own models learn in the same run what is wrong with a surface, and write it again."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from copilot_runtime import RunInput
from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.api.events import (
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    MessagesSnapshot,
)
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage
from copilot_runtime.extensions.generative_ui.options import A2ui, A2uiRecovery
from tests.in_one_test import in_one_test
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

TEXT = {"id": "root", "component": "Text", "text": "Hello"}
GOOD = {"surfaceId": "s", "components": [TEXT]}
LOST = {"surfaceId": "s", "components": [{"id": "root", "component": "Row", "children": ["x"]}]}
UNRESOLVED = {
    "code": "unresolved_child",
    "path": "components[0].children[0]",
    "message": "Child reference 'x' does not match any component id",
}
CATALOG = {"catalogId": "c", "components": {"Text": {"required": ["text"]}}}


async def results(*surfaces: Any, options: A2ui | None = None) -> list[Any]:
    """Return the results of calls that the model makes one after the other, then answers."""
    turns = [call("render_a2ui", one, id=f"c{number}") for number, one in enumerate(surfaces, 1)]
    model = ScriptedAdapter(*turns, say("Done"))
    options = options or A2ui(inject_tool=True)
    async with browsing(model, a2ui=options) as browser:
        events = (await browser.run()).events()
    assert events[-1]["type"] == "RUN_FINISHED"
    shown = [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    read = [one.result for one in model.requests[-1].messages if isinstance(one, ResultMessage)]
    assert shown == read
    return [json.loads(one) for one in shown]


async def test_a_surface_that_can_be_drawn_is_rendered() -> None:
    assert await results(GOOD) == [{"status": "rendered"}]


async def test_a_model_reads_what_is_wrong_and_tries_again_in_the_same_run() -> None:
    rejected, rendered = await results(LOST, GOOD)
    assert rejected == {
        "status": "rejected",
        "attempt": 1,
        "maxAttempts": 3,
        "errors": [UNRESOLVED],
        "hint": "Nothing was drawn. Correct every error, and call render_a2ui again with the "
        "whole surface.",
    }
    assert rendered == {"status": "rendered"}


async def test_after_the_last_attempt_the_model_answers_in_words() -> None:
    options = A2ui(inject_tool="draw", recovery=A2uiRecovery(max_attempts=2))
    turns = [call("draw", LOST, id=f"c{number}") for number in (1, 2)]
    async with browsing(ScriptedAdapter(*turns, say("Sorry")), a2ui=options) as browser:
        events = (await browser.run()).events()
    contents = [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert json.loads(contents[1]) == {
        "code": "a2ui_recovery_exhausted",
        "error": "The surface could not be drawn in 2 attempts.",
        "attempts": [{"attempt": number, "ok": False, "errors": [UNRESOLVED]} for number in (1, 2)],
        "hint": "Do not call draw again. Answer the person in words.",
    }
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_surface_between_them_begins_the_attempts_anew() -> None:
    found = await results(LOST, LOST, GOOD, LOST, GOOD)
    assert [one.get("attempt", one["status"]) for one in found] == [1, 2, "rendered", 1, "rendered"]


@in_one_test(
    ("surface", "codes"),
    [
        ({}, ["missing_surface_id", "empty_components"]),
        ({**GOOD, "surfaceId": 3}, ["missing_surface_id"]),
        ({**GOOD, "components": "[]"}, ["empty_components"]),
        ({**GOOD, "components": [TEXT, 1]}, ["missing_id", "missing_component_type"]),
        ({**GOOD, "components": [TEXT, TEXT]}, ["duplicate_id"]),
        ({**GOOD, "components": [TEXT | {"id": "a"}]}, ["no_root"]),
        ({**GOOD, "components": [TEXT | {"child": "root"}]}, ["child_cycle"]),
        ({**GOOD, "components": [TEXT | {"component": "Zebra"}]}, ["unknown_component"]),
        ({**GOOD, "components": [{"id": "root", "component": "Text"}]}, ["missing_required_prop"]),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_each_error_has_a_code(surface: Any, codes: list[str]) -> None:
    options = A2ui(inject_tool=True, schema=CATALOG)
    [rejected] = await results(surface, options=options)
    assert [error["code"] for error in rejected["errors"]] == codes


async def test_arguments_that_are_no_json_are_no_surface() -> None:
    [failure, rendered] = await results('{"surfaceId":"s","components":[{"id"', GOOD)
    assert "Failed to parse action arguments" in failure["error"]["message"]
    assert rendered == {"status": "rendered"}


async def last_surfaces(*turns: Any) -> dict[str, Any]:
    """Return what a page has after a reload of each message with a surface."""
    model = ScriptedAdapter(*turns, say("Done"))
    async with browsing(model, a2ui=A2ui(inject_tool=True)) as browser:
        await browser.run()
        events = (await browser.connect()).events()
    shown = [event for event in events if event["type"] == "ACTIVITY_SNAPSHOT"]
    return {event["messageId"]: event["content"] for event in shown}


@in_one_test("wrong", [LOST, '{"surfaceId":"s","components":[{"id"'])
async def test_a_surface_that_is_written_again_replaces_the_one_that_was_wrong(wrong: Any) -> None:
    turns = [call("render_a2ui", one, id=f"c{at}") for at, one in enumerate((wrong, GOOD), 1)]
    [(id, content)] = (await last_surfaces(*turns)).items()
    assert (id, [*content]) == ("a2ui-surface-c1", ["a2ui_operations"])


@in_one_test("wrong", [LOST, '{"surfaceId":"s","components":[{"id"'])
async def test_a_surface_that_is_not_written_again_ends_as_failed(wrong: Any) -> None:
    [content] = (await last_surfaces(call("render_a2ui", wrong))).values()
    assert content["status"] == "failed"


async def test_a_surface_beyond_the_bound_is_refused() -> None:
    [refusal] = await results(GOOD, options=A2ui(inject_tool=True, max_bytes=20))
    assert [error["code"] for error in refusal["errors"]] == ["too_large"]


async def test_an_error_is_short_whatever_a_model_calls_its_components() -> None:
    surface = {"surfaceId": "s", "components": [TEXT | {"child": "x" * 100_000}]}
    [refusal] = await results(surface)
    [error] = refusal["errors"]
    assert (error["code"], len(error["message"])) == ("unresolved_child", 500)


async def test_a_graph_that_gives_up_leaves_no_result_without_its_call() -> None:
    """The calls of a graph's inner model are in its stream only, not in its messages."""
    gave_up = json.dumps({"code": "a2ui_recovery_exhausted", "error": "gave up", "attempts": []})

    async def graph(run: RunInput) -> AsyncIterator[Event]:
        outer = ActionExecutionMessage(id="outer", name="generate_a2ui", arguments="{}")
        answer = ResultMessage(id="r", call_id="outer", name="generate_a2ui", result=gave_up)
        yield ActionExecutionStart(call_id="outer", name="generate_a2ui")
        yield ActionExecutionEnd(call_id="outer")
        for event in [*call("render_a2ui", LOST, id="c1"), *call("render_a2ui", LOST, id="c2")]:
            yield event
        yield ActionExecutionResult(
            call_id="outer", name="generate_a2ui", result=gave_up, message_id="r"
        )
        yield MessagesSnapshot(messages=[*run.messages, outer, answer])
        for event in say("Sorry."):
            yield event

    async with browsing(agents={"graph": graph}, a2ui=A2ui()) as browser:
        events = (await browser.run(agent="graph")).events()
        kept = (await browser.ask("GET", "/threads/t/messages")).json()["messages"]

    results = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert results == ["outer"]
    assert [one["toolCallId"] for one in kept if one["role"] == "tool"] == ["outer"]
