"""Who sees and touches plans: the person they are for, and operators; for others there are none."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.api import Caller
from copilot_runtime.base.errors import CopilotError, Misuse, NotFound
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.http.access import PlanAccess, PlanViewer
from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.roles import TaskContext
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.testing import say
from tests.extensions.planner.crew import (
    Crew,
    ScriptedAgent,
    build_engine,
    build_plan,
    build_planner,
    write_plan,
)
from tests.extensions.planner.http.server import LOCAL, Served, serve, sign_in, wrap_engine
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Answer
from tests.wire_agui.server import browsing

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


BROWSER = {"accept": "text/html,*/*"}


def build_runtime(engine: PlanEngine | None = None, *, traces: str = "memory") -> CopilotRuntime:
    agents = {"planner": wrap_engine(engine)} if engine else {}
    settings = Settings.model_validate({"threads": "memory", "telemetry": {"store": traces}})
    return CopilotRuntime(ScriptedAdapter(), agents=agents, settings=settings)


def test_the_chat_leads_to_the_page_where_an_agent_plans() -> None:
    with TestClient(build_runtime(build_engine(Crew())).app(), base_url=LOCAL) as client:
        assert 'href="/plans"' in client.get("/").text
        page = client.get("/plans")
        assert (page.status_code, "<title>Plans" in page.text) == (200, True)
        assert 'data-endpoint="/graphql"' in page.text
        assert 'href="/traces">Traces' in page.text
    with TestClient(build_runtime().app(), base_url=LOCAL) as client:
        assert 'href="/plans"' not in client.get("/").text
        assert client.get("/plans").status_code == 404


def test_where_no_traces_are_kept_the_page_leads_to_none() -> None:
    runtime = build_runtime(build_engine(Crew()), traces="none")
    with TestClient(runtime.app(), base_url=LOCAL) as client:
        assert "/traces" not in client.get("/plans").text


@in_one_test("headers", [{}, {"accept": "application/json"}])
def test_at_the_root_the_page_is_for_browsers_alone(headers: dict[str, str]) -> None:
    runtime = build_runtime(build_engine(Crew()))
    with TestClient(runtime.app("/"), base_url=LOCAL) as client:
        assert "<title>Plans" in client.get("/plans", headers=BROWSER).text
        assert client.get("/plans", headers=headers).json()["plans"] == []


def test_without_a_console_there_is_no_page() -> None:
    runtime = build_runtime(build_engine(Crew()))
    with TestClient(runtime.app(console=False), base_url=LOCAL) as client:
        assert client.get("/plans", headers=BROWSER).status_code == 404
        assert client.get("/graphql/plans").status_code == 200


ANN_HEADER = {"x-user": "ann"}


async def work_on(state: TaskState, context: TaskContext) -> str:
    """Work until somebody stops it."""
    await context.add_usage(1)
    await asyncio.Event().wait()
    return ""


def build_crew() -> Crew:
    """Return a crew whose task has no end, and of which nobody knows what it had done by then."""
    return Crew({"write": work_on}, opaque=frozenset(("write",)))


def post(served: Served, path: str, **fields: Any) -> Any:
    return served.client.post(f"/graphql/plans/{path}", headers=ANN_HEADER, json=fields)


def count_questions(served: Served) -> int:
    limits = served.client.get("/graphql/access/whoami", headers=ANN_HEADER).json()["limits"]
    return next(one["used"] for one in limits if one["kind"] == "runs")


def wait_for_work(served: Served, plan_id: str, times: int) -> None:
    assert served.client.portal is not None
    served.client.portal.call(served.wait_for_work, plan_id, times)


def stop_working(served: Served, plan_id: str, crew: Crew, times: int) -> None:
    """Stop a plan once its assistant has begun so many times."""
    wait_for_work(served, plan_id, times)
    assert len(crew.worked) == times
    post(served, f"{plan_id}/stop")
    served.wait(plan_id, "stopped", ANN_HEADER)


def test_a_plan_that_is_stopped_and_retried_again_and_again_is_counted_each_time() -> None:
    crew, settings = build_crew(), {"limits": {"runs_per_user": "3/minute"}}
    with serve(crew, settings=settings, authenticate=sign_in) as served:
        plan_id = served.submit("write", user="ann")
        stop_working(served, plan_id, crew, 1)
        assert post(served, f"{plan_id}/retry").status_code == 200
        served.wait(plan_id, "waiting", ANN_HEADER)
        assert post(served, f"{plan_id}/answer", answer="retry").status_code == 200
        assert count_questions(served) == 2
        stop_working(served, plan_id, crew, 2)
        assert post(served, f"{plan_id}/retry").status_code == 200
        (question,) = served.wait(plan_id, "waiting", ANN_HEADER)["questions"]
        refused = post(served, f"{plan_id}/answer", answer="retry", question_id=question["id"])

        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 60
        sentence = "You have asked 3 questions in 1 minute, and no more are possible."
        assert sentence in refused.text
        assert served.wait(plan_id, "waiting", ANN_HEADER)["questions"]  # nothing has changed
        assert post(served, f"{plan_id}/stop").status_code == 200
        served.wait(plan_id, "stopped", ANN_HEADER)
        refused = post(served, f"{plan_id}/tasks/1/retry")
        assert (refused.status_code, sentence in refused.text) == (429, True)
        mutation = f'mutation {{ retryPlan(id: "{plan_id}") {{ status }} }}'
        refused = served.client.post("/graphql", headers=ANN_HEADER, json={"query": mutation})
        assert refused.json()["errors"][0]["message"].startswith(sentence)
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert served.wait(plan_id, "stopped", ANN_HEADER)["status"] == "stopped"
        assert (len(crew.worked), count_questions(served)) == (2, 3)


def test_retries_and_approvals_need_tokens_that_are_left_and_refusals_do_not() -> None:
    crew, settings = build_crew(), {"limits": {"tokens_per_user": "1/day"}}
    with serve(crew, settings=settings, authenticate=sign_in) as served:
        waiting_id = served.submit("write", user="ann", needs_approval=True)
        served.wait(waiting_id, "waiting", ANN_HEADER)
        plan_id = served.submit("write", user="ann")
        stop_working(served, plan_id, crew, 1)
        refused = [
            post(served, f"{plan_id}/retry"),
            post(served, f"{waiting_id}/answer", answer="approve"),
        ]
        assert post(served, f"{waiting_id}/answer", answer="reject").status_code == 200

    assert [answer.status_code for answer in refused] == [429, 429]
    assert all("You have used up 1 token in 1 day." in answer.text for answer in refused)


def test_what_a_plan_refuses_anyway_and_an_approval_are_no_questions() -> None:
    settings = {"limits": {"runs_per_user": "9/minute"}}
    with serve(Crew(), settings=settings, authenticate=sign_in) as served:
        plan_id = served.submit("write", user="ann", needs_approval=True)
        served.wait(plan_id, "waiting", ANN_HEADER)
        assert post(served, f"{plan_id}/retry").status_code == 400
        assert post(served, f"{plan_id}/answer", question_id="q", answer="retry").status_code == 404
        assert post(served, f"{plan_id}/answer", answer="approve").status_code == 200
        served.wait(plan_id, "finished", ANN_HEADER)
        assert post(served, f"{plan_id}/retry").status_code == 400
        assert count_questions(served) == 0


def test_plans_at_work_are_answers_under_way_and_those_that_wait_are_none() -> None:
    settings = {"limits": {"runs_at_once_per_user": 2}}
    with serve(build_crew(), settings=settings, authenticate=sign_in) as served:
        plans = [served.submit("write", user="ann") for _ in range(4)]
        for plan_id in plans:
            wait_for_work(served, plan_id, 1)
        refused = post(served, f"{plans[0]}/retry")
        assert refused.status_code == 400  # it is at work
        for plan_id in plans:
            assert post(served, f"{plan_id}/stop").status_code == 200
            served.wait(plan_id, "stopped", ANN_HEADER)
        for plan_id in plans:
            assert post(served, f"{plan_id}/retry").status_code == 200
            served.wait(plan_id, "waiting", ANN_HEADER)
        for plan_id in plans[:2]:
            assert post(served, f"{plan_id}/answer", answer="retry").status_code == 200
            wait_for_work(served, plan_id, 2)
        refused = post(served, f"{plans[2]}/answer", answer="retry")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert "You have 2 answers under way, and no more are possible" in refused.text
        assert served.wait(plans[2], "waiting", ANN_HEADER)["questions"]
        post(served, f"{plans[0]}/stop")
        served.wait(plans[0], "stopped", ANN_HEADER)
        assert post(served, f"{plans[2]}/answer", answer="retry").status_code == 200
        wait_for_work(served, plans[2], 2)
        assert post(served, f"{plans[0]}/retry").status_code == 429


def test_plans_of_a_server_that_ended_go_on_beyond_the_limit_and_what_is_new_waits(
    tmp_path: Path,
) -> None:
    settings = {"limits": {"runs_at_once_per_user": 1}}
    crew, path = Crew({"write": work_on}), str(tmp_path / "plans.db")
    with serve(crew, log=SqlitePlanLog(path), authenticate=sign_in) as served:
        stopped_id = served.submit("write", user="ann")
        stop_working(served, stopped_id, crew, 1)
        plans = [served.submit("write", user="ann") for _ in range(2)]
        for plan_id in plans:
            wait_for_work(served, plan_id, 1)
    crew = Crew({"write": work_on})
    with serve(crew, log=SqlitePlanLog(path), settings=settings, authenticate=sign_in) as served:
        for plan_id in plans:
            wait_for_work(served, plan_id, 2)
        refused = post(served, f"{stopped_id}/retry")
        assert (refused.status_code, "under way" in refused.text) == (429, True)
        for plan_id in plans:
            post(served, f"{plan_id}/stop")
            served.wait(plan_id, "stopped", ANN_HEADER)
        assert post(served, f"{stopped_id}/retry").status_code == 200


@pytest.mark.anyio
async def test_a_run_and_its_plan_are_one_answer_and_the_plan_is_one_without_its_run() -> None:
    writer = ScriptedAgent(say("Done."))
    writer.may_answer.clear()
    planner = build_planner({"writer": writer}, write_plan("a"), write_plan("b"))
    settings = Settings(threads="memory", limits={"runs_at_once_per_user": 2})  # type: ignore[arg-type]
    async with (
        browsing(agents={"planner": planner}, settings=settings) as page,
        asyncio.timeout(30),
    ):
        async with page.running(agent="planner", thread="t1", run="r1") as followed:
            await writer.is_asked.wait()
            beside = await page.run(thread="t2", run="r2")
            planner.max_seconds = 0.05
            left = await page.run(agent="planner", thread="t3", run="r3")
            refused = await page.run(thread="t4", run="r4")
            writer.may_answer.set()
            await followed.rest()
        while "under way" in get_error(again := await page.run(thread="t5", run="r5")):
            pass

    assert [one.types()[-1] for one in (beside, left, again)] == ["RUN_FINISHED"] * 3
    assert b"The plan goes on" in left.body
    assert get_error(refused).startswith("You have 2 answers under way")


def get_error(answer: Answer) -> str:
    last = answer.events()[-1]
    return last["message"] if last["type"] == "RUN_ERROR" else ""
