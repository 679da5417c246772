"""Every operation, as a route, in an envelope and as a resource, and who else is at that URL."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar
from urllib.parse import quote

import pytest
from fastapi import Depends, FastAPI, HTTPException
from starlette.requests import HTTPConnection, Request

from copilot_runtime import CopilotRuntime, RunInput, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.events import Event
from tests.in_one_test import in_one_test, in_sum
from tests.wire.client import HEADERS, chat
from tests.wire_agui.http import Browser, run_input, text_of
from tests.wire_agui.server import PATH, Parrot, browsing, serving

pytestmark = pytest.mark.anyio

IDS = [
    "plain",
    "with/slashes/in/it",
    "Äpfel 🍎 und \u2028",
    "\"quoted\" and 'so'",
    "a?b=c&d#e",
    "100%25",
    "...",
    "subscribe",
    "a+b",
]
THREADS = ("messages", "events", "state")


def memory(**more: Any) -> Settings:
    return Settings(threads="memory", **more)


async def test_info_is_told_in_both_ways() -> None:
    async with browsing() as browser:
        by_route = await browser.ask("GET", "/info")
        by_envelope = await browser.envelope("info")

    assert by_route.json() == by_envelope.json()
    assert by_route.json()["agents"]["default"]["name"] == "default"
    assert by_route.json()["threadEndpoints"]["mutations"] is True
    assert "licenseStatus" not in by_route.json()


async def test_info_has_the_capabilities_of_each_agent() -> None:
    class Searcher:
        capabilities: ClassVar[Mapping[str, Any]] = {"reasoning": {"supported": True}}

        async def run(self, run: RunInput) -> AsyncIterator[Event]:
            for event in say("Found."):
                yield event

    def talk(run: RunInput) -> str:
        return "Hello."

    async with browsing(agents={"searcher": Searcher(), "talk": talk}) as browser:
        agents = (await browser.ask("GET", "/info")).json()["agents"]

    streams = {"transport": {"streaming": True}}
    assert {name: agent["capabilities"] for name, agent in agents.items()} == {
        "default": {
            **streams,
            "tools": {"supported": True, "clientProvided": True},
            "humanInTheLoop": {"supported": True},
            "state": {"snapshots": True, "deltas": True},
        },
        "searcher": {**streams, "reasoning": {"supported": True}},
        "talk": streams,
    }


async def test_a_run_is_the_same_by_a_route_in_an_envelope_and_as_the_body_itself() -> None:
    async with browsing(Parrot("Hello")) as browser:
        answers = [
            await browser.run(thread="t1"),
            await browser.envelope("agent/run", run_input(thread="t1", run="r"), agentId="default"),
            await browser.ask("POST", "", run_input(thread="t1")),
            await browser.ask("POST", "/", run_input(thread="t1")),
        ]

    assert [text_of(answer.events()) for answer in answers] == ["Hello"] * 4
    assert len({tuple(answer.types()) for answer in answers}) == 1


@in_one_test(("id", "how"), in_sum(IDS, ["route", "resource"]))
async def test_a_thread_lives_and_dies_whatever_it_is_called(id: str, how: str) -> None:
    async with browsing() as browser:

        async def ask(method: str, path: str, body: Any = None) -> Any:
            if how == "resource":
                params = {"path": path, "httpMethod": method}
                return await browser.envelope("resource/request", body, **params)
            return await browser.ask(method, path, body)

        at = f"/threads/{quote(id, safe='')}"
        await browser.run(thread=id)
        reads = [(await ask("GET", f"{at}/{what}")).json()[what] for what in THREADS]
        renamed = await ask("PATCH", at, {"agentId": "default", "name": "Named"})
        archived = await ask("POST", f"{at}/archive", {"agentId": "default"})
        shown = (await ask("GET", "/threads?agentId=default")).json()["threads"]
        everything = (await ask("GET", "/threads?includeArchived=true")).json()["threads"]
        back = await ask("PATCH", at, {"agentId": "default", "archived": False})
        deleted = await ask("DELETE", at, {"agentId": "default"})
        gone = await ask("DELETE", at, {"agentId": "default"})
        empty = [(await ask("GET", f"{at}/{what}")).json() for what in THREADS]

    assert [message["content"] for message in reads[0]] == ["Hi", "You said Hi"]
    assert [event["type"] for event in reads[1]][:: len(reads[1]) - 1] == [
        "RUN_STARTED",
        "RUN_FINISHED",
    ]
    assert reads[2] is None
    assert (renamed.status, renamed.json()["name"], renamed.json()["id"]) == (200, "Named", id)
    assert (archived.status, archived.json()) == (200, {"threadId": id, "archived": True})
    assert shown == []
    assert [(thread["id"], thread["archived"]) for thread in everything] == [(id, True)]
    assert (back.status, back.json()["archived"]) == (200, False)
    assert (deleted.status, deleted.json()) == (200, {"threadId": id, "deleted": True})
    assert gone.status == 404
    assert empty == [{"messages": []}, {"events": []}, {"state": None}]


@in_one_test("id", [".", "..", "a\nb", "\x7f"])
async def test_a_thread_that_no_url_could_name_is_refused(id: str) -> None:
    async with browsing() as browser:
        answer = await browser.ask("POST", "/agent/default/run", run_input(thread=id))

    assert (answer.status, answer.json()["error"]) == (400, "Invalid request body")
    assert answer.json()["details"].startswith("The threadId ")


@in_one_test("id", IDS)
async def test_agents_are_found_and_runs_stopped_whatever_they_are_called(id: str) -> None:
    from tests.runs import Says, forever

    agent = Says(forever)
    async with browsing(agents={id: agent}) as browser:
        at = f"/agent/{quote(id, safe='')}"
        async with browser.open("POST", f"{at}/run", run_input(thread=id)) as running:
            await running.next()
            unknown = await browser.ask("POST", f"{at}/stop/other")
            stopped = await browser.ask("POST", f"{at}/stop/{quote(id, safe='')}")
            events = await running.rest()
        connected = await browser.ask("POST", f"{at}/connect", run_input(thread=id, messages=[]))

    assert unknown.json()["stopped"] is False
    assert stopped.json()["stopped"] is True
    assert events[-1]["type"] == "RUN_ERROR"
    assert connected.events()[0]["threadId"] == id


async def test_the_raw_agent_id_of_connect_is_taken_as_browsers_send_it() -> None:
    """The npm client does not encode it; fetch then encodes all but what a path may hold."""
    async with browsing(agents={"my agent's": DirectAgent(Parrot())}) as browser:
        answer = await browser.ask("POST", "/agent/my%20agent's/connect", run_input())

    assert (answer.status, answer.body) == (200, b"")


async def test_suggestions_leave_no_thread() -> None:
    async with browsing() as browser:
        answers = [
            await browser.ask("POST", "/agent/default/suggest", run_input()),
            await browser.envelope("agent/suggest", run_input(), agentId="default"),
        ]
        threads = (await browser.ask("GET", "/threads")).json()["threads"]

    assert [text_of(answer.events()) for answer in answers] == ["You said Hi"] * 2
    assert threads == []


@in_one_test(
    ("method", "path", "status"),
    [
        ("POST", "/threads/clear", 204),
        ("GET", "/inspector-metadata", 204),
        ("POST", "/annotate", 422),
        ("POST", "/transcribe", 503),
        ("GET", "/cpk-debug-events", 404),
        ("GET", "/agent", 404),
        ("GET", "/agent/default", 404),
        ("POST", "/agent//run", 404),
        ("POST", "/agent/nobody/run", 404),
        ("POST", "/agent/nobody/stop/t", 404),
        ("POST", "/threads/unknown/archive", 404),
        ("PATCH", "/threads/unknown", 400),
        ("DELETE", "/threads/unknown", 404),
    ],
)
async def test_what_is_not_there_says_so(method: str, path: str, status: int) -> None:
    async with browsing() as browser:
        answer = await browser.ask(method, path, run_input() if path.endswith("run") else None)

    assert answer.status == status
    assert (answer.body == b"") if status == 204 else answer.json()["error"]


@in_one_test("operation", ["run", "connect", "suggest", "ask", "stop/t"])
async def test_an_agent_that_is_not_there_has_a_code(operation: str) -> None:
    async with browsing() as browser:
        answers = [await browser.ask("POST", f"/agent/nobody/{operation}", run_input())]
        if operation != "ask":  # which the single endpoint does not have
            name, _, thread = operation.partition("/")
            params = {"agentId": "nobody", **({"threadId": thread} if thread else {})}
            answers.append(await browser.envelope(f"agent/{name}", run_input(), **params))

    for answer in answers:
        assert (answer.status, answer.json()) == (
            404,
            {
                "error": "Agent not found",
                "message": "Agent 'nobody' does not exist",
                "code": "AGENT_NOT_FOUND",
                "known": ["default"],
            },
        )


@in_one_test(
    ("method", "path", "allow"),
    [
        ("GET", "/agent/default/run", "POST"),
        ("GET", "/agent/default/stop/t", "POST"),
        ("POST", "/info", "GET"),
        ("POST", "/threads/t/messages", "GET"),
        ("GET", "/threads/t", "DELETE, PATCH"),
        ("PUT", "/threads/t", "DELETE, PATCH"),
        ("DELETE", "/threads", "GET"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allow: str) -> None:
    async with browsing() as browser:
        answer = await browser.ask(method, path)
        params = {"path": path, "httpMethod": method}
        as_resource = await browser.envelope("resource/request", **params)

    assert (answer.status, answer.headers["allow"]) == (405, allow)
    assert answer.json() == {"error": "Method not allowed"}
    assert as_resource.status == (400 if "agent" in path or path == "/info" else 405)


@in_one_test("path", ["/info", "/threads", "/threads/t/messages"])
async def test_head_is_get_without_the_body(path: str) -> None:
    async with browsing() as browser:
        whole = await browser.ask("GET", path)
        head = await browser.ask("HEAD", path)

    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]


@in_one_test(
    ("envelope", "said"),
    [
        ({"method": ""}, "Missing method field"),
        ({"method": 5}, "Missing method field"),
        ({"method": "agent/dance"}, "Unsupported method 'agent/dance'"),
        ({"method": "agent/run"}, "agentId"),
        ({"method": "agent/run", "params": {"agentId": "default"}}, "Missing request body"),
        ({"method": "agent/run", "params": []}, "agentId"),
        ({"method": "agent/stop", "params": {"agentId": "default"}}, "threadId"),
        ({"method": "resource/request"}, "path"),
        ({"method": "resource/request", "params": {"path": "/threads"}}, "httpMethod"),
        (
            {"method": "resource/request", "params": {"path": "/agent/a/run", "httpMethod": "GET"}},
            "Unsupported resource",
        ),
    ],
)
async def test_an_envelope_that_cannot_be_read_says_what_is_missing(
    envelope: Any, said: str
) -> None:
    async with browsing() as browser:
        answer = await browser.ask("POST", "", envelope)

    assert (answer.status, answer.json()["error"]) == (400, "invalid_request")
    assert said in answer.json()["message"]


async def test_graphql_goes_on_working_at_the_same_url() -> None:
    async with browsing() as browser:
        await browser.run()
        hello = await browser.ask("POST", "", {"query": "{ hello }"}, HEADERS)
        streamed = await browser.ask("POST", "", chat(), HEADERS)
        by_get = await browser.ask("GET", "?query=%7Bhello%7D", None, HEADERS)
        no_json = await browser.ask("POST", "", b"{", HEADERS)

    assert hello.json() == by_get.json() == {"data": {"hello": "Hello World"}}
    assert b"SuccessResponseStatus" in streamed.body
    assert no_json.status == 400


async def test_a_preflight_is_told_what_it_asked_for() -> None:
    headers = {
        "origin": "http://page.example",
        "access-control-request-method": "DELETE",
        "access-control-request-headers": "authorization,content-type,x-mine",
    }
    async with browsing(authenticate=_nobody, settings=memory(cors_origins="*")) as browser:
        answers = [
            await browser.ask("OPTIONS", path, None, headers)
            for path in ("", "/", "/threads/t", "/agent/default/run", "/agent/default/stop/a%2Fb")
        ]

    for answer in answers:
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == "http://page.example"
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert answer.headers["access-control-allow-methods"] == "DELETE"
        assert "authorization" in answer.headers["access-control-allow-headers"]


@in_one_test("credentials", [True, False])
async def test_every_answer_may_be_read_by_a_page_that_is_allowed(credentials: bool) -> None:
    settings = memory(cors_origins=["http://page.example"], cors_credentials=credentials)
    origin = {"origin": "http://page.example"}
    async with browsing(settings=settings) as browser:
        answers = [
            await browser.ask("GET", "/info", None, origin),
            await browser.ask("POST", "/agent/default/run", run_input(), origin),
            await browser.ask("POST", "/agent/default/run", {}, origin),
            await browser.ask("POST", "", {"method": "nothing"}, origin),
            await browser.ask("GET", "/nowhere", None, origin),
            await browser.ask("POST", "/threads/subscribe", None, origin),
        ]

    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == "http://page.example"
        assert ("access-control-allow-credentials" in answer.headers) == credentials


@in_one_test(
    ("path", "kind", "origin"),
    in_sum(
        ["", "/agent/default/run"],
        ["text/plain", "multipart/form-data; boundary=x", ""],
        ["http://evil.example", "null", "http://[", "localhost"],
    ),
)
async def test_a_foreign_page_cannot_begin_a_run(path: str, kind: str, origin: str) -> None:
    model = Parrot()
    settings = memory(cors_origins=["http://page.example"])
    headers = {"origin": origin, "content-type": kind}
    async with browsing(model, settings=settings) as browser:
        answer = await browser.ask("POST", path, run_input(), headers)

    assert (answer.status, answer.json()["error"]) == (403, "forbidden")
    assert "access-control-allow-origin" not in answer.headers
    assert model.requests == []


async def test_a_page_of_our_own_may_send_a_form_though_only_others_are_listed() -> None:
    settings = memory(cors_origins=["http://page.example"])
    headers = {"origin": "http://localhost", "content-type": "multipart/form-data; boundary=x"}
    async with browsing(settings=settings) as browser:
        answer = await browser.ask("POST", "/transcribe", b"--x--", headers)

    assert answer.json()["error"] == "service_not_configured"


async def test_at_the_root_every_operation_is_where_it_belongs() -> None:
    runtime = CopilotRuntime(Parrot(), settings=memory())
    async with serving(runtime.app(path="/", console=False)) as port:
        browser = Browser(port, base="")
        info = await browser.ask("GET", "/info")
        run = await browser.run()
        by_envelope = await browser.ask("POST", "/", {"method": "info"})
        graphql = await browser.ask("POST", "/", {"query": "{ hello }"})
        threads = await browser.ask("GET", "/threads")

    assert info.json() == by_envelope.json()
    assert run.types()[-1] == "RUN_FINISHED"
    assert graphql.json() == {"data": {"hello": "Hello World"}}
    assert [thread["id"] for thread in threads.json()["threads"]] == ["t"]


def _signed_in(request: Request) -> None:
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not token:
        raise HTTPException(401, "Who are you?")
    request.state.user = token


def _who(connection: HTTPConnection) -> str:
    return connection.state.user


def _nobody(connection: HTTPConnection) -> str:
    raise HTTPException(401, "Nobody comes in.")


MOUNTS = ["application", "sub-application", "proxy", "sub-application behind a proxy"]


@in_one_test("where", MOUNTS)
@in_one_test("store", ["memory", "sqlite"])
async def test_mounted_anywhere_dependencies_say_who_owns_a_thread(
    where: str, store: str, tmp_path: Any
) -> None:
    place = "memory" if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    runtime = CopilotRuntime(Parrot(), authenticate=_who, settings=Settings(threads=place))
    inner = FastAPI()
    runtime.mount(inner, PATH, dependencies=[Depends(_signed_in)])
    app, base, options = inner, PATH, {}
    if where.startswith("sub-application"):
        app, base = FastAPI(), f"/sub{PATH}"
        app.mount("/sub", inner)
    if where.endswith("proxy"):
        options = {"root_path": "/outside"}
    async with serving(app, **options) as port:
        ada = Browser(port, base).signed_in("ada")
        eve = Browser(port, base).signed_in("eve")
        id = "a/b"
        info = await ada.ask("GET", "/info")
        run = await ada.run(thread=id)
        graphql = await ada.ask("POST", "", {"query": "{ hello }"})
        messages = await ada.ask("GET", "/threads/a%2Fb/messages")
        others = await eve.ask("GET", "/threads/a%2Fb/messages")
        stop = await ada.ask("POST", "/agent/default/stop/a%2Fb")
        listed = (await ada.ask("GET", "/threads")).json()["threads"]
        nobody = await Browser(port, base).ask("GET", "/threads")

    assert info.status == 200
    assert run.types()[-1] == "RUN_FINISHED"
    assert graphql.json() == {"data": {"hello": "Hello World"}}
    assert len(messages.json()["messages"]) == 2
    assert others.json() == {"messages": []}
    assert stop.json()["message"] == "No active run for thread 'a/b'."
    assert [(thread["id"], thread["createdById"]) for thread in listed] == [(id, "ada")]
    assert nobody.status == 401
