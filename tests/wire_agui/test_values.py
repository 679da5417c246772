"""What agents may put into events: JSON, and what has one form in JSON, live and stored alike."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from copilot_runtime import RunInput, Settings
from copilot_runtime.api.events import AgentState, Custom, Event, Interrupt, MessagesSnapshot
from copilot_runtime.api.messages import AgentStateMessage, TextMessage
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Answer
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


class Trip(BaseModel):
    city: str = "Oslo"
    days: int = 3


@dataclass
class Plan:
    name: str = "North"
    trips: list[Trip] = field(default_factory=lambda: [Trip()])


class Color(StrEnum):
    RED = "red"


TRIP = {"city": "Oslo", "days": 3}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

VALUES: dict[str, tuple[Any, Any]] = {
    "model": (Trip(), TRIP),
    "model inside": ({"trip": Trip()}, {"trip": TRIP}),
    "dataclass": (Plan(), {"name": "North", "trips": [TRIP]}),
    "time beside a model": (
        {"at": NOON, "trip": Trip()},
        {"at": "2026-01-01T12:00:00+00:00", "trip": TRIP},
    ),
    "number as a key": ({2: "two", True: "yes"}, {"2": "two", "true": "yes"}),
    "enum": ({Color.RED: Color.RED}, {"red": "red"}),
    "tuple": ({"at": (1, Trip())}, {"at": [1, TRIP]}),
    "no number beside a model": ({"x": float("nan"), "trip": Trip()}, {"x": None, "trip": TRIP}),
}


async def run_and_connect(event: Event, store: str) -> tuple[Answer, Answer]:
    """Return what a page gets of a run with this event, and after a reload."""

    async def agent(run: RunInput) -> AsyncGenerator[Any, None]:
        yield "before "
        yield event
        yield "after"

    async with browsing(agents={"it": agent}, settings=Settings(threads=store)) as browser:
        return await browser.run(agent="it"), await browser.connect(agent="it")


def state_of(answer: Answer) -> Any:
    return next(one["snapshot"] for one in answer.events() if one["type"] == "STATE_SNAPSHOT")


@in_one_test("store", ["memory", "sqlite"])
@in_one_test("name", VALUES)
async def test_a_state_is_the_same_json_live_and_after_a_reload(
    name: str, store: str, tmp_path: Path
) -> None:
    state, expected = VALUES[name]
    place = "memory" if store == "memory" else f"sqlite:{tmp_path}/threads.db"

    live, reloaded = await run_and_connect(AgentState(agent="it", state=state), place)

    assert [state_of(live), state_of(reloaded)] == [expected, expected]


class Holder(BaseModel, arbitrary_types_allowed=True):
    it: Any


FOREIGN: list[tuple[Event, str]] = [
    (AgentState(agent="it", state={"x": {1, 2}}), "an AgentState whose state"),
    (AgentState(agent="it", state=b"abc"), "an AgentState whose state"),
    (AgentState(agent="it", state={(1, 2): 3}), "an AgentState whose state"),
    (AgentState(agent="it", state=Holder(it=object())), "an AgentState whose state"),
    (Custom(name="n", value=[object()]), "a Custom whose value"),
    (Interrupt(interrupt_id="i", value=object()), "an Interrupt whose value"),
    (
        Interrupt(interrupt_id="i", response_schema={"type": object()}),
        "an Interrupt whose response_schema",
    ),
    (
        MessagesSnapshot(messages=[AgentStateMessage(id="m", agent="it", state={"x": {1}})]),
        "a MessagesSnapshot whose messages",
    ),
]
TYPES = ["set", "bytes", "tuple", "Holder", "object", "object", "object", "set"]


@in_one_test(
    ("event", "where", "kind"),
    [(event, where, kind) for (event, where), kind in zip(FOREIGN, TYPES, strict=True)],
    ids=lambda value: getattr(value, "type", None),
)
async def test_what_is_no_json_ends_the_run_with_one_error_that_names_its_type(
    event: Event, where: str, kind: str, tmp_path: Path
) -> None:
    live, reloaded = await run_and_connect(event, f"sqlite:{tmp_path}/threads.db")

    for answer in (live, reloaded):
        last = answer.events()[-1]
        assert (last["type"], last["code"]) == ("RUN_ERROR", "MISUSE")
        assert f"The agent 'it' yielded {where} is no JSON: " in last["message"]
        assert repr(kind) in last["message"]
    assert "TEXT_MESSAGE_CONTENT" in live.types()


async def test_messages_stay_messages_when_what_they_hold_becomes_json() -> None:
    said = TextMessage(id="m", role="assistant", content="Hi", extra={"trip": Trip()})

    live, _ = await run_and_connect(MessagesSnapshot(messages=[said]), "memory")

    snapshot = next(one for one in live.events() if one["type"] == "MESSAGES_SNAPSHOT")
    assert snapshot["messages"] == [{"id": "m", "role": "assistant", "content": "Hi", "trip": TRIP}]
