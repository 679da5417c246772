"""Surfaces are drawn while a model writes the arguments of its call."""

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import jsonpatch
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
    BASIC_CATALOG,
    create_surface,
    update_components,
    update_data_model,
)
from copilot_runtime.extensions.generative_ui.options import A2ui, A2uiRecovery
from tests.in_one_test import in_one_test
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

COMPONENTS = [
    {"id": "root", "component": "Column", "children": ["t"]},
    {"id": "t", "component": "Text", "text": "Hello"},
]
STATIC = {"surfaceId": "s1", "components": COMPONENTS}
DRAWN = [create_surface("s1"), update_components("s1", COMPONENTS)]
REPEATED = [
    {"id": "root", "component": "Column", "children": {"componentId": "card", "path": "/flights"}},
    {"id": "card", "component": "Text", "text": {"path": "name"}},
]
FLIGHTS = [{"name": name} for name in ("A1", "B2", "C3")]
LIST = {"surfaceId": "s1", "components": REPEATED, "data": {"flights": FLIGHTS}}
DANGLING = {"surfaceId": "s1", "components": [{**COMPONENTS[0], "children": ["gone"]}]}
GONE = "Child reference 'gone' does not match any component id"


def render(id: str, arguments: Any, size: int = 1000, name: str = "render_a2ui") -> Iterator[Event]:
    """Yield a call whose arguments come in pieces."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, separators=(",", ":"))
    yield ActionExecutionStart(call_id=id, name=name)
    for at in range(0, len(text), size):
        yield ActionExecutionArgs(call_id=id, delta=text[at : at + size])
    yield ActionExecutionEnd(call_id=id)


def result(id: str, value: Any, name: str = "generate_a2ui") -> Event:
    return ActionExecutionResult(call_id=id, name=name, result=json.dumps(value))


async def draw(
    *events: Event, options: A2ui | None = None, error: Exception | None = None
) -> tuple[dict[str, list[Any]], dict[str, Any], list[str]]:
    """Run an agent that yields these events.

    Return the contents of each surface in their order, the results of calls, and all types.
    """

    async def agent(run: RunInput) -> AsyncGenerator[Event, None]:
        for event in events:
            yield event
        if error is not None:
            raise error

    async with browsing(agents={"it": agent}, a2ui=options or A2ui()) as browser:
        sent = (await browser.run(agent="it")).events()
    surfaces: dict[str, list[Any]] = {}
    for event in sent:
        if event["type"] == "ACTIVITY_SNAPSHOT":
            surfaces.setdefault(event["messageId"], []).append(event["content"])
        elif event["type"] == "ACTIVITY_DELTA":
            contents = surfaces[event["messageId"]]
            contents.append(jsonpatch.apply_patch(contents[-1], event["patch"]))
    results = {
        event["toolCallId"]: json.loads(event["content"])
        for event in sent
        if event["type"] == "TOOL_CALL_RESULT"
    }
    return surfaces, results, [event["type"] for event in sent]


def operations(*more: Any, drawn: Sequence[Any] = DRAWN) -> Any:
    return {"a2ui_operations": [*drawn, *more]}


def building(tokens: int | None = None) -> Any:
    return {"status": "building"} | ({} if tokens is None else {"progressTokens": tokens})


def retrying(attempt: int, code: str = "unresolved_child", message: str = GONE) -> Any:
    path = "components[0].children[0]"
    errors = [{"code": code, "path": path, "message": message}]
    return {"status": "retrying", "attempt": attempt, "maxAttempts": 3, "errors": errors}


async def test_a_surface_is_drawn_as_soon_as_its_components_are_there() -> None:
    surfaces, results, types = await draw(*render("r1", STATIC, 48))

    assert surfaces == {"a2ui-surface-r1": [building(), building(24), operations()]}
    assert results == {"r1": {"status": "rendered"}}
    assert types[1:3] == ["ACTIVITY_SNAPSHOT", "TOOL_CALL_START"]
    assert types[-2:] == ["TOOL_CALL_RESULT", "RUN_FINISHED"]


async def test_a_list_grows_item_by_item() -> None:
    surfaces, _, _ = await draw(*render("r1", LIST, 1))
    drawn = [create_surface("s1"), update_components("s1", REPEATED)]
    grown = [update_data_model("s1", {"flights": FLIGHTS[:count]}) for count in (1, 2, 3)]

    contents = [one for one in surfaces["a2ui-surface-r1"] if "status" not in one]
    assert contents == [operations(*data, drawn=drawn) for data in ([], *([it] for it in grown))]


async def test_a_long_list_is_not_sent_again_for_each_item() -> None:
    rows = [{"name": str(number)} for number in range(2000)]
    surfaces, _, _ = await draw(*render("r1", {**LIST, "data": {"flights": rows}}, 7))

    contents = surfaces["a2ui-surface-r1"]
    assert len(contents) < 350
    assert contents[-1]["a2ui_operations"][2] == update_data_model("s1", {"flights": rows})


async def test_progress_may_be_left_out() -> None:
    options = A2ui(recovery=A2uiRecovery(show_progress_tokens=False, debug_exposure="verbose"))
    surfaces, _, _ = await draw(*render("r1", STATIC, 30), options=options)

    begin = {"status": "building", "debugExposure": "verbose"}
    assert surfaces["a2ui-surface-r1"] == [begin, operations()]


@in_one_test(
    ("arguments", "error"),
    [
        (DANGLING, GONE),
        ({"components": COMPONENTS}, "The arguments have no surfaceId."),
        ({}, "The arguments have no surfaceId and no components."),
        ('{"surfaceId":"s1","components":[{"id":"root"', "The arguments are not complete."),
        ("oops", "The arguments are no JSON: An object is expected at character 1."),
        ({"surfaceId": "s1", "components": []}, "components is no list, or empty."),
    ],
)
async def test_a_surface_that_cannot_be_drawn_fails_and_the_model_is_told_why(
    arguments: Any, error: str
) -> None:
    surfaces, results, _ = await draw(*render("r1", arguments))

    failed = {"status": "failed", "error": error, "maxAttempts": 3}
    assert surfaces["a2ui-surface-r1"][-1] == failed
    assert results["r1"]["error"] == error


async def test_attempts_inside_another_call_are_one_surface() -> None:
    surfaces, results, _ = await draw(
        ActionExecutionStart(call_id="o1", name="generate_a2ui"),
        *render("i1", DANGLING),
        *render("i2", STATIC),
        ActionExecutionEnd(call_id="o1"),
        result("o1", {"a2ui_operations": [create_surface("s1", "other")]}),
    )

    assert surfaces == {"a2ui-surface-o1": [building(), building(22), retrying(2), operations()]}
    assert results["i1"] == results["i2"] == {"status": "rendered"}


async def test_an_agent_that_gives_up_has_a_failed_surface() -> None:
    surfaces, results, _ = await draw(
        ActionExecutionStart(call_id="o1", name="generate_a2ui"),
        *render("i1", DANGLING),
        ActionExecutionEnd(call_id="o1"),
        result("o1", {"code": "a2ui_recovery_exhausted", "error": "gave up", "attempts": [{}]}),
    )

    failed = {"status": "failed", "error": "gave up", "maxAttempts": 1, "attempts": [{}]}
    assert surfaces["a2ui-surface-o1"][-1] == failed
    assert (results["i1"]["status"], results["i1"]["error"]) == ("failed", GONE)


async def test_an_attempt_after_a_surface_is_written_in_its_place() -> None:
    surfaces, _, _ = await draw(
        ActionExecutionStart(call_id="o1", name="generate_a2ui"),
        *render("i1", STATIC),
        *render("i2", DANGLING),
        *render("i3", STATIC),
        ActionExecutionEnd(call_id="o1"),
        result("o1", {"a2ui_operations": [create_surface("s1")]}),
    )

    drawn = [building(), building(33), operations()]
    assert surfaces["a2ui-surface-o1"] == [
        *drawn,
        building(),
        building(22),
        retrying(3),
        operations(),
    ]


async def test_one_piece_of_arguments_shows_items_and_then_all_data() -> None:
    surfaces, _, _ = await draw(*render("r1", {**LIST, "data": {"flights": FLIGHTS, "more": 1}}))

    drawn = [create_surface("s1"), update_components("s1", REPEATED)]
    whole = {"flights": FLIGHTS, "more": 1}
    contents = [one for one in surfaces["a2ui-surface-r1"] if "status" not in one]
    assert contents == [
        operations(update_data_model("s1", data), drawn=drawn)
        for data in ({"flights": FLIGHTS}, whole)
    ]


async def test_a_surface_that_a_failure_cuts_fails() -> None:
    start = [*render("r1", STATIC, 30)][:3]
    surfaces, _, types = await draw(*start, error=RuntimeError("died"))

    failed = {"status": "failed", "error": "The arguments are not complete.", "maxAttempts": 3}
    assert surfaces["a2ui-surface-r1"][-1] == failed
    assert types[-1] == "RUN_ERROR"


async def test_the_catalog_is_that_of_the_model_where_nobody_else_names_one() -> None:
    named = {**STATIC, "catalogId": "https://model.example/cat"}
    surfaces, _, _ = await draw(*render("r1", {"catalogId": "basic", **STATIC}))
    others, _, _ = await draw(*render("r1", dict(reversed(named.items()))))

    def catalog(found: Any) -> str:
        return found["a2ui-surface-r1"][-1]["a2ui_operations"][0]["createSurface"]["catalogId"]

    assert (catalog(surfaces), catalog(others)) == (BASIC_CATALOG, "https://model.example/cat")


async def test_calls_of_other_tools_are_left_alone() -> None:
    surfaces, results, _ = await draw(*render("c", STATIC, name="draw"))

    assert (surfaces, results) == ({}, {})
