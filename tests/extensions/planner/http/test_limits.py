"""What has a plan work again is a question as all others are, and is refused as they are."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import Settings
from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.roles import TaskContext
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.testing import say
from tests.extensions.planner.crew import Crew
from tests.extensions.planner.http.server import Served, serve, sign_in
from tests.extensions.planner.planners import ScriptedAgent, build_planner, write_plan
from tests.wire_agui.http import Answer
from tests.wire_agui.server import browsing

ANN = {"x-user": "ann"}


async def work_on(state: TaskState, context: TaskContext) -> str:
    """Work until somebody stops it."""
    await context.add_usage(1)
    await asyncio.Event().wait()
    return ""


def build_crew() -> Crew:
    """Return a crew whose task has no end, and of which nobody knows what it had done by then."""
    return Crew({"write": work_on}, opaque=frozenset(("write",)))


def post(served: Served, path: str, **fields: Any) -> Any:
    return served.client.post(f"/graphql/plans/{path}", headers=ANN, json=fields)


def count_questions(served: Served) -> int:
    limits = served.client.get("/graphql/access/whoami", headers=ANN).json()["limits"]
    return next(one["used"] for one in limits if one["kind"] == "runs")


def wait_for_work(served: Served, plan_id: str, times: int) -> None:
    assert served.client.portal is not None
    served.client.portal.call(served.wait_for_work, plan_id, times)


def stop_working(served: Served, plan_id: str, crew: Crew, times: int) -> None:
    """Stop a plan once its assistant has begun so many times."""
    wait_for_work(served, plan_id, times)
    assert len(crew.worked) == times
    post(served, f"{plan_id}/stop")
    served.wait(plan_id, "stopped", ANN)


def test_a_plan_that_is_stopped_and_retried_again_and_again_is_counted_each_time() -> None:
    crew, settings = build_crew(), {"limits": {"runs_per_user": "3/minute"}}
    with serve(crew, settings=settings, authenticate=sign_in) as served:
        plan_id = served.submit("write", user="ann")
        stop_working(served, plan_id, crew, 1)
        assert post(served, f"{plan_id}/retry").status_code == 200
        served.wait(plan_id, "waiting", ANN)
        assert post(served, f"{plan_id}/answer", answer="retry").status_code == 200
        assert count_questions(served) == 2
        stop_working(served, plan_id, crew, 2)
        assert post(served, f"{plan_id}/retry").status_code == 200
        served.wait(plan_id, "waiting", ANN)
        refused = post(served, f"{plan_id}/answer", answer="retry")

        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 60
        sentence = "You have asked 3 questions in 1 minute, and no more are possible."
        assert sentence in refused.text
        assert served.wait(plan_id, "waiting", ANN)["questions"]  # nothing has changed
        assert post(served, f"{plan_id}/stop").status_code == 200
        served.wait(plan_id, "stopped", ANN)
        refused = post(served, f"{plan_id}/tasks/1/retry")
        assert (refused.status_code, sentence in refused.text) == (429, True)
        mutation = f'mutation {{ retryPlan(id: "{plan_id}") {{ status }} }}'
        refused = served.client.post("/graphql", headers=ANN, json={"query": mutation})
        assert refused.json()["errors"][0]["message"].startswith(sentence)
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert served.wait(plan_id, "stopped", ANN)["status"] == "stopped"
        assert (len(crew.worked), count_questions(served)) == (2, 3)


def test_retries_and_approvals_need_tokens_that_are_left_and_refusals_do_not() -> None:
    crew, settings = build_crew(), {"limits": {"tokens_per_user": "1/day"}}
    with serve(crew, settings=settings, authenticate=sign_in) as served:
        waiting_id = served.submit("write", user="ann", needs_approval=True)
        served.wait(waiting_id, "waiting", ANN)
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
        served.wait(plan_id, "waiting", ANN)
        assert post(served, f"{plan_id}/retry").status_code == 400
        assert post(served, f"{plan_id}/answer", question_id="q", answer="retry").status_code == 404
        assert post(served, f"{plan_id}/answer", answer="approve").status_code == 200
        served.wait(plan_id, "finished", ANN)
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
            served.wait(plan_id, "stopped", ANN)
        for plan_id in plans:
            assert post(served, f"{plan_id}/retry").status_code == 200
            served.wait(plan_id, "waiting", ANN)
        for plan_id in plans[:2]:
            assert post(served, f"{plan_id}/answer", answer="retry").status_code == 200
            wait_for_work(served, plan_id, 2)
        refused = post(served, f"{plans[2]}/answer", answer="retry")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert "You have 2 answers under way, and no more are possible" in refused.text
        assert served.wait(plans[2], "waiting", ANN)["questions"]
        post(served, f"{plans[0]}/stop")
        served.wait(plans[0], "stopped", ANN)
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
            served.wait(plan_id, "stopped", ANN)
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
