"""Plans over HTTP: lists, trees, live events, stops, retries, answers, and what is refused."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Events, Interrupt
from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.extensions.planner.events import PlanEntry
from copilot_runtime.extensions.planner.http.endpoint import read_until_closing
from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.roles import TaskContext, Verdict
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.testing import call, say
from tests.extensions.planner.crew import Crew
from tests.extensions.planner.http.server import ELSEWHERE, LOCAL, look_up, serve, sign_in
from tests.in_one_test import in_one_test

APPROVAL = {"name": "book", "needs_approval": True}


def read_events(text: str) -> list[Any]:
    """Return the data of server-sent events, with their ids."""
    found: list[Any] = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in lines:
            found.append({**json.loads(lines["data"]), "id": lines.get("id")})
    return found


def test_plans_are_listed_the_newest_first_page_by_page() -> None:
    with serve() as served:
        made = [served.submit("fares", thread_id=f"t{number}") for number in range(3)]
        answer = served.client.get("/graphql/plans?limit=2")
        assert answer.headers["cache-control"] == "private, no-store"
        page = answer.json()
        assert [plan["id"] for plan in page["plans"]] == [made[2], made[1]]
        assert (page["plans"][0]["title"], page["is_operator"]) == ("Do it.", True)
        rest = served.client.get("/graphql/plans", params={"before": page["next"]}).json()
        assert ([plan["id"] for plan in rest["plans"]], rest["next"]) == ([made[0]], None)
        found = served.client.get("/graphql/plans?thread_id=t1").json()["plans"]
        assert [plan["id"] for plan in found] == [made[1]]
        assert served.client.get("/graphql/plans?status=waiting").json()["plans"] == []
        assert served.client.head("/graphql/plans").content == b""


def test_a_plan_is_shown_with_its_tree_and_each_task_whole() -> None:
    verdicts = [Verdict(False, "No currency.", [{"name": "currency", "purpose": "Say pounds."}])]
    crew = Crew({"fares": look_up}, {"fares": verdicts})
    with serve(crew) as served:
        tasks = {"name": "fares", "evaluation": "Has a currency.", "instructions": "Be brief."}
        plan_id = served.submit(tasks, thread_id="t")
        plan = served.wait(plan_id, "finished")
        assert (plan["id"], plan["thread_id"], plan["limits"]["depth"]) == (plan_id, "t", 5)
        assert plan["progress"] == {"over": 2, "finished": 2, "total": 2}
        (task,) = plan["tasks"]
        assert (task["assistant"], task["score"], task["rounds"], task["tokens"]) == (
            "writer",
            0.9,
            1,
            120,
        )
        assert task["tasks"][0]["round"] == 1
        whole = served.client.get(f"/graphql/plans/{plan_id}/tasks/1").json()
        assert whole["calls"] == [
            {
                "id": "c1",
                "tool": "find_fares",
                "arguments": '{"route":"Oslo"}',
                "is_idempotent": True,
                "result": "[12, 30]",
            }
        ]
        assert [(it["passed"], it["missing"]) for it in whole["evaluations"]] == [
            (False, "No currency."),
            (True, ""),
        ]
        assert (whole["instructions"], whole["criterion"]) == ("Be brief.", "Has a currency.")
        assert "tasks" not in whole
        missing = served.client.get(f"/graphql/plans/{plan_id}/tasks/9")
        assert (missing.status_code, missing.json()["message"]) == (
            404,
            "The plan has no task '9'.",
        )


def test_a_plan_is_followed_to_its_end_with_the_words_of_its_tasks() -> None:
    go = asyncio.Event()

    async def write(state: TaskState, context: TaskContext) -> str:
        context.emit_text("Dear ")
        await go.wait()
        context.emit_text("Ann")
        return "Dear Ann"

    with serve(Crew({"letter": write})) as served:
        plan_id = served.submit("letter")
        served.wait(plan_id, "running")
        portal = served.client.portal
        assert portal is not None
        portal.call(release_when_read, served.engine, plan_id, go)
        answer = served.client.get(f"/graphql/plans/{plan_id}/events")
        assert answer.headers["content-type"] == "text/event-stream"
        events = read_events(answer.text)
        stored = [event for event in events if event["id"]]
        assert [int(event["id"]) for event in stored] == [*range(1, len(stored) + 1)]
        assert (stored[0]["type"], stored[-1]["type"], stored[-1]["task_id"]) == (
            "plan_created",
            "task_ended",
            "0",
        )
        words = [event for event in events if event["type"] == "task_text"]
        assert "".join(event["delta"] for event in words) == "Dear Ann"


async def release_when_read(engine: Any, plan_id: str, go: asyncio.Event) -> None:
    """Let a task go on once somebody follows its plan."""
    feed = engine._runs[plan_id].feed
    subscribe = feed.subscribe

    def subscribe_and_go() -> Any:
        queue = subscribe()
        go.set()
        return queue

    feed.subscribe = subscribe_and_go


def test_who_comes_back_gets_what_they_have_not_seen() -> None:
    with serve() as served:
        plan_id = served.submit("fares")
        number = served.wait(plan_id, "finished")["number"]
        url = f"/graphql/plans/{plan_id}/events"
        every = read_events(served.client.get(url).text)
        assert len(every) == number
        assert read_events(served.client.get(f"{url}?after=3").text) == every[3:]
        headers = {"last-event-id": str(number - 1)}
        assert read_events(served.client.get(f"{url}?after=3", headers=headers).text) == every[-1:]
        done = served.client.get(url, headers={"last-event-id": str(number)})
        assert (done.status_code, done.content) == (204, b"")


def test_a_stream_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.planner.http.endpoint._WAKE_SECONDS", 0.01)
    with serve() as served:
        plan_id = served.submit(APPROVAL)
        served.wait(plan_id, "waiting")
        served.runtime.runtime.close_admission()  # as a server does first that is to end
        events = read_events(served.client.get(f"/graphql/plans/{plan_id}/events?after=1").text)
        assert events == []


def test_a_stream_says_that_a_plan_cannot_be_read_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serve() as served:
        plan_id = served.submit("fares")
        served.wait(plan_id, "finished")

        async def follow(plan_id: str, after: int = 0) -> AsyncGenerator[PlanEntry, None]:
            yield (await served.engine.log.read(plan_id, after))[0]
            raise StoreFailed("The disk is full.", public="The plans cannot be used.")

        monkeypatch.setattr(served.engine, "follow", follow)
        events = read_events(served.client.get(f"/graphql/plans/{plan_id}/events").text)
        assert [event["type"] for event in events] == ["plan_created", "error"]
        assert events[-1]["message"] == "The plans cannot be used."


@pytest.mark.anyio
async def test_a_stream_ends_while_nothing_happens_when_the_server_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.planner.http.endpoint._WAKE_SECONDS", 0.01)
    closing = asyncio.Event()

    async def happen() -> AsyncGenerator[str, None]:
        yield "started"
        closing.set()
        await asyncio.Event().wait()

    found = [item async for item in read_until_closing(happen(), closing.is_set)]
    assert found == ["started"]


def test_a_plan_that_was_done_again_is_followed_beyond_its_first_end() -> None:
    verdicts = {"plan": [Verdict(False, "Nothing."), Verdict(True)]}
    with serve(Crew(verdicts=verdicts)) as served:
        plan_id = served.submit("fares", evaluation="Something.")
        served.wait(plan_id, "failed")
        again = served.client.post(f"/graphql/plans/{plan_id}/retry")
        assert (again.status_code, again.json()["status"]) == (200, "running")
        number = served.wait(plan_id, "finished")["number"]
        events = read_events(served.client.get(f"/graphql/plans/{plan_id}/events").text)
        ends = [
            it["outcome"] for it in events if it["type"] == "task_ended" and it["task_id"] == "0"
        ]
        assert (len(events), ends) == (number, ["failed", "finished"])


def test_a_person_answers_a_question() -> None:
    with serve(Crew(verdicts={"plan": [Verdict(False, "Refused.")]})) as served:
        first, second = (served.submit(APPROVAL) for _ in range(2))
        for plan_id, path, body in (
            (first, "answer", {"answer": "approve", "note": "Go."}),
            (second, "tasks/1/answer", {"answer": "reject", "note": "Too dear."}),
        ):
            (question,) = served.wait(plan_id, "waiting")["questions"]
            assert question["answers"] == ["approve", "reject"]
            body = {**body, "question_id": question["id"]} if path == "answer" else body
            answer = served.client.post(f"/graphql/plans/{plan_id}/{path}", json=body)
            assert (answer.status_code, answer.json()["questions"]) == (200, [])
        assert served.wait(first, "finished")["tasks"][0]["status"] == "finished"
        task = served.wait(second, "failed")["tasks"][0]
        assert task["reason"] == "A person refused it: Too dear."


def test_only_the_first_question_of_a_plan_is_answered_without_its_id() -> None:
    pay = {**APPROVAL, "name": "pay", "depends_on": ["book"]}
    with serve() as served:
        plan_id = served.submit(APPROVAL, pay)
        url = f"/graphql/plans/{plan_id}/answer"
        served.wait(plan_id, "waiting")
        assert served.client.post(url, json={"answer": "approve"}).status_code == 200
        (question,) = served.wait(plan_id, "waiting")["questions"]
        again = served.client.post(url, json={"answer": "approve"})
        assert (again.status_code, again.json()["message"]) == (
            400,
            "Several questions have been asked, and the answer does not say which it is for. "
            f"question_id is one of: {question['id']}.",
        )
        assert served.wait(plan_id, "waiting")["questions"] == [question]
        # by its path, it names the task, which has asked nothing else
        task = f"/graphql/plans/{plan_id}/tasks/{question['task_id']}/answer"
        assert served.client.post(task, json={"answer": "approve"}).status_code == 200
        served.wait(plan_id, "finished")


def test_an_approval_says_what_the_task_is_about_to_use() -> None:
    async def write(state: TaskState, context: TaskContext) -> str:
        return "x" * 3_000

    send = {**APPROVAL, "name": "send", "purpose": "Send it.", "depends_on": ["sign"]}
    sign = {"name": "sign", "purpose": "Sign it."}
    post = {"name": "post", "depends_on": ["text"], "subtasks": [sign, send]}
    with serve(Crew({"text": write})) as served:
        plan_id = served.submit("text", "other", post)
        (question,) = served.wait(plan_id, "waiting")["questions"]
        url = f"/graphql/plans/{plan_id}/tasks/{question['task_id']}"
        assert served.client.get(url).json()["questions"] == [question]
        text, signature = question["context"]
        assert (text["task_id"], text["name"], len(text["output"])) == ("1", "text", 2_000)
        assert signature == {"task_id": "3.1", "name": "sign", "output": "<sign>"}
        plan_id = served.submit(APPROVAL)
        (question,) = served.wait(plan_id, "waiting")["questions"]
        assert "context" not in question


def test_a_task_and_a_plan_are_stopped() -> None:
    async def hang(state: TaskState, context: TaskContext) -> str:
        await asyncio.Event().wait()
        return ""

    with serve(Crew({"a": hang, "b": hang})) as served:
        plan_id = served.submit("a", "b")
        served.wait(plan_id, "running")
        url = f"/graphql/plans/{plan_id}"
        assert served.client.post(f"{url}/tasks/1/stop").status_code == 200
        assert served.client.post(f"{url}/stop", json={}).status_code == 200
        plan = served.wait(plan_id, "stopped")
        assert {task["status"] for task in plan["tasks"]} == {"stopped"}
        assert served.client.post(f"{url}/stop").json()["number"] == plan["number"]
        again = served.client.post(f"{url}/tasks/1/retry")
        assert (again.status_code, again.json()["status"]) == (200, "running")
        served.client.post(f"{url}/stop")
        served.wait(plan_id, "stopped")


ANSWERS: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/plans?limit=0", None, 400, "limit is a number from 1 to 200"),
    ("GET", "/plans?limit=201", None, 400, "limit is a number from 1 to 200"),
    ("GET", "/plans?limit=-1", None, 400, "limit is a number from 1 to 200"),
    ("GET", "/plans?limit=²", None, 400, "limit is a number from 1 to 200"),
    ("GET", "/plans?status=late", None, 400, "status is 'late'; it is one of: running"),
    ("GET", "/plans?before=x", None, 400, "before is 'x'; it is the `next`"),
    ("GET", "/plans/none", None, 404, "There is no plan 'none'."),
    ("GET", "/plans/none/events", None, 404, "There is no plan 'none'."),
    ("GET", "/plans/none/tasks/1", None, 404, "There is no plan 'none'."),
    ("POST", "/plans/none/stop", None, 404, "There is no plan 'none'."),
    ("POST", "/plans/none/retry", None, 404, "There is no plan 'none'."),
    ("POST", "/plans/none/answer", {"answer": "approve"}, 404, "There is no plan 'none'."),
    ("GET", "/plans/{plan}/none", None, 404, "There is nothing at"),
    ("GET", "/plans/{plan}/events?after=x", None, 400, "after is a number of an event"),
    ("GET", "/plans/{plan}/events?after=999", None, 400, "after is 999; the last event of the"),
    ("GET", "/plans/{plan}/stop", None, 405, "Method not allowed"),
    ("DELETE", "/plans/{plan}", None, 405, "Method not allowed"),
    ("POST", "/plans", None, 405, "Method not allowed"),
    ("POST", "/plans/{plan}/tasks/7/stop", None, 404, "The plan has no task '7'."),
    ("POST", "/plans/{plan}/tasks/7/answer", {"answer": "approve"}, 404, "No question is open."),
    ("POST", "/plans/{plan}/tasks/7/retry", None, 404, "The plan has no task '7'."),
    ("POST", "/plans/{plan}/retry", None, 400, "The plan is not over yet."),
    ("POST", "/plans/{plan}/stop", b"{", 400, "The request body is no JSON."),
    ("POST", "/plans/{plan}/stop", b"[]", 400, "The request body is no JSON object."),
    ("POST", "/plans/{plan}/stop", {"task": "1"}, 400, "'task'; it may have: nothing."),
    (
        "POST",
        "/plans/{plan}/answer",
        {"anser": "x"},
        400,
        "may have: question_id, answer, note, payload",
    ),
    ("POST", "/plans/{plan}/answer", {"answer": True}, 400, "answer is a text."),
    ("POST", "/plans/{plan}/answer", {}, 400, "Several questions have been asked, and the answer"),
    ("POST", "/plans/{plan}/tasks/1/answer", {}, 400, "'' is no answer. Answer with one of: app"),
    (
        "POST",
        "/plans/{plan}/tasks/1/answer",
        {"answer": "done"},
        400,
        "Answer with one of: approve",
    ),
    (
        "POST",
        "/plans/{plan}/tasks/1/answer",
        {"answer": "approve", "question_id": "q"},
        404,
        "The task '1' has no such open question.",
    ),
    (
        "POST",
        "/plans/{plan}/answer",
        {"answer": "approve", "question_id": "q"},
        404,
        "The question 'q' is not open.",
    ),
]


@in_one_test(("method", "path", "body", "status", "message"), ANSWERS)
def test_what_cannot_be_done_is_said_in_a_sentence(
    method: str, path: str, body: Any, status: int, message: str
) -> None:
    with serve() as served:
        plan_id = served.submit(APPROVAL, {**APPROVAL, "name": "pay"})
        served.wait(plan_id, "waiting")
        sent: Mapping[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
        url = f"/graphql{path.format(plan=plan_id)}"
        answer = served.client.request(method, url, **(sent if body is not None else {}))
        said = answer.json()
        assert (answer.status_code, message in (said.get("message") or said["error"])) == (
            status,
            True,
        ), answer.text


def test_a_plan_of_somebody_is_there_for_nobody_else() -> None:
    operators = {"telemetry": {"operators": ["eve"]}}
    with serve(authenticate=sign_in, settings=operators) as served:
        plan_id = served.submit(APPROVAL, user="ann")
        for user, status in {"ann": 200, "eve": 200, "bob": 404, "": 404}.items():
            headers = {"x-user": user} if user else {}
            for path in ("", "/tasks/1"):
                answer = served.client.get(f"/graphql/plans/{plan_id}{path}", headers=headers)
                assert answer.status_code == status
            found = served.client.get("/graphql/plans", headers=headers).json()
            assert (len(found["plans"]), found["is_operator"]) == (
                int(status == 200),
                user == "eve",
            )
        stop = served.client.post(f"/graphql/plans/{plan_id}/stop", headers={"x-user": "bob"})
        none = served.client.post("/graphql/plans/none/stop", headers={"x-user": "bob"})
        assert (stop.status_code, none.status_code) == (404, 404)
        assert stop.json()["message"] == f"There is no plan {plan_id!r}."
        assert served.client.post(
            f"/graphql/plans/{plan_id}/stop", headers={"x-user": "ann"}
        ).is_success


def test_where_nobody_signs_in_others_see_the_plans_of_threads_they_know() -> None:
    with serve(base_url=ELSEWHERE) as served:
        plan_id = served.submit(APPROVAL, thread_id="t")
        assert served.client.get("/graphql/plans").json() == {
            "plans": [],
            "next": None,
            "is_operator": False,
            "user": None,
        }
        found = served.client.get("/graphql/plans?thread_id=t").json()["plans"]
        assert [plan["id"] for plan in found] == [plan_id]
        assert served.client.get(f"/graphql/plans/{plan_id}").status_code == 200


@in_one_test("verb", ["stop", "retry", "answer", "tasks/1/stop"])
def test_a_page_of_another_origin_does_nothing(verb: str) -> None:
    with serve(settings={"cors_origins": ["https://page.test"]}) as served:
        plan_id = served.submit(APPROVAL)
        served.wait(plan_id, "waiting")
        answer = served.client.post(
            f"/graphql/plans/{plan_id}/{verb}",
            content=b'{"answer":"approve"}',
            headers={"origin": "https://evil.test", "content-type": "text/plain"},
        )
        assert answer.status_code == 403
        assert served.wait(plan_id, "waiting")["tasks"][0]["status"] == "waiting"


@pytest.mark.stalls(reason="FastAPI describes all routes in one go.")
def test_the_routes_are_described_where_there_is_a_planner() -> None:
    with serve() as served:
        paths = served.client.get("/openapi.json").json()["paths"]
        assert {path for path in paths if "plans" in path} == {
            f"/graphql/plans{below}"
            for below in (
                "",
                "/{plan}",
                "/{plan}/events",
                "/{plan}/stop",
                "/{plan}/retry",
                "/{plan}/answer",
                "/{plan}/tasks/{task}",
                "/{plan}/tasks/{task}/stop",
                "/{plan}/tasks/{task}/retry",
                "/{plan}/tasks/{task}/answer",
            )
        }


def test_without_a_planner_there_are_no_plans() -> None:
    runtime = CopilotRuntime(ScriptedAdapter(say("Hi.")), settings=Settings(threads="memory"))
    with TestClient(runtime.app()) as client:
        assert client.get("/graphql/plans").status_code == 404


@in_one_test(
    ("sent", "outcome"),
    [
        ({"answer": "resolve", "payload": {"hour": 12}}, "resolved {'hour': 12}"),
        ({"answer": "resolve", "note": "at noon"}, "resolved at noon"),
        ({"answer": "cancel"}, "cancelled None"),
    ],
)
def test_an_assistant_that_asks_gets_what_a_person_answers_here(
    sent: Mapping[str, Any], outcome: str
) -> None:
    async def clerk(run: RunInput) -> Events:
        if not run.resume:
            yield Interrupt(interrupt_id="when", message="At what time?", reason="time")
            return
        for event in say(f"{run.resume[0].status} {run.resume[0].payload}"):
            yield event

    runtime = CopilotRuntime(
        ScriptedAdapter(call("create_plan", {"tasks": [{"name": "book", "purpose": "Book."}]})),
        agents={"clerk": clerk},
        settings=Settings(
            threads="memory", planner=PlannerSettings(name="planner", store="memory")
        ),
    )
    run = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": []}
    run |= {"messages": [{"id": "1", "role": "user", "content": "Go."}], "forwardedProps": {}}
    with TestClient(runtime.app(), base_url=LOCAL) as client:
        assert client.post("/graphql/agent/planner/run", json=run).is_success
        (summary,) = client.get("/graphql/plans").json()["plans"]
        url = f"/graphql/plans/{summary['id']}"
        (question,) = client.get(url).json()["questions"]
        assert (question["text"], question["answers"]) == ("At what time?", ["resolve", "cancel"])
        assert client.post(f"{url}/tasks/1/answer", json=sent).is_success
        assert read_events(client.get(f"{url}/events").text)[-1]["type"] == "task_ended"
        assert client.get(f"{url}/tasks/1").json()["output"] == outcome
        (found,) = client.get("/graphql/plans?thread_id=t").json()["plans"]
        assert found["status"] == "finished"
