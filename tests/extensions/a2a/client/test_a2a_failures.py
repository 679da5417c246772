"""A2A agents that are wrong, dead, huge or malicious: a clear error, and nothing leaks."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from a2a.server.agent_execution import RequestContext
from a2a.server.tasks import TaskUpdater
from a2a.types import Part

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.extensions.a2a.client import A2aAgent
from tests.adapters.provider import (
    CLOSE,
    HANG,
    HEAD,
    RESET,
    Provider,
    Step,
    piece,
    streamed,
    whole,
)
from tests.extensions.a2a.client.remote import (
    Remote,
    asked,
    hear,
    hear_failure,
    serve_remote,
    text_of,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def card(provider: Provider, **fields: Any) -> dict[str, Any]:
    interface = {"url": f"{provider.url}/rpc", "protocolBinding": "JSONRPC"}
    return {
        "name": "Remote",
        "capabilities": {"streaming": True},
        "supportedInterfaces": [{**interface, "protocolVersion": "1.0"}],
        **fields,
    }


def frame(result: Any) -> bytes:
    body = {"jsonrpc": "2.0", "id": 1, "result": result}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def task(state: str, text: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if text:
        status["message"] = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return {"task": {"id": "task-1", "contextId": "c", "status": status}}


async def fail(provider: Provider, *scripts: Sequence[Step], **fields: Any) -> CopilotError:
    """Return the error of a run whose card is in order and whose answer is the script."""
    provider.answer([whole(card(provider, **fields))], *scripts)
    _, error = await hear_failure(A2aAgent(provider.url, idle_timeout=5))
    return error


@in_one_test(
    ("answer", "kind", "message"),
    [
        (whole(b"<html>"), "ConfigurationFailed", "The agent 'remote' has no card."),
        (whole(b"[]"), "ConfigurationFailed", "The agent 'remote' has no card."),
        (whole(b"[" * 100_000), "ConfigurationFailed", "The agent 'remote' has no card."),
        (whole({"skills": 3}), "ConfigurationFailed", "card of the agent 'remote' cannot be read"),
        (whole({"capabilities": []}), "ConfigurationFailed", "offers no way"),
        (whole({}), "ConfigurationFailed", "offers no way to be asked"),
        (whole(b"{}" + b" " * 1_100_000), "CopilotError", "larger than 1048576 bytes"),
        (whole(b"no", status="401 No"), "AuthenticationFailed", "may not be asked"),
        (whole(b"no", status="404 No"), "NotFound", "is not there"),
        (whole(b"no", status="500 No"), "NetworkError", "is not well (HTTP 500)"),
        (
            whole(b"", status="302 Go", location="http://127.0.0.1:1/card"),
            "ConfigurationFailed",
            "HTTP 302",
        ),
    ],
)
async def test_what_is_no_card_is_an_error_that_says_why(
    provider: Provider, answer: bytes, kind: str, message: str
) -> None:
    provider.answer([answer])
    _, error = await hear_failure(A2aAgent(provider.url))
    assert (error.kind, message in error.message) == (kind, True), error.message


async def test_the_older_place_of_the_card_is_tried_as_well(provider: Provider) -> None:
    provider.answer([whole(b"", status="404 No")], [whole(b"", status="401 No")])
    await hear_failure(A2aAgent(provider.url))
    assert [request.line.split(" ")[1] for request in provider.requests] == [
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
    ]


@in_one_test(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://127.0.0.1:9/rpc",
        "https://127.0.0.1/rpc",
        "http://user@evil.example/",
        "file:///etc/passwd",
        "http://[",
        "",
    ],
)
async def test_a_card_that_leads_to_another_server_is_refused(url: str) -> None:
    async with serve_remote(card_url=url or "-") as remote:
        agent = A2aAgent(remote.url, headers={"authorization": "Bearer secret-of-ours"})
        _, error = await hear_failure(agent)
    assert error.message == "The card of the agent 'remote' leads to another server."
    assert "origins=" in (error.hint or "")
    assert remote.requests == ["/.well-known/agent-card.json"]


async def test_an_origin_that_the_operator_allows_is_contacted() -> None:
    async with serve_remote() as other, serve_remote(card_url=f"{other.url}/rpc") as remote:
        agent = A2aAgent(remote.url, origins=[other.url])
        assert text_of(await hear(agent)) == "Hello there"
    assert (remote.asked, len(other.asked)) == ([], 1)


async def test_an_agent_that_only_speaks_grpc_is_refused_with_its_binding() -> None:
    async with serve_remote(binding="GRPC", card_url="http://127.0.0.1:1") as remote:
        _, error = await hear_failure(A2aAgent(remote.url))
    assert "GRPC" in (error.hint or "")


@in_one_test("url", ["", "agents.example.com", "ftp://example.com", "http://"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigurationFailed, match="is not an address"):
        A2aAgent(url)


async def test_an_unreachable_server_is_an_error(provider: Provider) -> None:
    _, error = await hear_failure(A2aAgent("http://127.0.0.1:9"))
    assert error.message.startswith("The agent 'remote' did not answer")
    assert "127.0.0.1" not in error.message


@in_one_test(
    ("script", "kind"),
    [
        (streamed(b"data: {\n\n"), "IncompleteStream"),
        (streamed(b"data: []\n\n"), "IncompleteStream"),
        (streamed(b"data: 3\n\n"), "IncompleteStream"),
        (streamed(b"data: " + b"[" * 100_000 + b"\n\n"), "IncompleteStream"),
        (streamed(b"data: \xff\xfe\n\n"), "IncompleteStream"),
        (streamed(frame({"task": 3})), "IncompleteStream"),
        (streamed(frame([])), "IncompleteStream"),
        (streamed(frame({})), "IncompleteStream"),
        (streamed(b""), "IncompleteStream"),
        ([whole(b"<html>")], "IncompleteStream"),
        ([whole({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603}})], "AgentFailed"),
        ([whole({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": 3}})], "AgentFailed"),
        ([whole(b"no", status="401 No")], "AuthenticationFailed"),
        ([whole(b"no", status="429 No")], "RateLimited"),
        ([whole(b"no", status="503 No")], "NetworkError"),
        ([whole(b"", status="307 Go", location="/elsewhere")], "ConfigurationFailed"),
        ([HEAD, RESET], "NetworkError"),
        ([HEAD, CLOSE], "NetworkError"),
        ([RESET], "NetworkError"),
        (
            [HEAD, piece(frame(task("WORKING")) * 3), piece(b"data: {" + b"x" * 9_000_000)],
            "Incompl",
        ),
        ([HEAD, piece(b"data: [" + b"1," * 300_000)], "IncompleteStream"),
    ],
)
async def test_an_answer_that_is_none_is_an_error(
    provider: Provider, script: Sequence[Step], kind: str
) -> None:
    error = await fail(provider, script, [whole(b"no", status="500 No")])
    assert error.kind.startswith(kind), (error.kind, error.message, error.hint)
    assert "remote" in error.message


async def test_silence_has_an_end(provider: Provider) -> None:
    provider.answer([whole(card(provider))], [HEAD, piece(frame(task("WORKING"))), HANG])
    _, error = await hear_failure(A2aAgent(provider.url, idle_timeout=0.2))
    assert error.kind == "RunStalled"


async def test_a_stream_that_breaks_off_is_followed_by_questions_for_its_task(
    provider: Provider,
) -> None:
    working, done = task("WORKING", "Well"), task("COMPLETED")
    done["task"]["artifacts"] = [{"artifactId": "a", "parts": [{"text": " done."}]}]
    answers = [{"jsonrpc": "2.0", "id": 1, "result": it["task"]} for it in (working, done)]
    provider.answer(
        [whole(card(provider))],
        [HEAD, piece(frame(working)), RESET],
        [whole(answers[0])],
        [whole(answers[1])],
    )
    assert text_of(await hear(A2aAgent(provider.url))) == "Well done."
    assert [it.body["method"] for it in provider.requests[1:]] == [
        "SendStreamingMessage",
        "GetTask",
        "GetTask",
    ]


async def test_an_error_of_the_agent_tells_no_secret(provider: Provider) -> None:
    body = {"code": -32603, "message": "Bearer secret-of-ours is wrong"}
    error = {"jsonrpc": "2.0", "id": 1, "error": body}
    provider.answer([whole(card(provider))], [whole(error)])
    agent = A2aAgent(provider.url, headers={"authorization": "Bearer secret-of-ours"})
    _, failure = await hear_failure(agent)
    assert "secret-of-ours" not in f"{failure.message} {failure.hint}"


async def test_many_runs_at_once_do_not_disturb_each_other() -> None:
    async def script(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        await task.add_artifact([Part(text=f"{context.get_user_input()}!")], "a")
        await task.complete()

    async with serve_remote(script) as remote:
        agent = A2aAgent(remote.url)
        runs = [hear(agent, asked(str(n), thread_id=str(n))) for n in range(20)]
        answers = await asyncio.gather(*runs)
    assert [*map(text_of, answers)] == [f"{n}!" for n in range(20)]
