"""The typed routes of an application: what is described, and that nothing else answers."""

from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, RunInput, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.transports.agui.endpoint import AguiEndpoint
from copilot_runtime.transports.agui.rest import (
    Info,
    Resume,
    RunAgentInput,
    StopResult,
    Thread,
    ThreadArchival,
    ThreadDeletion,
    ThreadEvents,
    ThreadMessages,
    ThreadPage,
    ThreadState,
)
from copilot_runtime.transports.agui.routes import REST_ROUTES
from copilot_runtime.transports.rest_route import Problem
from tests.in_one_test import in_one_test

NOT_OFFERED = {"annotate", "inspect", "subscribe", "clear threads", "follow memories"}
"""Clients of CopilotKit ask for them; there is nothing to describe."""

RUN = {
    "threadId": "t",
    "runId": "r",
    "messages": [{"id": "m", "role": "user", "content": "Hi"}],
    "tools": [],
    "context": [],
}


def runtime(**options: Any) -> CopilotRuntime:
    return CopilotRuntime(
        ScriptedAdapter(say("Hello")), settings=Settings(threads="memory"), **options
    )


def list_others(served: CopilotRuntime, path: str) -> set[tuple[str, str]]:
    """Return the methods and paths of what is described beside AG-UI."""
    router = served.lazy_app(path)
    return {
        (method, route.path)
        for part in served.transports
        if not isinstance(part, AguiEndpoint)
        for route in part.routes(path, router)
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }


async def hear(run: RunInput) -> AsyncGenerator[str, None]:
    yield "I hear."


def test_applications_in_one_process_answer_for_themselves() -> None:
    first, second = runtime().app("/api"), runtime(agents={"ear": hear}).app("/api")
    with TestClient(first) as one, TestClient(second) as other:
        one.post("/api/agent/default/run", json=RUN)
        answers = [client.get("/api/info").json()["agents"] for client in (one, other)]
        threads = [client.get("/api/threads").json()["threads"] for client in (one, other)]
        heard = other.post("/api/agent/ear/run", json=RUN).text

    assert [[*agents] for agents in answers] == [["default"], ["default", "ear"]]
    assert [len(listed) for listed in threads] == [1, 0]
    assert "I hear." in heard


def test_what_an_operator_changes_of_a_route_is_changed_in_that_application_alone() -> None:
    first = runtime().app("/api")
    for route in first.routes:
        if isinstance(route, APIRoute):
            route.operation_id = f"our_{route.unique_id}"
    second = runtime().app("/api")

    assert first.openapi()["paths"]["/api/info"]["get"]["operationId"] == "our_info_api_info_get"
    assert second.openapi()["paths"]["/api/info"]["get"]["operationId"] == "info_api_info_get"


def test_all_that_is_offered_is_a_typed_route_with_a_description() -> None:
    served = runtime()
    app = served.app("/api")
    offered = {
        (method, f"/api/{path}")
        for path, methods in REST_ROUTES.items()
        for method, name in methods.items()
        if name not in NOT_OFFERED
    }
    typed = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    described = {
        (method.upper(), path)
        for path, operations in app.openapi()["paths"].items()
        for method in operations
    }
    ends = ("", "/live", "/ready")
    health = {("GET", f"{path}/health{end}") for path in ("", "/api") for end in ends}

    assert typed == described == offered | health | list_others(served, "/api")


def test_threads_are_described_with_models_and_examples() -> None:
    schema = runtime().app().openapi()
    list_threads = schema["paths"]["/graphql/threads"]["get"]
    answer = list_threads["responses"]["200"]["content"]["application/json"]["schema"]
    thread = schema["components"]["schemas"]["Thread"]["properties"]

    assert answer == {"$ref": "#/components/schemas/ThreadPage"}
    assert {item["name"] for item in list_threads["parameters"]} == {
        "agentId",
        "limit",
        "cursor",
        "includeArchived",
    }
    assert thread["name"]["examples"] == ["A trip to Paris"]
    assert "422" not in list_threads["responses"]


def describe_run() -> dict[str, Any]:
    body = runtime().app().openapi()["paths"]["/graphql/agent/{agent}/run"]["post"]["requestBody"]
    return body["content"]["application/json"]["schema"]


def test_a_run_is_described_with_all_that_is_read_of_it() -> None:
    schema = describe_run()

    assert schema["required"] == ["threadId", "runId", "messages"]
    assert schema["additionalProperties"] is True
    assert schema["properties"]["resume"]["anyOf"][0]["items"]["required"] == ["interruptId"]
    assert "$defs" not in schema
    assert {"resume", "protocolVersion", "tools", "context"} <= schema["properties"].keys()


@in_one_test("verb", ["run", "connect", "suggest", "ask"])
def test_what_is_described_as_required_is_enough_and_needed(verb: str) -> None:
    enough = {name: RUN[name] for name in describe_run()["required"]}
    with TestClient(runtime().app()) as client:
        url = f"/graphql/agent/default/{verb}"
        taken = client.post(url, json=enough)
        refused = [client.post(url, json={**enough, name: None}).status_code for name in enough]

    assert taken.status_code == 200
    assert refused == [400, 400, 400]


def test_an_answer_to_an_interrupt_is_taken_as_it_is_described() -> None:
    answer = Resume(interruptId="i", payload={"approved": True}).model_dump(by_alias=True)
    body = RunAgentInput.model_validate({**RUN, "resume": [answer], "protocolVersion": "1.0"})
    with TestClient(runtime().app()) as client:
        sent = body.model_dump(by_alias=True, exclude_unset=True)
        heard = client.post("/graphql/agent/default/run", json=sent).text

    assert "there is no such question in this conversation" in heard


def test_without_agui_there_is_nothing_of_it_to_describe() -> None:
    served = runtime(transports=["graphql"])
    app = served.app()

    health = {f"{path}/health{end}" for path in ("", "/graphql") for end in ("", "/live", "/ready")}
    others = {path for _, path in list_others(served, "/graphql")}
    assert app.openapi()["paths"].keys() == health | others
    assert TestClient(app).get("/graphql/threads").status_code == 404


def test_the_models_are_what_is_answered() -> None:
    with TestClient(runtime().app()) as client:
        client.post("/graphql/agent/default/run", json=RUN)
        info = client.get("/graphql/info").json()
        page = ThreadPage.model_validate(client.get("/graphql/threads").json())
        ThreadMessages.model_validate(client.get("/graphql/threads/t/messages").json())
        ThreadEvents.model_validate(client.get("/graphql/threads/t/events").json())
        ThreadState.model_validate(client.get("/graphql/threads/t/state").json())
        stopped = client.post("/graphql/agent/default/stop/t").json()
        renamed = client.patch("/graphql/threads/t", json={"name": "Mine"})
        archived = client.post("/graphql/threads/t/archive")
        deleted = client.delete("/graphql/threads/t")
        gone = client.delete("/graphql/threads/t")
        wrong = client.get("/graphql/threads", params={"limit": "many"}).json()
        lost = client.get("/graphql/threads", params={"cursor": "there"}).json()

    assert Info.model_validate(info).agents.keys() == {"default"}
    assert [thread.id for thread in page.threads] == ["t"]
    assert not StopResult.model_validate(stopped).stopped
    assert Thread.model_validate(renamed.json()).name == "Mine"
    assert ThreadArchival.model_validate(archived.json()).archived
    assert ThreadDeletion.model_validate(deleted.json()).deleted
    assert Problem.model_validate(gone.json()).message == "There is no such thread."
    limit = "The query parameter limit must be a number, not 'many'."
    cursor = "The query parameter cursor is wrong: 'there' is not a cursor of a list of threads."
    assert Problem.model_validate(wrong) == Problem(error="invalid_request", message=limit)
    assert Problem.model_validate(lost) == Problem(error="invalid_request", message=cursor)


@in_one_test(
    ("method", "path", "body"),
    [
        ("GET", "/info", None),
        ("GET", "/threads", None),
        ("GET", "/threads?limit=0&limit=x&agentId=%C3%A4", None),
        ("GET", "/threads/t/events", None),
        ("GET", "/threads/a%2Fb%252F/messages", None),
        ("GET", "/threads/%FF/state", None),
        ("GET", "/threads/", None),
        ("PATCH", "/threads/t", b'{"name": "\\ud83c"}'),
        ("PATCH", "/threads/t", b'{"name": 5}'),
        ("PATCH", "/threads/t", b"{"),
        ("DELETE", "/threads/none", b"{"),
        ("POST", "/threads/none/archive", b"x" * 2000),
        ("POST", "/agent/nobody/stop/t", None),
        ("POST", "/transcribe", b"{}"),
        ("PUT", "/threads/t", None),
    ],
)
def test_a_typed_route_answers_as_a_mounted_runtime_does(
    method: str, path: str, body: bytes | None
) -> None:
    """What is mounted has no typed routes: the router answers alone."""
    settings = Settings(
        threads="memory", max_body_bytes=1000, cors_origins=("http://page.example",)
    )
    answers: list[Any] = []
    for typed in (True, False):
        served = CopilotRuntime(ScriptedAdapter(say("Hello")), settings=settings)
        app = served.app("/api") if typed else FastAPI()
        if not typed:
            served.mount(app, "/api")
        headers = {"origin": "http://page.example", "content-type": "text/plain"}
        with TestClient(app) as client:
            answer = client.request(method, f"/api{path}", content=body, headers=headers)
        answers.append((answer.status_code, answer.content, sorted(answer.headers.items())))

    assert answers[0] == answers[1]


@in_one_test("id", ["a/b", "100%25", "a/messages", "Äpfel"])
def test_an_id_reaches_a_typed_route_as_it_was_encoded(id: str) -> None:
    with TestClient(runtime().app()) as client:
        client.post("/graphql/agent/default/run", json={**RUN, "threadId": id})
        renamed = client.patch(f"/graphql/threads/{quote(id, safe='')}", json={"name": "Mine"})

    assert (renamed.status_code, renamed.json()["id"]) == (200, id)


def test_a_route_of_ones_own_comes_before_a_typed_one() -> None:
    app = runtime().app()

    @app.get("/graphql/threads")
    def mine() -> str:
        return "mine"

    assert TestClient(app).get("/graphql/threads").json() == "mine"


def test_a_sub_application_has_its_typed_routes() -> None:
    app = FastAPI()
    app.mount("/sub", runtime().app("/api"))

    assert TestClient(app).get("/sub/api/threads").json() == {"threads": [], "nextCursor": None}
    assert "/api/threads" in TestClient(app).get("/sub/docs").text
