"""Whatever a model sends and an action does, the model gets a text."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, cast

import anyio
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from copilot_runtime.actions import action
from copilot_runtime.actions.execute import Outcome, execute
from copilot_runtime.api import Action, ActionContext
from copilot_runtime.base.errors import CopilotError, LimitExceeded
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

CONTEXT = ActionContext(thread_id="t", run_id="r", call_id="c", properties={}, headers={})


async def outcome_of(
    function: Callable[..., Any] | Action, arguments: str = "{}", timeout: float = 30
) -> Outcome:
    made = function if isinstance(function, Action) else action(function)
    return await execute(made, arguments, CONTEXT, timeout=timeout)


def returning(value: Any) -> Action:
    async def run(_values: object, _context: object) -> Any:
        return value

    return Action(name="give", run=run)


def message_of(outcome: Outcome) -> str:
    return orjson.loads(outcome.result)["error"]["message"]


def get_time(city: str, hour: int = 12) -> str:
    return f"{hour}:00 in {city}"


class Colour(Enum):
    RED = "red"


class Word(StrEnum):
    YES = "yes"


@dataclass
class Size:
    width: int


class Box(BaseModel):
    size: Size


async def test_a_text_is_the_result_as_it_is() -> None:
    assert await outcome_of(get_time, '{"city":"Paris"}') == ("12:00 in Paris", None)


@in_one_test(
    ("value", "text"),
    [
        ("Zoë", "Zoë"),
        (Word.YES, "yes"),
        (None, ""),
        (5, "5"),
        (2**80, str(2**80)),
        (True, "true"),
        (float("nan"), "null"),
        ({"a": 1, "nested": {"b": [True, None]}}, '{"a":1,"nested":{"b":[true,null]}}'),
        ({Colour.RED: {1}}, '{"red":[1]}'),
        (Box(size=Size(2)), '{"size":{"width":2}}'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (Decimal("1.10"), '"1.10"'),
        (b"abc", '"abc"'),
        (b"\xff", '"/w=="'),
        ("a\ud800b", "a\ufffdb"),
    ],
)
async def test_any_other_value_is_json_text(value: Any, text: str) -> None:
    assert await outcome_of(returning(value)) == (text, None)


@in_one_test(
    ("value", "words"),
    [
        (object(), "object"),
        ([threading.Lock()], "lock"),
        ((item for item in [1]), "yields values"),
    ],
)
async def test_a_value_without_json_is_a_result_that_names_its_type(value: Any, words: str) -> None:
    outcome = await outcome_of(returning(value))

    assert words in message_of(outcome)
    assert isinstance(outcome.error, TypeError)


async def test_a_value_that_contains_itself_is_a_result() -> None:
    loop: list[Any] = []
    loop.append(loop)

    assert "Circular" in message_of(await outcome_of(returning(loop)))


async def test_a_result_that_is_too_large_is_refused_with_its_size() -> None:
    outcome = await outcome_of(returning("x" * (1024 * 1024 + 1)))

    assert "has 1048577 bytes; at most 1048576 are taken" in message_of(outcome)
    assert isinstance(outcome.error, LimitExceeded)


@in_one_test("text", ["{", "nope", '{"city":', "NaN", '"\ud800"', "[" * 5000])
async def test_unreadable_arguments_give_the_bytes_of_the_node_runtime(text: str) -> None:
    assert (await outcome_of(get_time, text)).result == (
        '{"error":{"code":"INVALID_ARGUMENTS","message":"Failed to parse action arguments"},'
        '"result":""}'
    )


@in_one_test("text", ["", " \n", "null", "{}", '{"dummy":1}'])
async def test_no_arguments_are_fine_for_an_action_without_parameters(text: str) -> None:
    assert await outcome_of(ping, text) == ("pong", None)


def ping() -> str:
    return "pong"


async def test_wrong_arguments_name_every_field_so_that_the_model_can_correct_itself() -> None:
    outcome = await outcome_of(get_time, '{"hour":"noon","town":"Paris"}')

    assert orjson.loads(outcome.result) == {
        "error": {
            "code": "INVALID_ARGUMENTS",
            "message": "Invalid arguments: city: Field required; hour: Input should be a valid "
            "integer, unable to parse string as an integer; town: there is no such argument. "
            "Known: city, hour.",
        },
        "result": "",
    }


@in_one_test("text", ["[]", "3", '"city"', "true"])
async def test_arguments_that_are_no_object_are_refused(text: str) -> None:
    assert "expected an object" in message_of(await outcome_of(get_time, text))


async def test_a_validation_error_of_the_action_itself_is_not_the_models_fault() -> None:
    def load() -> None:
        Box.model_validate({})

    assert '"HANDLER_ERROR"' in (await outcome_of(load)).result


async def test_an_exception_gives_the_bytes_of_the_node_runtime(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def explode() -> None:
        raise ValueError("kaboom")

    outcome = await outcome_of(explode)

    assert outcome.result == '{"error":{"code":"HANDLER_ERROR","message":"kaboom"},"result":""}'
    assert isinstance(outcome.error, ValueError)
    assert caplog.records[0].exc_info and caplog.records[0].exc_info[1] is outcome.error


async def test_what_an_action_says_of_its_failure_is_logged_at_debug_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def find() -> None:
        raise CopilotError("There is no such city.", hint="Ask for a larger one.")

    caplog.set_level(logging.DEBUG, "copilot_runtime")
    outcome = await outcome_of(find)

    assert message_of(outcome) == "There is no such city."
    assert [(it.levelname, it.getMessage(), it.exc_info) for it in caplog.records] == [
        ("WARNING", "The action 'find' failed: CopilotError (UNKNOWN).", None),
        ("DEBUG", "The action 'find' said: There is no such city. Ask for a larger one.", None),
    ]


async def test_a_long_message_is_cut() -> None:
    def explode() -> None:
        raise ValueError("x" * 5000)

    assert len(message_of(await outcome_of(explode))) == 1000


@in_one_test(
    "error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1), asyncio.CancelledError()]
)
@in_one_test("in_thread", [True, False])
async def test_no_exception_ends_the_server(error: BaseException, in_thread: bool) -> None:
    def sync() -> None:
        raise error

    async def on_loop() -> None:
        raise error

    outcome = await outcome_of(sync if in_thread else on_loop)

    assert '"HANDLER_ERROR"' in outcome.result


async def test_an_action_of_the_browser_is_not_run_here() -> None:
    assert "runs in the browser" in message_of(await outcome_of(Action(name="paint")))


async def test_an_action_made_by_hand_may_be_sync() -> None:
    def run(values: Any, context: ActionContext) -> Any:
        return [values, context.call_id]

    made = Action(name="hand", run=cast("Any", run))

    assert await outcome_of(made, '{"a":1}') == ('[{"a":1},"c"]', None)


USER = ContextVar("user", default="nobody")


async def test_a_sync_action_runs_in_a_thread_with_the_context_of_the_call() -> None:
    USER.set("ann")

    def who(context: ActionContext) -> list[Any]:
        return [USER.get(), context.thread_id, threading.current_thread() is not main]

    main = threading.current_thread()
    assert (await outcome_of(who)).result == '["ann","t",true]'


async def test_slow_sync_actions_run_side_by_side() -> None:
    together = threading.Barrier(40)

    def meet() -> int:
        return together.wait()

    outcomes = await asyncio.gather(*(outcome_of(meet) for _ in range(40)))

    assert [outcome.error for outcome in outcomes] == [None] * 40


async def test_an_async_action_that_takes_too_long_is_stopped() -> None:
    stopped = anyio.Event()

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    outcome = await outcome_of(wait, timeout=0.01)

    assert message_of(outcome) == "The action 'wait' did not finish within 0.01 s."
    assert isinstance(outcome.error, TimeoutError)
    assert stopped.is_set()


async def test_a_sync_action_that_takes_too_long_is_left_behind() -> None:
    release = threading.Event()

    outcome = await outcome_of(release.wait, timeout=0.01)
    release.set()

    assert "did not finish within 0.01 s" in message_of(outcome)


async def test_a_sync_action_is_refused_when_all_threads_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = threading.BoundedSemaphore(1)
    monkeypatch.setattr("copilot_runtime.base.concurrency._slots", places)
    release, ended = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait()
        ended.set()

    await outcome_of(hang, timeout=0.01)
    outcome = await outcome_of(get_time, '{"city":"Paris"}')
    release.set()
    await asyncio.to_thread(ended.wait)

    assert "sync calls are running already" in message_of(outcome)
    assert await asyncio.to_thread(places.acquire)


async def test_an_action_that_refuses_to_end_does_not_hold_up_the_answer() -> None:
    release = anyio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    outcome = await outcome_of(stubborn, timeout=0.01)
    release.set()
    await asyncio.sleep(0)

    assert "did not finish" in message_of(outcome)


async def test_the_actions_own_time_limit_wins() -> None:
    slow = action(timeout=0.01)(forever)

    assert "within 0.01 s" in message_of(await outcome_of(slow, timeout=100))


async def forever() -> None:
    await anyio.sleep_forever()


async def test_cancelling_the_call_cancels_the_action() -> None:
    began, stopped = anyio.Event(), anyio.Event()

    async def wait() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    task = asyncio.create_task(outcome_of(wait))
    await began.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("city"), inner),
    max_leaves=10,
)


@given(st.text(st.characters()) | JSON.map(lambda value: json.dumps(value)))
def test_any_text_as_arguments_gives_a_text(text: str) -> None:
    outcome = asyncio.run(outcome_of(get_time, text))

    assert isinstance(outcome.result, str)
    outcome.result.encode()
