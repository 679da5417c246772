"""What a role or a scope does not allow is refused, by every route; what it allows is answered."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from copilot_runtime import CopilotRuntime, RunInput
from copilot_runtime.api.identity import SCOPES
from copilot_runtime.config.sections import AccessSettings
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport
from tests.extensions.access.credentials import Entrance, entering, issue_key, settings_of
from tests.in_one_test import in_one_test
from tests.wire.client import STATE, chat
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH

pytestmark = pytest.mark.anyio

EVERYTHING: dict[str, Any] = {
    "planner": {"name": "planner"},
    "serve_remote": True,
    "telemetry": {"store": "memory"},
    "events": {"store": "memory"},
}
OPEN = ("/health", "/metrics", "/access/whoami", "/traces/access", "/info")
"""What has nothing of anybody, or only of whoever asks."""
UNSCOPED = tuple(f"/agent/{{agent}}/{name}" for name in ("run", "ask", "suggest"))
"""What forbids a run is an event of its stream."""


def routes_of(runtime: CopilotRuntime) -> list[tuple[str, str]]:
    """Return every route below the URL, as `/docs` describes them."""
    found: list[tuple[str, str]] = []
    for path, methods in runtime.app(path=PATH).openapi()["paths"].items():
        below = path.removeprefix(PATH)
        if path.startswith(PATH) and not below.startswith(OPEN):
            found += [(method.upper(), below) for method in methods]
    return found


def fill(path: str) -> str:
    return re.sub(r"\{\w+\}", lambda found: "default" if "agent" in found[0] else "x", path)


async def ask(browser: Browser, method: str, path: str) -> int:
    body = None if method == "GET" else {}
    page = {"accept": "application/json"}  # and no stream, which would not end
    return (await browser.ask(method, fill(path), body, page)).status


def test_there_are_many_routes(tmp_path: Path) -> None:
    runtime = CopilotRuntime(settings=settings_of(tmp_path, **EVERYTHING))

    assert len(routes_of(runtime)) > 25


@pytest.mark.stalls(reason="FastAPI describes all routes in one go.")
async def test_no_route_answers_somebody_who_may_do_nothing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, **EVERYTHING)
    async with entering(tmp_path, settings=settings) as server:
        nothing = server.bearer(await issue_key(server.keys, "ada", scopes=()))
        found = {
            (method, path): await ask(nothing, method, path)
            for method, path in routes_of(server.runtime)
            if path not in UNSCOPED
        }

    assert {route: status for route, status in found.items() if status != 403} == {}


@in_one_test("credential", ["none", "wrong", "expired"])
async def test_no_route_answers_without_a_credential_that_is_right(
    tmp_path: Path, credential: str
) -> None:
    settings = settings_of(tmp_path, **EVERYTHING)
    async with entering(tmp_path, settings=settings) as server:
        old = await issue_key(server.keys, "ada", expires_at=1.0)
        browser = {
            "none": server.browser(),
            "wrong": server.bearer(f"{old[:-4]}AAAA"),
            "expired": server.bearer(old),
        }[credential]
        found = {
            (method, path): await ask(browser, method, path)
            for method, path in routes_of(server.runtime)
        }

    assert set(found.values()) == {401}


async def test_whoever_only_reads_changes_nothing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, **EVERYTHING)
    async with entering(tmp_path, settings=settings) as server:
        reader = await server.sign_in("api_keys", "ada", roles=["reader"])
        found = {
            (method, path): await ask(reader, method, path)
            for method, path in routes_of(server.runtime)
            if path not in (*UNSCOPED, "/access")
            and not path.startswith(("/traces", "/playground"))
            if not path.endswith(("/connect", "/threads/changes", "/memories/recall"))
        }
        run = await reader.run()

    refused = {method for (method, _), status in found.items() if status == 403}
    assert refused <= {"POST", "PATCH", "DELETE"}
    assert all(status == 403 for (method, _), status in found.items() if method != "GET")
    assert run.events()[-1]["code"] == "FORBIDDEN"


async def test_a_transport_that_says_nothing_of_who_asks_opens_no_way_around(
    tmp_path: Path,
) -> None:
    class Forgetful(Transport):
        paths = ("forgetful",)

        async def __call__(self, request: Request) -> None:
            run = RunInput(thread_id="t", run_id="r", messages=())
            found = await services[0].runs.start(run)
            found.stop()
            await request.respond(204)

    services: list[Services] = []

    def make(given: Services) -> Transport:
        services.append(given)
        return Forgetful()

    async with entering(tmp_path, transports=["agui", make]) as server:
        reader = await server.sign_in("api_keys", "ada", roles=["reader"])
        user = await server.sign_in("api_keys", "eve")
        asked = [await one.ask("POST", "/forgetful") for one in (reader, user)]

    assert [answer.status for answer in asked] == [403, 204]


async def test_traces_and_plans_of_all_are_for_operators(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, **EVERYTHING)
    async with entering(tmp_path, settings=settings) as server:
        operator = await server.sign_in("api_keys", "ada", roles=["operator"])
        limited = server.bearer(
            await issue_key(server.keys, "ada", roles=["operator"], scopes=["data:read"])
        )
        user = await server.sign_in("api_keys", "eve")
        asked = [await one.ask("GET", "/traces") for one in (operator, limited, user)]
        plans = [(await one.ask("GET", "/plans")).json() for one in (operator, limited, user)]

    assert [answer.status for answer in asked] == [200, 403, 403]
    assert [page["is_operator"] for page in plans] == [True, False, False]


async def gql(browser: Browser, query: str, **variables: Any) -> Any:
    return (await browser.ask("POST", "", {"query": query, "variables": variables})).json()


async def test_operations_of_graphql_need_their_scopes(tmp_path: Path) -> None:
    nested = """query Q { ...A } fragment A on Query { ... on Query { ...B } }
        fragment B on Query { x: plans { next } }"""
    async with entering(tmp_path, settings=settings_of(tmp_path, **EVERYTHING)) as server:
        one = server.bearer(await issue_key(server.keys, "ada", scopes=["threads:read"]))
        state = {"data": {"threadId": "t", "agentName": "planner"}}
        answers = {
            "chat": (await one.ask("POST", "", chat())).json(),
            "plans": await gql(one, "{ plans { next } }"),
            "in fragments": await gql(one, nested),
            "stop": await gql(one, 'mutation { stopCopilotResponse(runId: "x") }'),
            "state": await gql(one, STATE, **state),
            "agents": await gql(one, "{ availableAgents { agents { name } } __typename }"),
        }

    codes = {
        name: answer["errors"][0]["extensions"]["code"] if "errors" in answer else ""
        for name, answer in answers.items()
    }
    assert codes == {
        "chat": "FORBIDDEN",
        "plans": "FORBIDDEN",
        "in fragments": "FORBIDDEN",
        "stop": "FORBIDDEN",
        "state": "",
        "agents": "",
    }


async def test_subscriptions_need_their_scopes_too(tmp_path: Path) -> None:
    async with entering(tmp_path) as server:
        text = await issue_key(server.keys, "ada", scopes=["threads:read"])
        code, kind = await subscribe(server, text)

    assert (code, kind) == ("FORBIDDEN", "error")


async def subscribe(server: Entrance, text: str) -> tuple[str, str]:
    query = """subscription($data: GenerateCopilotResponseInput!) {
        generateCopilotResponse(data: $data) { runId } }"""
    async with connect(
        f"ws://127.0.0.1:{server.port}{PATH}",
        subprotocols=[Subprotocol("graphql-transport-ws")],
        additional_headers={"authorization": f"Bearer {text}"},
        proxy=None,
    ) as socket:
        await socket.send(json.dumps({"type": "connection_init"}))
        await socket.recv()
        payload = {"query": query, "variables": {"data": chat()["variables"]["data"]}}
        await socket.send(json.dumps({"type": "subscribe", "id": "1", "payload": payload}))
        answer = json.loads(await socket.recv())
    return answer["payload"][0]["extensions"]["code"], answer["type"]


def test_roles_of_the_settings_are_added_to_those_there_are() -> None:
    access = AccessSettings.model_validate({"roles": {"guest": ["threads:read"], "all": "*"}})

    assert access.find_scopes(["guest"]) == {"threads:read"}
    assert access.find_scopes(["guest", "reader"]) == {"threads:read", "data:read"}
    assert access.find_scopes(["all"]) == access.find_scopes(["operator"]) == frozenset(SCOPES)
    assert access.find_scopes(["unknown"]) == frozenset()
