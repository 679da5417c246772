"""Who sees and touches plans: the person they are for, and operators; for others there are none."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from copilot_runtime.api import Caller
from copilot_runtime.base.errors import CopilotError, Misuse, NotFound
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.http.access import PlanAccess, PlanViewer
from tests.extensions.planner.crew import Crew, build_engine, build_plan
from tests.extensions.planner.http.server import wrap_engine
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

ANN, BOB, NOBODY = (PlanViewer(Caller(user=user)) for user in ("ann", "bob", None))
OPERATOR = PlanViewer(Caller(user="eve"), is_operator=True)


@pytest.fixture
async def engine() -> AsyncGenerator[PlanEngine, None]:
    engine = build_engine(Crew())
    await engine.open()
    yield engine
    await engine.aclose()


@pytest.fixture
def access(engine: PlanEngine) -> PlanAccess:
    return PlanAccess(
        {"planner": wrap_engine(engine), "again": wrap_engine(engine)}, lambda _, __, ___: False
    )


async def submit(engine: PlanEngine, *names: str, **fields: Any) -> str:
    """Return the id of a plan that waits for its approval."""
    return await engine.submit(build_plan(*names, needs_approval=True, **fields))


async def refusal(of: Any) -> tuple[type[CopilotError], str]:
    with pytest.raises(CopilotError) as caught:
        await of
    return type(caught.value), caught.value.message


async def test_a_plan_is_there_for_its_user_and_operators_alone(
    access: PlanAccess, engine: PlanEngine
) -> None:
    plan_id = await submit(engine, "a", user="ann")
    for viewer in (ANN, OPERATOR):
        assert (await access.get_plan(viewer, plan_id)).id == plan_id
        assert [it.id for it in (await access.list_plans(viewer)).plans] == [plan_id]
    for viewer in (BOB, NOBODY):
        assert not (await access.list_plans(viewer)).plans
        missing = NotFound, f"There is no plan {plan_id!r}."
        assert await refusal(access.get_plan(viewer, plan_id)) == missing
        assert await refusal(access.stop(viewer, plan_id)) == missing
        assert await refusal(access.retry(viewer, plan_id)) == missing
        assert await refusal(access.answer(viewer, plan_id, "q", "approve")) == missing
        assert await refusal(anext(access.follow(viewer, plan_id))) == missing
    assert await refusal(access.get_plan(ANN, "none")) == (NotFound, "There is no plan 'none'.")


async def test_a_plan_of_nobody_is_there_for_whoever_knows_its_id_or_its_thread(
    access: PlanAccess, engine: PlanEngine
) -> None:
    plan_id = await submit(engine, "a", thread_id="t")
    assert not (await access.list_plans(NOBODY)).plans
    assert [it.id for it in (await access.list_plans(NOBODY, thread_id="t")).plans] == [plan_id]
    assert (await access.get_plan(NOBODY, plan_id)).id == plan_id
    assert not (await access.list_plans(ANN, thread_id="t")).plans
    assert (await refusal(access.get_plan(ANN, plan_id)))[0] is NotFound


async def test_plans_come_in_pages(access: PlanAccess, engine: PlanEngine) -> None:
    made = [await submit(engine, "a", user="ann") for _ in range(5)]
    page, seen = await access.list_plans(ANN, limit=2), list[str]()
    while True:
        seen += [it.id for it in page.plans]
        if page.next is None:
            break
        page = await access.list_plans(ANN, limit=2, before=page.next)
    assert (seen, len(page.plans)) == (made[::-1], 1)


@in_one_test(
    ("query", "message"),
    [
        ({"status": "late"}, "status is 'late'; it is one of: running, waiting, finished"),
        ({"limit": 0}, "limit is a number from 1 to 200"),
        ({"limit": 201}, "limit is a number from 1 to 200"),
        ({"before": "x"}, "before is 'x'; it is the `next` of the page before"),
        ({"before": "nan~x"}, "before is 'nan~x'"),
        ({"before": "12"}, "before is '12'"),
    ],
)
async def test_a_query_that_is_none_is_refused(
    access: PlanAccess, query: Mapping[str, Any], message: str
) -> None:
    kind, text = await refusal(access.list_plans(ANN, **query))
    assert (kind, message in text) == (Misuse, True), text


async def test_a_person_answers_stops_and_retries_a_plan(
    access: PlanAccess, engine: PlanEngine
) -> None:
    plan_id = await submit(engine, "a", "b", user="ann")
    async for entry in access.follow(ANN, plan_id):
        if getattr(entry, "event", None) and (await engine.get(plan_id)).questions:
            break
    (question_id,) = (await access.get_plan(ANN, plan_id)).questions
    kind, text = await refusal(access.answer(ANN, plan_id, question_id, "yes"))
    assert (kind, text) == (
        Misuse,
        "'yes' is no answer. Answer with one of: approve, reject.",
    )
    kind, text = await refusal(access.answer(ANN, plan_id, question_id, "approve", "n" * 20_001))
    assert (kind, text) == (Misuse, "The note has 20001 characters; at most 20000 fit.")
    assert (await refusal(access.retry(ANN, plan_id)))[1] == "The plan is not over yet."
    await access.answer(OPERATOR, plan_id, question_id, "reject", "No.")
    async for _ in access.follow(ANN, plan_id):
        pass
    assert (await access.stop(ANN, plan_id)).root.reason == "A person refused it: No."
    await access.retry(ANN, plan_id)
    assert not (await access.get_plan(ANN, plan_id)).is_over


async def test_the_agents_of_a_function_are_asked_for_each_caller(engine: PlanEngine) -> None:
    async def list_agents(caller: Caller) -> Mapping[str, Any]:
        return {"planner": wrap_engine(engine)} if caller.user == "ann" else {}

    access = PlanAccess(list_agents, lambda _, __, caller: caller.user == "eve")
    plan_id = await submit(engine, "a", user="ann")
    assert (await access.get_plan(ANN, plan_id)).id == plan_id
    viewer = access.identify({}, {}, Caller(user="eve"))
    assert viewer.is_operator
    assert not (await access.list_plans(viewer)).plans  # no planner is there for them


async def test_agents_that_are_no_mapping_have_no_plans(engine: PlanEngine) -> None:
    plan_id = await submit(engine, "a")
    access = PlanAccess(lambda _: ["planner"], lambda _, __, ___: True)  # type: ignore[arg-type, return-value]
    assert (await refusal(access.get_plan(OPERATOR, plan_id)))[0] is NotFound
