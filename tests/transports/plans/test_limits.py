"""What has a plan work again is a question as all others are, and is refused as they are."""

import asyncio
from typing import Any

from copilot_runtime.agents.planner.plan import TaskState
from copilot_runtime.agents.planner.roles import TaskContext
from tests.agents.planner.crew import Crew
from tests.transports.plans.server import Served, serve, sign_in

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


def stop_working(served: Served, plan_id: str, crew: Crew, times: int) -> None:
    """Stop a plan once its assistant has begun so many times."""
    assert served.client.portal is not None
    served.client.portal.call(served.wait_for_work, plan_id, times)
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
