"""Calls by the `httpx.AsyncClient` of a host application, where no stream is hot."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from subprocess import run

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from copilot_runtime import CopilotRuntime, LangGraphAgent, Settings
from copilot_runtime.adapters.scripted import ScriptedAdapter, say
from copilot_runtime.adapters.transcription import OpenAITranscriber
from copilot_runtime.api import Caller, RunInput
from copilot_runtime.api.adapter import Transcriber
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.api.run_input import GuardrailRules
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, NetworkError, RunStalled
from copilot_runtime.config.sections import TranscriptionSettings
from copilot_runtime.extensions.frameworks.langserve import langserve_actions
from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
from copilot_runtime.extensions.guardrails.guardrails import HttpGuardrail
from copilot_runtime.extensions.guardrails.validator import KEY_HEADER
from copilot_runtime.extensions.mcp.settings import McpSettings
from copilot_runtime.http.client import Upstream
from tests.adapters.provider import HANG, HEAD, RESET, Provider, Step, piece, serving, whole
from tests.extensions.mcp.client.servers import serve as serve_mcp
from tests.in_one_test import in_one_test
from tests.wire.client import HEADERS, chat, client_of, merge, user
from tests.wire_agui.server import serving as serving_app

pytestmark = pytest.mark.anyio

OK = [whole({"ok": True})]
RULES = {"guardrails": {"inputValidationRules": {"allowList": ["Hi"], "denyList": []}}}
BUSY = [whole(b"busy", status="503 Busy", retry_after_ms="1")]


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    async with serving() as provider:
        yield provider


@pytest.fixture
async def client(anyio_backend: str) -> AsyncGenerator[httpx.AsyncClient, None]:
    async with httpx.AsyncClient(headers={"x-host": "app"}, trust_env=False) as client:
        yield client


async def test_a_request_goes_out_by_the_given_client_which_stays_open(
    provider: Provider, client: httpx.AsyncClient
) -> None:
    provider.answer([whole({"ok": True}, x_mine="1")])
    upstream = Upstream("Acme", http_client=client)

    reply = await upstream.request_json("PUT", f"{provider.url}/x?y=1", {"a": "é"}, {"x-key": "k"})
    await upstream.aclose()

    assert (reply.status, reply.body, reply.headers["X-Mine"]) == (200, {"ok": True}, "1")
    [request] = provider.requests
    assert (request.line, request.body) == ("PUT /x?y=1 HTTP/1.1", {"a": "é"})
    assert (request.headers["x-host"], request.headers["x-key"]) == ("app", "k")
    assert not client.is_closed


@in_one_test("first", [BUSY, [RESET]], ids=["503", "reset"])
async def test_what_may_pass_is_tried_again(
    provider: Provider, client: httpx.AsyncClient, first: Sequence[Step]
) -> None:
    provider.answer(first, OK)
    reply = await Upstream("Acme", http_client=client).request_json("POST", provider.url, {})
    assert (reply.status, len(provider.requests)) == (200, 2)


async def test_a_redirect_is_an_answer(provider: Provider, client: httpx.AsyncClient) -> None:
    client.follow_redirects = True
    provider.answer([whole(b"", status="302 Found", location="/elsewhere")])
    reply = await Upstream("Acme", http_client=client).request_json("GET", provider.url)
    assert (reply.status, len(provider.requests)) == (302, 1)


@in_one_test(
    ("steps", "kind", "message"),
    [
        ([HANG], RunStalled, "Acme API error: No answer for 0.1 seconds."),
        ([HEAD, piece(b"one"), HANG], RunStalled, "Acme API error: No answer for 0.1 seconds."),
        ([HEAD, piece(b"one"), RESET], NetworkError, "Acme API error: Premature close"),
        ([RESET], NetworkError, "The server hung up without an answer."),
    ],
)
async def test_errors_are_those_of_every_service(
    provider: Provider,
    client: httpx.AsyncClient,
    steps: Sequence[Step],
    kind: type[CopilotError],
    message: str,
) -> None:
    provider.answer(steps)
    upstream = Upstream("Acme", idle_timeout=0.1, max_retries=0, http_client=client)
    with pytest.raises(kind, match=message):
        await upstream.request_json("GET", provider.url)


@in_one_test(
    ("url", "kind", "message"),
    [
        ("http://127.0.0.1:9/", NetworkError, "The connection was refused."),
        ("http://nowhere.invalid/", NetworkError, "Its host name was not found."),
        ("ftp://127.0.0.1/", ConfigurationFailed, "is not an address"),
    ],
)
async def test_a_server_that_cannot_be_reached_is_explained(
    client: httpx.AsyncClient, url: str, kind: type[CopilotError], message: str
) -> None:
    upstream = Upstream("Acme", max_retries=0, http_client=client)
    with pytest.raises(kind, match=message):
        await upstream.request_json("GET", url)


async def test_an_answer_without_end_is_refused() -> None:
    async with httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, content=bytes(17 * 2**20)))
    ) as client:
        with pytest.raises(CopilotError, match="larger than 16777216 bytes"):
            await Upstream("Acme", http_client=client).request_json("GET", "http://acme.test/")


async def test_one_who_is_cancelled_leaves_the_client_usable(
    provider: Provider, client: httpx.AsyncClient
) -> None:
    provider.answer([HANG], OK)
    upstream = Upstream("Acme", http_client=client)
    asking = asyncio.create_task(upstream.request_json("GET", provider.url))
    await provider.until_asked(1)
    asking.cancel()
    await asyncio.wait([asking])
    assert (await upstream.request_json("GET", provider.url)).body == {"ok": True}


def test_httpx_is_not_imported_unless_such_a_client_is_given() -> None:
    code = (
        "import sys, copilot_runtime.http.client as c; c.Upstream('x'); "
        "sys.exit('httpx' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0


class Recorder:
    """A transport that gives one answer and keeps the requests."""

    def __init__(self, answer: object) -> None:
        self.requests: list[httpx.Request] = []
        self.answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(200, json=self.answer)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.MockTransport(self), headers={"x-host": "app"}, trust_env=False
        )


def question(**more: object) -> RunInput:
    message = TextMessage(id="m", role="user", content="Hi")
    return RunInput(thread_id="t", run_id="r", messages=[message], **more)  # pyright: ignore[reportArgumentType]


async def test_langserve_asks_by_it() -> None:
    recorder = Recorder({"type": "object", "properties": {}})
    async with recorder.client() as client:
        chain = langserve_actions("http://chains.test/joke", http_client=client)
        [action] = await chain.actions(question())
        await chain.aclose()
        assert not client.is_closed
    [request] = recorder.requests
    assert (action.name, request.headers["x-host"]) == ("joke", "app")


async def test_the_guardrail_asks_by_it() -> None:
    recorder = Recorder({"status": "allowed"})
    run = question(rules=GuardrailRules(allow=["x"], deny=[]), headers={KEY_HEADER.lower(): "key"})

    async def nothing():
        for event in ():
            yield event

    async with recorder.client() as client:
        stage = HttpGuardrail("http://cloud.test", http_client=client)
        assert [event async for event in stage(nothing(), run)] == []
    [request] = recorder.requests
    assert (request.url.path, request.headers["x-host"]) == ("/guardrails/validate", "app")


async def test_transcription_asks_by_it() -> None:
    recorder = Recorder({"text": "Hello"})
    async with recorder.client() as client:
        transcriber = OpenAITranscriber(
            api_key="k", base_url="http://speech.test/v1", http_client=client
        )
        assert await transcriber.transcribe(b"...", "a.webm", "audio/webm") == "Hello"
    [request] = recorder.requests
    assert (request.headers["x-host"], request.headers["authorization"]) == ("app", "Bearer k")


async def test_a_langgraph_server_is_asked_by_it_for_all_but_streams() -> None:
    recorder = Recorder([{"assistant_id": "a", "metadata": {}}])
    async with recorder.client() as client:
        agent = LangGraphAgent("http://graphs.test/api", graph="planner", http_client=client)
        with pytest.raises(CopilotError):
            async for _ in agent.run(question(agent="planner")):
                pass
        await agent.aclose()
        assert not client.is_closed
    first, *others = recorder.requests
    assert (str(first.url), len(others) > 0) == ("http://graphs.test/api/assistants/search", True)
    assert {request.headers["x-host"] for request in recorder.requests} == {"app"}
    assert not [it for it in others if it.url.path.endswith("/stream")]


async def test_a_remote_endpoint_is_asked_by_it_for_all_but_streams(provider: Provider) -> None:
    recorder = Recorder(
        {
            "actions": [{"name": "add", "description": "", "parameters": []}],
            "agents": [{"name": "crew", "description": "", "type": "crewai"}],
        }
    )
    provider.answer([whole(b"{}", status="500 No")])
    async with recorder.client() as client:
        endpoint = RemoteEndpoint(provider.url, http_client=client)
        catalog = await endpoint.fetch_catalog(Caller())
        agent = endpoint.agent(catalog.agents[0])
        with pytest.raises(CopilotError):
            async for _ in agent.run(question(agent="crew")):
                pass
        await endpoint.aclose()
    assert [request.url.path for request in recorder.requests] == ["/info"]
    assert len(provider.requests) == 1


@pytest.fixture
async def services(anyio_backend: str) -> AsyncGenerator[str, None]:
    """Serve a remote endpoint, guardrails and transcription at one address."""

    async def answer(request: Request) -> JSONResponse:
        assert request.headers["x-host"] == "app"
        return JSONResponse({"actions": [], "agents": [], "status": "allowed", "text": "Hello"})

    async with serving_app(
        Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])
    ) as port:
        yield f"http://127.0.0.1:{port}"


async def test_a_runtime_gives_its_client_to_what_it_makes_of_urls_and_settings(
    services: str, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: set[str] = set()

    async def note(request: httpx.Request) -> None:
        paths.add(request.url.path)

    client.event_hooks["request"].append(note)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    async with serve_mcp() as mcp:
        runtime = CopilotRuntime(
            ScriptedAdapter(say("Hi.")),
            remote_endpoints=[services],
            http_client=client,
            settings=Settings(
                threads="memory",
                cloud_base_url=services,
                transcription=TranscriptionSettings(base_url=f"{services}/v1"),
                mcp=McpSettings(servers=(mcp.url,)),
            ),
        )
        async with client_of(runtime) as browser:
            answer = await browser.ask(
                chat(user("Hi"), cloud=RULES), headers={**HEADERS, KEY_HEADER: "key"}
            )
            assert (
                await runtime.get(Transcriber).transcribe(b"...", "a.webm", "audio/webm") == "Hello"
            )

    assert merge(answer.payloads())["generateCopilotResponse"]["status"]["code"] == "Success"
    assert paths == {"/info", "/guardrails/validate", "/v1/audio/transcriptions", "/mcp"}
    assert not client.is_closed
