"""Plans in GraphQL: who they are for sees them, stops them, and answers their questions."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from graphql import build_schema, find_breaking_changes
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api import Adapter, Agent, ChatRequest, RunInput
from copilot_runtime.api.events import Event, Events, Interrupt, Usage
from copilot_runtime.testing import call, say
from copilot_runtime.transports.graphql.schema import sdl
from tests.extensions.tracing.http.spans import LOCAL, sign_in

PLAN = [
    {"name": "text", "purpose": "Write it.", "subtasks": [{"name": "part", "purpose": "Begin."}]},
    {
        "name": "send",
        "purpose": "Send it.",
        "instructions": "By mail.",
        "depends_on": ["text"],
        "needs_approval": True,
    },
]
FIELDS = """
  id request status reason threadId user createdAt endedAt tokens dollars output sources
  progress { over finished total } questions { id taskId kind text answers context interrupt }
  tree
  tasks { id parentId name purpose instructions applicability evaluation dependsOn status assistant
    score isCorrection evaluations { round passed missing } rounds reason calls tokens dollars
    startedAt endedAt output sources }
"""
GET = f"query ($id: String!) {{ plan(id: $id) {{ {FIELDS} }} }}"
LIST = """query ($threadId: String = "", $status: String = "", $before: String = "",
  $limit: Int = 50) { plans(threadId: $threadId, status: $status, before: $before, limit: $limit) {
  next plans { id title status threadId user createdAt updatedAt } } }"""
ANSWER = """mutation ($id: String!, $questionId: String!, $answer: String!, $note: String = "",
  $payload: JSON) { answerPlan(id: $id, questionId: $questionId, answer: $answer, note: $note,
  payload: $payload) { id status } }"""
STOP = (
    'mutation ($id: String!, $taskId: String = "0") { stopPlan(id: $id, taskId: $taskId) { id } }'
)
RETRY = """mutation ($id: String!, $taskId: String = "0") {
  retryPlan(id: $id, taskId: $taskId) { id status } }"""


class Model(Adapter):
    """Plans always the same, and finds every outcome good."""

    async def stream(self, request: ChatRequest) -> Events:
        names = {action.name for action in request.actions}
        answer: Sequence[Event] = say("Dear Ann,")
        if "create_plan" in names:
            usage = Usage(model="m", input_tokens=4, output_tokens=3)
            answer = [*call("create_plan", {"tasks": PLAN}), usage]
        elif "report_evaluation" in names:
            answer = call("report_evaluation", {"passed": False, "missing": "The letter."})
        for event in answer:
            yield event


class Writer(Agent):
    """Writes; as it is the only one, and says nothing of itself, it does all tasks."""

    async def run(self, run: RunInput) -> Events:
        for event in say("Dear Ann,"):
            yield event
        yield Usage(model="m", input_tokens=20, output_tokens=3)


class Clerk(Agent):
    """Asks a person, and writes what was answered."""

    async def run(self, run: RunInput) -> Events:
        if not run.resume:
            yield Interrupt(
                interrupt_id="i", value={"amount": 12}, reason="payment", message="Pay?"
            )
            return
        for event in say(f"{run.resume[0].status} {run.resume[0].payload}"):
            yield event


@contextmanager
def serve(**more: Any) -> Generator[TestClient]:
    settings = Settings(
        threads="memory",
        planner={"name": "planner", "store": "memory", "summary": "join"},  # pyright: ignore[reportArgumentType]
        telemetry={"operators": ["boss"]},  # pyright: ignore[reportArgumentType]
    )
    options: dict[str, Any] = {"agents": {"writer": Writer()}, **more}
    runtime = CopilotRuntime(Model(), settings=settings, **options)
    with TestClient(runtime.app(), base_url=LOCAL, client=("127.0.0.1", 50000)) as client:
        yield client


def make_plan(client: TestClient, thread: str = "t", user: str = "") -> str:
    """Have a plan made, up to its question, and return its id."""
    body = {
        "threadId": thread,
        "runId": f"run-{thread}",
        "state": {},
        "messages": [{"id": "q", "role": "user", "content": "Write to Ann"}],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    headers = {"x-user": user} if user else {}
    answer = client.post("/graphql/agent/planner/run", json=body, headers=headers)
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    events = map(json.loads, lines)
    return next(e["content"]["id"] for e in events if e["type"] == "ACTIVITY_SNAPSHOT")


def ask(client: TestClient, query: str, user: str = "", /, **variables: Any) -> Any:
    headers = {"x-user": user} if user else {}
    return client.post(
        "/graphql", json={"query": query, "variables": variables}, headers=headers
    ).json()


def read_plan(client: TestClient, id: str) -> Any:
    return ask(client, GET, id=id)["data"]["plan"]


def read_error(answer: Any) -> str:
    return answer["errors"][0]["message"]


def test_a_plan_has_its_tasks_and_its_question() -> None:
    with serve() as client:
        plan = read_plan(client, make_plan(client))
    (question,) = plan["questions"]
    assert (plan["request"], plan["status"], plan["threadId"]) == ("Write to Ann", "waiting", "t")
    assert plan["progress"] == {"over": 2, "finished": 2, "total": 3}
    assert (plan["tokens"], plan["user"], plan["endedAt"], plan["output"]) == (30, None, None, None)
    assert (question["taskId"], question["kind"]) == ("2", "approval")
    assert question["context"] == [{"task_id": "1", "name": "text", "output": "Dear Ann,"}]
    names = [(task["id"], task["parentId"], task["name"], task["status"]) for task in plan["tasks"]]
    assert names == [
        ("1", None, "text", "finished"),
        ("1.1", "1", "part", "finished"),
        ("2", None, "send", "waiting"),
    ]
    assert (plan["tasks"][1]["assistant"], plan["tasks"][1]["output"]) == ("writer", "Dear Ann,")
    assert plan["tasks"][2]["dependsOn"] == ["text"]
    assert plan["tree"]["tasks"][0]["tasks"][0]["name"] == "part"


def test_an_answer_lets_a_plan_go_on_to_its_end() -> None:
    with serve() as client:
        id = make_plan(client)
        (question,) = read_plan(client, id)["questions"]
        answer = ask(client, ANSWER, id=id, questionId=question["id"], answer="approve")
        assert answer["data"]["answerPlan"]["id"] == id
        while (plan := read_plan(client, id))["status"] == "running":
            pass
        assert (plan["status"], plan["progress"]["finished"]) == ("finished", 3)
        assert plan["output"] == "Dear Ann,\n\nDear Ann,"
        said = "The task 'plan' has finished."
        assert read_error(ask(client, RETRY, id=id)) == said


def test_an_assistant_that_asks_gets_the_payload_of_the_answer() -> None:
    with serve(agents={"clerk": Clerk()}) as client:
        id = make_plan(client)
        (question,) = read_plan(client, id)["questions"]
        assert (question["kind"], question["text"]) == ("interrupt", "Pay?")
        assert (question["answers"], question["interrupt"]["reason"]) == (
            ["resolve", "cancel"],
            "payment",
        )
        payload = {"paid": True}
        ask(client, ANSWER, id=id, questionId=question["id"], answer="resolve", payload=payload)
        while (plan := read_plan(client, id))["tasks"][1]["status"] != "finished":
            pass
    assert plan["tasks"][1]["output"] == "resolved {'paid': True}"


def test_a_plan_is_stopped_and_done_again() -> None:
    with serve() as client:
        id = make_plan(client)
        assert read_error(ask(client, RETRY, id=id)) == "The plan is not over yet."
        assert ask(client, STOP, id=id)["data"]["stopPlan"]["id"] == id
        while (plan := read_plan(client, id))["endedAt"] is None:
            pass
        assert plan["status"] == "stopped"
        assert ask(client, RETRY, id=id)["data"]["retryPlan"]["status"] in ("running", "waiting")
        while (plan := read_plan(client, id))["status"] != "waiting":
            pass
        assert ask(client, STOP, id=id, taskId="2")["data"]["stopPlan"]["id"] == id


def test_plans_are_listed_by_their_pages() -> None:
    with serve() as client:
        first, second = make_plan(client, "one"), make_plan(client, "two")
        page = ask(client, LIST, limit=1)["data"]["plans"]
        (newest,) = page["plans"]
        assert (newest["id"], newest["title"], newest["status"]) == (
            second,
            "Write to Ann",
            "waiting",
        )
        rest = ask(client, LIST, before=page["next"])["data"]["plans"]
        assert ([it["id"] for it in rest["plans"]], rest["next"]) == ([first], None)
        found = ask(client, LIST, threadId="one", status="waiting")["data"]["plans"]["plans"]
        assert [it["threadId"] for it in found] == ["one"]


def test_a_plan_is_for_whom_it_was_made_and_for_operators() -> None:
    with serve(authenticate=sign_in) as client:
        id = make_plan(client, user="ann")
        for user in ("ann", "boss"):
            assert ask(client, GET, user, id=id)["data"]["plan"]["user"] == "ann"
            assert len(ask(client, LIST, user)["data"]["plans"]["plans"]) == 1
        assert ask(client, GET, "bob", id=id) == {"data": {"plan": None}}
        assert ask(client, LIST, "bob")["data"]["plans"]["plans"] == []
        for mutation in (STOP, RETRY):
            unknown = read_error(ask(client, mutation, "bob", id="none"))
            assert read_error(ask(client, mutation, "bob", id=id)).replace(id, "none") == unknown


@pytest.mark.parametrize(
    ("query", "variables", "sentence"),
    [
        (LIST, {"status": "lost"}, "status is 'lost'"),
        (LIST, {"limit": 0}, "limit is a number from 1 to 200"),
        (LIST, {"before": "x"}, "before is 'x'"),
        (ANSWER, {"questionId": "none", "answer": "approve"}, "is not open"),
        (ANSWER, {"questionId": "none", "answer": "perhaps"}, "'perhaps' is no answer"),
        (STOP, {"taskId": "9"}, "The plan has no task '9'."),
    ],
)
def test_what_is_wrong_is_explained(query: str, variables: Any, sentence: str) -> None:
    with serve() as client:
        needs_id = "$id" in query
        id = {"id": make_plan(client)} if needs_id else {}
        assert sentence in read_error(ask(client, query, **id, **variables))


def test_a_request_may_ask_for_a_few_plans() -> None:
    query = " ".join(f'a{at}: plan(id: "x") {{ id }}' for at in range(11))
    with serve() as client:
        answer = ask(client, f"{{ {query} }}")
    assert read_error(answer) == "A request may ask for 10 fields of plans."


def test_a_runtime_without_a_planner_has_no_such_fields() -> None:
    runtime = CopilotRuntime(Model(), settings=Settings(threads="memory"))
    with TestClient(runtime.app(), base_url=LOCAL) as client:
        assert "Cannot query field 'plans'" in str(ask(client, "{ plans { next } }"))


def test_plans_only_add_to_the_schema() -> None:
    before, after = build_schema(sdl()), build_schema(sdl(plans=True))
    assert find_breaking_changes(before, after) == []
