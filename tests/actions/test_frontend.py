"""Which actions a model is offered, and where they come from."""

import asyncio
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from copilot_runtime.actions.sources import (
    as_sources,
    gather_actions,
    parse_frontend_action,
    select_actions,
)
from copilot_runtime.api import Action, RunInput
from copilot_runtime.base.errors import ConfigurationFailed
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

EMPTY = {"type": "object", "properties": {}}


def ping() -> str:
    return "pong"


def secret() -> str:
    return "42"


def names(actions: Sequence[Action]) -> list[str]:
    return [action.name for action in actions]


def test_the_servers_actions_come_first_and_the_first_of_a_name_wins() -> None:
    server = [Action(name="a", description="server"), Action(name="b")]
    browser = [Action(name="c"), Action(name="a", description="browser")]

    assert select_actions(server, browser, for_agent=False) == [*server, browser[0]]


@in_one_test(("for_agent", "expected"), [(False, ["on"]), (True, ["on", "far"])])
def test_a_remote_action_is_for_agents_and_a_disabled_one_for_nobody(
    for_agent: bool, expected: list[str]
) -> None:
    browser = [
        Action(name="on"),
        Action(name="far", available="remote"),
        Action(name="off", available="disabled"),
    ]

    assert names(select_actions([], browser, for_agent=for_agent)) == expected


def test_a_disabled_action_does_not_hide_another_of_its_name() -> None:
    server = [Action(name="a", available="disabled")]

    assert select_actions(server, [Action(name="a")], for_agent=False) == [Action(name="a")]


def test_the_schema_of_the_browser_is_passed_on_as_it_is() -> None:
    schema = '{"type":"object","properties":{"x":{"type":"string","title":"T"}},"required":["x"]}'

    assert parse_frontend_action("paint", "Paint.", schema, "remote") == Action(
        name="paint",
        description="Paint.",
        parameters={
            "type": "object",
            "properties": {"x": {"type": "string", "title": "T"}},
            "required": ["x"],
        },
        available="remote",
    )


@in_one_test("text", ["", "{", "[]", "3", "null", "true", "[" * 5000, "\ud800"])
def test_an_unreadable_schema_is_an_empty_one(text: str) -> None:
    assert parse_frontend_action("paint", "", text).parameters == EMPTY


def test_an_availability_nobody_knows_is_not_offered() -> None:
    assert parse_frontend_action("paint", "", "{}", "frontend").available == "disabled"


class Shelf:
    async def actions(self, run: RunInput) -> Sequence[Action]:
        return [Action(name=f"shelf_{run.thread_id}")]


def made(_run: RunInput) -> Sequence[Action]:
    return [Action(name="made")]


async def by_role(run: RunInput) -> list[Any]:
    return [secret] if run.properties["admin"] else []


async def gather_from(sources: Sequence[Any], run: RunInput, timeout: float = 30) -> list[Action]:
    parts = [part for source in sources for part in as_sources(source)]
    return await gather_actions(parts, run, timeout=timeout)


async def test_every_kind_of_source_gives_its_actions_in_order(run: RunInput) -> None:
    sources: list[Any] = [[ping], made, by_role, Shelf()]

    assert names(await gather_from(sources, run)) == ["ping", "made", "secret", "shelf_t"]


async def test_the_request_decides_what_a_function_gives(run: RunInput) -> None:
    other = RunInput(thread_id="t", run_id="r", messages=[], properties={"admin": False})

    assert [names(await gather_from([by_role], each)) for each in (run, other)] == [
        ["secret"],
        [],
    ]


def breaks(_run: RunInput) -> list[Action]:
    raise OSError("database is down")


async def leaves(_run: RunInput) -> list[Action]:
    raise SystemExit(1)


async def cancels(_run: RunInput) -> list[Action]:
    raise asyncio.CancelledError


def clashes(_run: RunInput) -> list[Any]:
    return [ping, ping]


def gives_nothing(_run: RunInput) -> Any:
    return None


@in_one_test(
    ("source", "error"),
    [
        (breaks, OSError),
        (leaves, RuntimeError),  # SystemExit itself would end the server
        (cancels, RuntimeError),
        (clashes, ConfigurationFailed),
        (gives_nothing, TypeError),
    ],
)
async def test_a_source_that_fails_leaves_the_others_alone_and_is_reported(
    source: Any, error: type[BaseException], run: RunInput, caplog: pytest.LogCaptureFixture
) -> None:
    actions = await gather_from([source, [ping]], run)

    assert names(actions) == ["ping"]
    assert reported(caplog) == [error]


def reported(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record.exc_info and record.exc_info[0] for record in caplog.records]


async def test_a_source_that_hangs_is_left_out(
    run: RunInput, caplog: pytest.LogCaptureFixture
) -> None:
    async def hangs(_run: RunInput) -> list[Action]:
        await anyio.sleep_forever()
        raise AssertionError

    actions = await gather_from([hangs, [ping]], run, timeout=0.01)

    assert (names(actions), reported(caplog)) == (["ping"], [TimeoutError])
    assert "hangs took longer than 0.01 s" in caplog.text


async def test_the_first_source_wins_when_two_have_one_name(run: RunInput) -> None:
    first, second = Action(name="a", description="1"), Action(name="a", description="2")

    assert await gather_from([[first], [second]], run) == [first]
