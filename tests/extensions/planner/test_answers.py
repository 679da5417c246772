"""Answers of people to a plan: in all their forms, too late, of others, and of no use."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from copilot_runtime.api import Resume
from copilot_runtime.api.events import Event, Interrupt
from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.testing import say
from tests.extensions.planner.test_agent import ask, build_planner, read_text, write_plan
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def build_asking() -> PlannerAgent:
    """Return a planner that asks before it begins."""
    plan = write_plan({"name": "letter", "purpose": "Write."})
    return build_planner([plan, plan], [say("Dear Ann,")] * 2, needs_approval=True)


def find_question(events: Sequence[Event]) -> Interrupt:
    (question,) = [event for event in events if isinstance(event, Interrupt)]
    return question


def answer(question: Interrupt, payload: Any, **fields: Any) -> Resume:
    return Resume(value="", interrupt_id=question.interrupt_id, payload=payload, **fields)


@in_one_test("payload", [True, {"approved": True}, {"answer": "approve"}, "approve"])
async def test_an_approval_has_many_forms(payload: Any) -> None:
    agent = build_asking()
    question = find_question(await ask(agent))
    assert read_text(await ask(agent, answer(question, payload))) == "Dear Ann,"


@in_one_test(
    ("resume", "reason"),
    [
        ({"payload": False}, "A person refused it."),
        ({"payload": {"approved": False, "note": "Too dear."}}, "A person refused it: Too dear."),
        ({"payload": None, "status": "cancelled"}, "A person refused it."),
    ],
)
async def test_a_refusal_has_many_forms(resume: dict[str, Any], reason: str) -> None:
    agent = build_asking()
    question = find_question(await ask(agent))
    text = read_text(await ask(agent, answer(question, **resume)))
    assert text == f"The plan was stopped. {reason}"


@in_one_test("payload", ["perhaps", {"answer": 7}, {}, [], 0, "x" * 10_000])
async def test_an_answer_of_no_use_says_what_would_be_one(payload: Any) -> None:
    agent = build_asking()
    question = find_question(await ask(agent))
    with pytest.raises(Misuse, match="The plan cannot go on with this answer") as failure:
        await ask(agent, answer(question, payload))
    assert "true or false" in (failure.value.hint or "")
    assert read_text(await ask(agent, answer(question, True))) == "Dear Ann,"


async def test_an_answer_for_another_kind_of_question_does_not_fit() -> None:
    agent = build_asking()
    question = find_question(await ask(agent))
    with pytest.raises(Misuse, match=r"does not fit\. Answer with one of: approve, reject"):
        await ask(agent, answer(question, "retry"))


async def test_an_answer_of_somebody_else_finds_no_plan() -> None:
    agent = build_asking()
    question = find_question(await ask(agent, user="ann"))
    with pytest.raises(NotFound, match="There is no plan"):
        await ask(agent, answer(question, True), user="bob")


@in_one_test(
    "late", [{"payload": True}, {"payload": False}, {"payload": None, "status": "cancelled"}]
)
async def test_an_answer_to_what_was_answered_elsewhere_shows_what_came_of_it(
    late: dict[str, Any],
) -> None:
    agent = build_asking()
    question = find_question(await ask(agent))
    plan_id, _, question_id = question.interrupt_id.partition("/")
    await agent.engine.answer(plan_id, question_id, "approve", user="ann")  # on the page of plans
    assert read_text(await ask(agent, answer(question, **late))) == "Dear Ann,"


async def test_a_late_answer_in_the_form_of_v1_shows_the_last_plan() -> None:
    agent = build_asking()
    question = find_question(await ask(agent))
    await ask(agent, answer(question, True))
    late = Resume(value=json.dumps("Who?"), response="Ann")
    assert read_text(await ask(agent, late)) == "Dear Ann,"
    with pytest.raises(Misuse, match="No plan of this conversation waits for this answer"):
        await ask(build_asking(), late)
